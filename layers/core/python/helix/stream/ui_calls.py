"""Calls on a page of the AI SDK, and the parts for the questions of their tools.

A question is a part of its own, of the tool `question`. Its input has the questions, and the page's output is the answer,
as for a tool that the page executes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from helix.core.conversation.items import Call, Question
from helix.core.json import JsonObject, JsonValue
from helix.core.messages import AskedQuestion

QUESTION = "question"
"""The name of the tool in the part of a question."""


def shown_call(root: str, session_id: str, call_id: str) -> str:
    """Return the id of a call on a page. Call ids are unique only within their session, so the id of a sub-agent's call
    includes the session."""
    return call_id if session_id == root else f"{session_id}/{call_id}"


def question_id(shown: str, round: int) -> str:
    """Return the id on a page of a round of questions. `shown`: the id of the call that asks them."""
    return f"{shown}?{round}"


@dataclass
class ShownCall:
    """A tool call as the page shows it."""

    call: Call
    """The call."""
    input: JsonObject
    """The arguments as last shown. A person may have edited them."""
    asked: Question | None = None
    """The kind of response that the page is asked for. None if it is not asked for one."""
    requested: bool = False
    """Whether its part shows an approval request."""
    done: bool = False
    """Whether its part shows a result."""
    child: bool = False
    """Whether the call started a sub-agent."""


class QuestionParts:
    """The open questions of a page. `emit`: adds a part."""

    def __init__(self, emit: Callable[..., None]) -> None:
        self._emit = emit
        self._open: dict[str, tuple[str, list[AskedQuestion]]] = {}

    def is_open(self, shown: str) -> bool:
        """Return whether the call with this id on the page waits for answers."""
        return shown in self._open

    def ask(self, shown: str, call: Call) -> None:
        """Show the questions that the call asks."""
        ident = question_id(shown, call.round)
        self._open[shown] = (ident, list(call.questions))
        asked = [shown_question(question) for question in call.questions]
        self._emit(
            "tool-input-available", toolCallId=ident, toolName=QUESTION, input={"questions": asked}, dynamic=True
        )

    def close(self, shown: str, call: Call, error: str | None = None) -> None:
        """Show the answers to the call's questions, if it had any. `error`: why there are none."""
        ident, asked = self._open.pop(shown, ("", []))
        if not ident:
            return
        if error is not None:
            self._emit("tool-output-error", toolCallId=ident, errorText=error, dynamic=True)
            return
        given = {(q.text, repr(q.answer_schema)): q.data for q in call.questions}
        answers: list[JsonValue] = [given.get((q.text, repr(q.answer_schema))) for q in asked]
        output = answers[0] if len(answers) == 1 else answers
        self._emit("tool-output-available", toolCallId=ident, output=output, dynamic=True)


def shown_question(question: AskedQuestion) -> JsonObject:
    """Return the question as pages get it: its text, its schema, and why the last answer did not fit."""
    shown: JsonObject = {"text": question.text, "schema": question.answer_schema}
    return shown if question.problem is None else {**shown, "problem": question.problem}


def answers_schema(questions: list[AskedQuestion]) -> JsonObject:
    """Return the JSON schema of the response: that of a single question, or a list of them."""
    if len(questions) == 1:
        return questions[0].answer_schema
    return {"type": "array", "prefixItems": [q.answer_schema for q in questions], "minItems": len(questions)}
