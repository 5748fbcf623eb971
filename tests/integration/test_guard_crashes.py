"""A process dies at each write of a guarded run. No guard judges again what it has a stored verdict about, and each
verdict has its effect exactly once."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.usage_invariants import find_usage_problems
from tests.support_crash import CONFIG, LOG, LONG, Notes, S, Sweep, call, executor, fresh, log, look, model, settle

from helix import Agent, Allow, Ask, Block, Guard, LocalExecutor, Replace, Retry
from helix.adapters.models.scripted import Entry
from helix.core.entries import AssistantRow, CallRow
from helix.core.guards import GuardContext
from helix.ports.model import LLMGenerateInput
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager
from helix.testing.crash import Point
from helix.testing.invariants import read_tree


def line(on: str, step: int, of: str) -> str:
    return f"guard {on} {step} {of}"


async def judge(value: Any, context: GuardContext) -> Any:
    log(line(context.on, context.step, context.call_id))
    text = str(value)
    if context.on == "input":
        return Replace(text.replace("begin", "start"))
    if context.on == "result":
        return Replace(f"judged {text}")
    if context.on == "output":
        return Retry("no numbers") if "42" in text else Replace("fine") if text == "good" else Allow()
    if "secret" in text:
        return Replace({"topic": "public"})
    return Block("never") if "bad" in text else Ask("risky") if "risky" in text else Allow()


def second(request: LLMGenerateInput) -> str:
    return "good" if "Answer again" in str(request.messages[-1].content) else "42"


SCRIPT: list[Entry] = [
    {
        "content": "four at once",
        "tool_calls": [
            call("look", topic="secret"),
            call("look", topic="bad"),
            call("look", topic="risky"),
            call("look", topic="plain"),
        ],
    },
    second,  # a refused answer is not among the assistant's messages, so both answers have this position
]


def guarded(**fields: Any) -> Agent[Any, Any]:
    judging = Guard(name="judge", input=judge, call=judge, result=judge, output=judge, **fields)
    return Agent(
        name="plain",
        system_prompt="Talk.",
        tools=[look],
        state_schema=Notes,
        llm_config=CONFIG,
        guards=[judging],
    )


async def judged(store: StateStore) -> set[str]:
    """Return the lines that must not be logged again: what has a stored verdict."""
    lines: set[str] = set()
    for rows in await read_tree(store, S):
        if rows.session is None:
            continue
        end = rows.session.count
        if rows.session.open is not None:
            end = rows.session.open.base + 1 + rows.session.open.calls
        for entry in rows.history(rows.session.lineage, end):
            if isinstance(entry, AssistantRow | CallRow):
                for verdict in entry.verdicts:
                    of = "" if verdict.on in ("input", "output") else verdict.of
                    lines.add(line(verdict.on, entry.step, of))
    return lines


class Guarded(Sweep):
    async def recover(self, store: StateStore, streams: StreamManager, point: Point) -> None:
        had, mark = await judged(store), len(LOG)
        await super().recover(store, streams, point)
        assert not had & set(LOG[mark:]), (point, had & set(LOG[mark:]))
        (tree,) = await read_tree(store, S)
        assert tree.session is not None
        history = tree.history(tree.session.lineage, tree.session.count)
        answers = [row for row in history if isinstance(row, AssistantRow)]
        assert [row.content for row in answers] == ["four at once", None, "fine"]
        verdicts = [[(v.on, v.verdict) for v in row.verdicts] for row in answers]
        calls = [("call", "replace"), ("call", "block"), ("call", "ask"), ("call", "allow")]
        assert verdicts == [
            [("input", "replace"), ("output", "allow"), *calls],
            [("output", "retry")],
            [("output", "replace")],
        ]
        results = [(row.content, row.success) for row in history if isinstance(row, CallRow)]
        assert [content for content, success in results if success] == [
            "judged public: found",
            "judged risky: found",
            "judged plain: found",
        ]
        assert [success for _, success in results] == [True, False, True, True]


@pytest.mark.parametrize("fields", [{}, pytest.param({"hold": "step"}, marks=pytest.mark.slow)])
async def test_a_guarded_run_survives_a_crash_at_each_write(fields: dict[str, Any]) -> None:
    fresh()
    agent = guarded(**fields)
    sweep = Guarded(agent, model(plain=SCRIPT), rebuys=True)  # the model's log counts the assistant's messages

    async def act(workers: LocalExecutor) -> None:
        await (await workers.execute(agent, "begin", session_id=S)).result()
        await settle(workers, agent, S)

    covered = await sweep.everywhere(act)
    assert len(covered) > 10 and set(sweep.outcomes) == {"completed"}
    assert all(sorted(state["seen"]) == ["plain", "public", "risky"] for state, _ in sweep.states)


class Blocked(Sweep):
    """A message that a guard blocks for the user. Whatever was stored, the run fails, and the model is never asked."""

    async def recover(self, store: StateStore, streams: StreamManager, point: Point) -> None:
        had, mark = await judged(store), len(LOG)
        workers = executor(store, streams, self.scripted, LONG)
        if await workers.sessions.exists(S):
            state = await workers.sessions.get(S)
            again = workers.retry if state.status == "failed" else workers.resume
            result = await (await again(self.agent, S)).result(timeout_s=20)
        else:
            result = await (await workers.execute(self.agent, "bad", session_id=S)).result(timeout_s=20)
        assert (result.status, result.error_code) == ("failed", "guard_blocked"), point
        assert not had & set(LOG[mark:]) and not [one for one in LOG if one.startswith("model start")]
        assert not await find_usage_problems(store, S)
        self.outcomes.append(result.status)


async def test_a_blocked_message_stays_blocked_after_a_crash_at_each_write() -> None:
    fresh()

    async def refuse(value: Any, context: GuardContext) -> Any:
        log(line(context.on, context.step, context.call_id))
        return Block("never", to="user")

    agent = Agent(name="plain", system_prompt="Talk.", llm_config=CONFIG, guards=[Guard(input=refuse)])
    sweep = Blocked(agent, model(plain=["never"]))

    async def act(workers: LocalExecutor) -> None:
        await (await workers.execute(agent, "bad", session_id=S)).result()

    assert len(await sweep.everywhere(act)) > 3 and set(sweep.outcomes) == {"failed"}
