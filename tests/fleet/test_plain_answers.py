"""The plain responses of a fleet: health, restarts and models."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support import worker_agents

from helix.core.errors import InvalidInputError
from helix.core.health import HealthStatus
from helix.fleet import AgentStoppedError, ResourceConfig
from helix.local.node import node_advice, node_problem
from helix.testing.openai_server import ModelAnswer, ModelToolCall
from helix.workers.config import RuntimeConfig
from helix.workers.runtime import AgentRuntime


async def test_an_agent_without_its_processes_is_not_healthy(tmp_path: Path) -> None:
    runtime = AgentRuntime(RuntimeConfig(store=str(tmp_path / "fleet.db"), logs=str(tmp_path / "logs")))
    await runtime.register_agent("steady", worker_agents.steady, ResourceConfig(min_instances=1, max_instances=2))
    await runtime.control.start("steady")
    result = await runtime.health.check_health("steady", run=True)
    assert result.status is not HealthStatus.HEALTHY and "0 of 1 processes run" in result.message
    await runtime.shutdown(5)


async def test_a_restart_does_not_undo_a_stop(tmp_path: Path) -> None:
    runtime = AgentRuntime(RuntimeConfig(store=str(tmp_path / "fleet.db"), logs=str(tmp_path / "logs")))
    await runtime.register_agent("steady", worker_agents.steady, ResourceConfig(min_instances=1, max_instances=2))
    await runtime.control.start("steady")
    await runtime.control.restart("steady")
    await runtime.control.stop("steady")
    with pytest.raises(AgentStoppedError, match="start it"):
        await runtime.control.restart("steady")
    assert (await runtime.control.status("steady"))["wanted"] == 0
    await runtime.control.start("steady")
    assert (await runtime.control.status("steady"))["wanted"] == 1
    await runtime.shutdown(5)


def test_a_tool_call_that_is_a_mapping_is_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match="must be a list of ModelToolCall"):
        ModelAnswer(tool_calls=[{"name": "search", "arguments": {}}])  # type: ignore[list-item]
    assert ModelAnswer(tool_calls=[ModelToolCall("search", {})]).finish == "tool_calls"


@pytest.mark.parametrize(
    ("says", "problem"),
    [
        ("v18.19.0", "is Node 18.19.0: CDK needs Node 20 or later"),
        ("v20.0.0", None),
        ("v24.1.0", None),
        ("nonsense", "does not say its version"),
        (None, "Node is missing: CDK needs Node 20 or later"),
    ],
)
def test_the_version_of_node_is_checked(tmp_path: Path, says: str | None, problem: str | None) -> None:
    if says is not None:
        node = tmp_path / "node"
        node.write_text(f"#!/bin/sh\necho {says}\n")
        node.chmod(0o755)
    found = node_problem(str(tmp_path))
    assert (found is None) if problem is None else (found is not None and problem in found)


@pytest.mark.parametrize(("says", "advised"), [("v20.20.2", True), ("v22.4.0", False), ("nonsense", False)])
def test_a_node_that_gets_no_more_fixes_is_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, advised: bool
) -> None:
    node = tmp_path / "node"
    node.write_text(f"#!/bin/sh\necho {says}\n")
    node.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    said = "Node 20 works and gets no more fixes: Node 22 or later is recommended"
    assert node_advice() == (said if advised else None)
