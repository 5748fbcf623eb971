"""Tools from MCP servers, over stdio or streamable HTTP. Requires the `mcp` extra.

Law: a tool is a plain definition. It connects when it is first called, in any process and event loop. So a run that resumes
elsewhere does not need a connection from another process. A call whose connection is lost is repeated once, and only if it
cannot have reached the server, or if the server declared the tool repeatable.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import sys
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from helix.adapters.mcp_results import result_content, without_files
from helix.adapters.mcp_session import Connection, ConnectionLostError
from helix.core.context import ToolContext
from helix.core.errors import DefinitionError, ToolError
from helix.core.files import File
from helix.core.json import JsonObject, JsonValue
from helix.core.signatures import arguments_model
from helix.core.tools import DEFAULT_TOOL_TIMEOUT_S, FINISH_TOOL_NAME, SUBAGENT_TOOL_PREFIX, Approval, Tool

if TYPE_CHECKING:
    from mcp import Client

Listing = Sequence[Mapping[str, Any]]
_PAGES = 100


class MCPServer:
    """An MCP server. It is either a command to start, which is used over its standard streams, or the URL of a running
    server.

    A started server gets `env` and the few variables that are safe to inherit (PATH, HOME, ...), not the whole
    environment. `timeout_s` limits one call, and `connect_timeout_s` limits the start and the handshake. Use it as
    `async with MCPServer(...) as server: tools = await server.tools()`, or give its tools to an agent with `mcp_tools`.
    A connection that a call opened stays open until `close`, or until its event loop ends.
    """

    def __init__(
        self,
        *,
        command: str | None = None,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        url: str | None = None,
        headers: Mapping[str, str] | None = None,
        name: str | None = None,
        timeout_s: float = DEFAULT_TOOL_TIMEOUT_S,
        connect_timeout_s: float = 30.0,
    ) -> None:
        if (command is None) == (url is None):
            raise DefinitionError("MCP server", "command", "give a command to start, or the url of a running server")
        self.name = name or os.path.basename(command or "") or str(url)
        for field, wrong in (("headers", url is None and headers), ("env", command is None and env)):
            if wrong:
                raise DefinitionError(f"MCP server {self.name!r}", field, "does not apply to this kind of server")
        self.timeout_s, self.connect_timeout_s = timeout_s, connect_timeout_s
        self._command, self._args, self._cwd = command, list(args), None if cwd is None else str(cwd)
        self._env = None if env is None else dict(env)
        self._url, self._headers = url, dict(headers or {})
        self._connection: Connection | None = None

    async def __aenter__(self) -> MCPServer:
        await self._open_connection().client()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection of this event loop, if there is one. The tools stay usable, because they connect again."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.loop is asyncio.get_running_loop():
            await connection.close()

    async def tools(
        self, prefix: str | None = None, only: Collection[str] | None = None, *, require_approval: Approval = False
    ) -> list[Tool[Any]]:
        """Return the server's current tools. See `mcp_tools` for the arguments."""
        listing = await self.listing()
        return mcp_tools(self, listing, prefix=prefix, only=only, require_approval=require_approval)

    async def listing(self) -> list[JsonObject]:
        """Return the server's description of its tools as JSON. With a saved description, `mcp_tools` can define the tools
        without a connection."""
        return await _list_pages(await self._open_connection().client())

    async def call(self, tool: str, arguments: JsonObject, *, repeatable: bool = False) -> JsonValue | list[str | File]:
        """Call a tool by the server's own name for it. Returns a list of texts and files if the result has images, audio
        or other files. Otherwise returns structured content if there is any, and text if not. A failure raises
        `ToolError`."""
        try:
            result = await self._open_connection().call(tool, arguments, self.timeout_s)
        except ConnectionLostError as lost:
            if lost.sent and not repeatable:
                raise ToolError(f"{lost}; whether {tool!r} was executed is unknown") from lost
            result = await self._open_connection().call(tool, arguments, self.timeout_s)
        return await asyncio.to_thread(result_content, tool, result)

    def _open_connection(self) -> Connection:
        known = self._connection
        if known is None or known.lost.is_set() or known.loop is not asyncio.get_running_loop():
            _require_mcp()
            known = self._connection = Connection(self.name, self._transport, self.connect_timeout_s)
        return known

    def _transport(self) -> AbstractAsyncContextManager[Any]:
        from mcp import StdioServerParameters, stdio_client

        if self._url is not None:
            return _open_http(self._url, self._headers)
        assert self._command is not None
        parameters = StdioServerParameters(command=self._command, args=self._args, env=self._env, cwd=self._cwd)
        return stdio_client(parameters, errlog=sys.__stderr__ or sys.stderr)


