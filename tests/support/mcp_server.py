"""A real MCP server for tests, run as a process of its own.

python mcp_server.py stdio            ends when its standard input closes
python mcp_server.py http             prints its port, serves on loopback, ends when its standard input closes
"""

import base64
import os
import socket
import sys
import threading
import time
from pathlib import Path

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import BaseModel

server = MCPServer("test-tools", log_level="WARNING")


class Point(BaseModel):
    x: int
    y: int = 0


@server.tool()
def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


@server.tool(structured_output=False, annotations=ToolAnnotations(read_only_hint=True))
def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


@server.tool(structured_output=False)
def length(points: list[Point], unit: str = "m") -> str:
    """Count points."""
    return f"{len(points)} {unit}, first x {points[0].x}"


@server.tool(structured_output=False)
def fail(why: str) -> str:
    """Always fails."""
    raise ToolError(why)


@server.tool(structured_output=False)
def picture() -> list[str | Image]:
    """A text and a picture."""
    pixel = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    return ["a pixel", Image(data=pixel, format="png")]


@server.tool(structured_output=False)
def slow(seconds: float) -> str:
    """Take a while."""
    time.sleep(seconds)
    return "done"


@server.tool(name="weird name: ünïcode", structured_output=False)
def weird() -> str:
    """A name that no model provider takes."""
    return "weird"


@server.tool(structured_output=False)
def environment(name: str) -> str:
    """A variable of this process."""
    return os.environ.get(name, "")


@server.tool(structured_output=False, annotations=ToolAnnotations(idempotent_hint=True))
def die_once(marker: str) -> str:
    """Dies in the middle of the first call; repeatable."""
    return _die_once(marker)


@server.tool(structured_output=False)
def charge_once(marker: str) -> str:
    """Dies in the middle of the first call; not repeatable."""
    return _die_once(marker)


@server.tool(structured_output=False, annotations=ToolAnnotations(read_only_hint=True))
def pid() -> str:
    """The process that answers."""
    return str(os.getpid())


def _die_once(marker: str) -> str:
    with Path(marker).open("a") as file:
        file.write("called\n")
    if Path(marker).read_text() == "called\n":
        os._exit(1)
    return "survived"


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        import uvicorn

        listener = socket.create_server(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0))
        threading.Thread(target=_end_with_parent, daemon=True).start()
        print(listener.getsockname()[1], flush=True)
        app = server.streamable_http_app()
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
