"""Calls on a page of the AI SDK, and the parts for the questions of their tools.

A question is a part of its own, of the tool `question`. Its input has the questions, and the page's output is the answer,
as for a tool that the page executes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from helix.core.conversation.items import Call, Question, Step
from helix.core.json import JsonObject, JsonValue, dumps
from helix.core.messages import AskedQuestion, CallResponse, Citation

QUESTION = "question"
"""The name of the tool in the part of a question."""
ANSWERED_BY = "answeredBy"
"""The name in a message's metadata of the users who responded, by the ids of calls and of rounds of questions."""


def shown_call(root: str, session_id: str, call_id: str) -> str:
    """Return the id of a call on a page. Call ids are unique only within their session, so the id of a sub-agent's call
    includes the session."""
    return call_id if session_id == root else f"{session_id}/{call_id}"


def question_id(shown: str, round: int) -> str:
    """Return the id on a page of a round of questions. `shown`: the id of the call that asks them."""
    return f"{shown}?{round}"


def executed_by(call: Call) -> JsonObject:
    """Return the field of the parts of a call that the provider executed, for which a page does not wait."""
    return {"providerExecuted": True} if call.served else {}


def new_source(step: Step, source: Citation) -> list[JsonObject]:
    """Return the part of the step's newest citation, unless an earlier one has the same source."""
    sources = step.sources
    return [ui_source(step.step, len(sources), source)] if sources[-1] is source else []


def ui_source(step: int, number: int, source: Citation) -> JsonObject:
    """Return the part of a source: the number counts the sources of the step's text from 1."""
    about: JsonObject = {"sourceId": f"{step}/source/{number}"}
    if source.url and source.url.startswith(("http://", "https://")):  # a page makes it a link
        return {"type": "source-url", **about, "url": source.url, **({"title": source.title} if source.title else {})}
    return {
        "type": "source-document",
        **about,
        "mediaType": "text/plain",
        "title": source.title or source.url or "a document",
    }


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
        self._people: dict[str, JsonValue] = {}

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
        given = {(q.text, repr(q.answer_schema)): q for q in call.questions}
        answers = [given.get((q.text, repr(q.answer_schema)), q) for q in asked]
        self._emit("tool-output-available", toolCallId=ident, output=answers_of(answers), dynamic=True)

    def name_people(self, shown: str, call: Call) -> None:
        """Name the users who responded to the call, in the metadata of the page's message."""
        found = people_of(shown, call.questions, call.responses)
        if found.items() - self._people.items():
            self._people |= found
            self._emit("message-metadata", messageMetadata={ANSWERED_BY: {**self._people}})


def people_of(
    shown: str, questions: Sequence[AskedQuestion], responses: Sequence[CallResponse]
) -> dict[str, JsonValue]:
    """Return the known users who responded, by the id on a page of the call or of its round of questions."""
    answered: dict[str, JsonValue] = {question_id(shown, q.round): q.by for q in questions if q.by is not None}
    given: list[JsonValue] = [response.by for response in responses if response.by is not None]
    return answered | ({shown: given[-1]} if given else {})


def shown_question(question: AskedQuestion) -> JsonObject:
    """Return the question as pages get it: its text, its schema, and why the last answer did not fit."""
    shown: JsonObject = {"text": question.text, "schema": question.answer_schema}
    return shown if question.problem is None else {**shown, "problem": question.problem}


def rounds_of(questions: Sequence[AskedQuestion]) -> list[tuple[int, list[AskedQuestion]]]:
    """Return the questions of a call by the round in which they were asked, with its number."""
    return [(number, list(asked)) for number, asked in groupby(questions, lambda question: question.round)]


def answered_rounds(shown: str, questions: Sequence[AskedQuestion]) -> list[tuple[str, list[AskedQuestion]]]:
    """Return the rounds of questions that have answers, each with its id on a page. `shown`: the id of the call. Rows of
    earlier versions have no rounds."""
    rounds = [one for one in rounds_of(questions) if one[0] and all(question.answered for question in one[1])]
    return [(question_id(shown, number), asked) for number, asked in rounds]


def question_interrupt(shown: str, call: Call) -> JsonObject:
    """Return the fields of the AG-UI interrupt that asks the questions. `shown`: the id of the call on the page."""
    asked: list[JsonValue] = [shown_question(question) for question in call.questions]
    return {
        "id": question_id(shown, call.round),
        "metadata": {"tool": call.name, "questions": asked},
        "message": "\n".join(question.text for question in call.questions),
        "responseSchema": answers_schema(list(call.questions)),
    }


def questions_text(questions: Sequence[AskedQuestion]) -> str:
    """Return the arguments of the AG-UI call that shows these questions, as JSON text."""
    return dumps({"questions": [shown_question(question) for question in questions]})


def answers_message(ident: str, questions: Sequence[AskedQuestion]) -> JsonObject:
    """Return the AG-UI message with the answers to a round of questions, and who gave them."""
    answers: list[JsonValue] = [{"answer": q.data, "by": q.by, "at": q.at, "timedOut": q.timed_out} for q in questions]
    return {"id": f"{ident}/result", "role": "tool", "toolCallId": ident, "content": dumps(answers)}


def answers_of(questions: Sequence[AskedQuestion]) -> JsonValue:
    """Return the answers of a round: that to a single question, or a list of them."""
    answers: list[JsonValue] = [question.data for question in questions]
    return answers[0] if len(answers) == 1 else answers


def answers_schema(questions: list[AskedQuestion]) -> JsonObject:
    """Return the JSON schema of the response: that of a single question, or a list of them."""
    if len(questions) == 1:
        return questions[0].answer_schema
    return {"type": "array", "prefixItems": [q.answer_schema for q in questions], "minItems": len(questions)}