def mcp_tools(
    server: MCPServer,
    listing: Listing | None = None,
    *,
    prefix: str | None = None,
    only: Collection[str] | None = None,
    require_approval: Approval = False,
) -> list[Tool[Any]]:
    """Return tool definitions for `Agent(tools=[...])`. It needs no running event loop.

    listing: the result of `await server.listing()`, possibly from another process. Without it the server is asked now.
    prefix: a string that is put before each name, so that the tools of two servers do not clash. `prefix="docs"` turns
    `search` into `docs_search`. only: the tools to include, by the server's names. An unknown name raises
    `DefinitionError`.

    Names are adjusted to match `[A-Za-z0-9_-]{1,64}`. A tool that declares itself read-only or idempotent is repeated
    after a crash (`on_unknown="retry"`). For any other tool, the model is told that the outcome is unknown (`"skip"`).
    """
    listed = _list_in_thread(server) if listing is None else listing
    known = [str(entry["name"]) for entry in listed]
    for name in only or ():
        if name not in known:
            raise DefinitionError(
                f"MCP server {server.name!r}", "only", f"no tool {name!r}; there are {', '.join(known)}"
            )
    taken: set[str] = set()
    chosen = [entry for entry in listed if only is None or entry["name"] in only]
    return [
        _tool(server, entry, _make_tool_name(str(entry["name"]), prefix, taken), require_approval) for entry in chosen
    ]


def _tool(server: MCPServer, entry: Mapping[str, Any], name: str, require_approval: Approval) -> Tool[Any]:
    reported, hints = str(entry["name"]), entry.get("annotations") or {}
    repeatable = bool(hints.get("readOnlyHint") or hints.get("idempotentHint"))

    async def execute(arguments: BaseModel, context: ToolContext[Any]) -> Any:
        result = await server.call(reported, dict(arguments.model_extra or {}), repeatable=repeatable)
        return result if context.takes_files else without_files(result)

    title, schema = entry.get("title") or hints.get("title"), entry.get("inputSchema") or {"type": "object"}
    return Tool(
        name=name,
        description=entry.get("description") or title or f"The tool {reported!r} of the MCP server {server.name!r}.",
        input_schema=arguments_model(name, schema, lambda given: _violations(schema, given, "arguments")),
        execute=execute,
        require_approval=require_approval,
        timeout_s=server.timeout_s + server.connect_timeout_s,
        on_unknown="retry" if repeatable else "skip",
        uses_deps=False,
    )


_NAMES = ("object", "array", "string", "integer", "number", "boolean", "null")
_TYPES: dict[str, Any] = dict(zip(_NAMES, (dict, list, str, int, int | float, bool, type(None)), strict=True))


def _violations(schema: Any, value: Any, where: str) -> list[str]:
    """Return which fields are missing or have a wrong type or value. The server checks the rest."""
    if not isinstance(schema, Mapping):
        return []
    named = schema.get("type", [])
    kinds = [named] if isinstance(named, str) else named
    if kinds and not any(_has_type(value, kind) for kind in kinds):
        return [f"{where}: must be {' or '.join(kinds)}"]
    problems = [f"{where}: must be one of {schema['enum']}"] if "enum" in schema and value not in schema["enum"] else []
    if isinstance(value, dict):
        missing = [key for key in schema.get("required", ()) if key not in value]
        problems += [f"{where}.{key}: is required" for key in missing]
        for key, inner in (schema.get("properties") or {}).items():
            problems += _violations(inner, value[key], f"{where}.{key}") if key in value else []
    if isinstance(value, list):
        for index, item in enumerate(value):
            problems += _violations(schema.get("items"), item, f"{where}[{index}]")
    return problems


def _has_type(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES.get(kind, object)) or (
        kind == "integer" and isinstance(value, float) and value.is_integer()
    )


def _make_tool_name(name: str, prefix: str | None, taken: set[str]) -> str:
    """Return a valid and unused tool name. A shortened or duplicate name gets a hash of the original, so names stay
    stable."""
    wanted = name if prefix is None else f"{prefix}_{name}"
    fitting = re.sub(r"[^A-Za-z0-9_-]", "_", wanted)
    if fitting == FINISH_TOOL_NAME or fitting.startswith(SUBAGENT_TOOL_PREFIX):
        fitting = f"mcp_{fitting}"
    if len(fitting) > 64 or fitting in taken:
        fitting = f"{fitting[:55]}_{hashlib.sha256(wanted.encode()).hexdigest()[:8]}"
    taken.add(fitting)
    return fitting


@asynccontextmanager
async def _open_http(url: str, headers: Mapping[str, str]) -> AsyncIterator[Any]:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async with httpx2.AsyncClient(headers=dict(headers), timeout=httpx2.Timeout(30, read=None)) as client:
        async with streamable_http_client(url, http_client=client) as streams:
            yield streams


async def _list_pages(client: Client) -> list[JsonObject]:
    listed: list[JsonObject] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await client.list_tools(cursor=cursor)
        listed.extend(tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools)
        cursor = page.next_cursor
        if cursor is None:
            break
    return listed


def _list_in_thread(server: MCPServer) -> list[JsonObject]:
    """List the server's tools in a thread with its own event loop, because the caller may already be inside one."""
    _require_mcp()

    async def ask() -> list[JsonObject]:
        connection = Connection(server.name, server._transport, server.connect_timeout_s)
        try:
            return await _list_pages(await connection.client())
        finally:
            await connection.close()

    with ThreadPoolExecutor(1, f"mcp listing {server.name}") as threads:
        return threads.submit(asyncio.run, ask()).result()


def _require_mcp() -> None:
    try:
        from mcp import Client  # noqa: F401
    except ImportError as error:
        problem = "the MCP client library (mcp 2 or newer) is missing: pip install 'helix-agents[mcp]'"
        raise DefinitionError("MCP server", "mcp", problem) from error
