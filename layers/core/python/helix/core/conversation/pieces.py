"""The order in which readers draw the items of a conversation, and the fold of a session that is only stored.

Law: the chat, `helix show`, its HTML page, the notebook and the console (`clients/console/src/items.tsx`) draw the same
pieces in the same order. A reader may fold a piece, but does not leave it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

from helix.core.chunks import SubAgentStartChunk
from helix.core.conversation.conversation import STORED, Conversation
from helix.core.conversation.items import Call, Item, Notice, Step, User
from helix.core.handles import SubSessionRef
from helix.core.messages import AnyMessage, Citation
from helix.core.rows import Pending
from helix.core.tools import FINISH_TOOL_NAME

OfStep: TypeAlias = Literal["reasoning", "answer", "sources", "cut", "output"]
PieceKind: TypeAlias = OfStep | Literal["message", "call", "discarded", "notice"]
_CAUSES = {"overflow": ", because the provider refused the prompt as too long", "request": ", as requested"}


@dataclass(frozen=True, slots=True)
class MessagePiece:
    """A message of the user."""

    user: User
    kind: Literal["message"] = "message"


@dataclass(frozen=True, slots=True)
class StepPiece:
    """A part of an attempt at a step: its reasoning, its text, the sources of the text, the mark that it was cut off, or
    its output."""

    step: Step
    kind: OfStep
    text: str
    """The text of the piece. Empty for `cut`. For `sources`, a line for each source."""


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A call of a tool or a sub-agent, with the conversation of the sub-agent inside. The calls that the provider executed
    precede the answer."""

    call: Call
    kind: Literal["call"] = "call"


@dataclass(frozen=True, slots=True)
class DiscardedPiece:
    """An attempt at a step that was discarded."""

    step: Step
    kind: Literal["discarded"] = "discarded"


@dataclass(frozen=True, slots=True)
class NoticePiece:
    """A line about the run."""

    notice: Notice
    kind: Literal["notice"] = "notice"


Piece: TypeAlias = MessagePiece | StepPiece | CallPiece | DiscardedPiece | NoticePiece


def pieces_of(items: Sequence[Item]) -> Iterator[Piece]:
    """Yield the pieces of items, in the order in which readers draw them."""
    for item in items:
        match item:
            case User():
                yield MessagePiece(item)
            case Notice():
                yield NoticePiece(item)
            case Step(state="discarded"):
                yield DiscardedPiece(item)
            case Step():
                yield from _pieces_of_step(item)
            case _:
                assert_never(item)


def _pieces_of_step(step: Step) -> Iterator[Piece]:
    if step.thinking:
        yield StepPiece(step, "reasoning", step.thinking)
    for served in step.served.values():
        yield CallPiece(served)
    if step.text:
        yield StepPiece(step, "answer", step.text)
    if step.citations:
        yield StepPiece(step, "sources", "\n".join(map(describe_source, step.sources)))
    if step.cut:
        yield StepPiece(step, "cut", "")
    if step.output:
        yield StepPiece(step, "output", step.output)
    for call in step.calls:
        yield CallPiece(call)


def fold_stored(
    session_id: str,
    agent: str,
    messages: Sequence[AnyMessage],
    sub_sessions: Sequence[SubSessionRef],
    pending: Sequence[Pending],
) -> Conversation:
    """Return the conversation of a session of which only the rows are known, not the stream. The calls that wait, and the
    sub-agents that work, belong to an answer that is not part of history yet."""
    conversation = Conversation(session_id, agent)
    refs = {ref.parent_tool_call_id: (ref.session_id, ref.agent_type) for ref in sub_sessions}
    conversation.load(messages, refs, STORED)
    conversation.expect(pending)
    for call_id, (child, child_agent) in refs.items():
        if call_id not in conversation.calls:
            about = {"parent_tool_call_id": call_id, "sub_agent_id": child, "sub_agent_type": child_agent}
            conversation.add(SubAgentStartChunk(agent_id=session_id, step=0, **about))
    return conversation


def describe_source(source: Citation) -> str:
    """Return the line of a source: its title and its address, as far as they are known."""
    return " · ".join(text for text in (source.title, source.url) if text) or "a document"


def is_output(call: Call) -> bool:
    """Return whether the call gave the structured output."""
    return call.name == FINISH_TOOL_NAME


def describe_context(notice: Notice) -> str:
    """Describe a change to the model's view of the conversation, as a sentence without a period."""
    said = "Old tool results were cleared from the model's context"
    if notice.hidden:
        first = f"the first {notice.hidden:,} messages" if notice.hidden > 1 else "the first message"
        said = (
            f"The model now sees a summary in place of {first}" if notice.text else f"The model no longer sees {first}"
        )
    return said + _CAUSES.get(notice.code, "")


def describe_notice(notice: Notice) -> str:
    """Return the line of a notice for readers who cannot act on it."""
    match notice.kind:
        case "queued":
            why = f" The agent is {notice.text}." if notice.text else ""
            return f"Waits for a free slot: {notice.queued} in the queue.{why}"
        case "context":
            return f"{describe_context(notice)}."
        case "error":
            return f"{notice.code}: {notice.text} It is tried again."
        case "takeover":
            return "The worker died. Another one took the run over from the last checkpoint."
        case "budget":
            return "The budget is used up."
        case "failed":
            return f"The run failed: {notice.text or 'no reason is known'}"
        case "interrupted":
            return "Interrupted."
        case "note":
            return notice.text
        case _:
            assert_never(notice.kind)
