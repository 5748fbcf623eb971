"""Views: the part of a history that a model is shown.

Law: history never changes. A view is a row beside it, which the session and each checkpoint name. The same history and
view give the same prompt, byte for byte. A view hides whole steps, so that a result always follows its call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeGuard

from pydantic import BaseModel, Field

from helix.core.files import FilePart
from helix.core.json import dumps
from helix.core.messages import AnyMessage, AssistantMessage, ToolCallRequest, ToolResultMessage, UserMessage
from helix.core.planning import Resolved, failure
from helix.core.tools import Tool
from helix.core.view_row import ViewRow

LEAST_CLEARED = 400
"""The minimum length of a result that is cleared, in characters. The note in its place is about half as long."""
MOST_ARGUMENTS = 120
"""The maximum number of characters of a call's arguments that the note repeats."""
RECALL = "recall"
"""The name of the tool that reads cleared results again."""
MOST_RECALLED = 20_000
"""The maximum number of characters that one call of `recall` returns."""


def show_history(view: ViewRow | None, messages: Sequence[AnyMessage], *, recall: bool = True) -> list[AnyMessage]:
    """Return the messages as the model is shown them. `recall`: whether the model can read cleared results again."""
    if view is None:
        return list(messages)
    shown: list[AnyMessage] = [UserMessage(content=_frame(view, messages))] if view.hidden else []
    calls = _calls_of(messages[view.hidden : view.cleared])
    for index, message in enumerate(messages[view.hidden :], view.hidden):
        if index < view.cleared:
            message = without_files(message, "no longer shown")
            if is_clearable(message):
                note = _note(message, calls.get(message.tool_call_id), recall)
                message = message.model_copy(update={"content": note})
        shown.append(message)
    return shown


def is_clearable(message: AnyMessage) -> TypeGuard[ToolResultMessage]:
    """Return whether the message is a tool result that is long enough to be cleared."""
    return isinstance(message, ToolResultMessage) and len(message.content) >= LEAST_CLEARED


def without_files(
    message: AnyMessage, why: str, leave_out: Callable[[FilePart], bool] = lambda file: True
) -> AnyMessage:
    """Return the message with a note at its end for each file that is left out. `why`: the rest of the note."""
    if not isinstance(message, UserMessage | ToolResultMessage):
        return message
    gone = [file for file in message.files if leave_out(file)]
    if not gone:
        return message
    notes = [f"[The {file.kind} {file.name or file.media_type} is {why}.]" for file in gone]
    content = "\n".join([message.content, *notes] if message.content else notes)
    others = [file for file in message.files if file not in gone]
    return message.model_copy(update={"content": content, "files": others})


def _calls_of(messages: Sequence[AnyMessage]) -> dict[str, ToolCallRequest]:
    answers = (message for message in messages if isinstance(message, AssistantMessage))
    return {call.id: call for answer in answers for call in answer.tool_calls}


def _note(result: ToolResultMessage, call: ToolCallRequest | None, recall: bool) -> str:
    arguments = "" if call is None else dumps(call.arguments)
    if len(arguments) > MOST_ARGUMENTS:
        arguments = arguments[:MOST_ARGUMENTS] + "..."
    note = f"[The result of {result.tool_name}({arguments}) was cleared: {len(result.content)} characters."
    return note + (f" Read it with {RECALL}(call_id={dumps(result.tool_call_id)}).]" if recall else "]")


def _frame(view: ViewRow, messages: Sequence[AnyMessage]) -> str:
    """Return the text that takes the place of hidden messages. Code adds the user's last hidden message, because a
    summary may lose its wording."""
    parts = [f"[The first {view.hidden} messages of this conversation are not shown.]"]
    if view.summary:
        parts += ["[A summary of its beginning:]", view.summary]
    hidden = messages[: view.hidden]
    if not any(isinstance(message, UserMessage) for message in messages[view.hidden :]):
        last = next((message for message in reversed(hidden) if isinstance(message, UserMessage)), None)
        if last is not None:
            parts += ["[The user's last message:]", last.content]
    return "\n\n".join(parts)


class RecallInput(BaseModel):
    """The arguments of `recall`."""

    call_id: str = Field(description="The id of the call, from the note in place of its result.")
    start: int = Field(default=0, ge=0, description="The first character to return.")


def _never_executed(arguments: RecallInput, context: object) -> str:
    raise AssertionError("recall is answered when the step is staged")


RECALL_TOOL = Tool(
    name=RECALL,
    description=f"Read a result that was cleared from this conversation, up to {MOST_RECALLED} characters at a time.",
    input_schema=RecallInput,
    execute=_never_executed,
    inline=True,
)


def recall_result(call: ToolCallRequest, messages: Sequence[AnyMessage]) -> Resolved:
    """Return the result of a `recall` call, from the messages of history."""
    asked = RecallInput.model_validate(call.arguments)
    found = next((m for m in messages if isinstance(m, ToolResultMessage) and m.tool_call_id == asked.call_id), None)
    if found is None:
        return failure(f"this conversation has no result of a call {asked.call_id!r}")
    text, end = found.content, asked.start + MOST_RECALLED
    if asked.start >= max(1, len(text)):
        return failure(f"the result of call {asked.call_id!r} has {len(text)} characters: start before its end")
    if asked.start == 0 and len(text) <= MOST_RECALLED:
        return Resolved(text, True)
    rest = f" Go on with start={end}." if end < len(text) else ""
    shown = f"[Characters {asked.start} to {min(end, len(text))} of {len(text)}.{rest}]"
    return Resolved(f"{text[asked.start : end]}\n{shown}", True)
