"""One connection to an MCP server, opened, used and closed in one task.

Law: anyio's cancel scopes belong to the task that enters them, so this task owns the client from beginning to end.
Other tasks only send requests through it. A lost connection is never reopened: create a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from helix._log import get_logger
from helix.core.errors import ToolError

if TYPE_CHECKING:
    from mcp import Client

logger = get_logger(__name__)


class ConnectionLostError(ToolError):
    """The connection ended. `sent` is False if the request certainly did not reach the server."""

    def __init__(self, message: str, *, sent: bool) -> None:
        self.sent = sent
        super().__init__(message)


class Connection:
    """A connection and the task that owns it. `make` returns the transport of the connection. The owning task calls
    `make`, and enters and exits the transport."""

    def __init__(
        self, name: str, make: Callable[[], AbstractAsyncContextManager[Any]], connect_timeout_s: float
    ) -> None:
        self._name, self._make, self._connect_timeout_s = name, make, connect_timeout_s
        self.loop = asyncio.get_running_loop()
        self.lost = asyncio.Event()
        self._stop = asyncio.Event()
        self._opened = asyncio.Event()
        self._client: Client | None = None
        self._error: BaseException | None = None
        self._owner = self.loop.create_task(self._hold_open(), name=f"mcp {name}")

    async def client(self) -> Client:
        """Wait for the handshake, and return the client. Raises `ToolError` if the server cannot be reached."""
        await self._opened.wait()
        if self._client is None:
            raise ConnectionLostError(f"MCP server {self._name!r} cannot be reached: {self._reason()}", sent=False)
        return self._client

    async def call(self, name: str, arguments: dict[str, Any], timeout_s: float) -> Any:
        """Call a tool, and return a `CallToolResult`. Raises `ConnectionLostError`, or `ToolError` with the server's
        protocol error."""
        from anyio import BrokenResourceError, ClosedResourceError
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED, INVALID_REQUEST, REQUEST_TIMEOUT

        client = await self.client()
        if self.lost.is_set():
            raise ConnectionLostError(f"MCP server {self._name!r} is gone", sent=False)
        try:
            return await client.call_tool(name, arguments, read_timeout_seconds=timeout_s)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                raise await self._close_lost() from error
            if error.code == INVALID_REQUEST:  # a restarted HTTP server returns this for an unknown session
                self.lost.set()
                raise ConnectionLostError(f"MCP server {self._name!r}: {error}", sent=False) from error
            if error.code == REQUEST_TIMEOUT:
                raise ToolError(
                    f"no answer from MCP server {self._name!r} within {timeout_s} s: outcome unknown"
                ) from error
            raise ToolError(f"MCP server {self._name!r}: {error}") from error
        except (BrokenResourceError, ClosedResourceError, ConnectionError) as error:
            raise await self._close_lost() from error
        except (RuntimeError, ValueError) as error:  # a result that violates the tool's output schema
            raise ToolError(f"MCP server {self._name!r}: {error}") from error

    async def close(self) -> None:
        """End the session and the server process, if there is one. Call it on the loop that opened the connection."""
        self._stop.set()
        if not self._opened.is_set():
            self._owner.cancel()
        await asyncio.wait({self._owner})

    async def _close_lost(self) -> ConnectionLostError:
        self._stop.set()
        await asyncio.wait({self._owner}, timeout=5)
        sent = type(self._error).__name__ not in ("ConnectError", "ConnectTimeout")
        return ConnectionLostError(f"MCP server {self._name!r}: connection lost: {self._reason()}", sent=sent)

    def _reason(self) -> str:
        return f"{type(self._error).__name__}: {self._error}" if self._error is not None else "it closed the connection"

    async def _hold_open(self) -> None:
        from mcp import Client

        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._connect_timeout_s):
                    client = Client(_report_end(self._make(), self.lost), cache=None)
                    self._client = await stack.enter_async_context(client)
                self._opened.set()
                await self._stop.wait()
        except Exception as error:
            self._error = _first_cause(error)
            logger.debug("MCP connection %r ended", self._name, exc_info=error)
        finally:
            self.lost.set()
            self._opened.set()


def _first_cause(error: BaseException) -> BaseException:
    """Return the first exception that is not a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@asynccontextmanager
async def _report_end(transport: AbstractAsyncContextManager[Any], lost: asyncio.Event) -> AsyncIterator[Any]:
    """Yield the transport. The end of its input sets `lost`, so a dead server is detected before the next request."""
    async with transport as (read, write):
        yield _ReportingStream(read, lost), write


class _ReportingStream:
    """A read stream that reports its end. All other attributes are those of the stream."""

    def __init__(self, stream: Any, lost: asyncio.Event) -> None:
        self._stream, self._lost = stream, lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> _ReportingStream:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except BaseException:
            self._lost.set()
            raise

    async def receive(self) -> Any:
        try:
            return await self._stream.receive()
        except BaseException:
            self._lost.set()
            raise

    async def __aenter__(self) -> _ReportingStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exception: Any) -> Any:
        return await self._stream.__aexit__(*exception)
