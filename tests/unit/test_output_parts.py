"""A structured output on its way from the provider to pages: the pieces of adapters, and the parts of encoders."""

from __future__ import annotations

from typing import Any

from helix.adapters.models.answer import PartialAnswer
from helix.adapters.models.wire import CallPart, Text
from helix.core import chunks as c
from helix.core.wire import StreamMessage
from helix.ports.model import LLMStreamCallbacks
from helix.stream.agui import AgUiEncoder
from helix.stream.ui_messages import UIMessageEncoder

STEP: dict[str, Any] = {"step": 1, "attempt": 1}
ENVELOPE = {"session_id": "ses", "run_id": "run", "agent_id": "ses", "agent_type": "boss"}


def messages(*chunks: c.StreamChunk) -> list[StreamMessage]:
    about = {"stream_id": "ses", "session_id": "ses", "run_id": "run", "kind": "chunk"}
    return [
        StreamMessage(**about, sequence=n, chunk=one.model_copy(update=ENVELOPE).model_dump(mode="json"))
        for n, one in enumerate(chunks, 1)
    ]


def piece(delta: str, attempt: int = 1) -> c.OutputDeltaChunk:
    return c.OutputDeltaChunk(delta=delta, step=1, attempt=attempt)


async def test_an_adapter_streams_the_arguments_of_the_first_finish() -> None:
    heard: list[str] = []
    answer = PartialAnswer(LLMStreamCallbacks(on_output_delta=heard.append), {})
    for part in (
        *(Text("I am done."), CallPart(0, "call_1", "look", '{"at":1}')),
        *(CallPart(1, "call_2", "", '{"te'), CallPart(1, "", "__finish__", 'xt":'), CallPart(1, "", "", '"tea"}')),
        *(CallPart(2, "call_3", "__finish__", '{"text":"soup"}'), CallPart(1, "", "", "")),
    ):
        await answer.feed([part])
    assert heard == ['{"text":', '"tea"}'], "a name may come after the first piece; a second call is not the output"


def test_a_page_of_the_ai_sdk_shows_the_output_growing() -> None:
    encoder = UIMessageEncoder("ses")
    stream = messages(
        c.TextDeltaChunk(delta="Here.", **STEP),
        piece('{"title":'),
        piece('"Te'),
        piece('a","n":1}'),
        c.StepDiscardedChunk(reason="lost", **STEP),
        piece('{"title":"Soup"}', attempt=2),
        c.StepCommittedChunk(step=1, attempt=2),
        c.OutputChunk(output={"title": "Soup"}),
    )
    parts = [part for message in stream for part in encoder.feed(message)]
    outputs = [part["data"] if part["type"] == "data-output" else part["type"] for part in parts]
    assert outputs == [
        *("start", "start-step", "text-start", "text-delta", "text-end"),
        *({}, {"title": "Te"}, {"title": "Tea", "n": 1}),
        *("reset-step", {"title": "Soup"}, {"title": "Soup"}),
    ]
    assert {part["id"] for part in parts if part["type"] == "data-output"} == {"run"}, "the page replaces the part"


def test_a_page_of_the_ai_sdk_gets_no_output_of_a_sub_agent() -> None:
    below = piece("{}").model_copy(update={**ENVELOPE, "session_id": "sub", "agent_id": "sub", "run_id": "run2"})
    about = {"stream_id": "ses", "session_id": "sub", "run_id": "run2", "kind": "chunk", "sequence": 1}
    assert UIMessageEncoder("ses").feed(StreamMessage(**about, chunk=below.model_dump(mode="json"))) == []


def test_ag_ui_gets_the_pieces_with_their_attempt() -> None:
    encoder = AgUiEncoder("ses")
    events = [event for message in messages(piece('{"n":'), piece("1}", 2)) for event in encoder.feed(message)]
    assert [event["value"] for event in events if event.get("name") == "helix.output_delta"] == [
        {"delta": '{"n":', "step": 1, "attempt": 1},
        {"delta": "1}", "step": 1, "attempt": 2},
    ]
