"""Converts the log to AG-UI 1.0 events, for `HttpAgent` and other AG-UI front ends.

Law: an encoder does no I/O, reads no clock and generates no ids. So the same messages produce the same events, whether
live, replayed or after a reconnect. Each run of the root session is one AG-UI run, and everything that it opened is
closed before it finishes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from helix.core.chunks import CHUNK_TYPES
from helix.core.conversation.changes import CONTINUES
from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject, JsonValue, dumps
from helix.core.patches import apply
from helix.core.usage import Usage
from helix.core.wire import StreamMessage
from helix.stream.agui_messages import Conversation
from helix.stream.agui_writers import Link, Writer
from helix.stream.ui_messages import shown_call
from helix.stream.usage import usage_fields

PROTOCOL_VERSION = "1.0"
NOTICES = frozenset({"run_queued", "stream_resync", "checkpoint_created", "error"})
"""The chunk types without their own AG-UI event. They are sent as CUSTOM events named `helix.<type>`."""
ENVELOPE = frozenset(
    {"type", "session_id", "run_id", "agent_id", "agent_type", "step", "attempt", "sequence", "timestamp"}
)
ANSWER: JsonObject = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "reason": {"type": "string"},
        "arguments": {"type": "object"},
        "data": {},
    },
    "required": ["approved"],
}


def answer_id(session_id: str, step: int, attempt: int) -> str:
    """Return the id of an answer's message. It does not contain the run id, because a run that takes over another one
    may show the answer."""
    return f"{session_id}/{step}/{attempt}"


def pause_id(run_id: str) -> str:
    """Return the interrupt id of a run that paused for a reason other than a call, such as its budget."""
    return f"{run_id}/pause"


class AgUiEncoder:
    """Encodes stream messages as AG-UI events. Feed it all messages from the first one of a run.

    `messages` is the conversation before that run, with the message ids that the reader of the events uses. A discarded
    step produces a MESSAGES_SNAPSHOT, which removes all messages that are not in it. `state` is the committed state
    before that run, if known.
    """

    def __init__(
        self, session_id: str, *, messages: Sequence[JsonObject] = (), state: JsonObject | None = None
    ) -> None:
        self._root, self._state = session_id, state
        self._announced = ("", False)
        self.sequence = 0
        self._talk = Conversation(messages)
        self._out: list[JsonObject] = []
        self._time = 0
        self._run: Writer | None = None
        self._ended: set[str] = set()  # the runs of the root that have ended
        self._links: dict[str, Link] = {}
        self._asked: dict[str, JsonObject] = {}
        self._answers: dict[tuple[str, int], str] = {}  # by session and step, the message that has its calls
        self._early: list[StreamMessage] = []  # messages of sub-agents, while no run of the root is open
        self._children: dict[str, Writer] = {}
        self._past: set[str] = set()  # runs of sub-agents that are closed
        self._owners: dict[str, JsonObject] = {}  # by message, the tag that opened it
        self._results: set[str] = set()  # calls whose results were sent
        self._retained: list[str] = []  # messages of an attempt that an interrupt cut off
        self._usage: dict[str, Usage] = {}  # the usage of the present run, by model
        self._output: JsonValue = None
        self._failure = "error"
        self._reason = "pending"

    @property
    def messages(self) -> list[JsonObject]:
        """The conversation that results from the events so far."""
        return self._talk.snapshot()

    def announce(self, *, run_id: str, messages: bool = False) -> None:
        """Send snapshots when that run begins: of the committed state, if known, and with `messages` also of the
        conversation, for a reader that joins without having it."""
        self._announced = (run_id, messages)

    def close(self) -> list[JsonObject]:
        """Return no events, because the events at the end of a run already close everything."""
        return []

    def feed(self, message: StreamMessage) -> list[JsonObject]:
        """Return the events of the next message. A message that was fed before produces none."""
        if message.sequence <= self.sequence:
            return []
        self.sequence = message.sequence
        self._take_in(message)
        out, self._out = self._out, []
        return out

    def _take_in(self, message: StreamMessage) -> None:
        chunk: dict[str, Any] = message.chunk or {}
        self._time = int(float(chunk.get("timestamp") or 0) * 1000) or self._time
        if message.session_id == self._root:
            if message.run_id and (self._run is None or self._run.run_id != message.run_id):
                self._begin(message.run_id, chunk)
            writer = self._run
        elif self._run is None:
            self._early.append(message)
            return
        else:
            writer = self._child(message)
        if writer is None:
            return
        if message.kind == "chunk":
            self._chunk(writer, chunk)
        elif writer is self._run:
            self._finish(message)
        else:
            self._end_child(writer, message.kind, message.status, message.error)

    def _emit(self, type: str, writer: Writer | None = None, **fields: Any) -> None:
        tag = writer.tag if writer is not None else {}
        stamp = {"timestamp": self._time} if self._time else {}
        self._out.append({"type": type, **stamp, **tag, **fields})

    # --- runs -------------------------------------------------------------------------------------------------------

    def _begin(self, run_id: str, chunk: dict[str, Any]) -> None:
        if self._run is not None:  # the process of that run died, and this run took it over
            self._close_all()
            self._emit(
                "RUN_FINISHED",
                threadId=self._root,
                runId=self._run.run_id,
                outcome={"type": "cancelled"},
                **self._used(),
            )
        self._run = Writer(self._root, run_id)
        self._children, self._past, self._owners = {}, set(), {}
        self._output, self._failure, self._reason, self._usage = None, "error", "pending", {}
        retained, self._retained = self._retained, []
        tries_again = bool(retained) and chunk.get("type") == "run_resumed" and chunk.get("mode") in CONTINUES
        if tries_again:
            self._talk.discard(retained)
        self._emit("RUN_STARTED", threadId=self._root, runId=run_id, protocolVersion=PROTOCOL_VERSION)
        announced, messages = self._announced
        if announced == run_id and self._state is not None:
            self._emit("STATE_SNAPSHOT", snapshot=self._state)
        if tries_again or (announced == run_id and messages):
            self._snapshot()
        early, self._early = self._early, []
        for message in early:
            self._take_in(message)

    def _finish(self, end: StreamMessage) -> None:
        run = self._run
        assert run is not None
        self._close_all()
        self._run = None
        about: dict[str, Any] = {"threadId": self._root, "runId": run.run_id}
        if end.kind == "fail":
            self._emit("RUN_ERROR", message=end.error or "the run failed", code=self._failure, **self._used())
            return
        if end.kind == "paused":
            outcome: dict[str, Any] = {"type": "interrupt", "interrupts": self._interrupts(run.run_id)}
        else:
            outcome = {"type": "success" if end.status == "completed" else "cancelled"}
        if self._output is not None:
            about["result"] = self._output
        self._emit("RUN_FINISHED", **about, outcome=outcome, **self._used())

    def _used(self) -> dict[str, Any]:
        """Return the usage of the answers of the run and its sub-agents, by model. Calls whose answer was lost are not
        included."""
        entries = [{"model": model, **fields} for model, used in self._usage.items() if (fields := usage_fields(used))]
        return {"usage": entries} if entries else {}

    def _interrupts(self, run_id: str) -> list[JsonObject]:
        if self._asked:
            return list(self._asked.values())
        return [{"id": pause_id(run_id), "reason": f"helix:{self._reason}"}]

    def _close_all(self) -> None:
        for child in reversed(list(self._children.values())):
            self._end_child(child, "paused", "paused", None)
        if self._run is not None:
            self._close(self._run)

    # --- sub-agents -------------------------------------------------------------------------------------------------

    def _child(self, message: StreamMessage) -> Writer | None:
        """Return the writer of a sub-agent's run, announcing it with its first message. A closed run stays closed, and
        its later events carry its id."""
        run_id, link = message.run_id, self._links.get(message.session_id)
        if run_id in self._children:
            return self._children[run_id]
        writer = Writer(message.session_id, run_id, {"subagentRunId": run_id})
        if run_id in self._past or not run_id:
            return writer if message.kind == "chunk" and run_id else None
        about: dict[str, Any] = {"name": link.agent if link else "", "parentToolCallId": link.call if link else ""}
        if link is not None:
            parents = [child.run_id for child in self._children.values() if child.session_id == link.parent]
            about |= {"parentSubagentRunId": parents[-1]} if parents else {}
        self._children[run_id] = writer
        self._emit("SUBAGENT_STARTED", writer, **about)
        return writer

    def _end_child(self, child: Writer, kind: str, status: str | None, error: str | None) -> None:
        if self._children.pop(child.run_id, None) is None:
            return
        self._past.add(child.run_id)
        self._close(child)
        if kind == "fail":
            self._emit("SUBAGENT_ERROR", child, message=error or "the sub-agent failed")
            return
        waits = [str(ask["id"]) for ask in self._asked.values() if ask.get("subagentRunId") == child.run_id]
        outcome: JsonObject = {"type": "success"}
        if status != "completed":
            outcome = {"type": "suspended", **({"interruptIds": list(waits)} if waits else {})}
        self._emit("SUBAGENT_FINISHED", child, outcome=outcome)

    # --- chunks -----------------------------------------------------------------------------------------------------

    def _chunk(self, writer: Writer, chunk: dict[str, Any]) -> None:
        kind = str(chunk.get("type", ""))
        if kind in NOTICES:
            if kind == "error" and not chunk.get("recoverable", True):
                self._failure = str(chunk.get("code", "error")) if writer is self._run else self._failure
                return
            fields = {name: value for name, value in chunk.items() if name not in ENVELOPE}
            self._emit("CUSTOM", writer, name=f"helix.{kind}", value=fields)
            if kind == "stream_resync" and writer is self._run:  # the reader may have messages that a rewind left
                self._snapshot()
        elif kind in CHUNK_TYPES and (handler := getattr(self, f"_on_{kind}", None)) is not None:
            handler(writer, chunk)

    def _message_id(self, writer: Writer, chunk: dict[str, Any]) -> str:
        at = (int(chunk.get("step", 0)), int(chunk.get("attempt", 0)))
        if writer.at != at:
            self._close(writer)
            writer.at, writer.shown, writer.thoughts = at, [], 0
        return answer_id(writer.session_id, *at)

    def _on_text_delta(self, writer: Writer, chunk: dict[str, Any]) -> None:
        message_id = self._message_id(writer, chunk)
        self._end_thought(writer)
        if writer.message != message_id:
            self._end_text(writer)
            writer.message = message_id
            self._owners.setdefault(message_id, writer.tag)
            writer.shown.append(message_id)
            self._emit("TEXT_MESSAGE_START", writer, messageId=message_id, role="assistant")
            self._talk.add({"id": message_id, "role": "assistant", "content": "", **writer.tag})
        delta = str(chunk.get("delta", ""))
        self._talk.append(message_id, delta)
        self._emit("TEXT_MESSAGE_CONTENT", writer, messageId=message_id, delta=delta)

    def _on_thinking(self, writer: Writer, chunk: dict[str, Any]) -> None:
        message_id = self._message_id(writer, chunk)
        if chunk.get("is_complete"):
            if writer.thought is None:
                self._think(writer, message_id, str(chunk.get("content", "")))
            self._end_thought(writer)
        else:
            self._think(writer, message_id, str(chunk.get("content", "")))

    def _think(self, writer: Writer, message_id: str, delta: str) -> None:
        if writer.thought is None:
            writer.thoughts += 1
            thought = writer.thought = f"{message_id}/thinking/{writer.thoughts}"
            writer.shown.append(thought)
            self._emit("REASONING_START", writer, messageId=thought)
            self._emit("REASONING_MESSAGE_START", writer, messageId=thought, role="reasoning")
            self._talk.add({"id": thought, "role": "reasoning", "content": "", **writer.tag})
        self._talk.append(writer.thought, delta)
        self._emit("REASONING_MESSAGE_CONTENT", writer, messageId=writer.thought, delta=delta)

    def _on_step_committed(self, writer: Writer, chunk: dict[str, Any]) -> None:
        if chunk.get("usage"):
            model = str(chunk.get("model") or "")
            self._usage[model] = self._usage.get(model, Usage()) + Usage.model_validate(chunk["usage"])
        self._answers[writer.session_id, int(chunk.get("step", 0))] = self._message_id(writer, chunk)
        self._close(writer)
        writer.shown = []

    def _on_step_discarded(self, writer: Writer, chunk: dict[str, Any]) -> None:
        self._message_id(writer, chunk)
        self._close(writer)
        if writer.shown:
            if writer is self._run and chunk.get("status") == "interrupted":
                self._retained = self._talk.rename(writer.shown, writer.run_id)  # another run's attempt has the same id
            else:
                self._talk.discard(writer.shown)
            self._snapshot()
        writer.shown = []

    def _close(self, writer: Writer) -> None:
        self._end_thought(writer)
        self._end_text(writer)

    def _end_text(self, writer: Writer) -> None:
        if writer.message is not None:
            self._emit("TEXT_MESSAGE_END", writer, messageId=writer.message)
            writer.message = None

    def _end_thought(self, writer: Writer) -> None:
        if writer.thought is not None:
            self._emit("REASONING_MESSAGE_END", writer, messageId=writer.thought)
            self._emit("REASONING_END", writer, messageId=writer.thought)
            writer.thought = None

    def _snapshot(self) -> None:
        self._emit("MESSAGES_SNAPSHOT", messages=self._talk.snapshot())

    # --- calls ------------------------------------------------------------------------------------------------------

    def _on_tool_start(self, writer: Writer, chunk: dict[str, Any]) -> None:
        self._call(writer, chunk, chunk.get("arguments", {}))

    def _on_tool_approval_request(self, writer: Writer, chunk: dict[str, Any]) -> None:
        shown = self._call(writer, chunk, chunk.get("input", {}))
        kind, name = str(chunk.get("kind", "approval")), str(chunk["tool_name"])
        about: JsonObject = {"id": shown, "reason": f"helix:{kind}", "toolCallId": shown, "metadata": {"tool": name}}
        self._asked[shown] = about | dict(writer.tag) | ({} if kind == "client" else {"responseSchema": ANSWER})

    def _call(self, writer: Writer, chunk: dict[str, Any], given: Any) -> str:
        shown = shown_call(self._root, writer.session_id, str(chunk["tool_call_id"]))
        arguments = dumps(given)
        if self._talk.has_call(shown):
            if self._talk.change_arguments(shown, arguments):
                self._snapshot()
            return shown
        step = int(chunk.get("step", 0))
        parent = self._answers.get((writer.session_id, step)) or answer_id(writer.session_id, step, 0)
        tag = self._owners.setdefault(parent, writer.tag)
        name = str(chunk["tool_name"])
        self._emit("TOOL_CALL_START", None, toolCallId=shown, toolCallName=name, parentMessageId=parent, **tag)
        self._emit("TOOL_CALL_ARGS", None, toolCallId=shown, delta=arguments, **tag)
        self._emit("TOOL_CALL_END", None, toolCallId=shown, **tag)
        self._talk.add_call(parent, shown, name, arguments, tag)
        return shown

    def _on_tool_end(self, writer: Writer, chunk: dict[str, Any]) -> None:
        shown = shown_call(self._root, writer.session_id, str(chunk["tool_call_id"]))
        self._asked.pop(shown, None)
        if shown in self._results:
            return
        self._results.add(shown)
        if not self._talk.has_call(shown):
            self._call(writer, chunk, chunk.get("arguments") or {})
        result = chunk.get("result") if chunk.get("result") is not None else chunk.get("error")
        content = result if isinstance(result, str) else dumps(result)
        result_id = f"{shown}/result"
        self._emit("TOOL_CALL_RESULT", writer, messageId=result_id, toolCallId=shown, role="tool", content=content)
        self._talk.add_result(result_id, shown, content, writer.tag)

    def _on_subagent_start(self, writer: Writer, chunk: dict[str, Any]) -> None:
        call = shown_call(self._root, writer.session_id, str(chunk["parent_tool_call_id"]))
        self._links[str(chunk["sub_agent_id"])] = Link(str(chunk.get("sub_agent_type", "")), call, writer.session_id)

    def _on_subagent_end(self, writer: Writer, chunk: dict[str, Any]) -> None:
        status = str(chunk.get("status", "completed"))
        for child in [c for c in self._children.values() if c.session_id == chunk["sub_agent_id"]]:
            self._end_child(child, "fail" if status == "failed" else "end", status, chunk.get("error"))

    # --- the rest ---------------------------------------------------------------------------------------------------

    def _on_custom(self, writer: Writer, chunk: dict[str, Any]) -> None:
        self._emit("CUSTOM", writer, name=str(chunk["event_name"]), value=chunk.get("data"))

    def _on_state_patch(self, writer: Writer, chunk: dict[str, Any]) -> None:
        if writer is self._run and chunk.get("patches"):  # a sub-agent's state is not the run's
            try:
                self._state = apply(self._state, chunk["patches"]) if self._state is not None else None
            except InvalidInputError:  # chunks were lost, so the state before the patch is not known
                self._state = None
            self._emit("STATE_DELTA", delta=chunk["patches"])

    def _on_output(self, writer: Writer, chunk: dict[str, Any]) -> None:
        if writer is self._run:
            self._output = chunk.get("output")

    def _on_run_paused(self, writer: Writer, chunk: dict[str, Any]) -> None:
        if writer is self._run:
            self._reason = str(chunk.get("reason") or "pending")
