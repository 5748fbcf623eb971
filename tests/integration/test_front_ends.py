"""The readers of the AI SDK and AG-UI, on every run of the parity and crash suites."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.parity_scenarios import SCENARIOS
from tests.e2e.parity_stage import stage_of
from tests.integration.test_http import client_of
from tests.support.front_ends import (
    JS,
    agui_cuts,
    loaded_answers,
    readers,
    sent,
    stored_conversation,
    ui_fold,
    whole_fold,
)
from tests.support.node_process import NodeProcess
from tests.support_crash import GATED_SCRIPT, LEAD, LONG, S, Sweep, call, executor, finish, fresh, lead, model, settle

from helix import LocalExecutor
from helix.adapters.models.scripted import Entry
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager
from helix.runtime.executor import Executor
from helix.stream.ui_messages import Version
from helix.testing.crash import Point

pytestmark = pytest.mark.slow
LOADED_OTHERWISE = {
    "travel_in_time",  # without the steps that a rewind abandoned
    "branch_and_clone_branch",  # the stream of another session comes from the history
    "branch_and_clone_clone",
    "an_interrupt_whose_text_is_kept_branch",
    "a_message_instead_of_an_answer",  # with the end of the call that the next message closed
}
VERSIONS: dict[Version, str] = {7: "ui", 6: "ui6"}


@pytest.fixture(scope="session")
def front_ends() -> Iterator[NodeProcess]:
    with readers() as found:
        yield found


@pytest.mark.parametrize("name", SCENARIOS)
async def test_every_scenario(
    name: str, tmp_path: Path, request: pytest.FixtureRequest, front_ends: NodeProcess
) -> None:
    async with stage_of("local", tmp_path, request, f"ses_{name}") as stage:
        await SCENARIOS[name](stage)
        for session_id in (stage.session, *stage.sessions):
            await stage.quiet(session_id)
            await agrees(front_ends, stage.executor, session_id)


CUT = [
    "an_approval_in_a_sub_agent",
    "an_interrupt_in_the_answer",
    "a_model_call_that_is_repeated",
    "two_approvals_one_after_the_other",
    "a_failure_and_a_retry",
]


@pytest.mark.parametrize("name", CUT)
async def test_ag_ui_connects_after_every_event(
    name: str, tmp_path: Path, request: pytest.FixtureRequest, front_ends: NodeProcess
) -> None:
    async with stage_of("local", tmp_path, request, "ses") as stage:
        await SCENARIOS[name](stage)
        await stage.quiet("ses")
        cuts = await agui_cuts(stage.executor, "ses")
    found = await front_ends.ask({"cuts": [*cuts]})
    assert (found["problems"], found["warnings"]) == ([], [])
    assert found["count"] == sum(len(run["cuts"]) for run in cuts) > 10
    assert all(rest[0]["type"] == "RUN_STARTED" for run in cuts for rest in run["cuts"] if rest)


async def agrees(front_ends: NodeProcess, executor: Executor, session_id: str, *, exact: bool = True) -> None:
    """Check that nothing is refused, that a replayed page equals a live page, and that AG-UI ends with the content of the
    rows."""
    given = await sent(executor, session_id)
    found = await front_ends.ask(given)
    assert found["warnings"] == []
    assert found["log"] == await whole_fold(executor, session_id), "the TypeScript client folds the log as Python does"
    for version, sent_as in VERSIONS.items():
        for message, given_as in zip(found[sent_as], given[sent_as], strict=True):
            assert message["problems"] == []
            assert shown(message["message"]) == shown(message["replayed"])
            assert ui_fold(given_as["replay"]) == message["replayed"], "the fold of Python is that of the SDK"
        replayed = [message["replayed"] for message in found[sent_as] if message["replayed"]]
        for loaded in await loaded_answers(executor, session_id, version):
            same = [one for one in replayed if one["id"] == loaded["id"]]
            assert [loaded] == same or session_id.partition("_")[2] in LOADED_OTHERWISE
    assert found["agui"]["problems"] == []
    state = await executor.sessions.get(session_id)
    assert found["agui"]["state"] == state.custom_state or not given["agui"]["runs"]
    if state.status == "completed":
        runs = {run["run_id"] for run in given["log"]}  # the text of an interrupted run has its id at the end
        found["agui"]["messages"] = [m for m in found["agui"]["messages"] if m["id"].rpartition("/")[2] not in runs]
        seen = [m for m in found["agui"]["messages"] if m["role"] != "reasoning" and "subagentRunId" not in m]
        stored = await stored_conversation(executor, session_id)
        assert len({message["id"] for message in stored}) == len(stored)
        assert plain(seen, exact) == plain(stored, exact)


def shown(message: Any) -> Any:
    """Remove what a page adds to a part by itself. In version 6 the page itself records who approved a call."""
    if message is None:
        return None
    parts = []
    for part in message["parts"]:
        if "toolCallId" in part:
            part = {name: value for name, value in part.items() if name != "approval"}
            if part["state"] == "output-denied":
                part["state"] = "output-error"
            part.pop("errorText", None)
        parts.append(part)
    return {"id": message["id"], "metadata": message["metadata"], "parts": parts}


def plain(messages: list[Any], exact: bool) -> list[Any]:
    """Sort the calls and results of one step, since the stream has them in order of arrival. `exact` keeps their arguments,
    which are missing if a process died between the claim of a call and its first chunk."""
    for message in messages:
        message["toolCalls"] = sorted(message.get("toolCalls", []), key=lambda made: str(made["id"]))
        for made in message["toolCalls"] if not exact else []:
            del made["function"]["arguments"]
    found = [{name: value for name, value in message.items() if value not in ("", [])} for message in messages]
    steps = [sorted(group, key=lambda m: m["id"]) if tool else list(group) for tool, group in groupby(found, is_result)]
    return [message for step in steps for message in step]


def is_result(message: Any) -> bool:
    return bool(message["role"] == "tool")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("script", ["tools and a sub-agent", "an approval", "a sub-agent's approval"])
async def test_every_crash(script: str, front_ends: NodeProcess) -> None:
    """Each run crashes at each store and stream call, and another worker recovers it."""
    fresh()
    answers: dict[str, list[Entry]] = {
        "tools and a sub-agent": list(LEAD),
        "an approval": list(GATED_SCRIPT),
        "a sub-agent's approval": [{"tool_calls": [call("subagent__careful", message="ask")]}, finish("done", "x")],
    }
    sweep = Read(front_ends, lead, model(lead=answers[script]))

    async def act(workers: LocalExecutor) -> None:
        await (await workers.execute(lead, "begin", session_id=S)).result()
        await settle(workers, lead, S)

    assert 10 < len(await sweep.everywhere(act)) <= sweep.read


class Read(Sweep):
    """A sweep whose sessions are also read by the front ends."""

    def __init__(self, front_ends: NodeProcess, *given: Any) -> None:
        super().__init__(*given)
        self.front_ends, self.read = front_ends, 0

    async def recover(self, store: StateStore, streams: StreamManager, point: Point) -> None:
        await super().recover(store, streams, point)
        await agrees(self.front_ends, executor(store, streams, self.scripted, LONG), S, exact=False)
        self.read += 1


async def test_the_clients_of_the_front_ends_ask_approve_and_go_on(front_ends: NodeProcess) -> None:
    """`Chat` with `DefaultChatTransport` (the core of `useChat`) and `HttpAgent` are both unmodified."""
    ask = {"content": "One moment.", "tool_calls": [call("refund", order="o")]}
    async with client_of(ask, "Done.", user=None) as (client, served):
        node = await asyncio.create_subprocess_exec(
            *(JS / "node_modules/.bin/node", JS / "talk.mjs", str(client.base_url).rstrip("/")),
            stdout=asyncio.subprocess.PIPE,
        )
        found = json.loads((await node.communicate())[0])
        assert found["chat"]["errors"] == []
        said, told = found["chat"]["messages"]
        assert found["chat"]["late"] == [told], "a page that comes after the end is shown the newest message"
        assert [part["type"] for part in told["parts"]] == ["step-start", "text", "dynamic-tool", "step-start", "text"]
        assert (told["parts"][2]["state"], told["parts"][4]["text"]) == ("output-available", "Done.")
        assert len((await served.sessions.list_runs("chat")).runs) == 2
        assert [interrupt["toolCallId"] for interrupt in found["agent"]["waiting"]] == ["call_0"]
        roles = [message["role"] for message in found["agent"]["messages"]]
        assert roles == ["user", "assistant", "tool", "assistant"]
        stored = await stored_conversation(served, "thread")
        assert plain(found["agent"]["messages"], True) == plain(stored, True)
        stored = await stored_conversation(served, "edited")
        assert plain(found["edited"]["messages"], True) == plain(stored, True)
        assert (len(stored), stored[0]["id"], stored[0]["content"]) == (4, "u1", "Refund o3")
        assert said["id"] == (await stored_conversation(served, "chat"))[0]["id"]
