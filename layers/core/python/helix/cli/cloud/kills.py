"""`helix demo --kill`: kill three workers of a run, and report how the run continued.

Law: the report is generated from the stored rows, after the run.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helix.cli.view.formats import count
from helix.core.entries import AnyEntry, AssistantRow, CallRow
from helix.local.kill_points import CLAIM_S, KILLS, PLANS
from helix.ports.state_store import StateStore
from helix.services.segments import SegmentStreams
from helix.sessions.session_rows import SessionRows
from helix.testing.invariants import find_problems, read_tree

LOOK_S = 0.05
TAIL_S = 0.5
"""The delay in seconds before a death is shown, so that the last chunks of the killed worker appear first."""
INTRODUCTION = """\
A worker is the process that runs a Lambda function. Three workers of this run will be killed with SIGKILL:
before an answer of the model is stored, after a tool ran and before its result is stored, and at the end.
"""
SKIPPED = {
    "answer": "no worker was killed before an answer was stored: the agent stored no answer of a model.",
    "result": "no worker was killed inside a tool: the agent called none in this run.",
    "end": "no worker was killed at the end: the run did not end.",
}


@dataclass(frozen=True, slots=True)
class Death:
    """A killed worker."""

    plan: str
    """The planned kill point, one of `helix.local.kill_points.PLANS`."""
    record: dict[str, Any]
    """The record that the worker wrote before it died: its verb, session and process, and details of the kill point."""
    at: float
    """The time of its death in Unix seconds, taken from the modification time of the record's file."""

    @property
    def moment(self) -> str:
        """The last action that the worker completed, and the next one, which it did not reach."""
        match self.plan:
            case "answer":
                return f"had the model's answer of step {self.record['step']}, and had not stored it"
            case "result":
                return f"had run the tool {self.record['tool']}, and had not stored its result"
            case _:
                return f"had stored that the run is {self.record['status']}, and had not told Step Functions"


class Kills:
    """The planned kills of one run. `folder` is an empty folder that only this run uses."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._deaths: dict[str, Death] = {}

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables for the functions."""
        return {KILLS: str(self._folder)}

    def plan(self, session_id: str) -> None:
        """Plan to kill one worker of the session at each kill point."""
        for name in PLANS:
            planned = self._folder / f"{name}.planned"
            planned.write_text(session_id, encoding="utf-8")
            planned.rename(self._folder / name)

    async def watch(self, show: Callable[[str], None]) -> None:
        """Show each kill as it happens, until cancelled."""
        while True:
            for death in self._new_deaths():
                await asyncio.sleep(TAIL_S)
                worker = f"the worker of {death.record['verb']} (process {death.record['pid']})"
                show(f"✗ SIGKILL to {worker}: it {death.moment}.")
                if death.plan != "end":
                    show(
                        f"  Its claim on the work lapses after {CLAIM_S:.0f} s at most. Then another worker continues."
                    )
            await asyncio.sleep(LOOK_S)

    def _new_deaths(self) -> Iterator[Death]:
        for name in PLANS:
            written = self._folder / f"{name}.json"
            if name not in self._deaths and written.exists():
                record = json.loads(written.read_text(encoding="utf-8"))
                death = self._deaths[name] = Death(name, record, written.stat().st_mtime)
                yield death

    async def report(self, store: StateStore, session_id: str) -> list[str]:
        """Return the lines of the report: each kill, how the run continued, and what was repeated."""
        list(self._new_deaths())
        problems = await find_problems(store, SegmentStreams(store), session_id, at_rest=True)
        tree = await read_tree(store, session_id)
        lines = []
        for number, name in enumerate(PLANS, 1):
            death = self._deaths.get(name)
            if death is None:
                lines += [f"{number}. Skipped: {SKIPPED[name]}", ""]
                continue
            lines += [f"{number}. The worker of {death.record['verb']} was killed: it {death.moment}."]
            lines += [f"   {what:<14}{text}" for what, text in _describe_continuation(death, tree)] + [""]
        lines += list(_describe_totals(tree, problems))
        return [*lines, f"Here the claim of a dead worker lapses after {CLAIM_S:.0f} s, on AWS after 30 s."]


def _describe_continuation(death: Death, tree: Sequence[SessionRows]) -> Iterator[tuple[str, str]]:
    """Yield (heading, text) lines that say how the run continued after a kill."""
    here = [rows for rows in tree if rows.session_id == death.record["session_id"]]
    match death.plan:
        case "answer":
            found = [row for row in _answers(here) if row.step == death.record["step"]]
            if not found:
                yield "Continued", "not: no later worker stored an answer of this step."
                return
            after = found[-1].created_at - death.at
            yield "Continued", f"another worker asked the model again, and had its answer {after:.0f} s later."
            yield "Repeated", "this model call: the first answer was lost with its worker."
            yield "Not repeated", "the steps before. No tool had started for the lost answer."
        case "result":
            row = next((row for row in _calls(here) if row.call_id == death.record["call_id"]), None)
            yield from _describe_tool_continuation(death, row)
        case _:
            yield (
                "Continued",
                f"Step Functions called again; that worker found the run {death.record['status']}, and did what was left.",
            )
            yield "Repeated", "nothing: the model was not asked again, and no tool ran again."


def _describe_tool_continuation(death: Death, row: CallRow | None) -> Iterator[tuple[str, str]]:
    tool = death.record["tool"]
    if row is not None and row.by == "tool":
        after = (row.ended_at or death.at) - death.at
        yield "Continued", f"another worker called {tool} again, and stored its result {after:.0f} s later."
        yield "Repeated", f'{tool}: its on_unknown is "retry". A tool with "skip" or "ask" never starts twice.'
        yield "Not repeated", "the model call that asked for it: its answer was stored before the tool ran."
    elif row is not None and row.by == "policy":
        yield "Continued", "another worker told the model that the outcome is unknown."
        yield "Repeated", f'nothing: the on_unknown of {tool} is "skip", so it never starts twice.'
    elif row is not None and row.state == "asked":
        yield "Continued", "another worker asked a person what became of the call; the run waits for the answer."
        yield "Repeated", f'nothing: the on_unknown of {tool} is "ask", so it never starts twice.'
    else:
        yield "Continued", "not: no later worker stored a result of this call."


def _describe_totals(tree: Sequence[SessionRows], problems: Sequence[str]) -> Iterator[str]:
    answers = count(len(list(_answers(tree))), "answer")
    results = count(sum(row.state == "done" for row in _calls(tree)), "result")
    if problems:
        yield from (f"The stored session breaks a rule: {problem}" for problem in problems)
    else:
        yield f"The session holds {answers} of the model and {results} of calls, sub-agents included, each once:"
        yield "helix.testing.invariants checked the rows and the stream, and found no fault."


def _answers(tree: Sequence[SessionRows]) -> Iterator[AssistantRow]:
    return (row for row in _entries(tree) if isinstance(row, AssistantRow))


def _calls(tree: Sequence[SessionRows]) -> Iterator[CallRow]:
    return (row for row in _entries(tree) if isinstance(row, CallRow))


def _entries(tree: Sequence[SessionRows]) -> Iterator[AnyEntry]:
    return (row for rows in tree for _, row in sorted(rows.entries.items()))
