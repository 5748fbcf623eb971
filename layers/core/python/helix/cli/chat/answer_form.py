"""The form that answers a waiting call. The user approves it (optionally with edited arguments) or denies it, enters the
result of a client tool, or says what happened to a call with an unknown outcome.

Law: the service checks the answer. If the service refuses it, the form shows why and keeps the text that the user typed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Button, Input, Static, TextArea

from helix.cli.chat.texts import content
from helix.cli.output import RefusedError
from helix.cli.run.follow import describe_answer, describe_fields, parse_answer, parse_arguments, parse_data
from helix.core.conversation.items import Call
from helix.core.errors import HelixError
from helix.core.printable import json_text

_ASKS = {
    "approval": "Approve",
    "client": "Give the result of",
    "unknown": "Say what became of",
    "question": "Answer",
}
REASON = "a reason, if you deny: the model reads it"
_FIELDS = {
    "approval": "its arguments",
    "client": "the result, as JSON or text",
    "unknown": "its result, if it happened",
}
_BUTTONS = {
    "approval": [("Approve", "approve"), ("Deny", "deny")],
    "client": [("Send", "send")],
    "question": [("Send", "answer"), ("Deny", "deny")],
    "unknown": [("Run again", "again"), ("It happened", "happened"), ("Leave unknown", "deny")],
}
Send = Callable[..., Coroutine[Any, Any, None]]


class AnswerForm(Vertical):
    """The form for one waiting call. `more` is the number of other waiting calls. `answer` is `ChatSession.answer`."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+s", "first", "Answer", show=False, priority=True)]

    def __init__(self, call: Call, more: int, answer: Send) -> None:
        super().__init__()
        self.call, self._more, self._answer = call, more, answer
        self._given, self._round = json_text(call.arguments), call.round

    def is_for_one_of(self, calls: Sequence[Call]) -> bool:
        """Return whether one of the calls waits for the answer of this form. A tool may ask several rounds of questions."""
        return any(call is self.call and call.round == self._round for call in calls)

    def compose(self) -> Any:
        call = self.call
        more = f"  (and {self._more} more)" if self._more else ""
        why = f": {call.reason}" if call.reason else ""
        yield Static(content((f"{_ASKS[call.kind]} ", "bold yellow"), (call.name, "bold"), f"?{why}", (more, "dim")))
        if call.kind == "question":
            yield from self._compose_questions()
            return
        if call.kind != "approval":
            yield Static(content((self._given, "dim")))
        if schema := describe_fields(call.parameters):
            yield Static(content((schema, "dim")))
        area = TextArea(self._given if call.kind == "approval" else "", compact=True, tab_behavior="focus")
        area.border_title = _FIELDS[call.kind]
        yield area
        if call.kind != "client":
            yield Input(placeholder=REASON, compact=True)
        yield from self._compose_end()

    def _compose_questions(self) -> Any:
        for asked in self.call.questions:
            yield Static(content(asked.text, (f"\n{asked.problem}" if asked.problem else "", "red")))
            if wanted := describe_answer(asked):
                yield Static(content((wanted, "dim")))
            yield TextArea(compact=True, tab_behavior="focus", classes="answer")
        yield Input(placeholder=REASON, compact=True)
        yield from self._compose_end()

    def _compose_end(self) -> Any:
        yield Static(id="problem")
        with Horizontal():
            for place, (label, name) in enumerate(_BUTTONS[self.call.kind]):
                key = "" if place else " (Ctrl+S)"
                yield Button(f"{label}{key}", name=name, variant="default" if place else "primary", compact=True)

    def focus_first(self) -> None:
        self.query(TextArea if self.call.kind in ("client", "question") else Button).first().focus()

    def action_first(self) -> None:
        self.query(Button).first().press()

    @on(Button.Pressed)
    async def pressed(self, event: Button.Pressed) -> None:
        event.stop()
        try:
            await self._answer(self.call, **self._read_verdict(str(event.button.name)))
        except (HelixError, RefusedError, OSError, TimeoutError) as error:
            problem = self.query_one("#problem", Static)
            problem.update(content((str(error), "red")))
            problem.display = True

    def _read_verdict(self, name: str) -> dict[str, Any]:
        round = {"round": self._round} if self.call.kind == "question" else {}
        if name == "answer":
            areas = self.query(TextArea)
            answers = [parse_answer(q, area.text) for q, area in zip(self.call.questions, areas, strict=True)]
            return {"data": answers[0] if len(answers) == 1 else answers, **round}
        text = self.query(TextArea).first().text
        match name:
            case "approve" if text != self._given:
                return {"approved": True, "arguments": parse_arguments(text)}
            case "approve" | "again":
                return {"approved": True}
            case "send" | "happened":
                if not text.strip():
                    raise RefusedError(f"type {_FIELDS[self.call.kind]}")
                return {"approved": name == "send", "data": parse_data(text)}
            case _:
                return {"approved": False, "reason": self.query_one(Input).value.strip() or None, **round}
