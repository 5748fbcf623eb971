"""A model is sent only reasoning that it may read: its own."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support_litellm import request

from helix.adapters.models import openai_responses
from helix.adapters.models.answer import PartialAnswer
from helix.adapters.models.anthropic_blocks import answer_blocks
from helix.adapters.models.failures import classify
from helix.adapters.models.reasoning import request_for
from helix.adapters.models.turns import Passage, in_order
from helix.adapters.models.wire import CallPart, Text, Thinking
from helix.core.messages import (
    AnyMessage,
    AssistantMessage,
    ThinkingContent,
    ToolCallRequest,
    ToolResultMessage,
    UserMessage,
)
from helix.core.steps import ToolCallsStepResult
from helix.core.usage import Usage
from helix.ports.model import LLMGenerateInput, LLMStreamCallbacks

GEMINI, CLAUDE, GPT = "gemini/gemini-3-pro", "anthropic/claude-sonnet-4-5", "openai/gpt-5.6"
SIGNED = "call_1__thought__c2lnbmF0dXJl"


def turn(model: str | None, call_id: str = "call_1", **metadata: Any) -> list[AnyMessage]:
    call = ToolCallRequest(id=call_id, name="look", arguments={})
    answer = AssistantMessage(
        tool_calls=[call],
        thinking=[ThinkingContent(text="hm", signature="sealed")],
        metadata={"model": model, **metadata},
    )
    result = ToolResultMessage(tool_call_id=call_id, tool_name="look", content="all about it")
    return [UserMessage(content="Look."), answer, result]


def sent(made: LLMGenerateInput) -> list[int]:
    """Return the number of reasoning blocks of each answer."""
    return [len(message.thinking) for message in made.messages if isinstance(message, AssistantMessage)]


@pytest.mark.parametrize(("model", "kept"), [(CLAUDE, [1, 0]), (GPT, [0, 1]), (GEMINI, [0, 0])])
def test_a_model_is_sent_its_own(model: str, kept: list[int]) -> None:
    assert sent(request_for(request([*turn(CLAUDE), *turn(GPT, "call_2")]), model)) == kept


def test_reasoning_of_an_unknown_model_is_sent() -> None:
    assert sent(request_for(request(turn(None)), CLAUDE)) == [1]


def test_what_is_older_than_a_refusal_stays_out() -> None:
    history = [*turn(CLAUDE), *turn(CLAUDE, "call_2", without_reasoning=True), *turn(CLAUDE, "call_3")]
    assert sent(request_for(request(history), CLAUDE)) == [0, 1, 1]
    assert sent(request_for(request(history), CLAUDE, without=True)) == [0, 0, 0]


@pytest.mark.parametrize(("model", "id"), [(GEMINI, SIGNED), (CLAUDE, "call_1"), ("gemini/gemini-3-flash", "call_1")])
def test_a_signature_of_gemini_stays_with_its_model(model: str, id: str) -> None:
    made = request_for(request(turn(GEMINI, SIGNED)), model)
    _, answer, result = made.messages
    assert isinstance(answer, AssistantMessage) and isinstance(result, ToolResultMessage)
    assert (answer.tool_calls[0].id, result.tool_call_id) == (id, id)


@pytest.mark.parametrize(
    ("model", "before", "thinks"), [(CLAUDE, CLAUDE, True), (CLAUDE, GPT, False), (GPT, CLAUDE, True)]
)
def test_claude_does_not_think_in_a_turn_that_another_model_began(model: str, before: str, thinks: bool) -> None:
    asked = request(turn(before), reasoning="high", provider_options={"thinking": {"type": "adaptive"}, "top_k": 3})
    config = request_for(asked, model).config
    assert (config.reasoning == "high", "thinking" in config.provider_options) == (thinks, thinks)
    assert config.provider_options["top_k"] == 3
    after = request_for(request([*turn(before), UserMessage(content="And now?")], reasoning="high"), model)
    assert after.config.reasoning == "high", "a new turn begins with its own reasoning"


class BadRequestError(Exception):
    """An error as the providers' packages raise it."""

    status_code = 400
    response = object()


@pytest.mark.parametrize(
    "words",
    [
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "messages.3.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`.",
        "The encrypted content for item rs_1 could not be verified.",
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
        "Function call is missing a thought_signature in functionCall parts.",
        "Corrupted thought signature.",
    ],
)
def test_a_refusal_of_reasoning_is_known_by_its_words(words: str) -> None:
    failed = classify(BadRequestError(words), CLAUDE, now=0)
    assert (failed.code, failed.about_reasoning) == ("bad_request", True)


@pytest.mark.parametrize("words", ["temperature must be a number", "Unknown parameter: 'seed'."])
def test_other_refusals_are_not(words: str) -> None:
    assert not classify(BadRequestError(words), CLAUDE, now=0).about_reasoning


# --- the position of reasoning ----------------------------------------------------------------------------------------


async def interleaved() -> AssistantMessage:
    """Return the answer of a model that thinks before each part of it."""
    answer = PartialAnswer(LLMStreamCallbacks(), {})
    for piece in (
        *(Thinking("one"), Thinking(signature="s1", id="rs_1"), Text("Let me "), Text("look. ")),
        *(Thinking("two"), Thinking(signature="s2", id="rs_2"), Text("Twice.")),
        *(Thinking(signature="s3", id="rs_3"), CallPart(0, "call_1", "look", "{}")),
        *(Thinking(signature="s4", id="rs_4"), CallPart(1, "call_2", "look", "{}")),
    ):
        await answer.feed([piece])
    result = await answer.result(CLAUDE, "tool_use", "", Usage())
    assert isinstance(result, ToolCallsStepResult)
    calls = [ToolCallRequest(id=call.id, name=call.name, arguments=call.arguments) for call in result.tool_calls]
    return AssistantMessage(content=result.content, thinking=result.thinking, tool_calls=calls)


ORDER = ["s1", "Let me look. ", "s2", "Twice.", "s3", "call_1", "s4", "call_2"]


async def test_reasoning_goes_back_at_its_place() -> None:
    message = await interleaved()
    claude = [b.get("signature") or b.get("text") or b["id"] for b in answer_blocks(message)]
    assert claude == ORDER
    items = openai_responses._answer(message)
    assert [i.get("encrypted_content") or i.get("content") or i["call_id"] for i in items] == ORDER


async def test_reasoning_that_nothing_follows_stays_here() -> None:
    """This also holds for an answer whose end a person or a hook cut off."""
    message = await interleaved()
    cut = message.model_copy(update={"content": "Let me look. ", "tool_calls": []})
    assert [part.text for part in in_order(cut) if isinstance(part, Passage)] == ["Let me look. "]
    assert [part.signature for part in in_order(cut) if isinstance(part, ThinkingContent)] == ["s1"]


def test_reasoning_of_an_older_row_stands_first() -> None:
    """The position was not stored in older rows."""
    (_, answer, _) = turn(CLAUDE)
    assert isinstance(answer, AssistantMessage)
    assert isinstance(next(in_order(answer)), ThinkingContent)
