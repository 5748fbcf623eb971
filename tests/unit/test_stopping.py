"""The conditions that end a run, and the result of each."""

from __future__ import annotations

import pytest

from helix.compat.stopping import determine_final_status, should_stop_execution
from helix.core.steps import (
    ErrorStepResult,
    ParsedToolCall,
    StopReason,
    StructuredOutputStepResult,
    TextStepResult,
    ToolCallsStepResult,
)

CALLS = ToolCallsStepResult(tool_calls=[ParsedToolCall(id="a", name="t")])
ERRORS = [StopReason.MAX_TOKENS, StopReason.CONTENT_FILTER, StopReason.REFUSAL, StopReason.ERROR]


@pytest.mark.parametrize(
    "result",
    [
        TextStepResult(content="x"),
        ErrorStepResult(error="x"),
        StructuredOutputStepResult(output={}),
        *(CALLS.model_copy(update={"stop_reason": reason}) for reason in ERRORS),
    ],
)
def test_terminal_results_stop_before_anything_is_asked(result: TextStepResult) -> None:
    def never(step: object) -> bool:
        raise AssertionError

    assert should_stop_execution(result, 1, max_steps=5, stop_when=never)


def test_calls_go_on_until_a_limit() -> None:
    assert not should_stop_execution(CALLS, 1_000_000)
    assert not should_stop_execution(CALLS, 4, max_steps=5)
    assert should_stop_execution(CALLS, 5, max_steps=5) and should_stop_execution(CALLS, 6, max_steps=5)
    assert not should_stop_execution(TextStepResult(content="x", should_stop=False), 1, max_steps=2)
    for reason in set(StopReason) - set(ERRORS):
        assert not should_stop_execution(CALLS.model_copy(update={"stop_reason": reason}), 1, max_steps=2)


def test_stop_when_is_asked_before_max_steps() -> None:
    asked = []

    def stop(step: object) -> bool:
        asked.append(step)
        return True

    assert should_stop_execution(CALLS, 5, max_steps=5, stop_when=stop) and asked == [CALLS]


def test_the_final_status() -> None:
    assert determine_final_status(TextStepResult(content="x")) == "completed"
    assert determine_final_status(CALLS) == "completed"
    assert determine_final_status(ErrorStepResult(error="x")) == "failed"
    for reason in StopReason:
        status = determine_final_status(TextStepResult(content="x", stop_reason=reason))
        assert status == ("failed" if reason in ERRORS else "completed")
