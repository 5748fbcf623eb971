"""The MCP server, for any transport of the `mcp` package, such as HTTP (`helix.mcp.web`) or `mcp.server.stdio`."""

from __future__ import annotations

from typing import Any, Final

from mcp.server.lowlevel import Server
from mcp_types import (
    CallToolRequestParams,
    CancelledNotificationParams,
    PaginatedRequestParams,
    ServerCapabilities,
    SubscriptionsListenRequestParams,
    ToolsCapability,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from helix._version import __version__
from helix.core.errors import InvalidInputError
from helix.mcp import tools
from helix.mcp.calls import AgentCalls
from helix.mcp.sources import Source
from helix.mcp.tasks import EXTENSION, AgentTasks, TaskParams, UpdateParams
from helix.mcp.tasks_2025 import CREATE, OlderTasks

WAIT_S: Final = 45.0
"""The default of `wait_s`, in seconds. Most clients abandon a call after 60 seconds."""
INSTRUCTIONS: Final = (
    "Each tool without `helix__` in its name is an agent: it works by itself, for seconds or hours. A result with status "
    f'"running" is not the end: call {tools.WAIT} with its session_id and run_id. "paused" means that a person is asked.'
)


class AgentServer(Server[Any]):
    """The server of the `mcp` package, with the capabilities for both kinds of tasks."""

    older: OlderTasks
    """The handlers for tasks of protocol version 2025-11-25."""

    def get_capabilities(self, *args: Any, protocol_version: str | None = None, **more: Any) -> ServerCapabilities:
        found = super().get_capabilities(*args, protocol_version=protocol_version, **more)
        if protocol_version in MODERN_PROTOCOL_VERSIONS:  # clients can listen only to task changes
            return found.model_copy(update={"tools": ToolsCapability(list_changed=False)})
        return found.model_copy(update={"tasks": self.older.capability})


def make_server(
    source: Source, *, name: str = "helix", wait_s: float = WAIT_S, lists_tasks: bool = False
) -> Server[Any]:
    """Create a server for the agents.

    wait_s: the number of seconds that a call waits before it reports that the run is still in progress. lists_tasks:
    whether `tasks/list` of protocol version 2025-11-25 is served. It must be False unless callers authenticate themselves,
    or are all the same person. Raises `InvalidInputError` for a `wait_s` that is not positive.
    """
    if not wait_s > 0:
        raise InvalidInputError(f"wait_s is {wait_s}: it must be more than 0 seconds")
    calls = AgentCalls(source, wait_s)
    tasks = AgentTasks(calls)
    older = OlderTasks(calls, tasks, lists=lists_tasks)
    server = AgentServer(
        name,
        version=__version__,
        instructions=INSTRUCTIONS,
        get_tool_input_schema=lambda _: None,  # only parameters that are also sent in a header need a schema here
    )
    server.older = older
    server.middleware.append(older)
    server.add_request_handler("tools/list", PaginatedRequestParams, calls.list_tools)
    server.add_request_handler("tools/call", CallToolRequestParams, tasks.call_tool)
    server.add_request_handler("tasks/get", TaskParams, older.get)
    server.add_request_handler("tasks/update", UpdateParams, tasks.update)
    server.add_request_handler("tasks/cancel", TaskParams, older.cancel)
    server.add_request_handler("tasks/result", TaskParams, older.result)
    server.add_request_handler("tasks/list", PaginatedRequestParams, older.list)
    server.add_request_handler(CREATE, CallToolRequestParams, older.create)
    server.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, tasks.listen)
    server.add_notification_handler("notifications/cancelled", CancelledNotificationParams, calls.cancelled)
    server.extensions[EXTENSION] = {}
    return server
