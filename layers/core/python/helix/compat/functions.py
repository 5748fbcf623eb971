"""Module-level helpers that register an async function as a fleet agent in one call, with the runtime of this process.

Law: every failure raises a typed error instead of returning False.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from helix.core.errors import RunFailedError
from helix.core.health import CheckType, HealthCheck
from helix.core.json import dumps
from helix.core.resources import ResourceConfig
from helix.workers.current import get_runtime
from helix.workers.runtime import AgentRuntime

DEGRADED_AT = 0.1
"""The share of failed calls at which an agent counts as degraded."""
NEVER = 1_000_000_000
"""A threshold that is never reached. Failed calls make an agent degraded but never unhealthy, because the callers may have
caused the errors."""


class HelixAgent:
    """A fleet agent as a function: `await agent(input)` runs it and returns its output. `requests` and `errors` count the
    calls through this object."""

    def __init__(self, runtime: AgentRuntime, agent_id: str) -> None:
        self.runtime, self.agent_id = runtime, agent_id
        self.requests = self.errors = 0

    async def __call__(self, input: Any = None, /, **arguments: Any) -> Any:
        """Run the agent. `input` is a string, or a value that becomes the function's arguments as JSON. Arguments may also
        be given by name. Raises `RunFailedError` if the run does not complete, or the error with which its start is
        refused."""
        given = arguments if input is None else input
        message = given if isinstance(given, str) else dumps(given)
        self.requests += 1
        try:
            handle = await self.runtime.execute(self.agent_id, message)
            result = await handle.result()
        except Exception:
            self.errors += 1
            raise
        if result.status != "completed":
            self.errors += 1
            why = result.error or f"the run is {result.status}"
            raise RunFailedError(
                self.agent_id, result.session_id, result.run_id, result.error_code or result.status, why
            )
        return result.output

    @property
    def error_rate(self) -> float:
        return self.errors / self.requests if self.requests else 0.0

    def health(self) -> tuple[bool, str]:
        """Return the result of a health check, which fails at 10 % failed calls or more."""
        said = f"{self.errors} of {self.requests} calls failed"
        return self.error_rate < DEGRADED_AT, said


async def register_agent_with_helix(
    agent_id: str, agent_func: Callable[..., Awaitable[Any]], helix_config: Mapping[str, Any] | None = None
) -> HelixAgent:
    """Register an async function (or an `Agent`) with this process's runtime, and return a function that runs it in the
    fleet. helix_config: long or short keys as in `@client.agent(helix=...)`. With `auto_start` the agent starts at once,
    otherwise at its first call. Raises `AgentNotFoundError` if no runtime was started."""
    runtime = get_runtime()
    resources = None if helix_config is None else ResourceConfig.of(helix_config, f"agent {agent_id!r}")
    await runtime.register_agent(agent_id, agent_func, resources)
    wrapper = HelixAgent(runtime, agent_id)
    if resources is None or resources.health_check_enabled:
        interval = (resources or runtime.config.default_resources).health_check_interval
        check = HealthCheck(
            name="errors",
            check_type=CheckType.CUSTOM,
            check_fn=wrapper.health,
            interval=interval,
            failure_threshold=NEVER,
        )
        await runtime.health.register_check(agent_id, check)
    return wrapper


async def scale_agent(agent_id: str, instances: int) -> list[str]:
    """See `AgentRuntime.scale_agent`."""
    return await get_runtime().scale_agent(agent_id, instances)


async def get_agent_status(agent_id: str) -> dict[str, Any]:
    """See `AgentRuntime.get_agent_status`."""
    return await get_runtime().get_agent_status(agent_id)


async def restart_agent(agent_id: str) -> list[str]:
    """See `AgentRuntime.restart_agent`."""
    return await get_runtime().restart_agent(agent_id)


async def stop_agent(agent_id: str, force: bool = False) -> None:
    """See `AgentRuntime.stop_agent`."""
    await get_runtime().stop_agent(agent_id, force)
