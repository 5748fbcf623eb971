"""The calls on an AG-UI page: what is shown of each, and what the reader is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from helix.core.conversation.items import Call
from helix.core.json import JsonObject, dumps
from helix.stream import ui_calls
from helix.stream.agui_messages import AgUiMessages
from helix.stream.agui_writers import Writer, answer_id
from helix.stream.file_parts import agui_content

ANSWER: JsonObject = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "reason": {"type": "string"},
        "arguments": {"type": "object"},
        "data": {},
    },
    "required": ["approved"],
}


class Calls:
    """Shows calls with `emit`, as `Answers` does. `owners`: the tag of the writer of each message. `root`: the session of
    the page. `given`: the ids of the reader's own messages with results of its tools, by the call."""

    def __init__(
        self,
        emit: Callable[..., None],
        talk: AgUiMessages,
        owners: dict[str, JsonObject],
        root: str,
        given: Mapping[str, str],
    ) -> None:
        self._emit, self._talk, self._owners, self._root, self._given = emit, talk, owners, root, given
        self._results: set[str] = set()  # calls whose results were sent
        self.asked: dict[str, JsonObject] = {}
        """The interrupts of the calls that wait for the reader, by their ids."""
        self.unasked: set[str] = set()
        """The waiting calls that are not interrupts in AG-UI: those of tools that the run declared, which the reader
        executes, and those that end elsewhere, which the reader cannot answer."""

    def start(self, writer: Writer, call: Call) -> None:
        """Show that the call runs, with the answers to its questions."""
        self.asked.pop(ui_calls.question_id(self.shown_id(call), call.round), None)
        self._show(writer, call)
        self._show_answers(writer, call)

    def ask(self, writer: Writer, call: Call) -> None:
        """Show the call, and ask the reader for its response."""
        self._show(writer, call)
        shown = self.shown_id(call)
        if call.declared or call.kind == "elsewhere":
            self.unasked.add(shown)
            return
        about: JsonObject = {"id": shown, "reason": f"helix:{call.kind}", "toolCallId": shown}
        about["metadata"] = {"tool": call.name}
        if call.kind == "question":
            about |= ui_calls.question_interrupt(shown, call)
        elif call.kind != "client":
            about |= {"responseSchema": ANSWER}
        self.asked[str(about["id"])] = about | dict(writer.tag)

    def end(self, writer: Writer, call: Call) -> None:
        """Show the result of the call, once."""
        shown = self.shown_id(call)
        self.unasked.discard(shown)
        self.asked.pop(shown, None)
        self.asked.pop(ui_calls.question_id(shown, call.round), None)
        if shown in self._results:
            return
        self._results.add(shown)
        if not self._talk.has_call(shown):
            self._show(writer, call)
        self._show_answers(writer, call)
        result = call.result if call.result is not None else call.error
        content = agui_content(result if isinstance(result, str) else dumps(result), call.files)
        result_id = self._given.get(shown) or f"{shown}/result"
        if shown not in self._given:
            self._emit("TOOL_CALL_RESULT", writer, messageId=result_id, toolCallId=shown, role="tool", content=content)
        self._talk.add_result(result_id, shown, content, writer.tag)

    def shown_id(self, call: Call) -> str:
        """Return the id of the call on the page."""
        return ui_calls.shown_call(self._root, call.step.conversation.id, call.id)

    def _show(self, writer: Writer, call: Call) -> None:
        shown, arguments = self.shown_id(call), dumps(call.arguments)
        if self._talk.has_call(shown):
            if self._talk.change_arguments(shown, arguments):
                self._emit("MESSAGES_SNAPSHOT", messages=self._talk.snapshot())
            return
        self._emit_call(call, shown, call.name, arguments, writer)

    def _emit_call(self, call: Call, shown: str, name: str, arguments: str, writer: Writer) -> None:
        step = call.step
        in_answer = call.served or step.state == "committed"
        parent = answer_id(step.conversation.id, step.step, step.attempt if in_answer else 0)
        tag = self._owners.setdefault(parent, writer.tag)
        self._emit("TOOL_CALL_START", None, toolCallId=shown, toolCallName=name, parentMessageId=parent, **tag)
        self._emit("TOOL_CALL_ARGS", None, toolCallId=shown, delta=arguments, **tag)
        self._emit("TOOL_CALL_END", None, toolCallId=shown, **tag)
        self._talk.add_call(parent, shown, name, arguments, tag)

    def _show_answers(self, writer: Writer, call: Call) -> None:
        """Show each answered round of questions as a call of its own with the answers, as the stored conversation does."""
        for shown, asked in ui_calls.answered_rounds(self.shown_id(call), call.questions):
            if not self._talk.has_call(shown):
                self._emit_call(call, shown, ui_calls.QUESTION, ui_calls.questions_text(asked), writer)
                result = ui_calls.answers_message(shown, asked)
                about = {"messageId": result["id"], "content": result["content"]}
                self._emit("TOOL_CALL_RESULT", writer, toolCallId=shown, role="tool", **about)
                self._talk.add_result(str(result["id"]), shown, result["content"], writer.tag)
