"""Runs plain async functions as agents: one step, no model, the same durability.

Law: the function's parameters are the agent's input, and its return value is the run's output. `plan_function_call`
turns the user's message into arguments, and `adapters.models.function.FunctionModel` turns those into the run's only
call.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import ValidationError

from helix.core.agents import Agent, AnyAgent
from helix.core.dependencies import Factory
from helix.core.errors import DefinitionError, InvalidInputError
from helix.core.hooks import Hooks
from helix.core.json import JsonObject, loads
from helix.core.registry import AgentRegistry, default_registry
from helix.core.resources import ResourceConfig
from helix.core.tools import DEFAULT_TOOL_TIMEOUT_S, AnyTool, OnUnknown, from_function

AgentFunction = Callable[..., Awaitable[Any]]


class AgentClient:
    """A client that registers async functions as agents.

    `api_key` is accepted so that code written for Teleon runs unchanged. It is neither sent nor stored.
    """

    def __init__(self, api_key: str | None = None, registry: AgentRegistry | None = None) -> None:
        self.registry = default_registry if registry is None else registry

    def agent(
        self,
        name: str,
        helix: Mapping[str, Any] | None = None,
        *,
        description: str | None = None,
        state_schema: type[Any] | None = None,
        hooks: Hooks | Mapping[str, Any] | None = None,
        timeout_s: float = DEFAULT_TOOL_TIMEOUT_S,
        on_unknown: OnUnknown = "retry",
        retries: int = 0,
        deps: Factory | None = None,
    ) -> Callable[[AgentFunction], Agent[Any, Any]]:
        """Decorate an async function. The result is an `Agent` that can still be called like the function.

        `helix` takes the settings of `core.resources` by their long or short names (`min, max, cpu, memory,
        health_interval`). `timeout_s`, `on_unknown` and `retries` work as for a tool, and `deps` as for an `Agent`. A
        parameter annotated `ToolContext` receives the context. Raises `DefinitionError` for an invalid field, or if the
        name is already registered.
        """
        owner = f"agent {name!r}"
        resources = ResourceConfig.of({} if helix is None else helix, owner)
        localns = sys._getframe(1).f_locals

        def decorate(function: AgentFunction) -> Agent[Any, Any]:
            if not inspect.iscoroutinefunction(function):
                raise DefinitionError(owner, "function", f"{function!r} must be an async function (async def)")
            options = {
                "name": name,
                "description": description
                or (None if inspect.getdoc(function) else f"Runs the function agent {name!r}."),
                "finish_with": True,
                "timeout_s": timeout_s,
                "on_unknown": on_unknown,
                "retries": retries,
            }
            tool = from_function(function, localns, options)
            made = Agent[Any, Any](
                name=name,
                description=tool.description,
                state_schema=state_schema,
                output_schema=tool.output_schema,
                hooks=Hooks() if hooks is None else hooks,
                function=tool,
                deps=deps,
                resources=resources.model_dump(mode="json"),
            )
            self.registry.register(made)
            return made

        return decorate


def plan_function_call(agent: AnyAgent, message: str) -> JsonObject:
    """Parse the user's message into the arguments of a function agent's call.

    The message is a JSON object of the parameters. If only one parameter is required and it takes text, the message may
    be that text itself. If the only parameter takes text, even a JSON object is passed as text, unless its only key is
    the parameter's name. A function without parameters ignores the message.

    Raises `InvalidInputError` with the names of the invalid parameters.
    """
    if agent.function is None:
        raise InvalidInputError(f"agent {agent.name!r} is not a function agent")
    arguments = _arguments(agent.function, message)
    problems = [f"{', '.join(_named(agent.function))}: expected a JSON object"] if arguments is None else []
    try:
        agent.function.input_schema.model_validate({} if arguments is None else arguments)
    except ValidationError as error:
        problems = problems or [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
    if problems or arguments is None:
        raise InvalidInputError(f"message does not fit the parameters of {agent.name!r}: {'; '.join(problems)}")
    return arguments


def _arguments(tool: AnyTool, message: str) -> JsonObject | None:
    parameters = _named(tool)
    if not parameters:
        return {}
    try:
        value = loads(message)
    except ValueError:
        value = None
    if len(parameters) == 1 and _takes_text(tool, parameters[0]):
        named = isinstance(value, dict) and list(value) == parameters
        return value if named else {parameters[0]: message}
    if isinstance(value, dict):
        return value
    required: Any = tool.parameters.get("required", [])
    return {required[0]: message} if len(required) == 1 and _takes_text(tool, required[0]) else None


def _named(tool: AnyTool) -> list[str]:
    properties: Any = tool.parameters.get("properties", {})
    return list(properties)


def _takes_text(tool: AnyTool, parameter: str) -> bool:
    properties: Any = tool.parameters.get("properties", {})
    schema = properties[parameter]
    options = schema.get("anyOf", [schema])
    return any(option.get("type") == "string" for option in options)


__all__ = ["AgentClient", "plan_function_call"]
