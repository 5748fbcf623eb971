"""The attempts at the steps of one session: the parts of their answers, and what a discard takes away.

Law: pieces are appended to the current attempt. A piece of another attempt ends the open part of the current one. The text
of an interrupted run is retained until another attempt at the step begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, assert_never

from helix.core import chunks as c
from helix.core.conversation.changes import (
    CallEnded,
    CallStarted,
    Change,
    PartBegan,
    PartEnded,
    PartGrew,
    StepBegan,
    StepCommitted,
    StepDiscarded,
    TextCited,
)
from helix.core.conversation.items import Call, Part, PartKind, Step
from helix.core.json import JsonValue
from helix.core.messages import AssistantMessage, Citation
from helix.core.server_tools import server_calls
from helix.core.steps import StopReason

if TYPE_CHECKING:
    from helix.core.conversation.conversation import Conversation

AnswerChunk: TypeAlias = (
    c.TextDeltaChunk
    | c.OutputDeltaChunk
    | c.ThinkingChunk
    | c.ServerToolChunk
    | c.CitationChunk
    | c.StepCommittedChunk
    | c.StepDiscardedChunk
)


class Attempts:
    def __init__(self, conversation: Conversation) -> None:
        self._conversation, self._run_id = conversation, ""
        self._current: Step | None = None
        self._retained: Step | None = None

    def begin_run(self, run_id: str, *, continues: bool) -> Step | None:
        """Note the session's new run. Return the attempt of the interrupted run that it continues, if its text was
        retained."""
        self._run_id = run_id
        if not continues:
            self._retained = None
        return self._retained

    def take(self, chunk: AnswerChunk) -> list[Change]:
        match chunk:
            case c.TextDeltaChunk():
                return self.grow("text", chunk.step, chunk.attempt, chunk.delta)
            case c.OutputDeltaChunk():
                return self.grow("output", chunk.step, chunk.attempt, chunk.delta)
            case c.ThinkingChunk():
                if chunk.is_complete:
                    return self._complete_reasoning(chunk)
                return self.grow("reasoning", chunk.step, chunk.attempt, chunk.content)
            case c.ServerToolChunk() | c.CitationChunk():
                return self._take_served(chunk)
            case c.StepCommittedChunk():
                return self._commit(chunk)
            case c.StepDiscardedChunk():
                return self._discard(chunk)
            case _:
                assert_never(chunk)

    def grow(self, kind: PartKind, step: int, attempt: int, delta: str) -> list[Change]:
        """Append a piece to the open part of the attempt, or to a new part."""
        found = self._current
        if found is not None and found.step == step and found.attempt == attempt and found.run_id == self._run_id:
            part = found.open
            if part is not None and part.kind == kind:
                part.pieces.append(delta)
                return [PartGrew(part, delta)]
        out: list[Change] = []
        found = self._begin(step, attempt, out)
        if found is None:
            return out
        part = found.open
        if part is None or part.kind != kind:
            _end_part(found, out)
            part = found.open = Part(found, kind, len(found.parts))
            found.parts.append(part)
            out.append(PartBegan(part))
        part.pieces.append(delta)
        out.append(PartGrew(part, delta))
        return out

    def _complete_reasoning(self, chunk: c.ThinkingChunk) -> list[Change]:
        """End the open block of reasoning, whose pieces the chunk repeats. Without one, add the block."""
        out: list[Change] = []
        found = self._begin(chunk.step, chunk.attempt, out)
        if found is None:
            return out
        if found.open is None or found.open.kind != "reasoning":
            out += self.grow("reasoning", chunk.step, chunk.attempt, chunk.content)
        _end_part(found, out)
        return out

    def _take_served(self, chunk: c.ServerToolChunk | c.CitationChunk) -> list[Change]:
        """Note a call of the provider's own tool, which ends the open part, or a source of the text. A call is shown once
        its arguments are known."""
        out: list[Change] = []
        found = self._begin(chunk.step, chunk.attempt, out)
        if found is None:
            return out
        if isinstance(chunk, c.CitationChunk):
            citation = Citation(start=chunk.start, end=chunk.end, url=chunk.url, title=chunk.title, quote=chunk.quote)
            found.citations.append(citation)
            return [*out, TextCited(found, citation)]
        _end_part(found, out)
        ident = chunk.tool_call_id
        before = found.served.get(ident)
        if before is None and not (chunk.arguments or chunk.done):
            return out
        call = found.served[ident] = before or _served_call(found, ident, chunk.tool_name)
        if before is None or chunk.arguments != call.arguments:
            call.arguments = chunk.arguments
            out.append(CallStarted(call))
        if chunk.done and call.state == "running":
            _end_served(call, chunk.result, chunk.error)
            out.append(CallEnded(call))
        return out

    def _commit(self, chunk: c.StepCommittedChunk) -> list[Change]:
        out: list[Change] = []
        found = self._begin(chunk.step, chunk.attempt, out)
        if found is not None:
            _end_part(found, out)
            _end_calls(found, None, out)
            found.state, found.model, found.usage = "committed", chunk.model, chunk.usage
            found.cut = chunk.stop_reason == StopReason.INTERRUPTED
            self._current = None
            out.append(StepCommitted(found))
        return out

    def _discard(self, chunk: c.StepDiscardedChunk) -> list[Change]:
        """Discard an attempt. One that showed nothing gets no item."""
        out: list[Change] = []
        found = self._find(chunk.step, chunk.attempt)
        if found is None:
            found = Step(self._conversation, self._run_id, chunk.step, chunk.attempt)
        elif found.state == "committed":
            return out
        self._end_previous(found, out)
        _end_part(found, out)
        _end_calls(found, "the attempt was discarded", out)
        self._current = None
        found.state, found.why, found.retained = "discarded", chunk.reason, chunk.status == "interrupted"
        if found.parts or found.served:
            self._retained = found if found.retained else None
        out.append(StepDiscarded(found))
        return out

    def _begin(self, step: int, attempt: int, out: list[Change]) -> Step | None:
        """Return the attempt that a piece or a commit belongs to, and make it the current one. Return None if its answer
        is committed already."""
        found = self._find(step, attempt)
        if found is not None and found.state == "committed":
            return None
        if found is None:
            found = Step(self._conversation, self._run_id, step, attempt)
            self._end_previous(found, out)
            self._conversation.items.append(found)
            out.append(StepBegan(found, self._replaced(step)))
        self._end_previous(found, out)
        self._current = found
        return found

    def _replaced(self, step: int) -> Step | None:
        """Return the attempt whose retained text disappears when another attempt at the step begins. Without one, the
        retained text stays."""
        retained, self._retained = self._retained, None
        if retained is None or retained.step != step:
            return None
        retained.retained = False
        return retained

    def _end_previous(self, next_step: Step, out: list[Change]) -> None:
        """End the open part of the current attempt if another attempt goes on."""
        if self._current is not None and self._current is not next_step:
            _end_part(self._current, out)

    def _find(self, step: int, attempt: int) -> Step | None:
        """Return the attempt of the present run, unless it was discarded. An answer of the stored messages does not have
        the number of its attempt, and is the one for every attempt."""
        for item in reversed(self._conversation.items):
            if not isinstance(item, Step) or item.step != step or item.state == "discarded":
                continue
            stored = item.attempt == 0 and item.state == "committed"
            if stored or (item.run_id, item.attempt) == (self._run_id, attempt):
                return item
        return None


def _end_calls(step: Step, error: str | None, out: list[Change]) -> None:
    """End the provider's calls whose result is not part of the answer: it may be in the next one."""
    for call in step.served.values():
        if call.state == "running":
            _end_served(call, None, error)
            out.append(CallEnded(call))


def load_served(step: Step, message: AssistantMessage) -> None:
    """Read the calls of the provider's own tools and the sources of a stored answer."""
    for made in server_calls(message.server_blocks):
        call = step.served[made.id] = _served_call(step, made.id, made.name)
        call.arguments = made.arguments
        _end_served(call, made.result, made.error)
    step.citations = list(message.citations)


def _served_call(step: Step, ident: str, name: str) -> Call:
    """Return a call that the provider executes. Its id is made unique in the session."""
    call_id = f"{step.step}/{step.attempt}/{ident}"
    return Call(step, call_id, name, state="running", attempt=1, served=True)


def _end_served(call: Call, result: JsonValue, error: str | None) -> None:
    call.state = "done" if error is None else "failed"
    call.result, call.error = result, error


def _end_part(step: Step, out: list[Change]) -> None:
    part, step.open = step.open, None
    if part is not None:
        out.append(PartEnded(part))
