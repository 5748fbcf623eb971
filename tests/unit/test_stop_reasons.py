"""Every provider's stop reason has one meaning. An unknown one maps to `unknown` and is never an error."""

from __future__ import annotations

import pytest

from helix.core.steps import StopReason, is_error_stop_reason
from helix.core.stop_reasons import (
    map_anthropic_stop_reason,
    map_gemini_finish_reason,
    map_openai_finish_reason,
    map_vercel_finish_reason,
)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("tool_calls", "tool_use"),
        ("function_call", "tool_use"),
        ("content_filter", "content_filter"),
        ("error", "error"),
        ("abort", "error"),
        ("insufficient_system_resource", "error"),
        ("something_new", "unknown"),
        ("", "unknown"),
        (None, "unknown"),
    ],
)
def test_openai(reason: str | None, expected: str) -> None:
    assert map_openai_finish_reason(reason) == expected


def test_openai_refusal_wins_over_stop() -> None:
    assert map_openai_finish_reason("stop", refusal="I cannot") is StopReason.REFUSAL
    assert map_openai_finish_reason("stop", refusal="") is StopReason.END_TURN


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", "end_turn"),
        ("stop_sequence", "stop_sequence"),
        ("tool_use", "tool_use"),
        ("max_tokens", "max_tokens"),
        ("refusal", "refusal"),
        ("pause_turn", "unknown"),
        ("model_context_window_exceeded", "max_tokens"),
        ("something_new", "unknown"),
        (None, "unknown"),
    ],
)
def test_anthropic(reason: str | None, expected: str) -> None:
    assert map_anthropic_stop_reason(reason) == expected


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("STOP", "end_turn"),
        ("MAX_TOKENS", "max_tokens"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("BLOCKLIST", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("SPII", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "error"),
        ("OTHER", "unknown"),
        (None, "unknown"),
    ],
)
def test_gemini(reason: str | None, expected: str) -> None:
    assert map_gemini_finish_reason(reason) == expected


def test_gemini_says_stop_for_tool_calls_too() -> None:
    assert map_gemini_finish_reason("STOP", has_tool_calls=True) is StopReason.TOOL_USE
    assert map_gemini_finish_reason("MAX_TOKENS", has_tool_calls=True) is StopReason.MAX_TOKENS


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("content-filter", "content_filter"),
        ("tool-calls", "tool_use"),
        ("error", "error"),
        ("other", "unknown"),
        ("unknown", "unknown"),
        (None, "unknown"),
    ],
)
def test_vercel(reason: str | None, expected: str) -> None:
    assert map_vercel_finish_reason(reason) == expected


def test_exactly_four_reasons_are_errors() -> None:
    assert [reason for reason in StopReason if is_error_stop_reason(reason)] == [
        StopReason.MAX_TOKENS,
        StopReason.CONTENT_FILTER,
        StopReason.REFUSAL,
        StopReason.ERROR,
    ]
