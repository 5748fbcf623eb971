"""The last lines of a run: what came out, what it took, and what to type next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from rich.text import Text

from helix.cli import formats
from helix.cli.hints import Hints
from helix.cli.views import Heading, Question
from helix.cli.writer import Writer
from helix.runtime.handle import AgentResult

BUDGET = "budget_exceeded"
"""Why a run paused that waits for nobody."""


class Closing:
    """`hints` None: the agent runs elsewhere, and whoever shows it says how to go on."""

    def __init__(self, out: Writer, hints: Hints | None, heading: Heading) -> None:
        self._out, self._hints, self._choice, self._brief = out, hints, heading.choice, heading.brief

    def result(self, result: AgentResult[Any], questions: Sequence[Question], seconds: float) -> None:
        self._out.line()
        if result.status == "completed":
            self._output(result)
        self._summary(result, seconds)
        if self._hints is None or (self._brief and result.status in ("completed", "paused")):
            self._out.line()
        else:
            self._follow(result, questions, self._hints)

    def _follow(self, result: AgentResult[Any], questions: Sequence[Question], hints: Hints) -> None:
        """What to type next."""
        session_id = result.session_id
        match result.status:
            case "completed":
                self._next("go on", hints.run(session_id))
            case "failed":
                self._next("try again", hints.retry(session_id) if result.recoverable else hints.run(session_id))
            case "paused" if questions:
                self._questions(session_id, questions, hints)
            case _:
                self._next("resume", hints.resume(session_id))
        self._next("look", hints.show(session_id))
        if self._choice.is_demonstration and result.status == "completed":
            variable = self._choice.missing.split()[0] if self._choice.missing else "the provider's key"
            self._next("real model", f"set {variable}, or add --model with any litellm name")

    def left(self, session_id: str, why: str) -> None:
        self._out.line()
        self._out.line(f"{why}; nothing that was recorded is lost", "yellow")
        if self._hints is not None:
            self._next("resume", self._hints.resume(session_id))

    def _output(self, result: AgentResult[Any]) -> None:
        """Structured output only: a text has been on the screen already."""
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
            cost = formats.cost(usage, imaginary=self._choice.is_demonstration)
            parts += [formats.count(usage.calls, "model call"), formats.tokens(usage), cost]
        parts.append(f"{seconds:.1f} s")
        style = formats.status_style(result.status)
        self._out.line(Text.assemble((result.status, f"bold {style}"), (f" · {' · '.join(parts)}", "dim")))
        if result.error is not None:
            self._out.line(f"{result.error_code}: {result.error}", style, margin="  ", hang=2)
        elif result.completion_reason == BUDGET:
            told = "a budget has no room for the next model call: it goes on after `helix fleet set-budget` with more"
            self._out.line(f"{BUDGET}: {told}, or in the next period", style, margin="  ", hang=2)

    def _questions(self, session_id: str, questions: Sequence[Question], hints: Hints) -> None:
        for question in questions:
            self._out.line(f"? {formats.call(question.tool_name, question.arguments)}", "yellow", margin="  ")
            if question.kind == "client":
                answer = hints.resume(session_id, "--approve", question.call_id, "--data", "JSON")
                self._next("answer", answer)
            else:
                self._next("approve", hints.resume(session_id, "--approve", question.call_id))
            self._next("deny", hints.resume(session_id, "--deny", question.call_id))

    def _next(self, what: str, command: str) -> None:
        """Never wrapped: it is there to be copied."""
        self._out.line(Text.assemble((f"  {what:<12}", "dim"), command))
