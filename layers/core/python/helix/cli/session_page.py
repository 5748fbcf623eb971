"""One session on one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape

from helix.cli import formats
from helix.cli.views import Question
from helix.core.messages import AnyMessage, AssistantMessage, ToolResultMessage, UserMessage
from helix.core.rows import CheckpointRow, RunRow
from helix.engine.admission import InLine
from helix.engine.sessions import SessionState, SubSessionRef

TEXT_CHARS, RESULT_CHARS = 2000, 200


@dataclass(frozen=True, slots=True)
class Page:
    """Messages oldest first; runs and checkpoints newest first. `queued`: where its run stands in the line for a slot."""

    state: SessionState
    queued: InLine | None
    messages: Sequence[AnyMessage]
    runs: Sequence[RunRow]
    checkpoints: Sequence[CheckpointRow]
    sub_sessions: Sequence[SubSessionRef]
    questions: Sequence[Question]

    def dump(self) -> dict[str, Any]:
        return {
            "session": self.state.model_dump(mode="json"),
            "queued": self.queued._asdict() if self.queued is not None else None,
            "state": self.state.custom_state,
            "messages": [message.model_dump(mode="json") for message in self.messages],
            "runs": [run.model_dump(mode="json") for run in self.runs],
            "checkpoints": [
                row.model_dump(mode="json", exclude={"state", "patches", "kind"}) for row in self.checkpoints
            ],
            "sub_sessions": [ref.model_dump(mode="json") for ref in self.sub_sessions],
            "waiting_for": [asdict(question) for question in self.questions],
        }


def print_page(console: Console, page: Page, now: float) -> None:
    state = page.state
    style = formats.status_style(state.status)
    used = f"{formats.tokens(state.usage)}, {formats.cost(state.usage)}"
    console.print(f"[bold]{escape(state.session_id)}[/]  {escape(state.agent_type)}  [{style}]{state.status}[/]")
    console.print(f"[dim]updated {formats.age(now - state.updated_at)} · {used}[/]", soft_wrap=True)
    if state.forked_from:
        console.print(f"[dim]copied from {escape(formats.short(state.forked_from))}[/]", soft_wrap=True)
    if state.error is not None:
        console.print(f"[red]{escape(f'{state.error.code}: {state.error.message}')}[/]", soft_wrap=True)
    if page.queued is not None:
        console.print(f"[yellow]waits for a slot: number {page.queued.place} in line[/]", soft_wrap=True)
    for question in page.questions:
        called = formats.call(question.tool_name, question.arguments)
        asks = f"waits for {question.kind} of {called}, call {question.call_id}"
        console.print(f"[yellow]{escape(asks)}[/]", soft_wrap=True)
    _section(console, "messages")
    for message in page.messages:
        _message(console, message)
    _section(console, "state")
    for line in formats.lines_of(state.custom_state):
        console.print(f"  {escape(line)}", soft_wrap=True)
    if state.output is not None:
        _section(console, "output")
        for line in formats.lines_of(state.output):
            console.print(f"  {escape(line)}", soft_wrap=True)
    _section(console, "runs")
    for run in page.runs:
        why = f"  {run.error.code}: {run.error.message}" if run.error is not None else ""
        style = formats.status_style(run.status)
        line = f"  {escape(run.run_id)}  {run.mode}  [{style}]{run.status}[/]  {formats.count(run.steps, 'step')}"
        console.print(f"{line}{escape(why)}", soft_wrap=True)
    _section(console, "checkpoints")
    for row in page.checkpoints:
        line = f"  {escape(row.id)}  [dim]step {row.step}, {formats.count(row.count, 'message')}, {row.status}[/]"
        console.print(line, soft_wrap=True)
    if page.sub_sessions:
        _section(console, "sub-agents")
    for ref in page.sub_sessions:
        style = formats.status_style(ref.status)
        console.print(f"  {escape(ref.session_id)}  {escape(ref.agent_type)}  [{style}]{ref.status}[/]", soft_wrap=True)


def _section(console: Console, title: str) -> None:
    console.print(f"\n[bold]{title}[/]")


def _message(console: Console, message: AnyMessage) -> None:
    match message:
        case UserMessage():
            _text(console, "user", message.content, "bold cyan")
        case AssistantMessage():
            if message.content:
                _text(console, "assistant", message.content, "bold")
            for call in message.tool_calls:
                console.print(f"  [cyan]→ {escape(formats.call(call.name, call.arguments))}[/]", soft_wrap=True)
        case ToolResultMessage():
            style = "green" if message.success else "red"
            said = f"← {message.tool_name}: {formats.cut(message.content, RESULT_CHARS)}"
            console.print(f"  [{style}]{escape(said)}[/]", soft_wrap=True)


def _text(console: Console, who: str, text: str, style: str) -> None:
    text = text if len(text) <= TEXT_CHARS else f"{text[:TEXT_CHARS]}…"
    lines = [line for line in text.splitlines() if line.strip()] or [""]
    console.print(f"  [{style}]{who}[/]  {escape(lines[0])}", soft_wrap=True)
    for line in lines[1:]:
        console.print(f"    {escape(line)}", soft_wrap=True)
