"""From a command's options to a run on a stage, and to an exit code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from helix.cli.acts import Act
from helix.cli.agents import load_agent
from helix.cli.hints import Hints
from helix.cli.refusal import STOPPED, RefusedError
from helix.cli.render import TerminalView
from helix.cli.stage import Stage, code_of
from helix.cli.views import Heading, JsonView, View
from helix.core.agents import AnyAgent
from helix.engine.engine import Settings
from helix.runtime.executor import Executor
from helix.runtime.local import LocalExecutor
from helix.runtime.models import ModelChoice, choose_model
from helix.runtime.settings import DEFAULT_DB, ProcessSettings

FLEETS_OWN = ModelChoice(None, "the fleet's model")
"""What plays is chosen where the fleet is served; this process has other variables, and may have no keys."""


@dataclass(frozen=True, slots=True)
class Options:
    """What every command that runs an agent is told. None: not given."""

    agent: str
    settings: ProcessSettings
    db: str | None = None
    model: str | None = None
    json: bool = False
    fleet: bool = False

    @property
    def path(self) -> str:
        return self.db or self.settings.db

    @property
    def hints(self) -> Hints:
        return Hints(self.agent, None if self.db == DEFAULT_DB else self.db, self.model, self.fleet)


def play(options: Options, act: Act, *, session_id: str | None = None, message: str | None = None) -> int:
    """Run the act on a stage of its own. `session_id`: one that must be in the store. `message`: to be shown first."""
    with _stdout(options.json) as out:
        agent, choice, view = prepare(options, out, message)
        if session_id is not None:
            require_store(options.path, session_id)
        try:
            return asyncio.run(_play(options, agent, choice, view, act))
        except (
            BrokenPipeError
        ):  # whoever read the output has gone: the lease was given back, and the store has the rest
            os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
            return STOPPED


def prepare(
    options: Options, out: TextIO, message: str | None = None, *, brief: bool = False
) -> tuple[AnyAgent, ModelChoice, View]:
    agent = load_agent(options.agent, options.settings.agents)
    if options.fleet and options.model is not None:
        raise RefusedError("--model is for runs of this process; of a fleet's, `helix fleet serve --model` says it")
    choice = FLEETS_OWN if options.fleet else choose_model(agent, options.model, os.environ)
    heading = Heading(agent, choice, options.path, message, brief)
    return agent, choice, JsonView(out, heading) if options.json else TerminalView(out, options.hints, heading)


def executor_of(options: Options, choice: ModelChoice) -> Executor:
    """To be made inside a running event loop. With `fleet`, worker processes on the same store execute what it starts."""
    if options.fleet:
        from helix.runtime.queued import fleet_executor

        return fleet_executor(options.path)
    return LocalExecutor(options.path, model=choice.adapter, settings=Settings(lease_s=options.settings.lease_s))


async def _play(options: Options, agent: AnyAgent, choice: ModelChoice, view: View, act: Act) -> int:
    async with executor_of(options, choice) as executor:
        return code_of(await Stage(executor, agent, view).play(act))


def require_store(path: str, session_id: str) -> None:
    """A command about an existing session makes no store."""
    if not Path(path).is_file():
        raise RefusedError(f"session {session_id!r} does not exist: there is no store {path!r} here (see --db)")


@contextlib.contextmanager
def _stdout(json: bool) -> Iterator[TextIO]:
    """The real standard output. While it carries JSON, what agents and tools print goes to standard error."""
    real = sys.stdout
    if json:
        sys.stdout = sys.stderr
    try:
        yield real
    finally:
        sys.stdout = real
