"""The sessions that write to one stream, as AG-UI distinguishes them, and the messages that show their answers.

Law: the text of an attempt is one message, and each block of its reasoning is another. Both end with the attempt at the
latest. The ids of the messages are derived from session, step and attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from helix.core.conversation.items import Part, Step
from helix.core.json import JsonObject
from helix.stream.agui_messages import AgUiMessages


@dataclass
class Writer:
    """One writer on the stream: the root session, or a run of a sub-agent."""

    session_id: str
    """The session that writes."""
    run_id: str
    """The id of the run that writes: the AG-UI run, or the sub-agent's run."""
    tag: JsonObject = field(default_factory=dict)
    """The fields of all its events: `subagentRunId` for a sub-agent, none for the root."""
    attempt: Step | None = None
    """The current attempt. None before the first one."""
    message: str | None = None
    """The id of the open text message. None if no message is open."""
    thought: str | None = None
    """The id of the open reasoning message. None if no message is open."""
    thoughts: int = 0
    """The number of reasoning messages of the current attempt, used to number their ids."""
    shown: list[str] = field(default_factory=list)
    """The ids of the current attempt's messages."""


class Answers:
    """Shows answers with `emit`, which takes the type of an event, its writer and its fields. The messages are also added
    to `talk`."""

    def __init__(self, emit: Callable[..., None], talk: AgUiMessages) -> None:
        self._emit, self._talk = emit, talk
        self.owners: dict[str, JsonObject] = {}
        """The tag of the writer that began each message, by message id."""

    def enter(self, writer: Writer, step: Step) -> None:
        """Make the attempt the writer's current one. The messages of another attempt end."""
        if writer.attempt is not step:
            self.close(writer)
            writer.attempt, writer.shown, writer.thoughts = step, [], 0

    def grow(self, writer: Writer, part: Part, delta: str) -> None:
        """Append to the open message of this kind, or to a new one."""
        if writer.attempt is not part.step:
            self.enter(writer, part.step)
        if part.kind == "output":
            at = {"step": part.step.step, "attempt": part.step.attempt}
            self._emit("CUSTOM", writer, name="helix.output_delta", value={"delta": delta, **at})
        elif part.kind == "text":
            message_id = writer.message or self._begin_text(writer, part.step)
            self._talk.append(message_id, delta)
            self._emit("TEXT_MESSAGE_CONTENT", writer, messageId=message_id, delta=delta)
        else:
            thought = writer.thought or self._begin_thought(writer, part.step)
            self._talk.append(thought, delta)
            self._emit("REASONING_MESSAGE_CONTENT", writer, messageId=thought, delta=delta)

    def hold(self, writer: Writer, step: Step) -> None:
        """Note that the attempt's message has a call, and so is discarded with the attempt even if it has no text."""
        self.enter(writer, step)
        if answer_of(step) not in writer.shown:
            writer.shown.append(answer_of(step))

    def end(self, writer: Writer, step: Step) -> list[str]:
        """End the attempt. Return the ids of its messages."""
        self.enter(writer, step)
        self.close(writer)
        shown, writer.shown = writer.shown, []
        return shown

    def close(self, writer: Writer) -> None:
        """End the open messages of the writer."""
        self.end_thought(writer)
        if writer.message is not None:
            self._emit("TEXT_MESSAGE_END", writer, messageId=writer.message)
            writer.message = None

    def end_thought(self, writer: Writer) -> None:
        """End the open block of reasoning, if any."""
        if writer.thought is not None:
            self._emit("REASONING_MESSAGE_END", writer, messageId=writer.thought)
            self._emit("REASONING_END", writer, messageId=writer.thought)
            writer.thought = None

    def _begin_text(self, writer: Writer, step: Step) -> str:
        message_id = writer.message = answer_of(step)
        self.owners.setdefault(message_id, writer.tag)
        self._emit("TEXT_MESSAGE_START", writer, messageId=message_id, role="assistant")
        self._show(writer, message_id, "assistant")
        return message_id

    def _begin_thought(self, writer: Writer, step: Step) -> str:
        writer.thoughts += 1
        thought = writer.thought = f"{answer_of(step)}/thinking/{writer.thoughts}"
        self._emit("REASONING_START", writer, messageId=thought)
        self._emit("REASONING_MESSAGE_START", writer, messageId=thought, role="reasoning")
        self._show(writer, thought, "reasoning")
        return thought

    def _show(self, writer: Writer, message_id: str, role: str) -> None:
        writer.shown.append(message_id)
        message: dict[str, Any] = {"id": message_id, "role": role, "content": "", **writer.tag}
        self._talk.add(message)


def answer_id(session_id: str, step: int, attempt: int) -> str:
    """Return the id of an answer's message. It does not contain the run id, because a run that takes over another one
    may show the answer."""
    return f"{session_id}/{step}/{attempt}"


def answer_of(step: Step) -> str:
    """Return the id of the message that shows the attempt's text."""
    return answer_id(step.conversation.id, step.step, step.attempt)
