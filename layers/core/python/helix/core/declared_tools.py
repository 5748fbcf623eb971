"""Checks the tools and settings that a run declares, and makes tools of them.

Law: a declared tool never takes the place of the agent's own. The declaration is stored as a request head that has only
tools and settings, so the same ones are stored once in a session, and a claim names them by their id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from pydantic import ValidationError

from helix.core.agents import AnyAgent
from helix.core.damage import first_problem
from helix.core.errors import DefinitionError, InvalidInputError
from helix.core.frontend_tools import (
    MAX_FRONTEND_TOOL_BYTES,
    MAX_FRONTEND_TOOLS,
    FrontendTool,
    FrontendToolError,
    GivenTool,
)
from helix.core.json import JsonObject, check_json, dumps, loads, text_size
from helix.core.json_schema import schema_fault, schema_problems
from helix.core.questions import ask_user
from helix.core.request_heads import HeadRow, RequestHead, head_row
from helix.core.run_settings import CHOICES, RunSettings, read_settings
from helix.core.signatures import arguments_model
from helix.core.tools import FINISH_TOOL_NAME, NAME, SUBAGENT_TOOL_PREFIX, AnyTool, Tool
from helix.core.views import RECALL

BUILT_IN: Final = frozenset({FINISH_TOOL_NAME, RECALL, ask_user.name})
"""The names that no front end may declare, even if the agent does not have the tool now."""


def declare_run(
    agent: AnyAgent, tools: Sequence[GivenTool] | None, settings: RunSettings | None = None
) -> HeadRow | None:
    """Return the head with the declared tools and the settings of a run, or None without both. The order of `tools` does
    not matter, so that a page that mounts its parts in another order keeps the prompt cache. Raises `FrontendToolError`,
    naming the tool, and `InvalidInputError` for settings that the agent cannot have."""
    made = _checked_tools(agent, tools)
    changes = {} if settings is None else settings.changes
    if changes:
        _check_settings(agent, changes, [str(tool["name"]) for tool in made])
    fields: JsonObject = {"tools": [*made]} if made else {}
    return head_row(fields | ({"settings": changes} if changes else {})) if made or changes else None


def declared_settings(head: RequestHead) -> dict[str, Any]:
    """Return the settings of a declaration. Raises `DefinitionError` for settings that `declare_run` does not make."""
    settings = read_settings(head.settings)
    return {} if settings is None else settings.changes


def _check_settings(agent: AnyAgent, changes: Mapping[str, Any], declared: Sequence[str]) -> None:
    owner, choice = f"agent {agent.name!r}", changes.get("tool_choice", "auto")
    if agent.function is not None:
        raise InvalidInputError(f"settings: {owner} calls no model, so a run of it has no settings")
    if choice in ("auto", "none") or agent.handoffs:  # the tool may be that of the agent which is active
        return
    names = [
        *(tool.name for tool in agent.tools),
        *([] if agent.finish_tool is None else [FINISH_TOOL_NAME]),
        *declared,
    ]
    if not (names if choice in CHOICES else choice in names):
        has = f"its tools are {', '.join(names)}" if names else "it has no tools"
        raise InvalidInputError(f"settings: tool_choice {choice!r} forces a call that {owner} does not have: {has}")


def _checked_tools(agent: AnyAgent, given: Sequence[GivenTool] | None) -> list[JsonObject]:
    """Return the declared tools, in the order of their names."""
    if given is None:
        return []
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise FrontendToolError(f"tools must be a list of tools, not {type(given).__name__}")
    if not given:
        return []
    if len(given) > MAX_FRONTEND_TOOLS:
        problem = f"the limit of a run is {MAX_FRONTEND_TOOLS}"
        raise FrontendToolError(f"{len(given)} tools, up to {_name_of(given[-1])!r}, are declared; {problem}")
    found: dict[str, FrontendTool] = {}
    for one in given:
        tool = _checked(agent, one)
        if tool.name in found:
            raise FrontendToolError(f"tool {tool.name!r} is declared twice: give each tool a name of its own")
        found[tool.name] = tool
    tools: list[JsonObject] = [found[name].model_dump() for name in sorted(found)]
    if (total := text_size(dumps([*tools]))) > MAX_FRONTEND_TOOL_BYTES:
        longest = max(found.values(), key=lambda tool: text_size(dumps(tool.model_dump()))).name
        raise FrontendToolError(
            f"the declared tools have {total} bytes of JSON, and {longest!r} is the longest; the limit of a run is "
            f"{MAX_FRONTEND_TOOL_BYTES}: shorten descriptions, or declare fewer tools"
        )
    return tools


def declared_tools(head: RequestHead) -> dict[str, AnyTool]:
    """Return the tools of a declaration by name. Each waits for the client, as a tool with `execute="client"` does. Raises
    `DefinitionError` for one that `declare_tools` does not make."""
    return {tool.name: _tool(tool.name, tool.description, dumps(tool.parameters)) for tool in head.tools}


@lru_cache(512)
def _tool(name: str, description: str, schema: str) -> AnyTool:
    parameters: JsonObject = loads(schema)
    if (fault := schema_fault(parameters)) is not None:
        raise DefinitionError(f"tool {name!r}", "parameters", fault)

    def problems(arguments: Any) -> list[str]:
        return schema_problems(parameters, arguments, "arguments", patterns=False)

    model = arguments_model(name, parameters, problems)
    return Tool(name=name, description=description, input_schema=model, kind="client")


def _checked(agent: AnyAgent, given: GivenTool) -> FrontendTool:
    """Return the tool in the form in which it is stored."""
    name = _name_of(given)
    try:
        check_json(given.model_dump() if isinstance(given, FrontendTool) else given, f"tool {name!r}", limit=None)
        tool = FrontendTool.model_validate(given)
    except ValidationError as error:
        raise FrontendToolError(f"tool {name!r}: {first_problem(error, 'the tool')}") from None
    except InvalidInputError as error:
        raise FrontendToolError(str(error)) from None
    _check_name(agent, tool.name)
    schema = {name: value for name, value in tool.parameters.items() if name != "$schema"}
    schema = {"type": "object", "properties": {}, **schema}
    if schema["type"] != "object":
        raise FrontendToolError(f"tool {tool.name!r}: the parameters must be a JSON schema of the type object")
    if (fault := schema_fault(schema)) is not None:
        raise FrontendToolError(f"tool {tool.name!r}: the parameters are not a valid JSON schema: {fault}")
    description = tool.description.strip() or f"The tool {tool.name!r} of the user's page."
    return FrontendTool(name=tool.name, description=description, parameters=schema)


def accepts(agent: AnyAgent, name: str) -> bool:
    """Return whether the agent accepts a tool of the front end with this name."""
    allowed = agent.frontend_tools
    return allowed if isinstance(allowed, bool) else name in allowed


def _check_name(agent: AnyAgent, name: str) -> None:
    owner, allowed = f"agent {agent.name!r}", agent.frontend_tools
    if agent.function is not None:
        raise FrontendToolError(f"tool {name!r}: {owner} calls no model, so a run of it cannot declare tools")
    if not NAME.fullmatch(name):
        raise FrontendToolError(f"tool {name[:80]!r}: its name must be 1 to 64 letters, digits, '_' or '-'")
    if allowed is False:
        raise FrontendToolError(
            f"tool {name!r}: {owner} accepts no tools of a front end: its developer can allow them with "
            "Agent(frontend_tools=True), or a list of names"
        )
    if agent.find_tool(name) is not None:
        raise FrontendToolError(f"tool {name!r}: {owner} has a tool of this name; declare it under another name")
    if name in BUILT_IN or name.startswith(SUBAGENT_TOOL_PREFIX):
        raise FrontendToolError(f"tool {name!r}: this name is reserved; declare it under another name")
    if allowed is not True and name not in allowed:
        raise FrontendToolError(f"tool {name!r}: {owner} does not accept it; it accepts {', '.join(allowed)}")


def _name_of(given: Any) -> str:
    name = given.name if isinstance(given, FrontendTool) else given.get("name") if isinstance(given, Mapping) else None
    return name[:80] if isinstance(name, str) else "?"
