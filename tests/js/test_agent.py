"""`HelixAgent`, the `AbstractAgent` of AG-UI, on a real WebSocket server. Its base class verifies the order of events."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from tests.js.test_client import QUICK
from tests.support_gateway import executor_of, served
from tests.support_run import Gate, Text, a_tool, agent, call, calls, gated

pytestmark = pytest.mark.slow
THREAD = "thread"


class Counted(BaseModel):
    count: int = 0


def counting(args: Any, ctx: Any) -> str:
    def change(state: Counted) -> None:
        state.count += 1

    ctx.update_state(change)
    return f"counted {args.text}"


def counter(**fields: Any) -> Any:
    tool = a_tool("count", counting, input_schema=Text, **fields)
    return agent("helper", tools=[tool], state_schema=Counted)


async def front(typescript: Any, url: str, *steps: list[Any], agent: str = "helper") -> dict[str, Any]:
    found: dict[str, Any] = await typescript(
        "agent", url=url, agent=agent, threadId=THREAD, steps=steps, settings=QUICK
    )
    assert "error" not in found, found
    return found


def said(found: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(message["role"], message.get("content")) for message in found["messages"]]


async def test_a_conversation_and_its_state(typescript: Any) -> None:
    executor = executor_of([calls(call("count", text="one"), content="Let me see."), "One.", "Two."], counter())
    async with served(executor) as (gateway, _):
        found = await front(typescript, gateway.url, ["say", "Count"], ["say", "More"])
        assert found["problems"] == []
        assert said(found) == [
            ("user", "Count"),
            ("assistant", "Let me see."),
            ("tool", "counted one"),
            ("assistant", "One."),
            ("user", "More"),
            ("assistant", "Two."),
        ]
        assert found["state"] == {"count": 1}
        assert found["events"].count("RUN_STARTED") == found["events"].count("RUN_FINISHED") == 2


async def test_a_call_that_ends_elsewhere_is_no_interrupt(typescript: Any) -> None:
    """A user may write while another system works. An agent that connects again sees the end."""
    tokens: list[str] = []

    async def ship(args: Any, ctx: Any) -> None:
        tokens.append(await ctx.later())

    who = agent("helper", tools=[a_tool("ship", ship, later=True)])
    async with served(executor_of([calls(call("ship")), "Done."], who)) as (gateway, client):
        found = await front(typescript, gateway.url, ["say", "Ship"])
        assert (found["problems"], found["pendingInterrupts"]) == ([], [])
        await client.complete_call(tokens[0], "shipped")
        assert (await (await client.handle(THREAD)).result(20)).text == "Done."
        found = await front(typescript, gateway.url, ["connect", None])
        assert said(found)[-2:] == [("tool", "shipped"), ("assistant", "Done.")]


async def test_interrupts_are_answered_together(typescript: Any) -> None:
    asked = calls(call("count", text="A"), call("count", text="B"))
    script = [asked, "Both.", asked, "Again."]
    async with served(executor_of(script, counter(require_approval=True))) as (gateway, _):
        waiting = await front(typescript, gateway.url, ["say", "Count"])
        ids = [interrupt["id"] for interrupt in waiting["pendingInterrupts"]]
        assert len(ids) == 2 and waiting["pendingInterrupts"][0]["reason"] == "helix:approval"
        payloads: list[Any] = [{"approved": True, "arguments": {"text": "a"}}, {"approved": False, "reason": "no"}]
        both = [
            {"interruptId": id, "status": "resolved", "payload": payload}
            for id, payload in zip(ids, payloads, strict=True)
        ]
        found = await front(typescript, gateway.url, ["connect", None], ["resume", both])
        assert (found["problems"], found["pendingInterrupts"]) == ([], [])
        results = [content for role, content in said(found) if role == "tool"]
        assert results[0] == "counted a" and "no" in results[1]
        assert said(found)[-1] == ("assistant", "Both.") and found["state"] == {"count": 1}


async def test_a_front_end_that_joins_has_the_conversation(typescript: Any) -> None:
    executor = executor_of(
        [calls(call("count", text="one")), "One.", calls(call("count", text="two")), "Two."], counter()
    )
    async with served(executor) as (gateway, _):
        there = await front(typescript, gateway.url, ["say", "Count"], ["say", "More"])
        joined = await front(typescript, gateway.url, ["connect", None])
        assert (joined["problems"], said(joined), joined["state"]) == ([], said(there), {"count": 2})
        again = await front(typescript, gateway.url, ["connect", None], ["connect", None])
        assert (again["problems"], said(again)) == ([], said(there))


async def test_a_front_end_connects_from_every_moment_that_was_stored(typescript: Any) -> None:
    """Nothing is missing or doubled, in the middle of a run as after other runs. The base class verifies the order."""
    script = [calls(call("count", text="one"), content="Let me see."), "One.", calls(call("count", text="two")), "Two."]
    async with served(executor_of(script, counter())) as (gateway, _):
        given: dict[str, Any] = {"agent": "helper", "threadId": THREAD, "says": ["Count", "More"], "settings": QUICK}
        found = await typescript("reconnect", url=gateway.url, **given)
        assert found["problems"] == []
        positions = [tuple(map(int, position.split("."))) for position in found["positions"]]
        assert positions == sorted(positions) and len(set(positions)) > 15
        assert found["events"][-1] == [], "it has all"
        assert all(seen[0] == "RUN_STARTED" for seen in found["events"] if seen)
        assert any("MESSAGES_SNAPSHOT" not in seen and "TEXT_MESSAGE_CONTENT" in seen for seen in found["events"])
        assert any(seen[1] == "TEXT_MESSAGE_START" and "TEXT_MESSAGE_END" in seen for seen in found["events"] if seen)


async def test_a_position_that_is_none_is_refused(typescript: Any) -> None:
    async with served(executor_of([])) as (gateway, _):
        found = await typescript("agent", url=gateway.url, agent="helper", threadId=THREAD, steps=[], position="soon")
        assert found["error"]["code"] == "invalid_input"


async def test_abort_run_interrupts_it(typescript: Any) -> None:
    gate = Gate()
    async with served(executor_of([gated(gate, "Never said."), "Again."])) as (gateway, client):
        found = await front(typescript, gateway.url, ["abort soon", None], ["say", "Hi"])
        assert found["problems"] == []
        assert (await (await client.handle(THREAD)).result(10)).status == "interrupted"
        gate.open()


async def test_nothing_is_connected_where_nothing_was_said(typescript: Any) -> None:
    async with served(executor_of([])) as (gateway, _):
        found = await front(typescript, gateway.url, ["connect", None])
        assert found["problems"] == ["session_not_found"]


async def test_an_edited_message_is_found_by_its_id(typescript: Any) -> None:
    script = [calls(call("count", text="one")), "One.", "Two.", "Other.", "Again."]
    async with served(executor_of(script, counter())) as (gateway, client):
        steps: list[list[Any]] = [
            ["say", "Count"],
            ["say", "More"],
            ["edit", ["Count", "Do not"]],
            ["edit", ["Do not", "Count"]],
        ]
        found = await front(typescript, gateway.url, *steps)
        assert (found["problems"], said(found)) == ([], [("user", "Count"), ("assistant", "Again.")])
        assert found["state"] == {"count": 0}
        stored: dict[str, Any] = await client.get_messages(THREAD)
        assert [message["content"] for message in stored["messages"]] == ["Count", "Again."]


async def test_what_is_not_supported_is_refused_and_the_own_state_comes_back(typescript: Any) -> None:
    tools = [{"name": "t", "description": "", "parameters": {}}]
    extras: list[Any] = [
        {"tools": tools},
        {"context": [{"description": "d", "value": "v"}]},
        {"forwardedProps": {"a": 1}},
    ]
    script = [calls(call("count", text="one")), "One.", "Two."]
    async with served(executor_of(script, counter())) as (gateway, _):
        steps = [
            ["say", "Count"],
            *(["run with", extra] for extra in extras),
            ["say", "More"],
            ["set state", {"count": 7}],
        ]
        found = await front(typescript, gateway.url, *steps)
        assert found["problems"] == ["invalid_input"] * 4
        assert said(found)[-1] == ("assistant", "Two.")
