"""The changes that a message of the stream makes to a conversation, as one closed union.

Law: a reader handles every class of `Change`, and mypy checks it (`assert_never`). A change refers to items, which already
have their new values when the reader receives it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from helix.core import chunks as c
from helix.core.chunk_envelope import NoticeChunk
from helix.core.conversation.items import Call, Notice, Part, Step
from helix.core.messages import Citation
from helix.core.wire import Kind

if TYPE_CHECKING:
    from helix.core.conversation.conversation import Conversation

# --- runs ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunBegan:
    """The first message of a run."""

    conversation: Conversation
    """The conversation of the run's session."""
    run_id: str
    """The id of the run."""
    mode: str
    """The mode of a run that continues or repeats an earlier one (`core.status.ClaimMode`). `execute` for other runs, and
    if the first message of the run is not known."""
    retained: Step | None
    """The attempt of an interrupted run whose text the new run will replace. None without such a text, or if the run does
    not continue the interrupted one."""

    @property
    def continues(self) -> bool:
        """Whether the run continues the answer to the same message of the user."""
        return self.mode in CONTINUES


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The end of a run's part of the stream."""

    conversation: Conversation
    """The conversation of the run's session."""
    kind: Kind
    """The kind of the message: `end`, `fail` or `paused`."""
    status: str | None
    """The status of the run."""
    error: str | None
    """The message of the run's error. None without an error."""


@dataclass(frozen=True, slots=True)
class RunResumed:
    """A notice that the run continues an earlier one. `RunBegan` precedes it."""

    conversation: Conversation
    """The conversation of the session that wrote the chunk."""
    chunk: c.RunResumedChunk
    """The chunk, which has the details."""


@dataclass(frozen=True, slots=True)
class RunInterrupted:
    """The reason of an interrupted run, before its end."""

    conversation: Conversation
    """The conversation of the session that wrote the chunk."""
    chunk: c.RunInterruptedChunk
    """The chunk, which has the details."""


@dataclass(frozen=True, slots=True)
class RunPaused:
    """The reason of a paused run, before its end."""

    conversation: Conversation
    """The conversation of the session that wrote the chunk."""
    chunk: c.RunPausedChunk
    """The chunk, which has the details."""


@dataclass(frozen=True, slots=True)
class RunQueued:
    """A notice that the run waits for a free slot."""

    conversation: Conversation
    """The conversation of the session that wrote the chunk."""
    chunk: c.RunQueuedChunk
    """The chunk, which has the details."""


@dataclass(frozen=True, slots=True)
class OutputGiven:
    """The output of a completed run."""

    conversation: Conversation
    """The conversation of the session that wrote the chunk."""
    chunk: c.OutputChunk
    """The chunk, which has the details."""


# --- answers ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepBegan:
    """The first chunk of an attempt at a step."""

    step: Step
    """The attempt at the step."""
    replaces: Step | None
    """The attempt of an interrupted run whose text disappears now. None if no text disappears."""


@dataclass(frozen=True, slots=True)
class PartBegan:
    """The beginning of a part. Its text follows in `PartGrew`."""

    part: Part
    """The part, which refers to its step."""


@dataclass(slots=True, eq=False)  # a frozen one takes twice as long to create, and there is one for each piece
class PartGrew:
    """A piece of text or reasoning, which is appended to a part."""

    part: Part
    """The part, which refers to its step."""
    delta: str
    """The piece."""


@dataclass(frozen=True, slots=True)
class PartEnded:
    """The end of a part. Other parts of the attempt may follow."""

    part: Part
    """The part, which refers to its step."""


@dataclass(frozen=True, slots=True)
class StepCommitted:
    """The commit of an answer: its text is final."""

    step: Step
    """The attempt at the step."""


@dataclass(frozen=True, slots=True)
class StepDiscarded:
    """The end of a discarded attempt. Its text disappears, unless `step.retained`."""

    step: Step
    """The attempt at the step."""


# --- calls --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallAsked:
    """A question to a person or to the client about a call."""

    call: Call
    """The call, which refers to its step."""


