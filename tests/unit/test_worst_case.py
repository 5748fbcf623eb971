"""The upper limit of a call's usage includes every byte sent, and answers cannot be longer than the remaining room."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from helix.adapters.models.effort import with_verbosity
from helix.core.config import LLMConfig
from helix.core.messages import (
    AnyMessage,
    AssistantMessage,
    SystemMessage,
    ThinkingContent,
    ToolCallRequest,
    ToolResultMessage,
    UserMessage,
)
from helix.engine.engine import Settings
from helix.engine.money.bounds import PER_MESSAGE, PER_TOOL, WITH_TOOLS, Estimate, bounded, prompt_tokens
from helix.ports.model import LLMGenerateInput, ToolSpec


def said(**fields: str) -> AssistantMessage:
    call = ToolCallRequest(
        id=fields.get("id", ""), name=fields.get("name", ""), arguments={"a": fields.get("argument", "")}
    )
    thought = ThinkingContent(
        text=fields.get("text", ""), signature=fields.get("signature"), redacted=fields.get("redacted")
    )
    return AssistantMessage(content=fields.get("content", ""), tool_calls=[call], thinking=[thought])


def asked(message: AnyMessage) -> int:
    return prompt_tokens([message], [])


PARTS: dict[str, Callable[[str], int]] = {
    "the system's": lambda text: asked(SystemMessage(content=text)),
    "the user's": lambda text: asked(UserMessage(content=text)),
    **{
        f"an answer's {name}": lambda text, name=name: asked(said(**{name: text}))  # type: ignore[misc]
        for name in ("content", "id", "name", "argument", "text", "signature", "redacted")
    },
    "a result's content": lambda text: asked(ToolResultMessage(tool_call_id="", tool_name="", content=text)),
    "a result's call": lambda text: asked(ToolResultMessage(tool_call_id=text, tool_name="", content="")),
    "a result's tool": lambda text: asked(ToolResultMessage(tool_call_id="", tool_name=text, content="")),
    "a tool's name": lambda text: prompt_tokens([], [ToolSpec(text, "", {})]),
    "a tool's description": lambda text: prompt_tokens([], [ToolSpec("", text, {})]),
    "a tool's schema": lambda text: prompt_tokens([], [ToolSpec("", "", {"title": text})]),
}


@pytest.mark.parametrize("part", PARTS)
def test_each_byte_of_each_part_counts(part: str) -> None:
    counted = PARTS[part]
    assert counted("x" * 5000) >= counted("x") + 4999
    assert counted("é" * 10) >= counted("x") + 19, "bytes, not letters"


@pytest.mark.parametrize("verbosity", ["low", "high"])
def test_the_sentence_about_the_length_of_answers_counts(verbosity: Any) -> None:
    """Models without such a setting get the sentence after the system prompt."""
    engine: Any = SimpleNamespace(catalog=None, settings=Settings())
    config = LLMConfig(model="anthropic/claude-sonnet-4-5", verbosity=verbosity)
    request = LLMGenerateInput([UserMessage(content="hi")], [], config, "a", "a")
    sent = with_verbosity(request, config.model)
    _, estimate = bounded(engine, request)
    assert estimate.prompt >= sum(len(message.content or "") for message in sent.messages) > len("hi") + 50


def test_what_providers_add_is_allowed_for() -> None:
    message, tool = UserMessage(content="hi"), ToolSpec("t", "", {})
    assert prompt_tokens([message] * 3, []) == 3 * (2 + PER_MESSAGE)
    two_calls = AssistantMessage(content="", tool_calls=[ToolCallRequest(id="", name="", arguments={})] * 2)
    assert asked(two_calls) >= asked(AssistantMessage(content="")) + 2 * PER_MESSAGE
    assert prompt_tokens([], [tool]) >= WITH_TOOLS + PER_TOOL
    assert prompt_tokens([], [tool] * 2) >= prompt_tokens([], [tool]) + PER_TOOL


def test_the_worst_case_is_prompt_and_answer_at_their_prices_rounded_up() -> None:
    worst = Estimate(prompt=10, output=4, input_micros=0.25, output_micros=2.0).worst
    assert (worst.tokens, worst.micros) == (14, 11)


@pytest.mark.parametrize(
    ("tokens", "micros", "room"),
    [
        (None, None, 100),
        (1000, None, 100),
        (60, None, 50),
        (10, None, 0),
        (5, None, 0),
        (None, 110, 50),
        (None, 10, 0),
        (None, 9, 0),
        (40, 110, 30),
        (60, 30, 10),
    ],
)
def test_an_answer_is_as_long_as_both_have_room_for(tokens: int | None, micros: int | None, room: int) -> None:
    estimate = Estimate(prompt=10, output=100, input_micros=1.0, output_micros=2.0, shrinks=True)
    assert estimate.output_within(tokens=tokens, micros=micros) == room


def test_where_answers_are_free_only_the_prompt_must_be_paid() -> None:
    free = Estimate(prompt=10, output=100, input_micros=1.0, output_micros=0.0, shrinks=True)
    assert [free.output_within(tokens=None, micros=micros) for micros in (9, 10)] == [0, 100]
