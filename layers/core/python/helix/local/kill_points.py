"""Kill points for `helix demo --kill`: the places in a run where a worker kills itself with SIGKILL.

Law: a worker with `KILLS` in its environment loads this file by its path, before the function's code. The file changes only
where the process ends and how long its claims last. The engine still comes from the function's own layers. The folder
`KILLS` contains a file for each planned kill, which the worker renames before it dies, so that each kill occurs once.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

KILLS = "OFFLINE_KILLS"
PLANS = ("answer", "result", "end")
"""The plans: die before an answer is stored, before a tool's result is stored, or after the run's end is stored. A plan's
file contains the session id. The tool may also belong to a sub-agent."""
CLAIM_S = 6.0
"""The time in seconds for which a claim lasts without renewal, instead of `Settings.claim_s`."""
ANSWERS = ("stage", "commit")
"""The transactions that store a model's answer (`helix.engine.steps.stage`)."""
RESULT = "call_result"
"""The transaction that stores a tool's result (`helix.engine.calls.tool`)."""


class Deaths:
    """The kills that are planned in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def before(self, name: str, operations: Sequence[Any]) -> None:
        """Kill the process before the transaction is written, if planned."""
        values = [dict(one.value) for one in operations if hasattr(one, "value")]
        if name in ANSWERS:
            answer = next((value for value in values if value.get("kind") == "assistant"), {})
            self._kill_if_planned("answer", operations, step=answer.get("step"))
        elif name == RESULT:
            call = next((value for value in values if value.get("call_id")), {})
            of_call = {"step": call.get("step"), "tool": call.get("tool_name"), "call_id": call.get("call_id")}
            self._kill_if_planned("result", operations, **of_call)

    def after(self, operations: Sequence[Any]) -> None:
        """Kill the process after the transaction was written, if planned."""
        for one in operations:
            if one.key.sort == "session" and getattr(one, "value", {}).get("status", "running") != "running":
                self._kill_if_planned("end", operations, status=one.value["status"])

    def _kill_if_planned(self, plan: str, operations: Sequence[Any], **details: Any) -> None:
        planned, session = self._folder / plan, operations[0].key.partition
        try:
            if plan != "result" and planned.read_text() != session:
                return
            planned.rename(self._folder / f"{plan}.begun")
        except FileNotFoundError:
            return
        details |= {"verb": os.environ.get("POWERTOOLS_SERVICE_NAME", ""), "session_id": session, "pid": os.getpid()}
        written = self._folder / f"{plan}.written"
        written.write_text(json.dumps(details))
        written.rename(self._folder / f"{plan}.json")
        os.kill(os.getpid(), signal.SIGKILL)


class _Store:
    """A store wrapper that checks for planned kills before and after each transaction."""

    def __init__(self, inner: Any, deaths: Deaths) -> None:
        self._inner, self._deaths = inner, deaths

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def transact(self, name: str, operations: Sequence[Any]) -> None:
        self._deaths.before(name, operations)
        await self._inner.transact(name, operations)
        self._deaths.after(operations)


def arm(folder: Path) -> None:
    """Install the kill points in every engine that this process creates from now on."""
    from helix.engine.engine import Engine

    made, deaths = Engine.__post_init__, Deaths(folder)

    def made_with_deaths(engine: Engine) -> None:
        engine.settings = replace(engine.settings, claim_s=CLAIM_S)
        engine.store = _Store(engine.store, deaths)
        made(engine)

    Engine.__post_init__ = made_with_deaths  # type: ignore[assignment, method-assign]