@dataclass(frozen=True, slots=True)
class CallStarted:
    """The start of a claimed call, or of another attempt at it."""

    call: Call
    """The call, which refers to its step."""


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The result of a call."""

    call: Call
    """The call, which refers to its step."""


@dataclass(frozen=True, slots=True)
class ChildBegan:
    """The start or resumption of a sub-agent."""

    call: Call
    """The call, which refers to its step."""
    child: Conversation
    """The conversation of the sub-agent."""


@dataclass(frozen=True, slots=True)
class ChildEnded:
    """The end of a sub-agent's work for a call. The end of the call follows."""

    call: Call
    """The call, which refers to its step."""
    child: Conversation
    """The conversation of the sub-agent."""
    chunk: c.SubAgentEndChunk
    """The chunk, which has the status, the output and the error."""


# --- other events -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CustomEmitted:
    """An event that a tool or a hook emitted."""

    conversation: Conversation
    """The conversation of the session that wrote the chunk."""
    chunk: c.CustomEventChunk
    """The chunk, which has the details."""


@dataclass(frozen=True, slots=True)
class StatePatched:
    """A change of the committed custom state."""

    conversation: Conversation
    """The conversation of the session that wrote the chunk."""
    chunk: c.StatePatchChunk
    """The chunk, which has the details."""


@dataclass(frozen=True, slots=True)
class ErrorRaised:
    """An error of a model call, a tool call or the run."""

    conversation: Conversation
    """The conversation of the session that wrote the chunk."""
    chunk: c.ErrorChunk
    """The chunk, which has the details."""


@dataclass(frozen=True, slots=True)
class CheckpointCreated:
    """A notice that a checkpoint is durable."""

    conversation: Conversation
    """The conversation of the session that wrote the chunk."""
    chunk: c.CheckpointCreatedChunk
    """The chunk, which has the details."""


@dataclass(frozen=True, slots=True)
class ContextChanged:
    """A change of the part of history that the model is shown. A chunk that repeats the last one changes nothing."""

    conversation: Conversation
    """The conversation of the session that wrote the chunk."""
    notice: Notice
    """The item of the conversation that tells of the change."""
    chunk: c.ContextChangedChunk
    """The chunk, which has the details."""


@dataclass(frozen=True, slots=True)
class Noticed:
    """A chunk that readers show by its declaration alone."""

    conversation: Conversation
    """The conversation of the session that wrote the chunk."""
    chunk: NoticeChunk
    """The chunk, with its line and the fields for the encoders."""


@dataclass(frozen=True, slots=True)
class MessageQueued:
    """A message that waits for a run, or is delivered or withdrawn. A repeated chunk changes nothing."""

    conversation: Conversation
    """The conversation of the session that wrote the chunk."""
    chunk: c.MessageQueuedChunk
    """The chunk, which has the details."""


@dataclass(frozen=True, slots=True)
class Resynced:
    """A request to drop the conversation and to read it again."""

    conversation: Conversation
    """The conversation of the session that wrote the chunk."""
    chunk: c.StreamResyncChunk
    """The chunk, which has the details."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A chunk of a type that this version does not know."""

    conversation: Conversation
    """The conversation of the session that wrote the chunk."""
    chunk: c.UnknownChunk
    """The chunk, which has the details."""


@dataclass(frozen=True, slots=True)
class TextCited:
    """A source of the answer's text."""

    step: Step
    """The attempt whose text has the source."""
    citation: Citation
    """The source, and the part of the text that it belongs to."""


RunChange: TypeAlias = RunBegan | RunEnded | RunResumed | RunInterrupted | RunPaused | RunQueued | OutputGiven
StepChange: TypeAlias = StepBegan | PartBegan | PartEnded | StepCommitted | StepDiscarded
CallChange: TypeAlias = CallAsked | CallStarted | CallEnded | ChildBegan | ChildEnded
EventChange: TypeAlias = (
    CustomEmitted
    | StatePatched
    | ErrorRaised
    | CheckpointCreated
    | ContextChanged
    | Noticed
    | MessageQueued
    | Resynced
    | Unknown
)
AnswerChange: TypeAlias = PartGrew | TextCited | StepChange
Change: TypeAlias = AnswerChange | CallChange | RunChange | EventChange

CONTINUES = frozenset({"continue", "with_confirmation", "takeover", "retry", "abort"})
"""The modes of runs that continue the answer of the previous run to the same message of the user."""
