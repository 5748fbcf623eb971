"""Several answers in one request. Each may start its own run, and the response shows all runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.integration.test_http import RAN, answered, approval, call, chat, clerk, desk, post, who
from tests.support.asgi_server import Sent, events, serving
from tests.support.front_ends import agui_encoder, events_of, turns, ui_encoder
from tests.support_run import Gate, calls, gated
from tests.support_run import call as a_call

import helix.http
from helix import LocalExecutor, MemoryStateStore, ScriptedModel
from helix.core.agents import AnyAgent
from helix.core.handles import Confirmation
from helix.engine.claims.confirm import Answered

BOTH = {
    "content": "One moment.",
    "tool_calls": [*call("refund", order="A")["tool_calls"], *call("refund", order="B")["tool_calls"]],
}
MIXED = {
    "content": "One moment.",
    "tool_calls": [*call("refund", order="A")["tool_calls"], *call("subagent__clerk", message="B")["tool_calls"]],
}
BELOW = call("subagent__clerk", message="both")
FINISH = call("__finish__", text="Refunded.")
SCRIPTS: dict[str, dict[str, Any]] = {
    "own calls": {"desk": [BOTH, "Done."], "clerk": []},
    "a sub-agent's": {"desk": [BELOW, "Done."], "clerk": [BOTH, FINISH]},
}


class OneByOne(LocalExecutor):
    """Applies another request's answer once the run of the previous answer has paused again, as with a fast worker and a
    slow network."""

    async def answer(
        self, agent: AnyAgent, session_id: str, confirmation: Confirmation, *, user_id: str | None = None
    ) -> Answered:
        answered = await super().answer(agent, session_id, confirmation, user_id=user_id)
        for target, place in ((desk if session_id == "chat" else clerk, session_id), (desk, "chat")):
            await (await self.get_handle(target, place)).result(timeout_s=20)
        return answered


@asynccontextmanager
async def client_of(
    scripts: dict[str, Any], executors: type[LocalExecutor] = OneByOne
) -> AsyncIterator[tuple[httpx.AsyncClient, LocalExecutor]]:
    RAN.clear()
    async with executors(MemoryStateStore(), model=ScriptedModel(scripts, by="position")) as executor:
        mounted = helix.http.app(executor, [desk], user=who)
        async with serving(Starlette(routes=[Mount("/agents", mounted)])) as url:
            async with httpx.AsyncClient(base_url=f"{url}/agents", trust_env=False, timeout=20) as client:
                yield client, executor


def pairs(sent: list[Sent]) -> list[tuple[str, Any]]:
    return [(one.id, one.json) for one in sent if one.data != "[DONE]"]


async def rest(client: httpx.AsyncClient, path: str, after: str) -> list[tuple[str, Any]]:
    response = await client.get(path, headers={"x-user": "ann", "last-event-id": after})
    blocks = [block.split("\n") for block in response.text.split("\n\n") if block.startswith("id: ")]
    return [(name.removeprefix("id: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("encoding", ["ai-sdk", "ai-sdk-v6"])
async def test_a_page_has_the_results_of_each_run_that_its_answers_started(encoding: str, script: str) -> None:
    async with client_of(SCRIPTS[script]) as (client, executor):
        path = f"/desk/{encoding}"
        asked = await post(client, path, chat("Refund both"))
        calls = [e["approvalId"] for _, e in pairs(asked) if e["type"] == "tool-approval-request"]
        sent = pairs(await post(client, path, answered(*(approval(name, True) for name in calls))))
        assert RAN == ["A", "B"] and len((await executor.sessions.list_runs("chat")).runs) == 3
        outputs = [e["output"] for _, e in sent if e["type"] == "tool-output-available" and e["toolCallId"] in calls]
        assert outputs == ["A is refunded.", "B is refunded."]
        starts = [e for _, e in [*pairs(asked), *sent] if e["type"] == "start"]
        turn = (await turns(executor, "chat"))[-1]
        whole = await events_of(executor, turn, ui_encoder(turn, 7 if encoding == "ai-sdk" else 6), whole=True)
        assert starts[0] == whole[0][1] and all(start == starts[0] for start in starts), (
            "the live response equals the replay"
        )
        assert sent[-1][1] == {"type": "finish", "finishReason": "stop"}
        for n, (name, _) in enumerate(sent[:-1]):
            assert await rest(client, f"{path}/chat/stream", name) == sent[n + 1 :]


@pytest.mark.parametrize("script", SCRIPTS)
async def test_ag_ui_has_each_run_that_its_answers_started(script: str) -> None:
    async with client_of(SCRIPTS[script]) as (client, executor):
        said = {"id": "u1", "role": "user", "content": "Refund both"}
        asked = await post(client, "/desk/ag-ui", {"threadId": "chat", "runId": "r1", "messages": [said]})
        waiting = [interrupt["id"] for interrupt in asked[-1].json["outcome"]["interrupts"]]
        resume = [{"interruptId": name, "status": "resolved", "payload": {"approved": True}} for name in waiting]
        sent = pairs(
            await post(client, "/desk/ag-ui", {"threadId": "chat", "runId": "r2", "messages": [], "resume": resume})
        )
        assert RAN == ["A", "B"]
        outcomes = [e["outcome"]["type"] for _, e in sent if e["type"] == "RUN_FINISHED"]
        assert outcomes == ["interrupt", "success"], "one run for each answer"
        results = [e["content"] for _, e in sent if e["type"] == "TOOL_CALL_RESULT" and e["toolCallId"] in waiting]
        assert results == ["A is refunded.", "B is refunded."]
        replay = list[Any]()
        for turn in (await turns(executor, "chat"))[1:]:
            found = await events_of(executor, turn, await agui_encoder(executor, turn), whole=False)
            replay += [event for _, event in found]
        assert plain(event for _, event in sent) == plain(replay)


def plain(events: Any) -> list[Any]:
    """Remove the state that a response may begin with."""
    return [event for event in events if event["type"] != "STATE_SNAPSHOT"]


BELOW_ONLY: dict[str, Any] = {
    "chunks": lambda name: {"session_id": "chat", "answers": [{"tool_call_id": name}]},
    "ai-sdk": lambda name: answered(approval(name, True)),
    "ai-sdk-v6": lambda name: answered(approval(name, True)),
    "ag-ui": lambda name: {
        "threadId": "chat",
        "resume": [{"interruptId": name, "status": "resolved", "payload": {"approved": True}}],
    },
}


@pytest.mark.parametrize("encoding", BELOW_ONLY)
async def test_the_response_to_an_answer_has_the_run_that_its_sub_agent_wakes(encoding: str) -> None:
    """The run above the sub-agent waits for another answer. It continues when the sub-agent has ended, and pauses again."""
    gate, path = Gate(), f"/desk/{encoding}"
    clerk_says = [call("refund", order="B"), gated(gate, calls(a_call("__finish__", text="Refunded.")))]
    async with client_of({"desk": [MIXED, "Done."], "clerk": clerk_says}, LocalExecutor) as (client, executor):
        asked = await post(client, "/desk/ai-sdk", chat("Refund both"))
        above, below = sorted(
            (e["approvalId"] for _, e in pairs(asked) if e["type"] == "tool-approval-request"), key=lambda id: "/" in id
        )
        posting = asyncio.create_task(post(client, path, BELOW_ONLY[encoding](below)))
        await gate.reached()
        assert [run.status for run in (await executor.sessions.list_runs("chat")).runs] == ["paused"]
        async with client.stream("GET", f"{path}/chat/stream", headers={"x-user": "ann"}) as joined:
            assert joined.status_code == 200, "a sub-agent is at work"
            gate.open()
            shown = pairs([sent async for sent in events(joined)])
        sent = pairs(await posting)
        assert "Refunded." in json.dumps(sent) and "Refunded." in json.dumps(shown)
        assert ends(sent[-1][1]) and ends(shown[-1][1]) == ends(sent[-1][1])
        assert RAN == ["B"] and len((await executor.sessions.list_runs("chat")).runs) == 2
        if encoding == "ai-sdk":
            replay = await client.get(f"{path}/chat/stream", headers={"x-user": "ann"})
            assert replay.status_code == 200 and "Refunded." in replay.text
        again = pairs(await post(client, path, BELOW_ONLY[encoding](above)))
        assert again and not {name for name, _ in again} & {name for name, _ in sent}, "nothing is sent twice"
        assert RAN == ["B", "A"] and "A is refunded." in json.dumps(again)


def ends(event: Any) -> Any:
    """Return how a response ended, from its last event."""
    return event.get("finishReason") or event.get("status") or event.get("outcome", {}).get("type")


async def test_a_response_has_what_the_sub_agent_asks_next() -> None:
    """The run above pauses once. The sub-agent continues, and asks again."""
    scripts = {"desk": [MIXED, "Done."], "clerk": [call("refund", order="B"), call("refund", order="C"), FINISH]}
    async with client_of(scripts, LocalExecutor) as (client, executor):
        asked = await post(client, "/desk/ai-sdk", chat("Refund all"))
        (below,) = [e["approvalId"] for _, e in pairs(asked) if e.get("approvalId", "").find("/") > 0]
        sent = pairs(await post(client, "/desk/ai-sdk", answered(approval(below, True))))
        (next_one,) = [e["approvalId"] for _, e in sent if e["type"] == "tool-approval-request"]
        assert next_one != below and sent[-1][1] == {"type": "finish", "finishReason": "tool-calls"}
        assert len((await executor.sessions.list_runs("chat")).runs) == 1
        again = pairs(await post(client, "/desk/ai-sdk", answered(approval(next_one, True))))
        assert not {name for name, _ in again} & {name for name, _ in sent}, "nothing is sent twice"
        assert RAN == ["B", "C"]


@pytest.mark.parametrize("encoding", ["ai-sdk", "ai-sdk-v6"])
async def test_answers_that_come_again_after_an_interrupt_are_refused(encoding: str) -> None:
    """A page that saw the interrupted run once more would find its calls answered but without results, and would answer
    again."""
    gate = Gate()
    scripts = {"desk": [call("refund", order="A"), gated(gate, "Done.")], "clerk": []}
    async with client_of(scripts, LocalExecutor) as (client, executor):
        path, body = f"/desk/{encoding}", answered(approval("call_0", True))
        await post(client, path, chat("Refund A"))
        first = asyncio.create_task(post(client, path, body))
        await gate.reached()
        await client.delete(f"{path}/chat/stream", headers={"x-user": "ann"})
        assert (await first)[-2].json["type"] == "finish"
        assert (await executor.sessions.get("chat")).status == "interrupted"
        refused = await client.post(path, json=body, headers={"x-user": "ann"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "call_not_pending")
        assert RAN == ["A"]
