"""The module-level helpers, the configuration and the exports of the package."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fleet.conftest import MakeRuntime
from tests.support import worker_agents

import helix.fleet
from helix import AgentClient
from helix.compat.teleon import get_agent_status, register_agent_with_helix, restart_agent, scale_agent, stop_agent
from helix.core.errors import AgentNotFoundError, DefinitionError
from helix.core.registry import AgentRegistry
from helix.fleet import InvalidScaleError, ProcessStatus, ResourceConfig, RunFailedError, RuntimeConfig, get_runtime


async def test_a_function_in_the_fleet(runtime_of: MakeRuntime) -> None:
    runtime = runtime_of()
    await runtime.start()
    agent = await register_agent_with_helix("plain", worker_agents.plain, {"min": 1, "max": 2})
    assert await agent("hi") == "plain hi"
    assert await agent(query="there") == "plain there"
    assert (await get_agent_status("plain"))["status"] == "running"
    assert len(await scale_agent("plain", 2)) == 2
    assert len(await restart_agent("plain")) == 2
    await stop_agent("plain", force=True)
    assert (await get_agent_status("plain"))["status"] == "stopped"
    with pytest.raises(InvalidScaleError):
        await scale_agent("plain", 5)


async def test_one_failed_call_in_ten_makes_it_degraded(runtime_of: MakeRuntime) -> None:
    runtime = runtime_of()
    await runtime.start()
    agent = await register_agent_with_helix("plain", worker_agents.plain)
    with pytest.raises(RunFailedError, match="it was told to") as error:
        await agent("fail")
    assert error.value.agent_id == "plain"
    assert (await runtime.health.check_health("plain", run=True)).status == "degraded"
    for _ in range(9):
        await agent("x")
    assert (agent.requests, agent.errors) == (10, 1)
    assert (await runtime.health.check_health("plain", run=True)).status == "degraded"
    await agent("x")
    assert (await runtime.health.check_health("plain", run=True)).status == "healthy"
    assert (await get_agent_status("plain"))["health"]["status"] == "healthy"


async def test_without_a_runtime_nothing_is_swallowed() -> None:
    with pytest.raises(AgentNotFoundError, match="start one first"):
        get_runtime()
    with pytest.raises(AgentNotFoundError):
        await scale_agent("plain", 1)


def test_the_configuration_has_the_documented_defaults() -> None:
    config = RuntimeConfig()
    assert (config.environment, config.debug, config.hot_reload) == ("development", False, True)
    assert (config.watch_paths, config.max_workers, config.log_level) == (["teleon", "agents"], 10, "INFO")
    assert config.default_resources == ResourceConfig()
    assert RuntimeConfig(environment="production").hot_reload is False


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_workers": 0},
        {"max_workers": 101},
        {"max_workers": True},
        {"log_level": "LOUD"},
        {"environment": "production", "hot_reload": True},
        {"watch_paths": "agents"},
        {"debug": "yes"},
        {"store": ":memory:"},
        {"logs": ""},
        {"sweep_s": 0},
        {"sweep_s": float("inf")},
        {"sweep_s": "soon"},
        {"sweep_s": True},
        {"watch_paths": None},
        {"model": ""},
        {"model": 5},
        {"default_resources": {"min": 1}},
    ],
    ids=str,
)
def test_what_the_configuration_refuses(wrong: dict[str, Any]) -> None:
    field = next(reversed(wrong))
    with pytest.raises(DefinitionError) as raised:
        RuntimeConfig(**wrong)
    assert raised.value.field.split(".")[0] == field


def test_a_minimum_alone_raises_the_maximum() -> None:
    """The sources' samples give a minimum of two or three and no maximum."""
    resources = RuntimeConfig(default_resources=ResourceConfig(min_instances=3)).default_resources
    assert (resources.min_instances, resources.max_instances) == (3, 3)


def test_the_decorators_keys() -> None:
    """The decorator accepts long and short keys and has the documented defaults. Unknown or repeated keys are errors."""
    client = AgentClient(registry=AgentRegistry())

    @client.agent("short", helix={"min": 1, "max": 4, "cpu": 2.0, "memory": 512, "health_interval": 60})
    async def short(query: str) -> str:
        """Answer."""
        return query

    resources = short.resources
    asked = ("min_instances", "max_instances", "cpu_limit", "memory_limit_mb", "health_check_interval", "auto_start")
    assert [resources[name] for name in asked] == [1, 4, 2.0, 512, 60, False]
    for wrong in ({"target_cpu": 70}, {"min": 1, "min_instances": 1}, {"min": 3, "max": 2}):
        with pytest.raises(DefinitionError):
            client.agent("wrong", helix=wrong)


def test_everything_that_is_exported_is_there() -> None:
    for name in helix.fleet.__all__:
        assert getattr(helix.fleet, name) is not None
    assert {status.value for status in ProcessStatus} == {
        "starting",
        "running",
        "stopping",
        "stopped",
        "failed",
        "crashed",
    }
