"""Runtimes with real worker processes, on one store in the test's folder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support import worker_agents

from helix.fleet import AgentRuntime, RestartPolicy, RuntimeConfig

QUICK = RestartPolicy(first_s=0.1, longest_s=0.5)
MakeRuntime = Callable[..., AgentRuntime]


@pytest.fixture
async def runtime_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MakeRuntime]:
    """Makes runtimes; all are shut down after the test."""
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
