"""Converts the log to AG-UI 1.0 events, for `HttpAgent` and other AG-UI front ends.

Law: an encoder does no I/O, reads no clock and generates no ids. So the same messages produce the same events, whether
live, replayed or after a reconnect. Each run of the root session is one AG-UI run, and everything that it opened is
closed before it finishes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from helix.core.conversation import changes as ch
from helix.core.conversation.conversation import Conversation
from helix.core.conversation.items import Step
from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject, JsonValue
from helix.core.patches import apply
from helix.core.usage import Usage
from helix.core.wire import StreamMessage
from helix.stream.agui_calls import Calls
from helix.stream.agui_messages import AgUiMessages
from helix.stream.agui_writers import Answers, Writer, answer_of
from helix.stream.file_parts import agui_content
from helix.stream.usage import usage_fields

PROTOCOL_VERSION = "1.0"
ENVELOPE = frozenset(
    {"type", "session_id", "run_id", "agent_id", "agent_type", "step", "attempt", "sequence", "timestamp"}
)


def pause_id(run_id: str) -> str:
    """Return the interrupt id of a run that paused for a reason other than a call, such as its budget."""
    return f"{run_id}/pause"


class AgUiEncoder:
    """Encodes stream messages as AG-UI events. Feed it every message, starting with the first one of a run.

    `messages` is the conversation before that run, with the message ids that the reader of the events uses. A discarded
    step produces a MESSAGES_SNAPSHOT, which removes all messages that are not in it. `state` is the committed state
    before that run, if known. `results` are the ids of the reader's own messages with results of its tools, by the call:
    it has those, so they are not sent.
    """

    def __init__(
        self,
        session_id: str,
        *,
        messages: Sequence[JsonObject] = (),
        state: JsonObject | None = None,
        results: Mapping[str, str] | None = None,
    ) -> None:
        self._root, self._state = session_id, state
        self._announced = ("", False)
        self.sequence = 0
        self._talk = AgUiMessages(messages)
        self._conversation = Conversation(session_id)
        self._answers = Answers(self._emit, self._talk)
        self._out: list[JsonObject] = []
        self._time = 0
        self._run: Writer | None = None
        self._calls = Calls(self._emit, self._talk, self._answers.owners, session_id, results or {})
        self._early: list[StreamMessage] = []  # messages of sub-agents, while no run of the root is open
        self._children: dict[str, Writer] = {}
        self._past: set[str] = set()  # runs of sub-agents that are closed
        self._retained: list[str] = []  # messages of an attempt that an interrupt cut off
        self._usage: dict[str, Usage] = {}  # the usage of the current run, by model
        self._output: JsonValue = None
        self._failure = "error"
        self._reason = "pending"

    @property
    def messages(self) -> list[JsonObject]:
        """The conversation that results from the events so far."""
        return self._talk.snapshot()

    def announce(self, *, run_id: str, messages: bool = False) -> None:
        """When that run begins, send a snapshot of the committed state (if known) and, with `messages`, of the
        conversation, for a reader that does not have it yet."""
        self._announced = (run_id, messages)

    def close(self) -> list[JsonObject]:
        """Return no events, because the events at the end of a run already close everything."""
        return []

    def feed(self, message: StreamMessage) -> list[JsonObject]:
        """Return the events of the next message. A message that was fed before produces none."""
        if message.sequence <= self.sequence:
            return []
        self.sequence = message.sequence
        self._receive(message)
        out, self._out = self._out, []
        return out

    def _receive(self, message: StreamMessage) -> None:
        chunk: dict[str, Any] = message.chunk or {}
        self._time = int(float(chunk.get("timestamp") or 0) * 1000) or self._time
        if message.session_id != self._root and self._run is None:
            self._early.append(message)
            return
        changes = self._conversation.take(message)
        if message.session_id != self._root:
            writer = self._child(message)
        else:
            if changes and isinstance(began := changes[0], ch.RunBegan):
                self._begin(began)
            writer = self._run
        if writer is not None:
            for change in changes:
                self._show_change(writer, change, message)

    def _emit(self, type: str, writer: Writer | None = None, **fields: Any) -> None:
        tag = writer.tag if writer is not None else {}
        stamp = {"timestamp": self._time} if self._time else {}
        self._out.append({"type": type, **stamp, **tag, **fields})

    # --- runs -------------------------------------------------------------------------------------------------------

    def _begin(self, began: ch.RunBegan) -> None:
        run_id = began.run_id
        if self._run is not None:  # the process of that run died, and this run took over
            self._close_all()
            self._emit(
                "RUN_FINISHED",
                threadId=self._root,
                runId=self._run.run_id,
                outcome={"type": "cancelled"},
                **self._used(),
            )
        self._run = Writer(self._root, run_id)
        self._children, self._past = {}, set()
        self._answers.owners.clear()
        self._output, self._failure, self._reason, self._usage = None, "error", "pending", {}
        tries_again = began.retained is not None and bool(self._retained)
        if tries_again:
            self._talk.discard(self._retained)
        self._retained = []
        self._emit("RUN_STARTED", threadId=self._root, runId=run_id, protocolVersion=PROTOCOL_VERSION)
        announced, messages = self._announced
        if announced == run_id and self._state is not None:
            self._emit("STATE_SNAPSHOT", snapshot=self._state)
        if tries_again or (announced == run_id and messages):
            self._snapshot()
        early, self._early = self._early, []
        for message in early:
            self._receive(message)

    def _finish(self, end: ch.RunEnded) -> None:
        run = self._run
        assert run is not None
        self._close_all()
        self._run = None
        about: dict[str, Any] = {"threadId": self._root, "runId": run.run_id}
        if end.kind == "fail":
            self._emit("RUN_ERROR", message=end.error or "the run failed", code=self._failure, **self._used())
            return
        if end.kind == "paused" and (interrupts := self._interrupts(run.run_id)):
            outcome: dict[str, Any] = {"type": "interrupt", "interrupts": interrupts}
        else:
            outcome = {"type": "success" if end.status in ("completed", "paused") else "cancelled"}
        if self._output is not None:
            about["result"] = self._output
        self._emit("RUN_FINISHED", **about, outcome=outcome, **self._used())

    def _used(self) -> dict[str, Any]:
        """Return the usage of all answers in the run and its sub-agents, by model. Calls whose answer was lost are not
        included."""
        entries = [{"model": model, **fields} for model, used in self._usage.items() if (fields := usage_fields(used))]
        return {"usage": entries} if entries else {}

    def _interrupts(self, run_id: str) -> list[JsonObject]:
        if self._calls.asked or self._calls.unasked:
            return list(self._calls.asked.values())
        return [{"id": pause_id(run_id), "reason": f"helix:{self._reason}"}]

    def _close_all(self) -> None:
        for child in reversed(list(self._children.values())):
            self._end_child(child, "paused", "paused", None)
        if self._run is not None:
            self._answers.close(self._run)

    # --- sub-agents -------------------------------------------------------------------------------------------------

    def _child(self, message: StreamMessage) -> Writer | None:
        """Return the writer of a sub-agent's run, announcing it with its first message. A closed run stays closed, and
        its later events carry its id."""
        run_id = message.run_id
        if run_id in self._children:
            return self._children[run_id]
        writer = Writer(message.session_id, run_id, {"subagentRunId": run_id})
        if run_id in self._past or not run_id:
            return writer if message.kind == "chunk" and run_id else None
        about: dict[str, Any] = {"name": "", "parentToolCallId": ""}
        child = self._conversation.below.get(message.session_id)
        if child is not None and child.call is not None:
            about = {"name": child.agent, "parentToolCallId": self._calls.shown_id(child.call)}
            parent = child.call.step.conversation.id
            parents = [one.run_id for one in self._children.values() if one.session_id == parent]
            about |= {"parentSubagentRunId": parents[-1]} if parents else {}
        self._children[run_id] = writer
        self._emit("SUBAGENT_STARTED", writer, **about)
        return writer

    def _end_child(self, child: Writer, kind: str, status: str | None, error: str | None) -> None:
        if self._children.pop(child.run_id, None) is None:
            return
        self._past.add(child.run_id)
        self._answers.close(child)
        if kind == "fail":
            self._emit("SUBAGENT_ERROR", child, message=error or "the sub-agent failed")
            return
        waits = [str(ask["id"]) for ask in self._calls.asked.values() if ask.get("subagentRunId") == child.run_id]
        outcome: JsonObject = {"type": "success"}
        if status != "completed":
            outcome = {"type": "suspended", **({"interruptIds": list(waits)} if waits else {})}
        self._emit("SUBAGENT_FINISHED", child, outcome=outcome)

    # --- changes ----------------------------------------------------------------------------------------------------

    def _show_change(self, writer: Writer, change: ch.Change, message: StreamMessage) -> None:
        match change:
            case ch.PartGrew():
                self._answers.grow(writer, change.part, change.delta)
            case ch.StepBegan() | ch.PartBegan() | ch.PartEnded() | ch.StepCommitted() | ch.StepDiscarded():
                self._answer(writer, change)
            case ch.CallAsked() | ch.CallStarted() | ch.CallEnded() | ch.ChildBegan() | ch.ChildEnded():
                self._call(writer, change)
            case ch.RunEnded():
                if writer is self._run:
                    self._finish(change)
                else:
                    self._end_child(writer, change.kind, change.status, change.error)
            case ch.RunPaused() | ch.OutputGiven() | ch.StatePatched():  # a sub-agent's do not affect the run
                if writer is self._run:
                    self._take_run_change(change)
            case ch.CustomEmitted(_, chunk):
                self._emit("CUSTOM", writer, name=chunk.event_name, value=chunk.data)
            case ch.Noticed(_, chunk):
                if chunk.ui_fields:
                    self._notice(writer, message.chunk or {})
            case ch.ErrorRaised(_, chunk) if not chunk.recoverable:
                self._failure = chunk.code if writer is self._run else self._failure
            case (
                ch.ErrorRaised()
                | ch.TextCited()
                | ch.RunQueued()
                | ch.CheckpointCreated()
                | ch.ContextChanged()
                | ch.MessageQueued()
                | ch.Resynced()
            ):
                self._notice(writer, message.chunk or {})
                if writer is self._run:
                    self._restate(change)
            case ch.RunBegan() | ch.RunResumed() | ch.RunInterrupted() | ch.Unknown():
                pass  # the run has begun already, and its end shows the rest
            case _:
                assert_never(change)

    def _take_run_change(self, change: ch.RunPaused | ch.OutputGiven | ch.StatePatched) -> None:
        match change:
            case ch.RunPaused(_, chunk):
                self._reason = chunk.reason or "pending"
            case ch.OutputGiven(_, chunk):
                self._output = chunk.output
            case ch.StatePatched(_, chunk):
                if chunk.patches:
                    self._patch(chunk.patches)
            case _:
                assert_never(change)

    def _patch(self, patches: list[JsonObject]) -> None:
        try:
            self._state = apply(self._state, patches) if self._state is not None else None
        except InvalidInputError:  # chunks were lost, so the state before the patch is unknown
            self._state = None
        self._emit("STATE_DELTA", delta=patches)

    def _notice(self, writer: Writer, chunk: JsonObject) -> None:
        """Send a chunk that has no corresponding AG-UI event as a CUSTOM event named `helix.<type>`."""
        fields = {name: value for name, value in chunk.items() if name not in ENVELOPE}
        self._emit("CUSTOM", writer, name=f"helix.{chunk['type']}", value=fields)

    # --- answers ----------------------------------------------------------------------------------------------------

    def _answer(self, writer: Writer, change: ch.StepChange) -> None:
        match change:
            case ch.StepBegan(step):
                self._answers.enter(writer, step)
            case ch.PartBegan():
                pass  # the first piece begins its message
            case ch.PartEnded(part):
                if part.kind == "reasoning":  # the text of an attempt is one message, which ends with the attempt
                    self._answers.end_thought(writer)
            case ch.StepCommitted(step):
                if step.usage is not None:
                    model = step.model or ""
                    self._usage[model] = self._usage.get(model, Usage()) + step.usage
                self._answers.end(writer, step)
                if step.cut:
                    self._emit("CUSTOM", writer, name="helix.answer_cut", value={"messageId": answer_of(step)})
            case ch.StepDiscarded(step):
                if shown := self._answers.end(writer, step):
                    self._discard(writer, step, shown)
            case _:
                assert_never(change)

    def _discard(self, writer: Writer, step: Step, shown: list[str]) -> None:
        if writer is self._run and step.retained:
            self._retained = self._talk.rename(shown, writer.run_id)  # another run's attempt has the same ids
        else:
            self._talk.discard(shown)
        self._snapshot()

    def _restate(self, change: ch.Change) -> None:
        """Send the conversation if the reader may have messages that a rewind removed, or if a message joined the run. A
        page that sent that message may have it at another place."""
        if isinstance(change, ch.MessageQueued) and change.chunk.state == "delivered" and change.chunk.mode == "steer":
            chunk = change.chunk
            content = agui_content(chunk.content, chunk.files)
            self._talk.add({"id": chunk.message_id or f"{chunk.queued_id}/user", "role": "user", "content": content})
            self._snapshot()
        elif isinstance(change, ch.Resynced):
            self._snapshot()

    def _snapshot(self) -> None:
        self._emit("MESSAGES_SNAPSHOT", messages=self._talk.snapshot())

    # --- calls ------------------------------------------------------------------------------------------------------

    def _call(self, writer: Writer, change: ch.CallChange) -> None:
        match change:
            case ch.CallStarted(call):
                if call.served:
                    self._answers.hold(writer, call.step)
                self._calls.start(writer, call)
            case ch.CallAsked(call):
                self._calls.ask(writer, call)
            case ch.CallEnded(call):
                self._calls.end(writer, call)
            case ch.ChildBegan():
                pass  # the first message of its run announces the sub-agent
            case ch.ChildEnded(_, child, end):
                kind = "fail" if end.status == "failed" else "end"
                for one in [each for each in self._children.values() if each.session_id == child.id]:
                    self._end_child(one, kind, end.status, end.error)
            case _:
                assert_never(change)
