"""The MCP server, for any transport of the package `mcp`: `helix.mcp.web` for HTTP, and `mcp.server.stdio`."""

from __future__ import annotations

from typing import Any, Final

from mcp.server.lowlevel import Server
from mcp_types import CallToolRequestParams, CancelledNotificationParams, PaginatedRequestParams

from helix._version import __version__
from helix.core.errors import InvalidInputError
from helix.mcp import tools
from helix.mcp.calls import AgentCalls
from helix.mcp.sources import Source
from helix.mcp.tasks import EXTENSION, AgentTasks, TaskParams, UpdateParams

WAIT_S: Final = 45.0
"""Most clients give a call up after 60 seconds."""
INSTRUCTIONS: Final = (
    "Each tool without `helix__` in its name is an agent: it works by itself, for seconds or hours. A result with status "
    f'"running" is not the end: call {tools.WAIT} with its session_id and run_id. "paused" means that a person is asked.'
)


def make_server(source: Source, *, name: str = "helix", wait_s: float = WAIT_S) -> Server[Any]:
    """A server of the agents. wait_s: seconds that a call waits before it answers that the run goes on."""
    if not wait_s > 0:
        raise InvalidInputError(f"wait_s is {wait_s}: it must be more than 0 seconds")
    calls = AgentCalls(source, wait_s)
    tasks = AgentTasks(calls)
    server: Server[Any] = Server(
        name,
        version=__version__,
        instructions=INSTRUCTIONS,
        get_tool_input_schema=lambda _: None,  # no parameter is repeated in a header, so nothing is to be looked up
    )
    server.add_request_handler("tools/list", PaginatedRequestParams, calls.list_tools)
    server.add_request_handler("tools/call", CallToolRequestParams, tasks.call_tool)
    server.add_request_handler("tasks/get", TaskParams, tasks.get)
    server.add_request_handler("tasks/update", UpdateParams, tasks.update)
    server.add_request_handler("tasks/cancel", TaskParams, tasks.cancel)
    server.add_notification_handler("notifications/cancelled", CancelledNotificationParams, calls.cancelled)
    server.extensions[EXTENSION] = {}
    return server
