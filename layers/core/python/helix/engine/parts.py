"""The execution that is, or should be, at work on a run."""

from __future__ import annotations

from helix.core.agents import AnyAgent
from helix.core.rows import RunRow
from helix.engine.engine import Engine
from helix.ports.launcher import Launcher, Part


def launcher_of(engine: Engine) -> Launcher:
    assert engine.launcher is not None, "this engine executes runs in its own process"
    return engine.launcher


def part_of(agent: AnyAgent, run: RunRow) -> Part:
    return Part(agent.profile, run.session_id, run.run_id, run.part, run.part_step or run.first_step)
