"""A kept checkpoint works with retention as it does without, and a deleted one gives an error that says so.

Hypothesis chooses turns, failures, retries, rewinds, branches and names, and plays them on two stores: one keeps the newest
N checkpoints, the other all. A checkpoint is the same moment in both if the session's version is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.journal import Journal
from tests.support_resume import Log, writer
from tests.support_run import QUICK, agent, call, calls, result_of, told

from helix import LocalExecutor, MemoryStateStore, ScriptedModel
from helix.core.errors import CannotResumeError, CheckpointNotFoundError
from helix.core.registry import AgentRegistry
from helix.core.row_keys import checkpoint_version

S = "ses_kept"
WHO = agent(tools=[writer()], state_schema=Log)
WRITE = calls(call("write", text="x"))
SCRIPTS: dict[str, list[Any]] = {
    "talk": ["said"],
    "write": [WRITE, "written"],
    "write twice": [WRITE, calls(call("write", text="y"), call("write", text="z")), "written"],
    "fail": [WRITE, {"error": "no", "retryable": False}],
}


@dataclass(frozen=True)
class Act:
    """One act. `pick` chooses among the checkpoints that both stores have."""

    verb: str
    script: str
    pick: int


ACTS = st.lists(
    st.builds(
        Act,
        st.sampled_from(
            ["execute", "execute", "rewind", "rewind with a message", "retry", "from start", "name", "branch"]
        ),
        st.sampled_from(sorted(SCRIPTS)),
        st.integers(0, 99),
    ),
    min_size=1,
    max_size=8,
)


class Side:
    def __init__(self, keep: int | None) -> None:
        self.store, self.keep = MemoryStateStore(), keep
        self.journal = Journal(pruned=keep is not None)

    def executor(self, script: str) -> LocalExecutor:
        options = {"model": ScriptedModel(SCRIPTS[script]), "registry": AgentRegistry()}
        return LocalExecutor(self.store, settings=replace(QUICK, keep_checkpoints=self.keep), **options)  # type: ignore[arg-type]

    async def points(self) -> dict[int, str]:
        """Return ids of the checkpoints by version, newest first."""
        sessions = self.executor("talk").sessions
        rows = (await sessions.list_checkpoints(S, limit=1000)).items if await sessions.exists(S) else []
        return {checkpoint_version(S, row.id): row.id for row in rows}

    async def seen(self, ident: str) -> Any:
        sessions = self.executor("talk").sessions
        point = await sessions.get_checkpoint(S, ident)
        messages = await sessions.get_checkpoint_messages(S, ident)
        return point.state, point.count, point.step, point.status, told(messages)

    async def act(self, act: Act, version: int) -> Any:
        """Return the result that the caller sees."""
        executor, ident = self.executor(act.script), (await self.points()).get(version, "")
        match act.verb:
            case "execute":
                handle = await executor.execute(WHO, "go", session_id=S)
            case "rewind":
                handle = await executor.resume(WHO, S, checkpoint_id=ident)
            case "rewind with a message":
                handle = await executor.resume(WHO, S, checkpoint_id=ident, message="again")
            case "retry" | "from start":
                try:
                    mode: Any = "from_start" if act.verb == "from start" else "from_checkpoint"
                    handle = await executor.retry(WHO, S, mode=mode)
                except CannotResumeError as error:
                    return error.code
            case "name":
                return await executor.name_checkpoint(S, ident, "dear")
            case _:
                copy = await executor.branch(S, ident)
                messages = (await executor.sessions.get_messages(copy.session_id)).messages
                return copy.custom_state, told(messages)
        result = await result_of(handle)
        state = await executor.sessions.get(S)
        return result.status, result.text, result.error, result.steps, state.custom_state, state.message_count


@pytest.mark.slow
@settings(max_examples=15)
@given(keep=st.integers(1, 3), acts=ACTS)
async def test_retention_changes_nothing_but_what_is_there(keep: int, acts: list[Act]) -> None:
    kept, whole = Side(keep), Side(None)
    named, once = set[int](), dict[int, str]()
    for act in [Act("execute", "write", 0), *acts]:
        points = list(await kept.points())
        version = points[act.pick % len(points)] if points else 0
        assert await kept.act(act, version) == await whole.act(act, version)
        named |= {version} if act.verb == "name" else set()
        there, every = await kept.points(), await whole.points()
        once |= there
        assert set(list(every)[:keep]) | named <= set(there) <= set(every)
        for number, ident in every.items():
            if number in there:
                assert await kept.seen(there[number]) == await whole.seen(ident)
        for side in (kept, whole):
            streams = side.executor("talk").streams
            await side.journal.check(side.store, streams, S, at_rest=True)
    for number in set(once) - set(there):
        with pytest.raises(CheckpointNotFoundError):
            await kept.executor("talk").resume(WHO, S, checkpoint_id=once[number])
    # a checkpoint older than the newest N stays for a reason: its name, or a kept checkpoint needs its state
    executor = kept.executor("talk")
    rows = (await executor.sessions.list_checkpoints(S, limit=1000)).items
    run = await executor.sessions.get_current_run(S)
    reasons = {row.state_at for row in rows[:keep] + [row for row in rows if row.name]} | {run.start_state_at}
    assert all(row.name or row.id in reasons for row in rows[keep:])
