"""An MCP server: the agents of an executor or of a stage as tools of the Model Context Protocol.

    from helix.mcp import app

    mcp = app(executor)  # an ASGI app, for one route of another app

It requires the `mcp` extra. For agents that use tools of other MCP servers, see `helix.adapters.mcp`.
"""

from helix.mcp.server import make_server
from helix.mcp.sources import ExecutorSource, LinkSource, Source
from helix.mcp.web import MCPApp, app

__all__ = ["ExecutorSource", "LinkSource", "MCPApp", "Source", "app", "make_server"]
