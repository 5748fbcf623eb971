"""The provider's own tools in the form of each provider's requests.

Law: what a provider does not have is refused by name before the request is sent, never left out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from helix.adapters.models.file_forms import Interface
from helix.core.server_tools import (
    CONTAINER_MICROS,
    FILE_SEARCH_MICROS,
    CodeExecution,
    FileSearch,
    RemoteMcp,
    ServerTool,
    WebSearch,
)


class UnsupportedToolError(Exception):
    """Raised for a tool or a setting that the provider does not have. The text says which and what to do."""


@dataclass(slots=True)
class ServerToolForm:
    """What a request needs for the tools."""

    tools: list[dict[str, Any]] = field(default_factory=list)
    """The entries of the request's `tools`."""
    servers: list[dict[str, Any]] = field(default_factory=list)
    """The entries of Anthropic's `mcp_servers`."""
    betas: list[str] = field(default_factory=list)
    """The values of Anthropic's header `anthropic-beta`."""
    include: list[str] = field(default_factory=list)
    """The entries of OpenAI's `include`, without which results are missing from the answer."""


def server_tool_form(tools: Sequence[ServerTool], interface: Interface) -> ServerToolForm:
    """Return the form for Anthropic's Messages or OpenAI's Responses. Raises `UnsupportedToolError`."""
    form = ServerToolForm()
    for tool in tools:
        if interface == "messages":
            _add_for_claude(form, tool)
        elif interface == "responses":
            _add_for_openai(form, tool)
        else:
            raise UnsupportedToolError(
                f"{tool.type!r} needs the provider's own package and an interface that has it: use anthropic/..., or the "
                "Responses API of openai/... or azure/... (api='responses' if a base URL is given)"
            )
    return form


def refused_server_tool(tools: Sequence[ServerTool], interface: Interface) -> str | None:
    """Return why the interface does not have one of the tools, or None."""
    try:
        server_tool_form(tools, interface)
    except UnsupportedToolError as error:
        return str(error)
    return None


def _add_for_claude(form: ServerToolForm, tool: ServerTool) -> None:
    match tool:
        case WebSearch():
            made: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search", "max_uses": tool.max_uses}
            made |= {"allowed_domains": tool.allowed_domains, "blocked_domains": tool.blocked_domains}
            made |= {"user_location": _place(tool)}
            form.tools.append(_given(made))
        case CodeExecution():
            form.tools.append({"type": "code_execution_20250825", "name": "code_execution"})
            form.betas.append("code-execution-2025-08-25")
        case RemoteMcp():
            form.servers.append(
                _given({"type": "url", "url": tool.url, "name": tool.name, "authorization_token": _token(tool)})
            )
            made = {"type": "mcp_toolset", "mcp_server_name": tool.name}
            if tool.allowed_tools:
                made["default_config"] = {"enabled": False}
                made["configs"] = {name: {"enabled": True} for name in tool.allowed_tools}
            form.tools.append(made)
            form.betas.append("mcp-client-2025-11-20")
        case FileSearch():
            raise UnsupportedToolError("'file_search' is a tool that Anthropic does not have: use openai/...")
        case _:
            assert_never(tool)


def _add_for_openai(form: ServerToolForm, tool: ServerTool) -> None:
    match tool:
        case WebSearch():
            for name in ("max_uses", "blocked_domains"):
                if getattr(tool, name):
                    raise UnsupportedToolError(f"web_search has {name!r}, which OpenAI does not have: leave it out")
            filters = {"allowed_domains": tool.allowed_domains} if tool.allowed_domains else None
            form.tools.append(_given({"type": "web_search", "filters": filters, "user_location": _place(tool)}))
            form.include.append("web_search_call.action.sources")
        case CodeExecution():
            form.tools.append({"type": "code_interpreter", "container": {"type": "auto"}})
            form.include.append("code_interpreter_call.outputs")
        case FileSearch():
            made: dict[str, Any] = {
                "type": "file_search",
                "vector_store_ids": tool.stores,
                "max_num_results": tool.max_results,
            }
            form.tools.append(_given(made))
            form.include.append("file_search_call.results")
        case RemoteMcp():
            made = {"type": "mcp", "server_label": tool.name, "server_url": tool.url, "require_approval": "never"}
            made |= {"allowed_tools": tool.allowed_tools, "authorization": _token(tool)}
            form.tools.append(_given(made))
        case _:
            assert_never(tool)


def fees(items: Sequence[Mapping[str, Any]]) -> float:
    """Return the fees of OpenAI's tools in an answer, in US dollars, without web searches. A container counts once."""
    searches = sum(item.get("type") == "file_search_call" for item in items)
    containers = {item.get("container_id") for item in items if item.get("type") == "code_interpreter_call"}
    micros: int = searches * FILE_SEARCH_MICROS + len(containers) * CONTAINER_MICROS
    return micros / 1_000_000


def web_searches(items: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of OpenAI's web searches that are billed. Opening a page is free."""
    actions = [item.get("action") for item in items if item.get("type") == "web_search_call"]
    return sum(isinstance(action, Mapping) and action.get("type", "search") == "search" for action in actions)


def _place(tool: WebSearch) -> dict[str, str] | None:
    return {"type": "approximate", "country": tool.country} if tool.country else None


def _token(tool: RemoteMcp) -> str | None:
    if tool.token_env is None:
        return None
    token = os.environ.get(tool.token_env)
    if not token:
        raise UnsupportedToolError(
            f"the MCP server {tool.name!r} needs the environment variable {tool.token_env!r}, which is not set"
        )
    return token


def _given(made: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in made.items() if value not in (None, [])}
