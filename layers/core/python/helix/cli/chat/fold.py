"""A conversation, built from a session's stored messages and the later chunks of its stream. `clients/console/src/fold.ts`
implements the same rules.

Law: no I/O; the same messages and chunks give the same conversation. A sub-agent has its own conversation below the call
that started it. The text of a discarded attempt is kept and marked as discarded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from helix.cli.view.terminal import BUDGET
from helix.core import chunks as c
from helix.core.chunk_envelope import ChunkBase
from helix.core.json import JsonObject
from helix.core.messages import AnyMessage, AssistantMessage, ToolResultMessage, UserMessage
from helix.core.rows import Pending
from helix.core.tools import SUBAGENT_TOOL_PREFIX
from helix.core.wire import StreamMessage


@dataclass(eq=False)
class Call:
    """A call of a tool or a sub-agent."""

    id: str
    """The call's id from the model's answer."""
    name: str
    """The name of the tool. That of a sub-agent begins with `SUBAGENT_TOOL_PREFIX`."""
    arguments: JsonObject = field(default_factory=dict)
    """The arguments of the execution: the model's, or the edited ones that a person approved."""
    state: Literal["open", "running", "waiting", "done", "failed"] = "open"
    """The progress of the call. An `open` call has not started, or its run ended before it could. A `waiting` call needs a
    person."""
    attempt: int = 0
    """How many times workers have claimed the call. 0: none has yet. More than 1: a worker died."""
    result: Any = None
    """The result of a call that succeeded."""
    error: str | None = None
    """The error of a call that failed."""
    kind: str = "approval"
    """The kind of answer that a waiting call needs, as in `core.rows.Pending`."""
    parameters: JsonObject = field(default_factory=dict)
    """The JSON schema of the arguments, for the form that edits them. Empty if it is not known."""
    reason: str | None = None
    """The reason why the tool needs approval. None if its approval rule does not give one."""
    edited: bool = False
    """Whether a person edited the model's arguments when approving the call."""
    child: Conversation | None = None
    """The conversation of the sub-agent that the call started. None for tools."""


@dataclass(eq=False)
class User:
    """A message of the user."""

    text: str
    """The content of the message."""
    run_id: str | None
    """The run that the message started. None until the service confirms it. Empty for a stored message without a run."""


@dataclass(eq=False)
class Step:
    """An attempt at a step: the part of the model's answer that has arrived, and its calls."""

    run_id: str | None
    """The run that made the attempt. None if a waiting call is all that is known about the step."""
    step: int
    """The number of the step in its session."""
    attempt: int
    """The number of the attempt, starting at 1. 0: unknown, as for stored messages, so any attempt matches."""
    text: str = ""
    """The text of the answer so far."""
    thinking: str = ""
    """The model's reasoning so far."""
    calls: list[Call] = field(default_factory=list)
    """The known calls of the answer, in call order."""
    state: Literal["open", "committed", "discarded"] = "open"
    """`open` while the text is provisional, `committed` once it is stored, `discarded` if the attempt was dropped."""
    why: str | None = None
    """The reason why the attempt was discarded. None if the stream does not give one."""


@dataclass(eq=False)
class Notice:
    """A line about the run that is not part of the conversation, such as an error."""

    text: str
    """The content of the line."""
    style: str = "yellow"
    """The line's style in Rich's notation."""


Item = User | Step | Notice
STORED = 2**62
"""A sequence above every real one. It means that the stored messages already contain the whole stream."""


