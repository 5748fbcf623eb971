"""Converts the log to the UI message stream of the AI SDK, version 7 or 6, for `useChat`.

Law: an encoder does no I/O, reads no clock and generates no ids. So the same messages produce the same parts, whether
live, replayed or after a reconnect. A message on the page is one run plus the runs that continue it; its id is that of
the first run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from helix.core.chunks import CHUNK_TYPES
from helix.core.json import JsonObject, dumps
from helix.core.usage import Usage
from helix.core.wire import StreamMessage
from helix.stream.usage import usage_fields

Version: TypeAlias = Literal[6, 7]
CONTINUES = frozenset({"continue", "with_confirmation", "takeover", "retry", "abort"})
"""The modes of runs that continue the previous run's message."""
NOTICES: Mapping[str, tuple[str, ...]] = {
    "run_queued": ("queued", "expires_at", "reason"),
    "stream_resync": ("reason", "checkpoint_id"),
    "state_patch": ("patches",),
}
"""The chunk types that are sent as transient data, with the fields of each."""


def shown_call(root: str, session_id: str, call_id: str) -> str:
    """Return the id of a call on a page. Call ids are unique only within their session, so the id of a sub-agent's call
    includes the session."""
    return call_id if session_id == root else f"{session_id}/{call_id}"


@dataclass
class _Call:
    """A tool call on the page."""

    name: str
    """The name of the tool."""
    input: Any
    """The arguments as last shown. A person may have edited them."""
    asked: str | None = None
    """The kind of response that the call waits for: `approval`, `client` or `unknown`. None if it is not waiting."""
    requested: bool = False
    """Whether its part shows an approval request."""
    begun: bool = False
    """Whether an execution of the call has started since the request."""
    done: bool = False
    """Whether the call has its result."""
    child: bool = False
    """Whether the call started a sub-agent."""


@dataclass
class _Child:
    """A sub-agent on the page."""

    agent: str
    """The name of the sub-agent."""
    call: str
    """The id of the call that started it, as shown on the page."""
    status: str = "running"
    """The status of the sub-agent: `running`, then its end status."""
    text: str = ""
    """The text of its last committed step."""
    draft: str = ""
    """The text of the current attempt, which is not shown yet."""
    attempt: tuple[int, int] = (0, 0)
    """The (step, attempt) of the draft."""


@dataclass
class _Attempt:
    """An attempt at a step of the root session."""

    at: tuple[int, int]
    """The (step, attempt)."""
    parts: list[tuple[str, str]] = field(default_factory=list)
    """The kind and id of each of its parts. The last part may be open."""
    thought: bool = False  # deltas of the present block of reasoning were shown
    """Whether deltas of the current block of reasoning were shown."""


