"""Fixtures for runtimes with real worker processes on one store in the test's folder, and for yards with workers in this
process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support import worker_agents
from tests.support_fleet import Yard

from helix.fleet import AgentRuntime, RestartPolicy, RuntimeConfig

QUICK = RestartPolicy(first_s=0.1, longest_s=0.5)
MakeRuntime = Callable[..., AgentRuntime]
MakeYard = Callable[..., Yard]


@pytest.fixture
async def runtime_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MakeRuntime]:
    """A factory of runtimes, which are shut down after the test."""
    monkeypatch.setenv(worker_agents.FOLDER, str(tmp_path))
    made: list[AgentRuntime] = []

    def make(**options: Any) -> AgentRuntime:
        options = {
            "store": str(tmp_path / "helix.db"),
            "logs": str(tmp_path / "logs"),
            "model": "import:tests.support.worker_agents:model",
            "hot_reload": False,
            "sweep_s": 0.5,
            **options,
        }
        made.append(AgentRuntime(RuntimeConfig(**options), restarts=QUICK, jitter=lambda: 0.0))
        return made[-1]

    yield make
    for runtime in made:
        await runtime.shutdown(5)


@pytest.fixture(params=["memory", "sqlite"])
async def make(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MakeYard]:
    """A factory of yards on either store, which are closed after the test."""
    made: list[Yard] = []

    def build(*agents: Any, **options: Any) -> Yard:
        made.append(Yard(request.param, tmp_path, *agents, **options))
        return made[-1]

    yield build
    for yard in made:
        await yard.close()