class Conversation:
    """The conversation of a session. `below` maps session ids to the conversations of the session and its sub-agents."""

    def __init__(self, session_id: str, agent: str = "", below: dict[str, Conversation] | None = None) -> None:
        self.id, self.agent = session_id, agent
        self.items: list[Item] = []
        self.runs: set[str] = set()
        self.below = {} if below is None else below
        self.below[session_id] = self
        self._calls: dict[str, Call] = {}
        self._base, self._stored = 0, 0

    def load(self, messages: Sequence[AnyMessage], children: Mapping[str, tuple[str, str]], sequence: int = 0) -> None:
        """Start with the stored messages. `children` maps call ids to the session and agent of the call's sub-agent. The
        messages contain the stream up to `sequence`; chunks of later steps are still added."""
        self._base = sequence
        self._stored = max((m.step or 0 for m in messages if m.role != "system"), default=0)
        for message in messages:
            match message:
                case UserMessage():
                    self.items.append(User(message.content, message.run_id or ""))
                case AssistantMessage():
                    thought = "\n\n".join(block.text or "(redacted)" for block in message.thinking)
                    step = Step(message.run_id, message.step or 0, 0, message.content or "", thought, state="committed")
                    self.items.append(step)
                    for request in message.tool_calls:
                        call = self._add(step, request.id, request.name, request.arguments)
                        if (child := children.get(request.id)) is not None:
                            self._adopt(call, *child, stored=True)
                case ToolResultMessage():
                    self._result(message)
            self.runs.add(getattr(message, "run_id", None) or "")

    def named(self, session_id: str) -> None:
        """Set the session's id. A new session gets it with its first run."""
        self.below[session_id] = self.below.pop(self.id)
        self.id = session_id

    def insert(self, user: User) -> None:
        """Insert a message before any steps of its run that already arrived."""
        first = (
            i
            for i, item in enumerate(self.items)
            if isinstance(item, Step) and user.run_id and item.run_id == user.run_id
        )
        self.items.insert(next(first, len(self.items)), user)

    def confirm(self, user: User, run_id: str) -> None:
        """Mark a message as the one that started this run."""
        self.items.remove(user)
        self.runs.add(run_id)
        if not self.has(run_id):
            user.run_id = run_id
            self.insert(user)

    def has(self, run_id: str) -> bool:
        """Return whether the conversation contains the run's message."""
        return any(isinstance(item, User) and item.run_id == run_id for item in self.items)

    def notice(self, text: str, style: str = "yellow") -> None:
        last = self.items[-1] if self.items else None
        if not (isinstance(last, Notice) and last.text == text):
            self.items.append(Notice(text, style))

    def waiting(self) -> Iterator[Call]:
        """Yield the calls that wait for a person, including those of sub-agents."""
        for one in self.below.values():
            yield from (call for call in one._calls.values() if call.state == "waiting")

    def expect(self, pending: Sequence[Pending]) -> None:
        """Mark the calls that the session waits for, even if the stream no longer contains them."""
        for one in pending:
            if one.kind == "child":
                continue
            if (call := self._calls.get(one.call_id)) is None:
                steps = [item for item in self.items if isinstance(item, Step)]
                if not steps:
                    self.items.append(step := Step(None, 0, 0))
                    steps = [step]
                call = self._add(steps[-1], one.call_id, one.tool_name, one.arguments)
            call.state, call.kind = "waiting", one.kind
            call.reason, call.parameters = one.reason or call.reason, one.parameters or call.parameters

    # --- the stream -----------------------------------------------------------------------------------------------------

    def take(self, message: StreamMessage, chunk: c.StreamChunk | None) -> None:
        """Apply a message of the stream. `chunk` is the chunk that it carries, if any."""
        own = self.below.get(message.session_id)
        if own is None or (message.sequence <= own._base and (chunk is None or chunk.step <= own._stored)):
            return
        if chunk is None:
            own._end(message)
        else:
            own._chunk(chunk)

    def _end(self, message: StreamMessage) -> None:
        for call in self._calls.values():
            if call.state == "running" and message.kind != "paused":
                call.state = "open"
        if message.kind == "fail":
            self.notice(f"The run failed: {message.error or 'no reason is known'}", "red")
        elif message.status == "interrupted":
            self.notice("Interrupted. A message continues it; so does /resume.")

    def _chunk(self, chunk: c.StreamChunk) -> None:
        match chunk:
            case c.TextDeltaChunk() | c.ThinkingChunk() | c.StepCommittedChunk() | c.StepDiscardedChunk():
                self._provisional(chunk)
            case c.ToolStartChunk():
                call = self._known(chunk, chunk.tool_call_id, chunk.tool_name)
                call.arguments, call.state, call.attempt = chunk.arguments, "running", chunk.attempt
                call.edited = call.edited or chunk.edited is not None
            case c.ToolApprovalRequestChunk():
                call = self._known(chunk, chunk.tool_call_id, chunk.tool_name)
                call.arguments, call.state, call.kind = chunk.input, "waiting", chunk.kind
                call.parameters, call.reason = chunk.parameters, chunk.reason
            case c.ToolEndChunk():
                call = self._known(chunk, chunk.tool_call_id, chunk.tool_name)
                call.state, call.result, call.error = "done" if chunk.success else "failed", chunk.result, chunk.error
            case c.SubAgentStartChunk():
                call = self._known(chunk, chunk.parent_tool_call_id, SUBAGENT_TOOL_PREFIX + chunk.sub_agent_type)
                call.state = "running"
                self._adopt(call, chunk.sub_agent_id, chunk.sub_agent_type)
            case c.SubAgentEndChunk():
                call = self._known(chunk, chunk.parent_tool_call_id, SUBAGENT_TOOL_PREFIX + chunk.sub_agent_type)
                call.state = "done" if chunk.status == "completed" else "failed"
                call.result, call.error = chunk.result, chunk.error
            case c.RunResumedChunk(mode="takeover"):
                self.notice("The worker died. Another one took the run over from the last checkpoint.")
            case c.RunPausedChunk() if chunk.reason == BUDGET:
                self.notice("The budget is used up. Raise it (helix fleet set-budget), then /resume.")
            case c.RunQueuedChunk():
                why = f" The agent is {chunk.reason}." if chunk.reason else ""
                self.notice(f"Waits for a free slot: {chunk.queued} in the queue.{why}", "dim")
            case c.ErrorChunk() if chunk.recoverable:
                self.notice(f"{chunk.code}: {chunk.error} It is tried again.")
            case _:
                pass  # state, outputs and ends are shown by `/cost`, the status line and the messages

    def _provisional(
        self, chunk: c.TextDeltaChunk | c.ThinkingChunk | c.StepCommittedChunk | c.StepDiscardedChunk
    ) -> None:
        step = self._find(chunk)
        if step is None:
            if isinstance(chunk, c.StepDiscardedChunk):
                return
            self.items.append(step := Step(chunk.run_id, chunk.step, chunk.attempt))
        if step.state == "committed":
            return
        match chunk:
            case c.TextDeltaChunk():
                step.text += chunk.delta
            case c.ThinkingChunk():
                step.thinking = chunk.content if chunk.is_complete else step.thinking + chunk.content
            case c.StepCommittedChunk():
                step.state = "committed"
            case c.StepDiscardedChunk():
                step.state, step.why = "discarded", chunk.reason

    def _find(self, chunk: ChunkBase, *, calls: bool = False) -> Step | None:
        """Return the step that a chunk belongs to. With `calls`, return the answer that asked for a call, because a later
        run may execute it."""
        for item in reversed(self.items):
            if not isinstance(item, Step) or item.step != chunk.step or item.state == "discarded":
                continue
            if calls or item.attempt == 0 or (item.run_id, item.attempt) == (chunk.run_id, chunk.attempt):
                return item
        return None

    def _known(self, chunk: ChunkBase, call_id: str, name: str) -> Call:
        if (known := self._calls.get(call_id)) is not None:
            return known
        step = self._find(chunk, calls=True)
        if step is None:
            self.items.append(step := Step(chunk.run_id, chunk.step, 0))
        return self._add(step, call_id, name, {})

    def _add(self, step: Step, call_id: str, name: str, arguments: JsonObject) -> Call:
        call = self._calls[call_id] = Call(call_id, name, arguments)
        step.calls.append(call)
        return call

    def _adopt(self, call: Call, session_id: str, agent: str, *, stored: bool = False) -> None:
        call.child = self.below.get(session_id) or Conversation(session_id, agent, self.below)
        if stored and not call.child.items:
            call.child._base = call.child._stored = STORED

    def _result(self, message: ToolResultMessage) -> None:
        if (call := self._calls.get(message.tool_call_id)) is None:
            return
        call.state = "done" if message.success else "failed"
        call.result, call.error = (message.content, None) if message.success else (None, message.content)
        edited = message.metadata.get("edited")
        if isinstance(edited, dict):
            call.edited = True
            given = edited.get("arguments")
            call.arguments = given if isinstance(given, dict) else call.arguments
