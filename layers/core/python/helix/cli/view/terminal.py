"""The view of a run for people: text as it arrives, one line for each other event, and the commands to type next.

Law: each kind of chunk is either shown or deliberately omitted. Sub-agents are indented below the call that started them.
The text of a discarded step is already printed, so a line says that it is discarded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from pydantic import BaseModel
from rich.text import Text

from helix.cli.view import formats
from helix.cli.view.base import DEMONSTRATION_IN_WORDS, Heading, Hints, Question, demonstration_notice
from helix.cli.view.writer import Writer
from helix.core import chunks as c
from helix.core.handles import AgentExecutionHandle, AgentResult
from helix.core.tools import SUBAGENT_TOOL_PREFIX, is_sub_agent_tool
from helix.core.usage import Usage
from helix.runtime.models import DEMONSTRATION

BUDGET = "budget_exceeded"
"""The completion reason of a run that a budget paused, which does not wait for a person."""
RESULT_CHARS, CHANGE_CHARS, CALL_CHARS = 240, 160, 60
_RESUMED = {
    "continue": "continuing where it stopped",
    "with_message": "continuing with a new message",
    "with_confirmation": "continuing with the answer",
    "from_checkpoint": "continuing from a checkpoint",
    "retry": "trying again from the last checkpoint",
    "from_start": "trying again from the start of the failed run",
    "takeover": "taken over from a process that died",
    "abort": "aborted",
}


_ASKS = {"approval": "asks for approval of", "client": "asks you for the result of"}


def _sub_agent_end(k: c.SubAgentEndChunk) -> tuple[str, str]:
    said = k.error if k.error is not None else formats.short(k.result, RESULT_CHARS)
    return f"← {k.sub_agent_type} {k.status}: {said}", "green" if k.status == "completed" else "red"


def _question(k: c.ToolApprovalRequestChunk) -> tuple[str, str]:
    asks = _ASKS.get(k.kind, "asks what became of")
    return f"? {asks} {formats.call(k.tool_name, k.input)}", "bold yellow"


def _queued(k: c.RunQueuedChunk) -> tuple[str, str]:
    why = f"; the agent is {k.reason}" if k.reason else ""
    return f"… waits for a slot, {k.queued} in line{why}", "dim"


def _discarded(k: c.StepDiscardedChunk) -> tuple[str, str]:
    why = f": {k.reason}" if k.reason else ""
    return f"✗ step {k.step} is discarded, ignore what it showed{why}", "yellow"


_LINES: dict[type, Callable[[Any], tuple[str, str]]] = {
    c.SubAgentEndChunk: _sub_agent_end,
    c.ToolApprovalRequestChunk: _question,
    c.StepDiscardedChunk: _discarded,
    c.RunResumedChunk: lambda k: (f"↻ {_RESUMED.get(k.mode, k.mode)}", "dim"),
    c.RunQueuedChunk: _queued,
    c.StreamResyncChunk: lambda k: (f"↻ back to an earlier point ({k.reason})", "dim"),
    c.CustomEventChunk: lambda k: (f"* {k.event_name}: {formats.short(k.data, RESULT_CHARS)}", "blue"),
    c.UnknownChunk: lambda k: (f"* {k.type}", "dim"),
}
"""For each chunk type, a function that returns the chunk's line as its text and its style."""


