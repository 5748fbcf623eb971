"""Converts the log to the UI message stream of the AI SDK, version 7 or 6, for `useChat`.

Law: an encoder does no I/O, reads no clock and generates no ids. So the same messages produce the same parts, whether
live, replayed or after a reconnect. A message on the page is one run plus the runs that continue it; its id is the
first run's id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, assert_never

from helix.core.conversation import changes as ch
from helix.core.conversation.conversation import Conversation
from helix.core.conversation.items import Call, Part, Step
from helix.core.json import JsonObject, dumps
from helix.core.partial_output import GrowingText, read_partial
from helix.core.usage import Usage
from helix.core.wire import StreamMessage
from helix.stream.file_parts import ui_result_files
from helix.stream.ui_calls import QuestionParts, ShownCall, executed_by, new_source, shown_call
from helix.stream.usage import usage_fields

Version: TypeAlias = Literal[6, 7]


class UIMessageEncoder:
    """Encodes stream messages as AI SDK parts. Feed it every message, starting with a run that begins a page's message.

    Both versions show text as it arrives. Version 7 can retract the text of a failed attempt (`reset-step`). Version 6
    cannot: the text stays, and the next attempt becomes a separate part (`discarded_text` omits it from a replay).
    Version 6 also cannot express that a call was answered, so the page receives the waiting calls when the response
    ends.
    """

    def __init__(self, session_id: str, *, version: Version = 7, base: str | None = None) -> None:
        """`base`: the address of the agent in this encoding, for the files of tool results. None: their URLs are empty."""
        self._root, self._live, self._base = session_id, version == 7, base
        self.sequence = 0
        self.message_id = ""
        self._out: list[JsonObject] = []
        self._new_message()

    def _new_message(self) -> None:
        self._conversation = Conversation(self._root)
        self._started, self._closed, self._step_open = False, False, False
        self._steps: set[int] = set()
        self._open: Part | None = None
        self._output: Part | None = None
        self._output_text = GrowingText()
        self._delta = self._part_id = ""
        self._usage = Usage()
        self._calls: dict[str, ShownCall] = {}
        self._questions = QuestionParts(self._emit)
        self._children: dict[str, str] = {}
        """The text of the last committed step of each sub-agent on the page, by session id."""
        self._end: ch.RunEnded | None = None
        self._reason: str | None = None

    def feed(self, message: StreamMessage) -> list[JsonObject]:
        """Return the parts of the next message. A message that was fed before produces none."""
        if message.sequence <= self.sequence:
            return []
        self.sequence = message.sequence
        changes = self._conversation.take(message)
        if changes and isinstance(began := changes[0], ch.RunBegan) and began.conversation is self._conversation:
            if not (self.message_id and began.continues):
                self._close()
                self._new_message()
                self.message_id = message.run_id
                changes = self._conversation.take(message)
            self._end, self._closed, self._reason = None, False, None
        for change in changes:
            self._show_change(change, message)
        return self._take_output()

    def close(self) -> list[JsonObject]:
        """Return the parts that end a response after its run has ended: the calls that wait for the user, then
        `finish`. Return no parts if the run continues. A later run of the message or of its sub-agents starts another
        response."""
        self._close()
        return self._take_output()

    def end_call(self, message: StreamMessage) -> list[JsonObject]:
        """Return the parts for a late `tool_end` of a call in this page's message: the call was waiting until a new
        user message closed it. Return no parts for any other message."""
        chunk: dict[str, Any] = message.chunk or {}
        shown = self._calls.get(shown_call(self._root, message.session_id, str(chunk.get("tool_call_id"))))
        if chunk.get("type") != "tool_end" or shown is None or shown.done:
            return []
        for change in self._conversation.take(message):
            if isinstance(change, ch.CallEnded):
                self._end_call(change.call)
        return self._take_output()

    def _close(self) -> None:
        end = self._end
        if end is None or self._closed:
            return
        self._start()
        self._finish_text()
        if end.kind == "paused":
            self._emit_requests()
        else:
            self._deny_open_approvals()
        self._finish_step()
        reason = {"end": "stop", "paused": "tool-calls", "fail": "error"}[end.kind]
        if end.kind == "fail":
            self._emit("error", errorText=end.error or "the run failed")
        elif end.status != "completed" and end.kind == "end":
            reason = "interrupted" if self._live else "other"
            self._emit("abort", **({"reason": self._reason} if self._reason else {}))
        usage = usage_fields(self._usage)
        self._emit("finish", finishReason=reason, **({"messageMetadata": {"usage": usage}} if usage else {}))
        self._started, self._closed = False, True

    # --- runs and steps ---------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if not self._started:
            self._started, self._closed = True, False
            about: JsonObject = {"sessionId": self._root, "runId": self.message_id}
            self._out.append({"type": "start", "messageId": self.message_id, "messageMetadata": about})

    def _emit(self, type: str, **fields: Any) -> None:
        self._start()
        self._out.append({"type": type, **fields})

    def _take_output(self) -> list[JsonObject]:
        out, self._out = self._out, []
        return out

    def _step(self, step: int) -> None:
        """Begin the step, unless it was already shown: a retried call belongs to the existing part."""
        if step not in self._steps:
            self._finish_step()
            self._emit("start-step")
            self._steps.add(step)
            self._step_open = True

    def _finish_step(self) -> None:
        if self._step_open:
            self._emit("finish-step")
            self._step_open = False

    # --- changes ----------------------------------------------------------------------------------------------------

    def _show_change(self, change: ch.Change, message: StreamMessage) -> None:
        match change:
            case ch.PartGrew():
                if change.part is self._open:  # then the message has been started
                    self._out.append({"type": self._delta, "id": self._part_id, "delta": change.delta})
                elif change.part is self._output:
                    self._grow_output(change.part, change.delta)
            case ch.TextCited(step, source):
                self._out += new_source(step, source) if step.conversation is self._conversation else []
            case ch.PartBegan() | ch.PartEnded() | ch.StepBegan() | ch.StepCommitted() | ch.StepDiscarded():
                self._answer(change)
            case ch.CallAsked() | ch.CallStarted() | ch.CallEnded() | ch.ChildBegan() | ch.ChildEnded():
                self._call(change)
            case ch.CustomEmitted(_, chunk):
                self._emit(f"data-{chunk.event_name}", data=chunk.data)
            case ch.ErrorRaised(_, chunk):
                if chunk.recoverable:
                    self._emit("data-error", data={"code": chunk.code, "message": chunk.error}, transient=True)
            case ch.OutputGiven() | ch.RunInterrupted() | ch.RunEnded():
                if change.conversation is self._conversation:
                    self._end_run(change)
            case (
                ch.RunQueued()
                | ch.Resynced()
                | ch.StatePatched()
                | ch.ContextChanged()
                | ch.Noticed()
                | ch.MessageQueued()
            ):
                if change.conversation is self._conversation:
                    self._notice(change.chunk.ui_fields, message.chunk or {})
            case ch.RunBegan() | ch.RunResumed() | ch.RunPaused() | ch.CheckpointCreated() | ch.Unknown():
                pass  # not on the page, apart from what the end of the response shows
            case _:
                assert_never(change)

    def _end_run(self, change: ch.OutputGiven | ch.RunInterrupted | ch.RunEnded) -> None:
        match change:
            case ch.OutputGiven(conversation, chunk):
                self._emit("data-output", id=conversation.run_id, data=chunk.output)
            case ch.RunInterrupted(_, chunk):
                self._reason = chunk.reason
            case ch.RunEnded():
                self._end = change
            case _:
                assert_never(change)

    def _notice(self, fields: Sequence[str], chunk: JsonObject) -> None:
        """Send fields of a chunk as transient data. Those of a message that steered the run stay at this place."""
        if fields:
            name = str(chunk["type"]).replace("_", "-")
            steered = (chunk["type"], chunk.get("state"), chunk.get("mode")) == ("message_queued", "delivered", "steer")
            options: JsonObject = {"id": chunk["queued_id"]} if steered else {"transient": True}
            self._emit(f"data-{name}", data={field: chunk[field] for field in fields if field in chunk}, **options)

    # --- answers ----------------------------------------------------------------------------------------------------

    def _answer(self, change: ch.StepChange) -> None:
        match change:
            case ch.PartBegan(part):
                if part.step.conversation is self._conversation:
                    self._begin_part(part)
            case ch.PartEnded():
                pass  # it ends when the next part begins, or with its attempt
            case ch.StepBegan(step, replaces):
                if step.conversation is self._conversation:
                    self._finish_text()
                    if replaces is not None and self._live:
                        self._emit("reset-step")
            case ch.StepCommitted(step):
                if step.usage is not None:
                    self._usage += step.usage
                self._commit(step)
            case ch.StepDiscarded(step):
                if step.conversation is self._conversation:
                    self._discard(step)
            case _:
                assert_never(change)

    def _commit(self, step: Step) -> None:
        if step.conversation is self._conversation:
            self._step(step.step)
            self._finish_text()
            if step.cut:
                self._emit("data-answer-cut", data={"step": step.step})
        elif step.conversation.id in self._children and (text := step.text):
            self._children[step.conversation.id] = text
            self._show_child(step.conversation)

    def _discard(self, step: Step) -> None:
        if self._open is not None and self._open.step is not step:
            self._finish_text()
        if (step.parts or step.served) and self._live and not step.retained:
            self._emit("reset-step")
            self._open = None
        self._finish_text()

    def _begin_part(self, part: Part) -> None:
        self._finish_text()
        self._step(part.step.step)
        if part.kind == "output":
            self._output, self._output_text = part, GrowingText()
            return
        self._open, self._delta = part, f"{part.kind}-delta"
        self._part_id = f"{part.step.step}/{part.step.attempt}/{part.index}"
        self._emit(f"{part.kind}-start", id=self._part_id)

    def _grow_output(self, part: Part, delta: str) -> None:
        """Show the output so far. The page replaces the part, because its id is that of the run's output."""
        if self._output_text.add(delta) and isinstance(value := read_partial(self._output_text.text), dict):
            self._emit("data-output", id=part.step.conversation.run_id, data=value)

    def _finish_text(self) -> None:
        """End the open part and keep its text."""
        part, self._open = self._open, None
        if part is not None:
            self._emit(f"{part.kind}-end", id=self._part_id)

    # --- calls ------------------------------------------------------------------------------------------------------

    def _call(self, change: ch.CallChange) -> None:
        match change:
            case ch.CallStarted(call):
                self._emit_approval(self._show_call(call), approved=True)
                self._questions.close(self._call_id(call), call)
                self._questions.name_people(self._call_id(call), call)
            case ch.CallAsked(call):
                shown = self._show_call(call)
                if call.kind == "question":
                    self._questions.ask(self._call_id(call), call)
                if call.kind in ("question", "elsewhere"):
                    return
                shown.asked = call.kind
                if self._live:
                    self._ask(shown)
            case ch.CallEnded(call):
                self._end_call(call)
            case ch.ChildBegan(call, child):
                self._children.setdefault(child.id, "")
                if (known := self._calls.get(self._call_id(call))) is not None:
                    known.child = True
                self._show_child(child)
            case ch.ChildEnded(_, child, _):
                if child.id in self._children:
                    self._show_child(child)
            case _:
                assert_never(change)

    def _end_call(self, call: Call) -> None:
        known = self._calls.get(self._call_id(call))
        if known is None and call.step.conversation is self._conversation and call.step.step not in self._steps:
            return  # the call is of an earlier message, and this run's claim closed it
        shown = known or self._show_call(call)
        if shown.done:
            return
        if shown.child:
            self._end_questions(call)
        shown.done = True
        success = call.state == "done"
        denied = shown.asked in ("approval", "unknown") and not success
        error = call.error or (call.result if isinstance(call.result, str) else dumps(call.result))
        self._questions.close(self._call_id(call), call, None if success else error)
        self._questions.name_people(self._call_id(call), call)
        if denied and shown.requested:
            self._deny(shown, error)
            return
        self._emit_approval(shown, approved=not denied, **{"reason": error} if denied else {})
        kind, given = ("available", {"output": call.result}) if success else ("error", {"errorText": error})
        self._emit(f"tool-output-{kind}", toolCallId=self._call_id(call), **given, dynamic=True, **executed_by(call))
        self._out += ui_result_files(call.files, call.step.conversation.id, self._call_id(call), self._base)

    def _end_questions(self, parent: Call) -> None:
        """Close the pending requests of a sub-agent that has ended."""
        reason = "the sub-agent has ended"
        for shown in self._calls.values():
            if shown.done or shown.asked is None or shown.call.step.conversation.call is not parent:
                continue
            shown.done = True
            if shown.requested:
                self._deny(shown, reason)
            else:
                self._emit_approval(shown, approved=False, reason=reason)
                self._emit("tool-output-error", toolCallId=self._call_id(shown.call), errorText=reason, dynamic=True)

    def _deny_open_approvals(self) -> None:
        """Deny the approvals that an ended run was waiting for. A retry asks again."""
        for shown in self._calls.values():
            if shown.asked is not None and shown.requested and not shown.done:
                self._deny(shown, "the run has ended")

    def _deny(self, shown: ShownCall, reason: str) -> None:
        self._emit_approval(shown, approved=False, reason=reason)
        self._emit("tool-output-denied", toolCallId=self._call_id(shown.call))

    def _show_call(self, call: Call) -> ShownCall:
        """Show the call on the page. Its part is sent again only if the arguments changed, because a second part would
        appear in the currently open step."""
        call_id, conversation = self._call_id(call), call.step.conversation
        shown = self._calls.get(call_id)
        if shown is not None and (shown.input == call.arguments or shown.done):
            return shown
        about: dict[str, Any] = {}
        if conversation is self._conversation:
            self._step(call.step.step)
        elif conversation.id in self._children and conversation.call is not None:
            parent = self._call_id(conversation.call)
            child = {"sessionId": conversation.id, "agent": conversation.agent, "parentToolCallId": parent}
            about = {"toolMetadata": child}
        if shown is None:
            shown = self._calls[call_id] = ShownCall(call, call.arguments)
        shown.input = call.arguments
        given = {"toolCallId": call_id, "toolName": call.name, "input": call.arguments, **executed_by(call)}
        self._emit("tool-input-available", **given, dynamic=True, **about)
        if shown.asked is not None and self._live:
            self._ask(shown)  # the new part has no approval
        return shown

    def _call_id(self, call: Call) -> str:
        return shown_call(self._root, call.step.conversation.id, call.id)

    def _ask(self, shown: ShownCall) -> None:
        if shown.asked != "client":
            call_id = self._call_id(shown.call)
            what = {} if shown.asked == "approval" else {"approvalDescriptor": {"kind": shown.asked}}
            shown.requested = True
            self._emit("tool-approval-request", approvalId=call_id, toolCallId=call_id, **what)

    def _emit_approval(self, shown: ShownCall, *, approved: bool, **why: str) -> None:
        asked, shown.asked = shown.asked, None
        if asked in ("approval", "unknown") and self._live:
            self._emit("tool-approval-response", approvalId=self._call_id(shown.call), approved=approved, **why)

    def _emit_requests(self) -> None:
        """Emit the requests that the run waits for. A sub-agent's call, and one that asks questions, get a provisional
        output until the response arrives, because a page continues only when no other call of the step is open."""
        for call_id, shown in self._calls.items():
            if shown.done:
                continue
            if shown.asked is not None and not self._live:
                self._ask(shown)
            elif shown.child or self._questions.is_open(call_id):
                self._emit("tool-output-available", toolCallId=call_id, output={"status": "paused"}, dynamic=True)

    def _show_child(self, child: Conversation) -> None:
        call_id = self._call_id(child.call) if child.call is not None else ""
        text = self._children[child.id]
        data = {"agent": child.agent, "toolCallId": call_id, "status": child.status, "text": text}
        self._emit("data-subagent", id=child.id, data=data)
