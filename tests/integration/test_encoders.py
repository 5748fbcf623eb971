"""The encoders are folds of the log. A full replay, a live reader and a reader that resumes anywhere receive the same."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.parity_scenarios import SCENARIOS
from tests.e2e.parity_stage import stage_of
from tests.support.front_ends import agui_encoder, events_of, turns, ui_encoder, whole_log

from helix.core.json import JsonObject
from helix.core.wire import StreamMessage
from helix.http.responses import ALL, Plain, Position
from helix.stream.agui import AgUiEncoder
from helix.stream.discarded import discarded_text
from helix.stream.ui_fold import UIMessageFold
from helix.stream.ui_messages import UIMessageEncoder, Version

NAMES = [
    "an_approval_in_a_sub_agent",
    "an_interrupt_in_the_answer",
    "a_model_call_that_is_repeated",
    "two_approvals_one_after_the_other",
    "travel_in_time",
    "a_failure_and_a_retry",
]


@pytest.mark.parametrize("encoding", ["chunks", "ai-sdk", "ai-sdk-v6", "ag-ui"])
@pytest.mark.parametrize("name", NAMES)
async def test_a_reader_that_comes_back_anywhere_misses_nothing_and_has_nothing_twice(
    name: str, encoding: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with stage_of("local", tmp_path, request, "ses") as stage:
        await SCENARIOS[name](stage)
        await stage.quiet("ses")
        executor = stage.executor
        single = await turns(executor, "ses")
        several = [replace(turn, since=turn.first.turn + 1) for turn in single if turn.run.turn > turn.first.turn + 1]
        assert several or name != "two_approvals_one_after_the_other"
        for turn in [*single, *several]:

            async def made(turn: Any = turn) -> Any:
                if encoding == "ag-ui":
                    return await agui_encoder(executor, turn)
                return Plain() if encoding == "chunks" else ui_encoder(turn, 7 if encoding == "ai-sdk" else 6)

            full = await events_of(executor, turn, await made(), whole=False)
            assert full and [position for position, _ in full] == sorted({position for position, _ in full})
            for n, (position, _) in enumerate(full):
                again = replace(turn, since=turn.run.turn)  # as a later request receives it
                rest = await events_of(executor, again, await made(), whole=False, after=position)
                assert rest == full[n + 1 :]
            last = Position(full[-1][0].sequence, ALL)
            assert await events_of(executor, turn, await made(), whole=False, after=last) == []


@pytest.mark.parametrize("name", NAMES)
async def test_an_encoder_depends_on_what_it_was_fed_and_nothing_else(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with stage_of("local", tmp_path, request, "ses") as stage:
        await SCENARIOS[name](stage)
        await stage.quiet("ses")
        log = await whole_log(stage.executor, "ses")
    for encoder in (UIMessageEncoder("ses"), UIMessageEncoder("ses", version=6), AgUiEncoder("ses")):
        alone, again = copy.deepcopy(encoder), []
        full = [encoder.feed(message) for message in log]
        for message in log:
            alone.feed(message)
            copied = copy.deepcopy(alone)
            assert copied.feed(message) == [], "a message that was fed before gives nothing"
            again.append(alone)
            alone = copied
        fresh = [copy.deepcopy(before).feed(after) for before, after in zip(again, log[1:], strict=False)]
        assert fresh == full[1:]


def text(sequence: int, step: int, attempt: int, **chunk: Any) -> StreamMessage:
    about = {"session_id": "ses", "agent_id": "ses", "step": step, "attempt": attempt, "timestamp": 1.5}
    return StreamMessage(
        stream_id="ses",
        session_id="ses",
        run_id="run",
        turn=1,
        sequence=sequence,
        kind="chunk",
        chunk={**about, **chunk},
    )


LOG = [
    text(1, 1, 1, type="text_delta", delta="Wro"),
    text(2, 1, 1, type="step_discarded"),
    text(3, 1, 2, type="text_delta", delta="Right"),
    text(4, 1, 2, type="step_committed"),
]


def test_version_7_takes_back_what_a_failed_attempt_said() -> None:
    encoder = UIMessageEncoder("ses")
    types = [part["type"] for message in LOG for part in encoder.feed(message)]
    begun = ["start", "start-step", "text-start", "text-delta"]
    assert types == [*begun, "reset-step", "text-start", "text-delta", "text-end"]


def test_version_6_streams_words_and_shows_those_of_a_failed_attempt_until_a_reload() -> None:
    encoder = UIMessageEncoder("ses", version=6)
    types = [[part["type"] for part in encoder.feed(message)] for message in LOG]
    begun = ["start", "start-step", "text-start", "text-delta"]
    assert types == [begun, ["text-end"], ["text-start", "text-delta"], ["text-end"]]
    assert discarded_text(LOG[:1], "ses") == set() and discarded_text(LOG, "ses") == {1}
    (loaded,) = [part["text"] for part in fold(LOG, 6)["parts"] if part["type"] == "text"]
    assert loaded == "Right"


@pytest.mark.parametrize("version", [6, 7])
def test_words_of_an_interrupted_run_stay_until_their_step_is_tried_again(version: Version) -> None:
    cut = [
        text(1, 1, 1, type="text_delta", delta="Half a"),
        text(2, 1, 1, type="step_discarded", status="interrupted"),
        text(3, 1, 1, type="run_interrupted", reason="stopped"),
        end(4, "run"),
    ]
    stopped = fold(cut, version)
    assert [part.get("text") for part in stopped["parts"]] == [None, "Half a"]
    again = [{"type": "run_resumed", "previous_run_id": "run", "mode": "continue"}]
    again += [{"type": "text_delta", "delta": "All of it"}, {"type": "step_committed"}]
    rest = [
        text(5 + n, 1, 2, **chunk).model_copy(update={"run_id": "next", "turn": 2}) for n, chunk in enumerate(again)
    ]
    assert [part.get("text") for part in fold([*cut, *rest], version)["parts"]] == [None, "All of it"]
    said = [one for one in rest if one.chunk and one.chunk["type"] != "run_resumed"]
    assert discarded_text([*cut, *said], "ses") == set(), "another message of the page leaves them alone"


def test_a_run_that_was_stopped_waits_for_no_approval_until_it_asks_again() -> None:
    """`useChat` would show buttons without effect, because it sends no answer for a message that its user has stopped."""
    asks = {"tool_call_id": "c1", "tool_name": "refund", "input": {"order": "o1"}}
    stopped = [
        text(1, 1, 1, type="text_delta", delta="Let me"),
        text(2, 1, 1, type="tool_approval_request", **asks),
        text(3, 1, 1, type="run_interrupted", reason="stopped"),
        end(4, "run"),
    ]
    (call,) = [part for part in fold(stopped, 7)["parts"] if "toolCallId" in part]
    assert (call["state"], call["approval"]["reason"]) == ("output-denied", "the run has ended")
    again: list[dict[str, Any]] = [
        {"type": "run_resumed", "previous_run_id": "run", "mode": "retry"},
        {"type": "tool_approval_request", **asks},
    ]
    rest = [
        text(5 + n, 1, 1, **chunk).model_copy(update={"run_id": "next", "turn": 2}) for n, chunk in enumerate(again)
    ]
    (call,) = [part for part in fold([*stopped, *rest], 7)["parts"] if "toolCallId" in part]
    assert call["state"] == "approval-requested"


def end(sequence: int, run_id: str) -> StreamMessage:
    about = {"stream_id": "ses", "session_id": "ses", "run_id": run_id, "turn": 1, "sequence": sequence}
    return StreamMessage(**about, kind="end", status="interrupted")


def fold(log: list[StreamMessage], version: Version) -> Any:
    """Return what a page has after loading."""
    encoder, found = UIMessageEncoder("ses", version=version), UIMessageFold()
    left_out = discarded_text(log, "ses") if version == 6 else ()
    for message in log:
        if message.sequence not in left_out:
            found.feed(encoder.feed(message))
    found.feed(encoder.close())
    return found.message


def test_ag_ui_ends_a_discarded_message_and_takes_it_away_with_a_snapshot() -> None:
    asked: JsonObject = {"id": "u1", "role": "user", "content": "Hello"}
    encoder = AgUiEncoder("ses", messages=[asked])
    events = [event for message in LOG[:2] for event in encoder.feed(message)]
    assert [event["type"] for event in events][-2:] == ["TEXT_MESSAGE_END", "MESSAGES_SNAPSHOT"]
    assert events[-1]["messages"] == [asked]
    assert all(type(event["timestamp"]) is int for event in events)