class TerminalView:
    """Implements `View`. Without `hints` the agent runs elsewhere, and the caller shows how to continue."""

    def __init__(self, file: TextIO, hints: Hints | None, heading: Heading) -> None:
        self._out = Writer(file)
        self._heading, self._hints = heading, hints
        self._root = ""
        self._depth: dict[str, int] = {}
        self._attempts: dict[tuple[str, int], int] = {}
        self._thought: set[tuple[str, int, int]] = set()
        self._usage: dict[str, Usage | None] = {}
        self._calls: dict[str, dict[str, str]] = {}
        self._models: set[str] = set()
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

    def chunk(self, chunk: c.StreamChunk) -> None:
        if (line := _LINES.get(type(chunk))) is not None:
            self._line(chunk, *line(chunk))
            return
        match chunk:
            case c.TextDeltaChunk():
                self._grow(chunk, "text", chunk.delta, "")
            case c.ThinkingChunk():
                self._thinking(chunk)
            case c.ToolStartChunk():
                self._tool_start(chunk)
            case c.ToolEndChunk():
                self._tool_end(chunk)
            case c.SubAgentStartChunk():
                self._depth[chunk.sub_agent_id] = self._depth_of(chunk) + 1
                margin = self._margin(chunk)
                self._out.line(f"sub-agent, session {chunk.sub_agent_id}", "dim", margin=f"{margin}│ ")
            case c.StatePatchChunk():
                changes = "; ".join(formats.change(operation) for operation in chunk.patches)
                self._line(chunk, f"~ {formats.cut(changes, CHANGE_CHARS)}", "magenta")
                for warning in chunk.warnings:
                    self._line(chunk, f"! {warning}", "yellow")
            case c.CheckpointCreatedChunk():
                self._checkpoint(chunk)
            case c.StepCommittedChunk():
                self._usage[chunk.agent_id] = chunk.usage
                self._answered_by(chunk)
            case c.ErrorChunk() if chunk.recoverable or chunk.agent_id != self._root:
                self._line(chunk, f"! {chunk.code}: {chunk.error}", "yellow" if chunk.recoverable else "red")
            case c.RunInterruptedChunk() | c.RunPausedChunk() if chunk.agent_id != self._root:
                word = "paused" if isinstance(chunk, c.RunPausedChunk) else "interrupted"
                self._line(chunk, f"{chunk.agent_type} is {word}", "yellow")
            case _:
                pass  # output and end are shown by the closing lines, or by those of the sub-agent's call

    def result(self, result: AgentResult[Any], questions: Sequence[Question]) -> None:
        now, hints = time.monotonic(), self._hints
        self._out.line()
        if result.status == "completed":
            self._output(result)
        self._summary(result, now - self._began)
        if hints is None or (self._heading.brief and result.status in ("completed", "paused")):
            self._out.line()
        else:
            self._follow(result, questions, hints)
        self._began = now

    def stopping(self) -> None:
        self._out.line("interrupting: the run stops at its next point; Ctrl-C again leaves at once", "yellow")

    def note(self, text: str) -> None:
        self._out.line(text, "bold yellow")

    def left(self, handle: AgentExecutionHandle[Any], why: str) -> None:
        self._out.line()
        self._out.line(f"{why}; nothing that was recorded is lost", "yellow")
        if self._hints is not None:
            self._next("resume", self._hints("resume", handle.session_id))

    def _answered_by(self, chunk: c.StepCommittedChunk) -> None:
        """Show the name of each answering model once, if this process did not choose the model."""
        chosen_here = self._hints is not None or self._heading.choice.name is not None
        if chosen_here or chunk.model is None or chunk.model in self._models:
            return
        self._models.add(chunk.model)
        demonstrates = chunk.model == DEMONSTRATION
        name = DEMONSTRATION_IN_WORDS if demonstrates else chunk.model
        self._line(chunk, f"model: {name}", "yellow" if demonstrates else "dim")

    # --- the parts of a step ------------------------------------------------------------------------------------------

    def _thinking(self, chunk: c.ThinkingChunk) -> None:
        if not chunk.is_complete:
            self._thought.add(_step(chunk))
            self._grow(chunk, "thinking", chunk.content, "dim italic")
        elif _step(chunk) not in self._thought:  # the reasoning came in one chunk
            self._grow(chunk, "thinking", chunk.content, "dim italic")

    def _tool_start(self, chunk: c.ToolStartChunk) -> None:
        again = f"  (attempt {chunk.attempt})" if chunk.attempt > 1 else ""
        call = formats.call(chunk.tool_name.removeprefix(SUBAGENT_TOOL_PREFIX), chunk.arguments)
        self._line(chunk, f"→ {call}{again}", "cyan")
        self._calls.setdefault(chunk.agent_id, {})[chunk.tool_call_id] = formats.cut(call, CALL_CHARS)

    def _tool_end(self, chunk: c.ToolEndChunk) -> None:
        """Show the result of a call. If the step has several calls, name the call it belongs to."""
        if is_sub_agent_tool(chunk.tool_name) and chunk.success:
            return  # `subagent_end` shows it
        calls = self._calls.get(chunk.agent_id, {})
        name = calls.get(chunk.tool_call_id, chunk.tool_name) if len(calls) != 1 else ""
        said = formats.short(chunk.result, RESULT_CHARS) if chunk.success else f"failed: {chunk.error}"
        mark = f"{name}: " if name and chunk.success else f"{name} " if name else ""
        self._line(chunk, f"← {mark}{said}", "green" if chunk.success else "red")

    def _checkpoint(self, chunk: c.CheckpointCreatedChunk) -> None:
        usage = self._usage.pop(chunk.agent_id, None)
        self._calls.pop(chunk.agent_id, None)
        used = f" · {formats.tokens(usage)} · {formats.cost(usage)}" if usage and usage.calls else ""
        self._line(chunk, f"■ {chunk.checkpoint_id}{used}", "dim")

    # --- the last lines of a run ----------------------------------------------------------------------------------------

    def _follow(self, result: AgentResult[Any], questions: Sequence[Question], hints: Hints) -> None:
        """Show the commands to type next."""
        session_id = result.session_id
        match result.status:
            case "completed":
                self._next("go on", hints("run", "...", "--session", session_id))
            case "failed":
                self._next(
                    "try again",
                    hints("retry", session_id) if result.recoverable else hints("run", "...", "--session", session_id),
                )
            case "paused" if questions:
                self._questions(session_id, questions, hints)
            case _:
                self._next("resume", hints("resume", session_id))
        self._next("look", hints.show(session_id))
        if self._heading.choice.is_demonstration and result.status == "completed":
            variable = self._heading.choice.missing.split()[0] if self._heading.choice.missing else "the provider's key"
            self._next("real model", f"set {variable}, or add --model with any litellm name")

    def _output(self, result: AgentResult[Any]) -> None:
        """Show the output if it is structured. A text output is already on the screen."""
        output = result.output.model_dump(mode="json") if isinstance(result.output, BaseModel) else result.output
        if output is None or (isinstance(output, str) and output == result.text):
            return
        self._out.line("output", "bold green")
        for line in formats.lines_of(output):
            name, colon, rest = line.partition(":")
            hang = len(line) - len(line.lstrip()) + 2
            self._out.line(f"{name}{colon}{rest}", margin="  ", hang=hang)
        self._out.line()

    def _summary(self, result: AgentResult[Any], seconds: float) -> None:
        usage = result.usage
        parts = [formats.count(result.steps, "step")]
        if usage.calls:
            cost = formats.cost(usage, imaginary=self._heading.choice.is_demonstration)
            parts += [formats.count(usage.calls, "model call"), formats.tokens(usage), cost]
        parts.append(f"{seconds:.1f} s")
        style = formats.status_style(result.status)
        self._out.line(Text.assemble((result.status, f"bold {style}"), (f" · {' · '.join(parts)}", "dim")))
        if result.error is not None:
            self._out.line(f"{result.error_code}: {result.error}", style, margin="  ", hang=2)
        elif result.completion_reason == BUDGET:
            reported = "a budget has no room for the next model call"
            advice = "the run continues after `helix fleet set-budget` with more, or in the next period"
            self._out.line(f"{BUDGET}: {reported}: {advice}", style, margin="  ", hang=2)

    def _questions(self, session_id: str, questions: Sequence[Question], hints: Hints) -> None:
        for question in questions:
            self._out.line(f"? {formats.call(question.tool_name, question.arguments)}", "yellow", margin="  ")
            if question.kind == "client":
                answer = hints("resume", session_id, "--approve", question.call_id, "--data", "JSON")
                self._next("answer", answer)
            else:
                self._next("approve", hints("resume", session_id, "--approve", question.call_id))
            self._next("deny", hints("resume", session_id, "--deny", question.call_id))

    def _next(self, what: str, command: str) -> None:
        """Show a command without wrapping, so that it can be copied."""
        self._out.line(Text.assemble((f"  {what:<12}", "dim"), command))

    # --- lines with their margin --------------------------------------------------------------------------------------

    def _grow(self, chunk: c.StreamChunk, kind: str, delta: str, style: str) -> None:
        self._head(chunk)
        self._out.grow((_step(chunk), kind), delta, style, margin=self._margin(chunk))

    def _line(self, chunk: c.StreamChunk, text: str, style: str) -> None:
        self._head(chunk)
        self._out.line(text, style, margin=self._margin(chunk))

    def _head(self, chunk: c.StreamChunk) -> None:
        """Show the heading of a step before its first line, and again for each new attempt."""
        if chunk.step == 0 or isinstance(chunk, c.CheckpointCreatedChunk | c.StatePatchChunk):
            return
        step = (chunk.agent_id, chunk.step)
        attempt = chunk.attempt if isinstance(chunk, c.TextDeltaChunk | c.ThinkingChunk) else 1
        if self._attempts.get(step, 0) >= attempt:
            return
        self._attempts[step] = attempt
        if self._depth_of(chunk) == 0:
            self._out.line()
        again = f", attempt {attempt}" if attempt > 1 else ""
        margin = self._margin(chunk).removesuffix("  ")
        self._out.line(f"{chunk.agent_type} · step {chunk.step}{again}", "bold", margin=margin)

    def _depth_of(self, chunk: c.StreamChunk) -> int:
        return self._depth.get(chunk.agent_id, 0 if chunk.agent_id == self._root else 1)

    def _margin(self, chunk: c.StreamChunk) -> str:
        return "  │ " * self._depth_of(chunk) + "  "


def _step(chunk: c.StreamChunk) -> tuple[str, int, int]:
    return chunk.agent_id, chunk.step, chunk.attempt
