"""Streams an answer: gives the adapter its callbacks, and shows the parts of the answer that they did not.

Law: readers see the output of each answer, even if the adapter does not stream it. A failed try retracts what it showed.
"""

from __future__ import annotations

from helix.core.json import clean_text
from helix.core.planning import output_text
from helix.core.steps import AnyStepResult
from helix.engine.answer_facts import answer_parts
from helix.engine.context import RunContext
from helix.engine.facts import (
    AnswerPart,
    ModelCallEnded,
    OutputReceived,
    ServerCalled,
    TextCited,
    TextReceived,
    ThinkingReceived,
    TryFailed,
)
from helix.engine.observers import show
from helix.ports.model import LLMStreamCallbacks, MaybeAwaitable

THROTTLED = "rate_limited"
"""The code of a provider's 429."""


class AnswerStream:
    """The stream of one call's answer. `has_output`: whether the model was asked for a structured output."""

    def __init__(self, run: RunContext, call: ModelCallEnded, *, has_output: bool) -> None:
        self._run, self._call, self._has_output = run, call, has_output
        self._shown = self._shown_output = False
        self._text: list[str] = []

    @property
    def partial(self) -> str:
        """The text that readers have so far. Empty once a part of a structured output arrived, since half an output is
        not an answer."""
        return "" if self._shown_output else "".join(self._text)

    def callbacks(self) -> LLMStreamCallbacks:
        """Return the callbacks for the adapter of this call."""
        claim = self._call.claim
        return LLMStreamCallbacks(
            on_text_delta=self._add_text,
            on_thinking=lambda content, done: self._note(ThinkingReceived(claim, content, done)),
            on_output_delta=self._output if self._has_output else None,
            on_tool_start=lambda *_: self._note(None),
            on_tool_call=lambda *_: self._note(None),
            on_server_call=lambda call: self._note(ServerCalled(claim, call)),
            on_citation=lambda citation: self._note(TextCited(claim, citation)),
            on_error=self._fail_try,
        )

    def show_parts(self, result: AnyStepResult) -> None:
        """Stream a cached answer, with each part as one piece. The output follows with `show_output`."""
        for part in answer_parts(self._call.claim, result):
            self._note(part)

    def show_output(self, result: AnyStepResult) -> None:
        """Stream the output of an answer as one piece, unless its adapter has streamed it."""
        if self._has_output and not self._shown_output and (text := output_text(result)):
            show(self._run, OutputReceived(self._call.claim, text))

    def _add_text(self, delta: str) -> MaybeAwaitable:
        self._text.append(clean_text(delta))
        return self._note(TextReceived(self._call.claim, delta) if delta else None)

    def _output(self, delta: str) -> MaybeAwaitable:
        self._shown_output = self._shown_output or bool(delta)
        return self._note(OutputReceived(self._call.claim, delta) if delta else None)

    def _note(self, fact: AnswerPart | None) -> MaybeAwaitable:
        self._call.first = self._call.first or self._run.now()
        if fact is None:
            return None
        self._shown = True
        show(self._run, fact)
        return self._run.stream.relief()

    def _fail_try(self, error: Exception) -> None:
        call = self._call
        code = str(getattr(error, "code", type(error).__name__))
        call.throttled = call.throttled or code == THROTTLED
        call.tries.append((self._run.now(), code))
        show(self._run, TryFailed(call.claim, error, self._shown))
        call.first, self._shown, self._shown_output = None, False, False
        self._text.clear()