class UIMessageEncoder:
    """Encodes stream messages as AI SDK parts. Feed it all messages from the first one of a run that starts a page's
    message.

    Both versions show text as it arrives. Version 7 can retract the text of a failed attempt (`reset-step`). Version 6
    cannot: the text stays, and the next attempt becomes a separate part (`discarded_text` omits it from a replay).
    Version 6 also cannot express that a call was answered, so it receives the waiting calls when the response ends.
    """

    def __init__(self, session_id: str, *, version: Version = 7) -> None:
        self._root, self._live = session_id, version == 7
        self.sequence = 0
        self.message_id, self._run_id = "", ""
        self._out: list[JsonObject] = []
        self._new_message()

    def _new_message(self) -> None:
        self._started, self._closed, self._step_open = False, False, False
        self._steps: set[int] = set()
        self._attempt: _Attempt | None = None
        self._interrupted: int | None = None  # the step whose text was kept
        self._usage = Usage()
        self._calls: dict[str, _Call] = {}
        self._children: dict[str, _Child] = {}
        self._end: StreamMessage | None = None
        self._reason: str | None = None

    def feed(self, message: StreamMessage) -> list[JsonObject]:
        """Return the parts of the next message. A message that was fed before gives none."""
        if message.sequence <= self.sequence:
            return []
        self.sequence = message.sequence
        root = message.session_id == self._root
        chunk: dict[str, Any] = message.chunk or {}
        if root and message.run_id not in ("", self._run_id):
            self._begin(message.run_id, chunk)
        if message.kind == "chunk":
            self._chunk(root, message, chunk)
        elif root:
            self._end = message
        return self._take()

    def close(self) -> list[JsonObject]:
        """Return the parts that end a response after its run has ended: the calls that wait for the user, then
        `finish`. Return no parts if the run continues. A later run of the message or of its sub-agents starts another
        response."""
        self._close()
        return self._take()

    def end_call(self, message: StreamMessage) -> list[JsonObject]:
        """Return the parts for a late `tool_end` of a call in this page's message: the call was waiting until a new
        user message closed it. Return no parts for any other message."""
        chunk: dict[str, Any] = message.chunk or {}
        call = self._calls.get(shown_call(self._root, message.session_id, str(chunk.get("tool_call_id"))))
        if chunk.get("type") != "tool_end" or call is None or call.done:
            return []
        self._on_tool_end(message.session_id, chunk)
        return self._take()

    def _close(self) -> None:
        end = self._end
        if end is None or self._closed:
            return
        self._start()
        self._finish_text()
        if end.kind == "paused":
            self._wait()
        else:
            self._withdraw()
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

    def _begin(self, run_id: str, chunk: dict[str, Any]) -> None:
        mode = chunk.get("mode") if chunk.get("type") == "run_resumed" else "execute"
        if not (self.message_id and mode in CONTINUES):
            self._close()
            self._new_message()
            self.message_id = run_id
        self._run_id, self._end, self._closed, self._reason = run_id, None, False, None

    def _start(self) -> None:
        if not self._started:
            self._started, self._closed = True, False
            about: JsonObject = {"sessionId": self._root, "runId": self.message_id}
            self._out.append({"type": "start", "messageId": self.message_id, "messageMetadata": about})

    def _emit(self, type: str, **fields: Any) -> None:
        self._start()
        self._out.append({"type": type, **fields})

    def _take(self) -> list[JsonObject]:
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

    # --- chunks -----------------------------------------------------------------------------------------------------

    def _chunk(self, root: bool, message: StreamMessage, chunk: dict[str, Any]) -> None:
        kind = str(chunk.get("type", ""))
        handler = getattr(self, f"_on_{kind}", None) if kind in CHUNK_TYPES else None
        if kind in ("text_delta", "thinking", "step_committed", "step_discarded"):
            if kind == "step_committed" and chunk.get("usage"):
                self._usage += Usage.model_validate(chunk["usage"])
            if root:
                self._answer(kind, chunk)
            else:
                self._child_answer(message.session_id, kind, chunk)
        elif kind in NOTICES:
            if root:
                fields = {name: chunk[name] for name in NOTICES[kind] if name in chunk}
                self._emit(f"data-{kind.replace('_', '-')}", data=fields, transient=True)
        elif handler is not None:
            handler(message.session_id, chunk)

    def _answer(self, kind: str, chunk: dict[str, Any]) -> None:
        step, at = chunk.get("step", 0), (chunk.get("step", 0), chunk.get("attempt", 0))
        if self._attempt is None or self._attempt.at != at:
            self._finish_text()
            self._attempt = _Attempt(at)
            if kind != "step_discarded" and self._interrupted is not None:
                if self._live and self._interrupted == step:
                    self._emit("reset-step")
                self._interrupted = None
        if kind == "step_discarded":
            self._discard(retained=chunk.get("status") == "interrupted")
        elif kind == "step_committed":
            self._step(step)
            self._finish_text()
        elif kind == "text_delta":
            self._attempt.thought = False
            self._put("text", str(chunk.get("delta", "")))
        elif not chunk.get("is_complete"):
            self._put("reasoning", str(chunk.get("content", "")), more=self._attempt.thought)
            self._attempt.thought = True
        else:
            if not self._attempt.thought:
                self._put("reasoning", str(chunk.get("content", "")), more=False)
            self._attempt.thought = False

    def _discard(self, *, retained: bool) -> None:
        """Discard the attempt. With `retained`, the run was interrupted, and its text stays until another attempt at
        the step begins."""
        attempt = self._attempt
        if attempt is not None and attempt.parts:
            if self._live and not retained:
                self._emit("reset-step")
                self._attempt = None
            self._interrupted = attempt.at[0] if retained else None
        self._finish_text()

    def _put(self, kind: str, delta: str, *, more: bool = True) -> None:
        """Append to the open part, or start a new one."""
        attempt = self._attempt
        assert attempt is not None
        last = attempt.parts[-1] if attempt.parts else ("", "")
        if last[0] != kind or not more:
            self._end_part(last)
            last = (kind, f"{attempt.at[0]}/{attempt.at[1]}/{len(attempt.parts)}")
            attempt.parts.append(last)
            self._step(attempt.at[0])
            self._emit(f"{kind}-start", id=last[1])
        self._emit(f"{kind}-delta", id=last[1], delta=delta)

    def _end_part(self, part: tuple[str, str]) -> None:
        if part[0]:
            self._emit(f"{part[0]}-end", id=part[1])

    def _finish_text(self) -> None:
        """End the attempt and keep its text."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None and attempt.parts:
            self._end_part(attempt.parts[-1])

    # --- calls ------------------------------------------------------------------------------------------------------

    def _on_tool_start(self, session_id: str, chunk: dict[str, Any]) -> None:
        shown, call = self._call(session_id, chunk, chunk.get("arguments", {}))
        call.begun = True
        self._answered(shown, call, approved=True)

    def _on_tool_approval_request(self, session_id: str, chunk: dict[str, Any]) -> None:
        shown, call = self._call(session_id, chunk, chunk.get("input", {}))
        call.asked, call.begun = str(chunk.get("kind", "approval")), False
        if self._live:
            self._ask(shown, call)

    def _on_tool_end(self, session_id: str, chunk: dict[str, Any]) -> None:
        shown = shown_call(self._root, session_id, str(chunk["tool_call_id"]))
        if shown not in self._calls and session_id == self._root and chunk.get("step") not in self._steps:
            return  # the call is of an earlier message, and this run's claim closed it
        call = self._calls.get(shown) or self._call(session_id, chunk, chunk.get("arguments") or {})[1]
        if call.done:
            return
        if call.child:
            self._end_questions(shown)
        call.done = True
        success = bool(chunk.get("success", True))
        denied = call.asked in ("approval", "unknown") and not call.begun and not success
        error = str(chunk.get("error") or _text(chunk.get("result")))
        if denied and call.requested:
            self._deny(shown, call, error)
            return
        self._answered(shown, call, approved=not denied, **{"reason": error} if denied else {})
        if success:
            self._emit("tool-output-available", toolCallId=shown, output=chunk.get("result"), dynamic=True)
        else:
            self._emit("tool-output-error", toolCallId=shown, errorText=error, dynamic=True)

    def _end_questions(self, parent: str) -> None:
        """Close the pending requests of a sub-agent that has ended."""
        sessions = {session_id for session_id, child in self._children.items() if child.call == parent}
        reason = "the sub-agent has ended"
        for shown, call in self._calls.items():
            if call.done or call.asked is None or shown.rpartition("/")[0] not in sessions:
                continue
            call.done = True
            if call.requested:
                self._deny(shown, call, reason)
            else:
                self._answered(shown, call, approved=False, reason=reason)
                self._emit("tool-output-error", toolCallId=shown, errorText=reason, dynamic=True)

    def _withdraw(self) -> None:
        """Deny the approvals that an ended run was waiting for. A retry asks again."""
        for shown, call in self._calls.items():
            if call.asked is not None and call.requested and not call.done:
                self._deny(shown, call, "the run has ended")

    def _deny(self, shown: str, call: _Call, reason: str) -> None:
        self._answered(shown, call, approved=False, reason=reason)
        self._emit("tool-output-denied", toolCallId=shown)

    def _call(self, session_id: str, chunk: dict[str, Any], given: Any) -> tuple[str, _Call]:
        """Return the call on the page. Its part is sent again only if the arguments changed, because a second part
        would appear in the currently open step."""
        shown, name = shown_call(self._root, session_id, str(chunk["tool_call_id"])), str(chunk["tool_name"])
        call = self._calls.get(shown)
        if call is not None and (call.input == given or call.done):
            return shown, call
        if session_id == self._root:
            self._step(chunk.get("step", 0))
        about: dict[str, Any] = {}
        if (child := self._children.get(session_id)) is not None:
            about = {"toolMetadata": {"sessionId": session_id, "agent": child.agent, "parentToolCallId": child.call}}
        call = call or self._calls.setdefault(shown, _Call(name, given))
        call.input = given
        self._emit("tool-input-available", toolCallId=shown, toolName=name, input=given, dynamic=True, **about)
        if call.asked is not None and self._live:
            self._ask(shown, call)  # the new part has no approval
        return shown, call

    def _ask(self, shown: str, call: _Call) -> None:
        if call.asked != "client":
            what = {} if call.asked == "approval" else {"approvalDescriptor": {"kind": call.asked}}
            call.requested = True
            self._emit("tool-approval-request", approvalId=shown, toolCallId=shown, **what)

    def _answered(self, shown: str, call: _Call, *, approved: bool, **why: str) -> None:
        asked, call.asked = call.asked, None
        if asked in ("approval", "unknown") and self._live:
            self._emit("tool-approval-response", approvalId=shown, approved=approved, **why)

    def _wait(self) -> None:
        """Emit the requests that the run waits for. A sub-agent's call gets a provisional output until its response
        arrives, because a page continues automatically only when no other call of the step is open."""
        for shown, call in self._calls.items():
            if call.done:
                continue
            if call.asked is not None and not self._live:
                self._ask(shown, call)
            elif call.child:
                self._emit("tool-output-available", toolCallId=shown, output={"status": "paused"}, dynamic=True)

    # --- sub-agents -------------------------------------------------------------------------------------------------

    def _on_subagent_start(self, session_id: str, chunk: dict[str, Any]) -> None:
        shown, child_id = (
            shown_call(self._root, session_id, str(chunk["parent_tool_call_id"])),
            str(chunk["sub_agent_id"]),
        )
        child = self._children.setdefault(child_id, _Child(str(chunk.get("sub_agent_type", "")), shown))
        child.status = "running"
        if shown in self._calls:
            self._calls[shown].child = True
        self._show(child_id)

    def _on_subagent_end(self, session_id: str, chunk: dict[str, Any]) -> None:
        if (child := self._children.get(str(chunk["sub_agent_id"]))) is not None:
            child.status = str(chunk.get("status", "completed"))
            self._show(str(chunk["sub_agent_id"]))

    def _child_answer(self, session_id: str, kind: str, chunk: dict[str, Any]) -> None:
        if (child := self._children.get(session_id)) is None:
            return
        at = (chunk.get("step", 0), chunk.get("attempt", 0))
        if child.attempt != at or kind == "step_discarded":
            child.attempt, child.draft = at, ""
        if kind == "text_delta":
            child.draft += str(chunk.get("delta", ""))
        elif kind == "step_committed" and child.draft:
            child.text, child.draft = child.draft, ""
            self._show(session_id)

    def _show(self, session_id: str) -> None:
        child = self._children[session_id]
        data = {"agent": child.agent, "toolCallId": child.call, "status": child.status, "text": child.text}
        self._emit("data-subagent", id=session_id, data=data)

    # --- the rest ---------------------------------------------------------------------------------------------------

    def _on_custom(self, session_id: str, chunk: dict[str, Any]) -> None:
        self._emit(f"data-{chunk['event_name']}", data=chunk.get("data"))

    def _on_output(self, session_id: str, chunk: dict[str, Any]) -> None:
        if session_id == self._root:
            self._emit("data-output", id=self._run_id, data=chunk.get("output"))

    def _on_run_interrupted(self, session_id: str, chunk: dict[str, Any]) -> None:
        if session_id == self._root:
            self._reason = chunk.get("reason")

    def _on_error(self, session_id: str, chunk: dict[str, Any]) -> None:
        if chunk.get("recoverable", True):
            data = {"code": chunk.get("code", "error"), "message": chunk.get("error", "")}
            self._emit("data-error", data=data, transient=True)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)
