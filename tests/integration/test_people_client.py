"""What people do with agents, with the Python client: the scenes of the pages in tests/js/test_doors.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio
from tests.support.people_desk import (
    APPROVAL,
    DONE,
    ELSEWHERE,
    GATES,
    GUARD,
    HANDOFF,
    HOTEL,
    KEY,
    OUTPUT,
    PAGE,
    QUESTION,
    SEAT,
    STEER,
    STOP,
    STORY,
    TOKENS,
    TRIP,
    people_desk_served,
)
from tests.support_gateway import BRISK

from helix.client import HelixClient

PATIENCE_S = 20.0
SHOW_MAP = {
    "name": "show_map",
    "description": "Shows a place on the user's map.",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
}


@pytest_asyncio.fixture
async def client(tmp_path: Path) -> AsyncIterator[HelixClient]:
    async with people_desk_served(tmp_path) as desk, HelixClient(desk.socket, settings=BRISK) as made:
        yield made


async def messages(client: HelixClient, session: str, role: str) -> list[str]:
    found: Any = (await client.get_messages(session))["messages"]
    return [message["content"] for message in found if message["role"] == role]


async def test_a_message_steers_a_run_and_another_one_is_taken_back(client: HelixClient) -> None:
    handle = await client.run("desk", STEER, session_id="s")
    await GATES["s"].reached()
    seat = await client.run("desk", SEAT, session_id="s", when_running="steer")
    hotel = await client.run("desk", HOTEL, session_id="s", when_running="queue")
    inbox = (await client.get_session("s")).inbox
    assert [(one.id, one.content) for one in inbox] == [(seat.queued_id, SEAT), (hotel.queued_id, HOTEL)]
    assert await client.withdraw("s", str(hotel.queued_id)) == "withdrawn"
    GATES["s"].open()
    assert (await handle.result(PATIENCE_S)).text == "Flight 12 has a window seat."
    assert await messages(client, "s", "user") == [STEER, SEAT]


async def test_a_choice_and_a_form_are_answered(client: HelixClient) -> None:
    handle = await client.run("desk", QUESTION)
    (asked,) = (await handle.result(PATIENCE_S)).pending
    assert [(one.text, one.answer_schema.get("enum")) for one in asked.questions] == [
        ("Window or aisle?", ["window", "aisle"]),
        ("Who flies?", None),
    ]
    answers: list[Any] = ["window", {"name": "Ada", "age": 36}]
    answered = await client.answer(handle.session_id, asked.call_id, data=answers, round=asked.round)
    assert (await answered.result(PATIENCE_S)).text == "The flight is booked."
    assert DONE == ["booked window for Ada, 36"]


async def test_an_approval(client: HelixClient) -> None:
    handle = await client.run("desk", APPROVAL)
    (asked,) = (await handle.result(PATIENCE_S)).pending
    assert (asked.kind, asked.arguments, DONE) == ("approval", {"order": "A7", "euros": 84.5}, [])
    approved = await client.answer(handle.session_id, asked.call_id)
    assert (await approved.result(PATIENCE_S)).text == "It is refunded." and DONE == ["refunded A7"]


async def test_a_tool_of_the_client(client: HelixClient) -> None:
    handle = await client.run("desk", PAGE, tools=[SHOW_MAP])
    (asked,) = (await handle.result(PATIENCE_S)).pending
    assert (asked.tool_name, asked.arguments) == ("show_map", {"place": "Oslo"})
    answered = await client.answer(handle.session_id, asked.call_id, data="Oslo is shown")
    assert (await answered.result(PATIENCE_S)).text == "There it is, on your map."


async def test_a_call_that_ends_elsewhere(client: HelixClient) -> None:
    handle = await client.run("desk", ELSEWHERE, session_id="s")
    assert [one.kind for one in (await handle.result(PATIENCE_S)).pending] == ["elsewhere"]
    await client.complete_call(TOKENS["s"], {"parcel": 4711})
    ended = await (await client.handle("s")).result(PATIENCE_S)
    assert ended.text == "A7 is on its way."


async def test_another_agent_takes_over(client: HelixClient) -> None:
    handle = await client.run("desk", HANDOFF)
    speakers = {chunk.agent_type: None async for chunk in await handle.stream() if chunk.type == "text_delta"}
    result = await handle.result(PATIENCE_S)
    assert (list(speakers), result.agent, result.text) == (["billing"], "billing", "You paid 84.50 euros.")


async def test_guards_block_a_call_and_an_answer(client: HelixClient) -> None:
    handle = await client.run("desk", GUARD)
    chunks: list[Any] = [chunk async for chunk in await handle.stream()]
    assert any(chunk.type == "step_discarded" for chunk in chunks), "what was streamed is taken back"
    (refused,) = [chunk for chunk in chunks if chunk.type == "tool_end"]
    assert str(refused.error).startswith("guard 'recipients' blocked the call")
    assert (await handle.result(PATIENCE_S)).text == "I may not tell it to anyone."
    assert DONE == [] and KEY not in str(await client.get_messages(handle.session_id))


async def test_structured_output_grows(client: HelixClient) -> None:
    handle = await client.run("desk", OUTPUT)
    outputs = [output async for output in await handle.partial_outputs()]
    counts = [len(output.get("stops", [])) for output in outputs]
    assert counts == sorted(counts) and {1, 2, 3, 4} <= {*counts} and outputs[-1] == TRIP


async def test_a_stopped_answer_is_kept(client: HelixClient) -> None:
    handle = await client.run("desk", STOP)
    async for chunk in await handle.stream():
        if chunk.type == "text_delta":
            break
    assert await handle.interrupt(wait=True)
    kept = (await messages(client, handle.session_id, "assistant"))[-1]
    assert kept and STORY.startswith(kept) and len(kept) < len(STORY)
