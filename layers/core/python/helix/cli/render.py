"""A run as a person reads it: text as it comes, and one line for everything else that happens.

Law: every chunk is shown or left out on purpose; sub-agents are indented under the call that started them. What a
discarded step has shown is taken back in words, because a terminal cannot.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, TextIO

from helix.cli import formats
from helix.cli.closing import Closing
from helix.cli.hints import Hints
from helix.cli.views import Heading, Question, demonstration_notice
from helix.cli.writer import Writer
from helix.core.chunks import (
    CheckpointCreatedChunk,
    CustomEventChunk,
    ErrorChunk,
    OutputChunk,
    RunInterruptedChunk,
    RunPausedChunk,
    RunQueuedChunk,
    RunResumedChunk,
    RunSupersededChunk,
    StatePatchChunk,
    StepCommittedChunk,
    StepDiscardedChunk,
    StreamChunk,
    StreamResyncChunk,
    SubAgentEndChunk,
    SubAgentStartChunk,
    TextDeltaChunk,
    ThinkingChunk,
    ToolApprovalRequestChunk,
    ToolEndChunk,
    ToolStartChunk,
    UnknownChunk,
)
from helix.core.tools import SUBAGENT_TOOL_PREFIX, is_sub_agent_tool
from helix.core.usage import Usage
from helix.runtime.handle import AgentExecutionHandle, AgentResult

RESULT_CHARS, CHANGE_CHARS, CALL_CHARS = 240, 160, 60
_RESUMED = {
    "continue": "going on where it stopped",
    "with_message": "going on with a new message",
    "with_confirmation": "going on with the answer",
    "from_checkpoint": "going on from a checkpoint",
    "retry": "trying again from the last checkpoint",
    "from_start": "trying again from the start of the failed run",
    "takeover": "taken over from a process that died",
}


class TerminalView:
    """Implements `View`."""

    def __init__(self, file: TextIO, hints: Hints | None, heading: Heading) -> None:
        self._out = Writer(file)
        self._heading = heading
        self._closing = Closing(self._out, hints, heading)
        self._root = ""
        self._depth: dict[str, int] = {}
        self._attempts: dict[tuple[str, int], int] = {}
        self._thought: set[tuple[str, int, int]] = set()
        self._usage: dict[str, Usage | None] = {}
        self._calls: dict[str, dict[str, str]] = {}
        self._began = time.monotonic()

    def opened(self, session_id: str) -> None:
        self._attempts.clear()
        if self._root:
            return
        self._root = session_id
        heading = self._heading
        self._out.line(f"{heading.agent.name} · {heading.model} · {heading.db}", "bold")
        if heading.choice.is_demonstration:
            self._out.line(demonstration_notice(heading.choice), "yellow", hang=0)
        if heading.message is not None:
            self._out.line()
            self._out.line(f"> {heading.message}", "bold")
        self._out.line(f"session {session_id}", "dim", margin="  ")

    def chunk(self, chunk: StreamChunk) -> None:
        match chunk:
            case TextDeltaChunk():
                self._grow(chunk, "text", chunk.delta, "")
            case ThinkingChunk():
                self._thinking(chunk)
            case ToolStartChunk():
                self._tool_start(chunk)
            case ToolEndChunk():
                self._tool_end(chunk)
            case SubAgentStartChunk():
                self._depth[chunk.sub_agent_id] = self._depth_of(chunk) + 1
                margin = self._margin(chunk)
                self._out.line(f"sub-agent, session {chunk.sub_agent_id}", "dim", margin=f"{margin}│ ")
            case SubAgentEndChunk():
                said = chunk.error if chunk.error is not None else formats.short(chunk.result, RESULT_CHARS)
                style = "green" if chunk.status == "completed" else "red"
                self._line(chunk, f"← {chunk.sub_agent_type} {chunk.status}: {said}", style)
            case StatePatchChunk():
                changes = "; ".join(formats.change(operation) for operation in chunk.patches)
                self._line(chunk, f"~ {formats.cut(changes, CHANGE_CHARS)}", "magenta")
                for warning in chunk.warnings:
                    self._line(chunk, f"! {warning}", "yellow")
            case CheckpointCreatedChunk():
                self._checkpoint(chunk)
            case StepCommittedChunk():
                self._usage[chunk.agent_id] = chunk.usage
            case StepDiscardedChunk():
                why = f": {chunk.reason}" if chunk.reason else ""
                self._line(chunk, f"✗ step {chunk.step} is discarded, ignore what it showed{why}", "yellow")
            case ToolApprovalRequestChunk():
                asks = {"approval": "asks for approval of", "client": "asks you for the result of"}
                what = asks.get(chunk.kind, "asks what became of")
                self._line(chunk, f"? {what} {formats.call(chunk.tool_name, chunk.input)}", "bold yellow")
            case RunResumedChunk():
                self._line(chunk, f"↻ {_RESUMED.get(chunk.mode, chunk.mode)}", "dim")
            case RunQueuedChunk():
                self._line(chunk, f"… waits for a slot, {chunk.queued} in line", "dim")
            case StreamResyncChunk():
                self._line(chunk, f"↻ back to an earlier point ({chunk.reason})", "dim")
            case CustomEventChunk():
                self._line(chunk, f"* {chunk.event_name}: {formats.short(chunk.data, RESULT_CHARS)}", "blue")
            case ErrorChunk():
                if chunk.recoverable or chunk.agent_id != self._root:
                    self._line(chunk, f"! {chunk.code}: {chunk.error}", "yellow" if chunk.recoverable else "red")
            case RunInterruptedChunk() | RunPausedChunk() if chunk.agent_id != self._root:
                word = "paused" if isinstance(chunk, RunPausedChunk) else "interrupted"
                self._line(chunk, f"{chunk.agent_type} is {word}", "yellow")
            case OutputChunk() | RunInterruptedChunk() | RunPausedChunk() | RunSupersededChunk():
                pass  # the closing lines say it, or those of the sub-agent's call
            case UnknownChunk():
                self._line(chunk, f"* {chunk.type}", "dim")

    def result(self, result: AgentResult[Any], questions: Sequence[Question]) -> None:
        self._closing.result(result, questions, time.monotonic() - self._began)
        self._began = time.monotonic()

    def stopping(self) -> None:
        self._out.line("interrupting: the run stops at its next point; Ctrl-C again leaves at once", "yellow")

    def left(self, handle: AgentExecutionHandle[Any], why: str) -> None:
        self._closing.left(handle.session_id, why)

    # --- the parts of a step ------------------------------------------------------------------------------------------

    def _thinking(self, chunk: ThinkingChunk) -> None:
        if not chunk.is_complete:
            self._thought.add(_step(chunk))
            self._grow(chunk, "thinking", chunk.content, "dim italic")
        elif _step(chunk) not in self._thought:  # it came whole
            self._grow(chunk, "thinking", chunk.content, "dim italic")

    def _tool_start(self, chunk: ToolStartChunk) -> None:
        again = f"  (attempt {chunk.attempt})" if chunk.attempt > 1 else ""
        call = formats.call(chunk.tool_name.removeprefix(SUBAGENT_TOOL_PREFIX), chunk.arguments)
        self._line(chunk, f"→ {call}{again}", "cyan")
        self._calls.setdefault(chunk.agent_id, {})[chunk.tool_call_id] = formats.cut(call, CALL_CHARS)

    def _tool_end(self, chunk: ToolEndChunk) -> None:
        """Below its call; where several were made at once, with the call it belongs to."""
        if is_sub_agent_tool(chunk.tool_name) and chunk.success:
            return  # told by subagent_end
        calls = self._calls.get(chunk.agent_id, {})
        name = calls.get(chunk.tool_call_id, chunk.tool_name) if len(calls) != 1 else ""
        said = formats.short(chunk.result, RESULT_CHARS) if chunk.success else f"failed: {chunk.error}"
        mark = f"{name}: " if name and chunk.success else f"{name} " if name else ""
        self._line(chunk, f"← {mark}{said}", "green" if chunk.success else "red")

    def _checkpoint(self, chunk: CheckpointCreatedChunk) -> None:
        usage = self._usage.pop(chunk.agent_id, None)
        self._calls.pop(chunk.agent_id, None)
        used = f" · {formats.tokens(usage)} · {formats.cost(usage)}" if usage and usage.calls else ""
        self._line(chunk, f"■ {chunk.checkpoint_id}{used}", "dim")

    # --- lines with their margin --------------------------------------------------------------------------------------

    def _grow(self, chunk: StreamChunk, kind: str, delta: str, style: str) -> None:
        self._head(chunk)
        self._out.grow((_step(chunk), kind), delta, style, margin=self._margin(chunk))

    def _line(self, chunk: StreamChunk, text: str, style: str) -> None:
        self._head(chunk)
        self._out.line(text, style, margin=self._margin(chunk))

    def _head(self, chunk: StreamChunk) -> None:
        """The heading of a step, before the first thing it shows, and again where the model is asked once more."""
        if chunk.step == 0 or isinstance(chunk, CheckpointCreatedChunk | StatePatchChunk):
            return
        step = (chunk.agent_id, chunk.step)
        attempt = chunk.attempt if isinstance(chunk, TextDeltaChunk | ThinkingChunk) else 1
        if self._attempts.get(step, 0) >= attempt:
            return
        self._attempts[step] = attempt
        if self._depth_of(chunk) == 0:
            self._out.line()
        again = f", attempt {attempt}" if attempt > 1 else ""
        margin = self._margin(chunk).removesuffix("  ")
        self._out.line(f"{chunk.agent_type} · step {chunk.step}{again}", "bold", margin=margin)

    def _depth_of(self, chunk: StreamChunk) -> int:
        return self._depth.get(chunk.agent_id, 0 if chunk.agent_id == self._root else 1)

    def _margin(self, chunk: StreamChunk) -> str:
        return "  │ " * self._depth_of(chunk) + "  "


def _step(chunk: StreamChunk) -> tuple[str, int, int]:
    return chunk.agent_id, chunk.step, chunk.attempt
