"""The fold of a session's stored messages and of the messages of its stream into a conversation, and into the changes that
its readers show. `clients/js/src/conversation/` makes the same items and changes in TypeScript.

Law: no I/O, no clock and no ids; the same messages give the same items and the same changes. Every class of
`StreamChunk` is handled, and mypy checks it. A sub-agent has its own conversation below the call that started it. The text
of a discarded attempt stays in its step, which says that it is discarded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, assert_never

from helix.core import chunks as c
from helix.core.chunk_envelope import NoticeChunk
from helix.core.conversation import changes as ch
from helix.core.conversation.attempts import Attempts, load_served
from helix.core.conversation.changes import Change
from helix.core.conversation.items import BUDGET, Call, Item, Notice, Part, Step, Tone, User
from helix.core.entries import read_waits
from helix.core.json import JsonObject
from helix.core.messages import AnyMessage, AssistantMessage, Edit, ToolResultMessage, UserMessage
from helix.core.prompt import is_cut
from helix.core.rows import Pending
from helix.core.tools import SUBAGENT_TOOL_PREFIX
from helix.core.verdicts import BLOCKED, GUARDS
from helix.core.wire import StreamMessage

STORED = 2**62
"""A sequence above every real one. It means that the stored messages already contain the whole stream."""


class Conversation:
    """The conversation of a session. The conversation of the root session receives the messages of the whole stream;
    `below` maps session ids to the conversations of the session and its sub-agents."""

    def __init__(self, session_id: str, agent: str = "", root: Conversation | None = None) -> None:
        self.id, self.agent = session_id, agent
        self.items: list[Item] = []
        self.calls: dict[str, Call] = {}
        self.runs: set[str] = set()
        self.run_id = ""
        self.inbox: dict[str, User] = {}
        self._delivered: set[str] = set()
        self.call: Call | None = None
        self.status = ""
        self.below: dict[str, Conversation] = {session_id: self} if root is None else root.below
        self._unlinked: dict[str, Conversation] = {} if root is None else root._unlinked
        self._root = root or self
        self._base, self._stored = 0, 0
        self._attempts = Attempts(self)
        self._context: c.ContextChangedChunk | None = None
        if root is None:
            self.below[session_id] = self

    # --- stored messages ------------------------------------------------------------------------------------------------

    def load(self, messages: Sequence[AnyMessage], children: Mapping[str, tuple[str, str]], sequence: int = 0) -> None:
        """Start with the stored messages. `children` maps call ids to the session and agent of the call's sub-agent. The
        messages contain the stream up to `sequence`; chunks of later steps are still added."""
        self._base = sequence
        self._stored = max((m.step or 0 for m in messages if m.role != "system"), default=0)
        for message in messages:
            match message:
                case UserMessage():
                    self.items.append(_stored_user(message))
                    self._note_delivered(message.queued_id)
                case AssistantMessage():
                    self._load_answer(message, children)
                case ToolResultMessage():
                    self._load_result(message)
            self.runs.add(getattr(message, "run_id", None) or "")

    def _load_answer(self, message: AssistantMessage, children: Mapping[str, tuple[str, str]]) -> None:
        step = Step(self, message.run_id, message.step or 0, 0, state="committed", cut=is_cut(message))
        step.agent, step.at = str(message.metadata.get("agent") or ""), message.created_at
        self.items.append(step)
        for block in message.thinking:
            step.parts.append(Part(step, "reasoning", len(step.parts), [block.text or "(redacted)"]))
        if message.content:
            step.parts.append(Part(step, "text", len(step.parts), [message.content]))
        load_served(step, message)
        for request in message.tool_calls:
            call = self._add(step, request.id, request.name, request.arguments)
            if (child := children.get(request.id)) is not None:
                self._link_child(call, *child, stored=True)
        for verdict in verdicts if isinstance(verdicts := message.metadata.get(GUARDS), list) else ():
            if isinstance(verdict, dict) and isinstance(withheld := verdict.get("error"), str):
                self._notice(Notice("error", withheld, code=BLOCKED))
        if agent := message.metadata.get("handoff"):
            self._take_notice(c.AgentChangedChunk(agent=str(agent)))

    def _load_result(self, message: ToolResultMessage) -> None:
        if (call := self.calls.get(message.tool_call_id)) is None:
            return
        call.state, call.result = "done" if message.success else "failed", message.content
        call.error, call.files = None if message.success else message.content, message.files
        call.questions, call.responses = read_waits(message)
        edited = message.metadata.get("edited")
        if isinstance(edited, dict):
            call.edited = Edit.model_validate(edited, extra="ignore")
            if isinstance(given := edited.get("arguments"), dict):
                call.asked, call.arguments = call.arguments, given

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

    def note(self, text: str, tone: Tone = "warn") -> None:
        """Add a line of the reader itself."""
        self._notice(Notice("note", text, tone))

    def _notice(self, notice: Notice) -> None:
        last = self.items[-1] if self.items else None
        if not (isinstance(last, Notice) and (last.kind, last.text) == (notice.kind, notice.text)):
            self.items.append(notice)

    def waiting(self) -> Iterator[Call]:
        """Yield the calls that wait for a person, including those of sub-agents. Another system ends the other ones."""
        for one in self.below.values():
            yield from (call for call in one.calls.values() if call.state == "waiting" and call.kind != "elsewhere")

    def expect(self, pending: Sequence[Pending]) -> None:
        """Mark the calls that the session waits for, even if the stream no longer contains them."""
        for one in pending:
            if one.kind == "child":
                continue
            if (call := self.calls.get(one.call_id)) is None:
                step = next((item for item in reversed(self.items) if isinstance(item, Step)), None)
                if step is None or (step.attempt == 0 and step.state == "committed"):  # history lacks the open answer
                    self.items.append(step := Step(self, None, 0, 0))
                call = self._add(step, one.call_id, one.tool_name, one.arguments)
            call.state, call.kind = "waiting", one.kind
            call.reason, call.parameters = one.reason or call.reason, one.parameters or call.parameters
            call.questions, call.round = one.questions or call.questions, one.round or call.round

    # --- the stream -----------------------------------------------------------------------------------------------------

    def take(self, message: StreamMessage) -> list[Change]:
        """Apply a message of the stream, and return what it changed. Raises `DamagedRowError` for a chunk that cannot be
        parsed."""
        own = self.below.get(message.session_id) or self._of(message.session_id)
        chunk: dict[str, Any] = message.chunk or {}
        if message.sequence <= own._base and chunk.get("step", 0) <= own._stored:
            return []
        if message.run_id == own.run_id:
            # Most messages are pieces of text. Parsing one would take longer than all the rest.
            kind, step, attempt = chunk.get("type"), chunk.get("step", 0), chunk.get("attempt", 0)
            if kind == "text_delta" and isinstance(delta := chunk.get("delta"), str):
                return own._attempts.grow("text", step, attempt, delta)
            if kind == "output_delta" and isinstance(delta := chunk.get("delta"), str):
                return own._attempts.grow("output", step, attempt, delta)
            if kind == "thinking" and not chunk.get("is_complete") and isinstance(piece := chunk.get("content"), str):
                return own._attempts.grow("reasoning", step, attempt, piece)
        return own._end(message) if message.kind != "chunk" else own._take(message.run_id, message.parsed())

    def add(self, chunk: c.StreamChunk) -> list[Change]:
        """Apply a chunk that was received without its message, and return what it changed."""
        return self._of(chunk.agent_id or chunk.session_id)._take(chunk.run_id, chunk)

    def _of(self, session_id: str) -> Conversation:
        """Return the conversation of a session. A sub-agent whose call is not known yet has one that is not `below`."""
        if (known := self.below.get(session_id)) is not None:
            return known
        if (known := self._unlinked.get(session_id)) is None:
            known = self._unlinked[session_id] = Conversation(session_id, root=self._root)
        return known

    def _take(self, run_id: str, chunk: c.StreamChunk) -> list[Change]:
        out: list[Change] = []
        self._begin(run_id, chunk.mode if isinstance(chunk, c.RunResumedChunk) else "execute", out)
        match chunk:
            case (
                c.TextDeltaChunk()
                | c.OutputDeltaChunk()
                | c.ThinkingChunk()
                | c.ServerToolChunk()
                | c.CitationChunk()
                | c.StepCommittedChunk()
                | c.StepDiscardedChunk()
            ):
                out += self._attempts.take(chunk)
            case c.ToolStartChunk() | c.ToolApprovalRequestChunk() | c.ToolEndChunk():
                self._take_call(chunk, out)
            case c.SubAgentStartChunk() | c.SubAgentEndChunk():
                self._take_child(chunk, out)
            case c.RunResumedChunk() | c.RunPausedChunk() | c.RunInterruptedChunk() | c.RunQueuedChunk():
                self._take_run(chunk, out)
            case c.ErrorChunk():
                if chunk.recoverable:
                    self._notice(Notice("error", chunk.error, code=chunk.code))
                out.append(ch.ErrorRaised(self, chunk))
            case c.OutputChunk():
                out.append(ch.OutputGiven(self, chunk))
            case c.CustomEventChunk():
                out.append(ch.CustomEmitted(self, chunk))
            case c.StatePatchChunk():
                out.append(ch.StatePatched(self, chunk))
            case c.CheckpointCreatedChunk():
                out.append(ch.CheckpointCreated(self, chunk))
            case c.ContextChangedChunk() | c.MessageQueuedChunk():
                self._take_context(chunk, out) if chunk.type == "context_changed" else self._take_queued(chunk, out)
            case c.StreamResyncChunk():
                self._context = None
                out.append(ch.Resynced(self, chunk))
            case NoticeChunk():
                out.append(self._take_notice(chunk))
            case c.UnknownChunk():
                out.append(ch.Unknown(self, chunk))
            case _:
                assert_never(chunk)
        return out

    # --- runs -----------------------------------------------------------------------------------------------------------

    def _begin(self, run_id: str, mode: str, out: list[Change]) -> None:
        """Note the run that wrote a chunk, if it is a new one. The log's own records have no run."""
        if run_id in ("", self.run_id):
            return
        self.run_id = run_id
        retained = self._attempts.begin_run(run_id, continues=mode in ch.CONTINUES)
        out.append(ch.RunBegan(self, run_id, mode, retained))

    def _end(self, message: StreamMessage) -> list[Change]:
        out: list[Change] = []
        self._begin(message.run_id, "execute", out)
        if message.kind != "paused":
            for call in self.calls.values():
                call.state = "open" if call.state == "running" else call.state
        if message.kind == "fail":
            self._notice(Notice("failed", message.error or "", "bad"))
        elif message.status == "interrupted":
            self._notice(Notice("interrupted"))
        out.append(ch.RunEnded(self, message.kind, message.status, message.error))
        return out

    def _take_run(
        self,
        chunk: c.RunResumedChunk | c.RunPausedChunk | c.RunInterruptedChunk | c.RunQueuedChunk,
        out: list[Change],
    ) -> None:
        match chunk:
            case c.RunResumedChunk():
                if chunk.mode == "takeover":
                    self._notice(Notice("takeover"))
                out.append(ch.RunResumed(self, chunk))
            case c.RunPausedChunk():
                if chunk.reason == BUDGET:
                    self._notice(Notice("budget"))
                out.append(ch.RunPaused(self, chunk))
            case c.RunInterruptedChunk():
                out.append(ch.RunInterrupted(self, chunk))
            case c.RunQueuedChunk():
                self._notice(Notice("queued", chunk.reason or "", "plain", queued=chunk.queued))
                out.append(ch.RunQueued(self, chunk))
            case _:
                assert_never(chunk)

    def _take_notice(self, chunk: NoticeChunk) -> Change:
        if words := chunk.words():
            self._notice(Notice("note", words, "plain"))
        return ch.Noticed(self, chunk)

    def _take_queued(self, chunk: c.MessageQueuedChunk, out: list[Change]) -> None:
        """Note a waiting message, move it to its place, or drop it. A message that was delivered or withdrawn stays so."""
        ident = chunk.queued_id
        if ident in self._delivered or (chunk.state == "waiting" and ident in self.inbox):
            return
        user = User(chunk.content, "", chunk.files, ident)
        if chunk.state == "waiting":
            self.inbox[ident] = user
        else:
            self._note_delivered(ident)
        if chunk.state == "delivered" and (chunk.mode == "steer" or not self.has(self.run_id)):
            user.run_id = "" if chunk.mode == "steer" else self.run_id
            self.items.append(user)
            self.runs.add(self.run_id)
        out.append(ch.MessageQueued(self, chunk))

    def _note_delivered(self, queued_id: str) -> None:
        """Note that a message no longer waits, because it was delivered or withdrawn."""
        if queued_id:
            self._delivered.add(queued_id)
            self.inbox.pop(queued_id, None)

    def _take_context(self, chunk: c.ContextChangedChunk, out: list[Change]) -> None:
        """Note the model's new view of history. A worker that takes a step over sends the view's chunk again, and nothing
        else has the same step and the same places in history."""
        last, self._context = self._context, chunk
        if last is not None and (last.step, last.hidden, last.cleared) == (chunk.step, chunk.hidden, chunk.cleared):
            return
        notice = Notice("context", tone="plain", code=chunk.cause)
        if last is None or last.hidden != chunk.hidden:
            notice.text, notice.hidden = chunk.summary, chunk.hidden
        self.items.append(notice)
        out.append(ch.ContextChanged(self, notice, chunk))

    # --- calls ----------------------------------------------------------------------------------------------------------

    def _take_call(
        self, chunk: c.ToolStartChunk | c.ToolApprovalRequestChunk | c.ToolEndChunk, out: list[Change]
    ) -> None:
        known = chunk.tool_call_id in self.calls
        call = self._known(chunk.step, chunk.tool_call_id, chunk.tool_name)
        match chunk:
            case c.ToolStartChunk():
                if chunk.edited is not None and call.edited is None and call.arguments:
                    call.asked = call.arguments
                call.arguments, call.state = chunk.arguments, "running"
                call.attempt = chunk.attempt - call.round  # an execution that asked questions did not fail
                call.edited, call.questions = chunk.edited or call.edited, chunk.questions
                call.responses = chunk.responses
                out.append(ch.CallStarted(call))
            case c.ToolApprovalRequestChunk():
                call.arguments, call.state, call.kind = chunk.input, "waiting", chunk.kind
                call.parameters, call.reason = chunk.parameters, chunk.reason
                call.questions, call.round, call.declared = chunk.questions, chunk.round, chunk.declared
                out.append(ch.CallAsked(call))
            case c.ToolEndChunk():
                call.arguments = call.arguments if known else chunk.arguments or {}
                call.state, call.result, call.error = "done" if chunk.success else "failed", chunk.result, chunk.error
                call.files = chunk.files
                call.questions = chunk.questions or call.questions  # an older version left them out
                call.responses = chunk.responses or call.responses
                out.append(ch.CallEnded(call))
            case _:
                assert_never(chunk)

    def _take_child(self, chunk: c.SubAgentStartChunk | c.SubAgentEndChunk, out: list[Change]) -> None:
        call = self._known(chunk.step, chunk.parent_tool_call_id, SUBAGENT_TOOL_PREFIX + chunk.sub_agent_type)
        match chunk:
            case c.SubAgentStartChunk():
                child = self._link_child(call, chunk.sub_agent_id, chunk.sub_agent_type)
                call.state, child.status = "running", "running"
                out.append(ch.ChildBegan(call, child))
            case c.SubAgentEndChunk():
                child = self._of(chunk.sub_agent_id)
                call.state, child.status = "done" if chunk.status == "completed" else "failed", chunk.status
                call.result, call.error = chunk.result, chunk.error
                out.append(ch.ChildEnded(call, child, chunk))
            case _:
                assert_never(chunk)

    def _known(self, step: int, call_id: str, name: str) -> Call:
        """Return the call. A new one belongs to the newest answer of its step, because a later run may execute it."""
        if (known := self.calls.get(call_id)) is not None:
            return known
        for item in reversed(self.items):
            if isinstance(item, Step) and item.step == step and item.state != "discarded":
                return self._add(item, call_id, name, {})
        asking = Step(self, self.run_id, step, 0)
        self.items.append(asking)
        return self._add(asking, call_id, name, {})

    def _add(self, step: Step, call_id: str, name: str, arguments: JsonObject) -> Call:
        call = self.calls[call_id] = Call(step, call_id, name, arguments)
        step.calls.append(call)
        return call

    def _link_child(self, call: Call, session_id: str, agent: str, *, stored: bool = False) -> Conversation:
        """Return the conversation of the call's sub-agent. With `stored`, the stored messages contain all of it."""
        child = self.below.get(session_id)
        if child is None:
            child = None if stored else self._unlinked.pop(session_id, None)
            child = self.below[session_id] = child or Conversation(session_id, root=self._root)
            child.agent, child.call = agent, call
            if stored:
                child._base = child._stored = STORED
        call.child = child
        return child


def _stored_user(message: UserMessage) -> User:
    return User(message.content, message.run_id or "", message.files, message.queued_id, message.created_at)
