"""The facts of an answer that arrives, and those of a whole answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from helix.core.messages import Citation, ServerCall
from helix.core.planning import AssistantMessagePlan
from helix.core.server_tools import server_calls
from helix.core.session_row import StepClaim
from helix.core.steps import AnyStepResult


@dataclass(frozen=True, slots=True)
class TextReceived:
    claim: StepClaim
    """The step's claim under which the model is called. Its attempt number identifies the text."""
    delta: str
    """The next piece of the answer's text, as the adapter delivered it."""


@dataclass(frozen=True, slots=True)
class OutputReceived:
    claim: StepClaim
    """The step's claim under which the model is called."""
    delta: str
    """The next piece of the structured output, as JSON text."""


@dataclass(frozen=True, slots=True)
class ThinkingReceived:
    claim: StepClaim
    """The step's claim under which the model is called."""
    content: str
    """A piece of the model's reasoning, or the whole block if `is_complete`."""
    is_complete: bool
    """Whether `content` is a whole block of reasoning, sent once after its pieces."""


@dataclass(frozen=True, slots=True)
class ServerCalled:
    """A call of the provider's own tool began, or has its result."""

    claim: StepClaim
    """The step's claim under which the model is called."""
    call: ServerCall
    """The call as it is known so far."""


@dataclass(frozen=True, slots=True)
class TextCited:
    claim: StepClaim
    """The step's claim under which the model is called."""
    citation: Citation
    """A source of the answer's text."""


AnswerPart: TypeAlias = TextReceived | OutputReceived | ThinkingReceived | ServerCalled | TextCited


def answer_parts(claim: StepClaim, answer: AssistantMessagePlan | AnyStepResult) -> Iterator[AnswerPart]:
    """Yield the parts of a whole answer, without its output."""
    for block in answer.thinking:
        yield ThinkingReceived(claim, block.text, True)
    for call in server_calls(answer.server_blocks):
        yield ServerCalled(claim, call)
    if text := getattr(answer, "content", None):
        yield TextReceived(claim, text)
    for citation in answer.citations:
        yield TextCited(claim, citation)
