"""The items of a conversation: messages of the user, attempts at steps with their parts and calls, and notices.

Law: an item is created and changed only by the conversation that contains it. Readers compare items by identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from helix.core.files import FilePart
from helix.core.json import JsonObject, JsonValue
from helix.core.messages import AskedQuestion, CallResponse, Citation, Edit, distinct_sources
from helix.core.usage import Usage

if TYPE_CHECKING:
    from helix.core.conversation.conversation import Conversation

PartKind: TypeAlias = Literal["text", "reasoning", "output"]
CallState: TypeAlias = Literal["open", "running", "waiting", "done", "failed"]
Question: TypeAlias = Literal["approval", "client", "unknown", "question", "elsewhere"]
NoticeKind: TypeAlias = Literal["queued", "error", "context", "takeover", "budget", "failed", "interrupted", "note"]
Tone: TypeAlias = Literal["plain", "warn", "bad"]
BUDGET = "budget_exceeded"
"""The completion reason of a run that a budget paused, which does not wait for a person."""


@dataclass(eq=False, slots=True)
class User:
    """A message of the user."""

    text: str
    """The content of the message."""
    run_id: str | None
    """The run that the message started. None until the service confirms it. Empty for a stored message without a run."""
    files: Sequence[FilePart] = ()
    """The files of the message, by their place in the text."""
    queued_id: str = ""
    """The id under which the message waited for a run. Empty if it did not wait."""
    at: float | None = None
    """The time when a stored message was added (Unix seconds). None for one from the stream."""


@dataclass(eq=False, slots=True)
class Part:
    """A piece of an answer without a change of kind: text, one block of reasoning, or the JSON text of the output."""

    step: Step
    """The attempt that the part belongs to."""
    kind: PartKind
    """Whether the part is text, reasoning or output."""
    index: int
    """The position among the parts of the attempt, starting at 0."""
    pieces: list[str] = field(default_factory=list)
    """The text of the part in pieces, as they arrived."""

    @property
    def text(self) -> str:
        """The text so far."""
        if len(self.pieces) > 1:
            self.pieces[:] = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""


@dataclass(eq=False, slots=True)
class Step:
    """An attempt at a step: the part of the model's answer that has arrived, and its calls."""

    conversation: Conversation
    """The conversation of the session that made the attempt."""
    run_id: str | None
    """The run that made the attempt. None if a waiting call is all that is known about the step."""
    step: int
    """The number of the step in its session."""
    attempt: int
    """The number of the attempt, starting at 1. 0: unknown, as for stored messages and for answers whose calls alone are
    known."""
    parts: list[Part] = field(default_factory=list)
    """The parts of the answer, in order."""
    open: Part | None = None
    """The part that the next piece of its kind is appended to. None between two parts."""
    calls: list[Call] = field(default_factory=list)
    """The known calls of the answer, in call order."""
    served: dict[str, Call] = field(default_factory=dict)
    """The calls of the provider's own tools, by the provider's ids, in order."""
    citations: list[Citation] = field(default_factory=list)
    """The sources of the text."""
    state: Literal["open", "committed", "discarded"] = "open"
    """`open` while the text is provisional, `committed` once it is stored, `discarded` if the attempt was dropped."""
    retained: bool = False
    """Whether the text of a discarded attempt stays readable until another attempt at the step begins, because its run
    was interrupted."""
    cut: bool = False
    """Whether an interrupt cut off the answer, whose text so far is committed."""
    why: str | None = None
    """The reason why the attempt was discarded. None if the stream does not give one."""
    model: str | None = None
    """The model that answered. None until the commit, or if the commit does not name it."""
    usage: Usage | None = None
    """Tokens and cost of the answer. None until the commit, or if the commit does not contain them."""
    agent: str = ""
    """The agent of a stored answer that another agent than the session's own gave. Empty for other answers."""
    at: float | None = None
    """The time when a stored answer was added (Unix seconds). None for one from the stream."""

    @property
    def output(self) -> str:
        """The JSON text of the structured output so far. Empty if the answer has no output."""
        return "".join(part.text for part in self.parts if part.kind == "output")

    @property
    def text(self) -> str:
        """The text of the answer so far."""
        return "".join(part.text for part in self.parts if part.kind == "text")

    @property
    def thinking(self) -> str:
        """The model's reasoning so far, with an empty line between two blocks."""
        return "\n\n".join(part.text for part in self.parts if part.kind == "reasoning")

    @property
    def sources(self) -> list[Citation]:
        """The sources of the text, each once, in the order of their first citations."""
        return distinct_sources(self.citations)


@dataclass(eq=False, slots=True)
class Call:
    """A call of a tool or a sub-agent."""

    step: Step
    """The attempt whose answer contains the call."""
    id: str
    """The call's id from the model's answer."""
    name: str
    """The name of the tool. That of a sub-agent begins with `SUBAGENT_TOOL_PREFIX`."""
    arguments: JsonObject = field(default_factory=dict)
    """The arguments of the execution: the model's, or the edited ones that a person approved."""
    state: CallState = "open"
    """The progress of the call. An `open` call has not started, or its run ended before it could. A `waiting` call needs
    a person."""
    attempt: int = 0
    """The number of times that workers have claimed the call since its last questions. 0: not yet. More than 1: a worker
    died."""
    result: JsonValue = None
    """The result of the call. For a failed call, the content of its result."""
    files: Sequence[FilePart] = ()
    """The files of the result, by their place in its text."""
    error: str | None = None
    """The error of a call that failed."""
    kind: Question = "approval"
    """The kind of answer that a waiting call needs."""
    parameters: JsonObject = field(default_factory=dict)
    """The JSON schema of the arguments, for the form that edits them. Empty if it is not known."""
    reason: str | None = None
    """The reason why the tool needs approval. None if its approval rule does not give one."""
    questions: Sequence[AskedQuestion] = ()
    """The open questions of a waiting call of the kind `question`, or all questions of a call that went on."""
    responses: Sequence[CallResponse] = ()
    """The approvals, denials, results and rulings that the call got."""
    round: int = 0
    """The last round of those questions, for the response. 0 if the call has asked none."""
    declared: bool = False
    """Whether the run declared the tool, whose calls the front end executes."""
    edited: Edit | None = None
    """The edit of the model's arguments in the approval of the call. None if the arguments are the model's."""
    asked: JsonObject | None = None
    """The arguments before the edit. None if the arguments are the model's, or if the stream did not show them."""
    served: bool = False
    """Whether the provider executes the call, while the model answers."""
    child: Conversation | None = None
    """The conversation of the sub-agent that the call started. None for tools."""


@dataclass(eq=False, slots=True)
class Notice:
    """A line about the run that is not part of the conversation, such as an error. Readers put it into words."""

    kind: NoticeKind
    """The event that the line is about. `note`: a line that the reader added itself."""
    text: str = ""
    """The error, the reason, the summary or the content of the note. Empty if the kind says everything."""
    tone: Tone = "warn"
    """The weight of the line."""
    code: str = ""
    """The stable code of an `error`, or the cause of a `context` (`core.view_row.ViewCause`). Empty for other kinds."""
    queued: int = 0
    """The number of runs in the queue, for `queued`."""
    hidden: int = 0
    """For `context`, the number of messages at the beginning that the model does not see any more. 0 if only tool results
    were cleared."""


Item: TypeAlias = User | Step | Notice
