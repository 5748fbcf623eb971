"""The view of a run for people. It shows text as it arrives, one line for each other event, and the commands to type next.

Law: each change to the conversation is either shown or deliberately omitted. Sub-agents are indented below the call that
started them. The text of a discarded step is already printed, so a line says that it was discarded.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, TextIO, assert_never

from pydantic import BaseModel
from rich.text import Text

from helix.cli.view import formats
from helix.cli.view.base import DEMONSTRATION_IN_WORDS, Heading, Hints, Question, demonstration_notice
from helix.cli.view.writer import Writer
from helix.core import chunks as c
from helix.core.conversation.changes import (
    CallAsked,
    CallChange,
    CallEnded,
    CallStarted,
    CheckpointCreated,
    ChildBegan,
    ChildEnded,
    ContextChanged,
    CustomEmitted,
    ErrorRaised,
    MessageQueued,
    Noticed,
    OutputGiven,
    PartBegan,
    PartEnded,
    PartGrew,
    Resynced,
    RunBegan,
    RunChange,
    RunEnded,
    RunInterrupted,
    RunPaused,
    RunQueued,
    RunResumed,
    StatePatched,
    StepBegan,
    StepChange,
    StepCommitted,
    StepDiscarded,
    TextCited,
    Unknown,
)
from helix.core.conversation.conversation import Conversation
from helix.core.conversation.items import BUDGET, Call, PartKind, Step
from helix.core.conversation.pieces import describe_context, describe_source
from helix.core.handles import AgentExecutionHandle, AgentResult
from helix.core.tools import SUBAGENT_TOOL_PREFIX, is_sub_agent_tool
from helix.core.usage import Usage
from helix.runtime.models import DEMONSTRATION

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


_STYLES: dict[PartKind, str] = {"text": "", "reasoning": "dim italic", "output": "dim"}
_ASKS = {"approval": "asks for approval of", "client": "asks you for the result of"}


def _sub_agent_end(chunk: c.SubAgentEndChunk) -> tuple[str, str]:
    said = chunk.error if chunk.error is not None else formats.short(chunk.result, RESULT_CHARS)
    return f"← {chunk.sub_agent_type} {chunk.status}: {said}", "green" if chunk.status == "completed" else "red"


def _question(call: Call) -> tuple[str, str]:
    if call.kind == "question":
        return f"? {call.name} asks: {'; '.join(question.text for question in call.questions)}", "bold yellow"
    if call.kind == "elsewhere":
        return f"… another system ends {formats.call(call.name, call.arguments)}", "yellow"
    asks = _ASKS.get(call.kind, "asks what became of")
    return f"? {asks} {formats.call(call.name, call.arguments)}", "bold yellow"


def _queued(chunk: c.RunQueuedChunk) -> tuple[str, str]:
    why = f"; the agent is {chunk.reason}" if chunk.reason else ""
    return f"… waits for a slot, {chunk.queued} in line{why}", "dim"


def _waiting(chunk: c.MessageQueuedChunk) -> tuple[str, str]:
    what = {"waiting": "> waits: ", "delivered": "> ", "withdrawn": "> withdrawn"}[chunk.state]
    return f"{what}{formats.cut(chunk.content, RESULT_CHARS)}", "cyan"


def _other(change: Resynced | Unknown) -> str:
    if isinstance(change, Resynced):
        return f"↻ back to an earlier point ({change.chunk.reason})"
    return f"* {change.chunk.type}"


def _discarded(step: Step) -> tuple[str, str]:
    why = f": {step.why}" if step.why else ""
    return f"✗ step {step.step} is discarded, ignore what it showed{why}", "yellow"


class TerminalView:
    """Implements `View`. Without `hints`, the agent runs elsewhere and the caller shows how to continue."""

    def __init__(self, file: TextIO, hints: Hints | None, heading: Heading) -> None:
        self._out = Writer(file)
        self._heading, self._hints = heading, hints
        self._root = ""
        self._depth: dict[str, int] = {}
        self._attempts: dict[tuple[str, int], int] = {}
        self._conversation = Conversation("")
        self._usage: dict[str, Usage | None] = {}
        self._calls: dict[str, dict[str, str]] = {}
        self._models: set[str] = set()
        self._began = time.monotonic()

    def opened(self, session_id: str) -> None:
        self._attempts.clear()
        if self._root:
            return
        self._root = session_id
        self._conversation.named(session_id)
        heading = self._heading
        self._out.line(f"{heading.agent.name} · {heading.model} · {heading.db}", "bold")
        if heading.choice.is_demonstration:
            self._out.line(demonstration_notice(heading.choice), "yellow", hang=0)
        if heading.message is not None:
            self._out.line()
            self._out.line(f"> {heading.message}", "bold")
        self._out.line(f"session {session_id}", "dim", margin="  ")

    def chunk(self, chunk: c.StreamChunk) -> None:
        for change in self._conversation.add(chunk):
            match change:
                case PartGrew(part, delta):
                    style = _STYLES[part.kind]
                    self._head(chunk)
                    self._out.grow(part, delta, style, margin=self._margin(chunk))
                case StepBegan() | PartBegan() | PartEnded() | StepCommitted() | StepDiscarded():
                    self._answer(change, chunk)
                case CallAsked() | CallStarted() | CallEnded() | ChildBegan() | ChildEnded():
                    self._call(change, chunk)
                case (
                    RunBegan()
                    | RunEnded()
                    | RunResumed()
                    | RunInterrupted()
                    | RunPaused()
                    | RunQueued()
                    | OutputGiven()
                ):
                    self._run(change, chunk)
                case CustomEmitted(_, custom):
                    self._line(chunk, f"* {custom.event_name}: {formats.short(custom.data, RESULT_CHARS)}", "blue")
                case StatePatched(_, patch):
                    changes = "; ".join(formats.change(operation) for operation in patch.patches)
                    self._line(chunk, f"~ {formats.cut(changes, CHANGE_CHARS)}", "magenta")
                    for warning in patch.warnings:
                        self._line(chunk, f"! {warning}", "yellow")
                case ErrorRaised(_, error):
                    if error.recoverable or error.agent_id != self._root:
                        self._line(chunk, f"! {error.code}: {error.error}", "yellow" if error.recoverable else "red")
                case CheckpointCreated(_, checkpoint):
                    self._checkpoint(checkpoint)
                case ContextChanged() | Noticed() | TextCited():
                    self._notice(change, chunk)
                case MessageQueued(_, queued):
                    self._line(chunk, *_waiting(queued))
                case Resynced() | Unknown():
                    self._line(chunk, _other(change), "dim")
                case _:
                    assert_never(change)

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

    def _answered_by(self, chunk: c.StreamChunk, model: str | None) -> None:
        """Show the name of each answering model once, if this process did not choose the model."""
        chosen_here = self._hints is not None or self._heading.choice.name is not None
        if chosen_here or model is None or model in self._models:
            return
        self._models.add(model)
        demonstrates = model == DEMONSTRATION
        name = DEMONSTRATION_IN_WORDS if demonstrates else model
        self._line(chunk, f"model: {name}", "yellow" if demonstrates else "dim")

    # --- changes --------------------------------------------------------------------------------------------------------

    def _answer(self, change: StepChange, chunk: c.StreamChunk) -> None:
        match change:
            case StepCommitted(step):
                self._usage[chunk.agent_id] = step.usage
                for source in step.sources:
                    self._line(chunk, f"  source  {describe_source(source)}", "dim")
                self._answered_by(chunk, step.model)
                if step.cut:
                    self._line(chunk, formats.CUT, "yellow")
            case StepDiscarded(step):
                self._line(chunk, *_discarded(step))
            case StepBegan() | PartBegan() | PartEnded():
                pass  # the first piece shows the beginning
            case _:
                assert_never(change)

    def _call(self, change: CallChange, chunk: c.StreamChunk) -> None:
        match change:
            case CallAsked(call):
                self._line(chunk, *_question(call))
            case CallStarted(call):
                again = f"  (attempt {call.attempt})" if call.attempt > 1 else ""
                words = formats.call(call.name.removeprefix(SUBAGENT_TOOL_PREFIX), call.arguments)
                self._line(chunk, f"→ {words}{again}", "cyan")
                self._calls.setdefault(chunk.agent_id, {})[call.id] = formats.cut(words, CALL_CHARS)
            case CallEnded(call):
                self._call_end(call, chunk)
            case ChildBegan(_, child):
                self._depth[child.id] = self._depth_of(chunk) + 1
                self._out.line(f"sub-agent, session {child.id}", "dim", margin=f"{self._margin(chunk)}│ ")
            case ChildEnded(_, _, end):
                self._line(chunk, *_sub_agent_end(end))
            case _:
                assert_never(change)

    def _call_end(self, call: Call, chunk: c.StreamChunk) -> None:
        """Show the result of a call. If the step has several calls, name the call it belongs to."""
        success = call.state == "done"
        if is_sub_agent_tool(call.name) and success:
            return  # the end of the sub-agent shows it
        calls = self._calls.get(chunk.agent_id, {})
        name = calls.get(call.id, call.name) if len(calls) != 1 else ""
        said = formats.short(call.result, RESULT_CHARS) if success else f"failed: {call.error}"
        mark = f"{name}: " if name and success else f"{name} " if name else ""
        self._line(chunk, f"← {mark}{said}", "green" if success else "red")
        for file in call.files:
            self._line(chunk, f"  + {formats.file(file)}", "dim")

    def _run(self, change: RunChange, chunk: c.StreamChunk) -> None:
        match change:
            case RunResumed(_, resumed):
                self._line(chunk, f"↻ {_RESUMED.get(resumed.mode, resumed.mode)}", "dim")
            case RunQueued(_, queued):
                self._line(chunk, *_queued(queued))
            case RunInterrupted() | RunPaused():
                if chunk.agent_id != self._root:
                    word = "paused" if isinstance(change, RunPaused) else "interrupted"
                    self._line(chunk, f"{chunk.agent_type} is {word}", "yellow")
            case RunBegan() | RunEnded() | OutputGiven():
                pass  # the run's closing lines show the end, or those of the sub-agent's call do
            case _:
                assert_never(change)

    def _notice(self, change: ContextChanged | Noticed | TextCited, chunk: c.StreamChunk) -> None:
        if isinstance(change, TextCited):
            return  # the commit shows the sources
        words = change.chunk.words() if isinstance(change, Noticed) else describe_context(change.notice)
        if words:
            self._line(chunk, f"· {words}", "dim")

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
        """Show the output if it is structured. Text output is already on the screen."""
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
            asked = formats.call(question.tool_name, question.arguments)
            if question.kind == "elsewhere":
                self._out.line(f"… {asked} waits for another system", "yellow", margin="  ")
                self._next("end it", hints.report())
                continue
            self._out.line(f"? {asked}", "yellow", margin="  ")
            if question.kind == "question":
                self._out.line(question.reason or "", margin="    ")
                self._next("answer", hints("resume", session_id, "--approve", question.call_id, "--data", "ANSWER"))
            elif question.kind == "client":
                answer = hints("resume", session_id, "--approve", question.call_id, "--data", "JSON")
                self._next("answer", answer)
            else:
                self._next("approve", hints("resume", session_id, "--approve", question.call_id))
            self._next("deny", hints("resume", session_id, "--deny", question.call_id))

    def _next(self, what: str, command: str) -> None:
        """Show a command without wrapping, so that it can be copied."""
        self._out.line(Text.assemble((f"  {what:<12}", "dim"), command))

    # --- lines with their margin --------------------------------------------------------------------------------------

    def _line(self, chunk: c.StreamChunk, text: str, style: str) -> None:
        self._head(chunk)
        self._out.line(text, style, margin=self._margin(chunk))

    def _head(self, chunk: c.StreamChunk) -> None:
        """Show the heading of a step before its first line, and again for each new attempt."""
        if chunk.step == 0 or isinstance(chunk, c.CheckpointCreatedChunk | c.StatePatchChunk):
            return
        step = (chunk.agent_id, chunk.step)
        attempt = chunk.attempt if isinstance(chunk, c.TextDeltaChunk | c.OutputDeltaChunk | c.ThinkingChunk) else 1
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
