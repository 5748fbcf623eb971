"""An MCP server of Helix over real HTTP on loopback, and clients of it as the package `mcp` makes them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx2
import uvicorn
from mcp import Client
from mcp.client import ClientSession
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, Request, RequestParams, Result
from pydantic import ConfigDict

from helix.mcp.tasks import EXTENSION

PATIENCE_S = 30.0


@asynccontextmanager
async def on_http(app: Any, sock: socket.socket | None = None) -> AsyncIterator[str]:
    """The URL of an ASGI app, for as long as the block runs."""
    sock = sock or socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on", timeout_graceful_shutdown=1))
    serving = asyncio.create_task(server.serve([sock]))
    port = sock.getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.should_exit = True
        await serving
        sock.close()


@asynccontextmanager
async def client_of(url: str, token: str | None = None, **options: Any) -> AsyncIterator[Client]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with asyncio.timeout(PATIENCE_S), httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http:
        async with Client(streamable_http_client(url, http_client=http), cache=None, **options) as client:
            yield client


class MadeTask(Result):
    model_config = ConfigDict(extra="allow")

    result_type: Literal["task"] = "task"
    task_id: str


class Tasks(ClientExtension):
    """A client that takes tasks, and polls nothing by itself: `made` has their ids."""

    identifier = EXTENSION

    def __init__(self) -> None:
        self.made: list[str] = []

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=MadeTask, resolve=self._resolve)]

    async def _resolve(self, made: MadeTask, context: ClaimContext) -> CallToolResult:
        self.made.append(made.task_id)
        session_id, _, run_id = made.task_id.partition("/")
        value = {"status": "running", "session_id": session_id, "run_id": run_id}
        return CallToolResult(content=[], structured_content=value)


class _Params(RequestParams):
    model_config = ConfigDict(extra="allow")


class _Request(Request[_Params, str]):
    name_param = "taskId"


class _Anything(Result):
    model_config = ConfigDict(extra="allow")


async def ask(session: ClientSession, method: str, **params: Any) -> dict[str, Any]:
    """The result of a request that the package does not know."""
    request: Any = _Request(method=method, params=_Params(**params))
    found = await session.send_request(request, _Anything)
    return found.model_dump(mode="json", by_alias=True, exclude_none=True)


async def task_of(session: ClientSession, task_id: str, *statuses: str) -> dict[str, Any]:
    """The task once it has one of these statuses."""
    async with asyncio.timeout(PATIENCE_S):
        while (task := await ask(session, "tasks/get", taskId=task_id))["status"] not in statuses:
            await asyncio.sleep(0.02)
        return task
