"""Places in a run at which a worker kills itself with SIGKILL, for `helix demo --kill`.

Law: a worker whose environment has `KILLS` loads this file by its path, before the function's code. It only changes
where the process ends and how long its claims hold. The engine is that of the function's own layers. The folder `KILLS`
has a file for each planned death, which the worker renames before it dies, so each death occurs once.
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
"""The deaths: before an answer is stored, before a tool's result is stored, after the run's end is stored. The file of a
plan contains the session; a tool may also be a sub-agent's."""
CLAIM_S = 6.0
"""The seconds for which a silent worker keeps its work, instead of `Settings.claim_s`."""
ANSWERS = ("stage", "commit")
"""Transactions that store an answer of the model (`helix.engine.steps.stage`)."""
RESULT = "call_result"
"""The transaction that stores a tool's result (`helix.engine.calls.tool`)."""


class Deaths:
    """The planned deaths of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def before(self, name: str, operations: Sequence[Any]) -> None:
        """Die if planned, before the transaction is written."""
        values = [dict(one.value) for one in operations if hasattr(one, "value")]
        if name in ANSWERS:
            answer = next((value for value in values if value.get("kind") == "assistant"), {})
            self._die("answer", operations, step=answer.get("step"))
        elif name == RESULT:
            call = next((value for value in values if value.get("call_id")), {})
            of_call = {"step": call.get("step"), "tool": call.get("tool_name"), "call_id": call.get("call_id")}
            self._die("result", operations, **of_call)

    def after(self, operations: Sequence[Any]) -> None:
        """Die if planned, after the transaction was written."""
        for one in operations:
            if one.key.sort == "session" and getattr(one, "value", {}).get("status", "running") != "running":
                self._die("end", operations, status=one.value["status"])

    def _die(self, plan: str, operations: Sequence[Any], **details: Any) -> None:
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
    """A store whose transactions are places to die at."""

    def __init__(self, inner: Any, deaths: Deaths) -> None:
        self._inner, self._deaths = inner, deaths

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def transact(self, name: str, operations: Sequence[Any]) -> None:
        self._deaths.before(name, operations)
        await self._inner.transact(name, operations)
        self._deaths.after(operations)


def arm(folder: Path) -> None:
    """Add these places to every engine that this process creates from now on."""
    from helix.engine.engine import Engine

    made, deaths = Engine.__post_init__, Deaths(folder)

    def made_with_deaths(engine: Engine) -> None:
        engine.settings = replace(engine.settings, claim_s=CLAIM_S)
        engine.store = _Store(engine.store, deaths)
        made(engine)

    Engine.__post_init__ = made_with_deaths  # type: ignore[assignment, method-assign]
