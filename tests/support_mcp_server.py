"""An MCP server of Helix over real HTTP on loopback, and clients of it as the package `mcp` makes them."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx2
import pytest
import uvicorn
from mcp import Client
from mcp.client import ClientSession
from mcp.client.context import ClientRequestContext
from mcp.client.extension import ClaimContext, ClientExtension, NotificationBinding, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult, Request, RequestParams, Result, TextContent
from pydantic import ConfigDict
from tests.support_run import Text, a_tool, agent, call, calls

from helix.mcp.tasks import EXTENSION

PATIENCE_S = 30.0
ERAS = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
ORDER = [calls(call("order", text="tea")), "Tea is on its way."]


def buyer(done: list[str]) -> Any:
    async def order(asked: Text, context: Any) -> str:
        done.append(asked.text)
        return f"ordered {asked.text}"

    return agent("buyer", tools=[a_tool("order", order, input_schema=Text, require_approval=True)])


def person(*forms: ElicitResult) -> tuple[Any, list[str]]:
    """Fill in these forms, one after the other, as a client's user, and record the questions."""
    left, asked = list(forms), list[str]()

    async def fill(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        return left.pop(0)

    return fill, asked


@asynccontextmanager
async def on_http(app: Any, sock: socket.socket | None = None, **config: Any) -> AsyncIterator[str]:
    """Yield the URL of an ASGI app for the duration of the block. `config` are more settings of uvicorn."""
    sock = sock or socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(app, log_level="error", lifespan="on", timeout_graceful_shutdown=1, **config)
    )
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
    """A client that accepts tasks, and polls nothing by itself. `made` has their ids, and `changes` the content of
    notifications."""

    identifier = EXTENSION

    def __init__(self) -> None:
        self.made: list[str] = []
        self.changes: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def notifications(self) -> list[NotificationBinding[Any]]:
        async def take(task: _Params) -> None:
            await self.changes.put(task.model_dump(mode="json", by_alias=True))

        return [NotificationBinding(method="notifications/tasks", params_type=_Params, handler=take)]

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
    """A request of a method that names no task."""


class _OfTask(_Request):
    name_param = "taskId"


class _Anything(Result):
    model_config = ConfigDict(extra="allow")


async def ask(session: ClientSession, method: str, **params: Any) -> dict[str, Any]:
    """Return the result of a request that the package does not know."""
    kind = _OfTask if "taskId" in params else _Request
    request: Any = kind(method=method, params=_Params(**params))
    found = await session.send_request(request, _Anything)
    return found.model_dump(mode="json", by_alias=True, exclude_none=True)


async def task_of(session: ClientSession, task_id: str, *statuses: str) -> dict[str, Any]:
    """Return the task once it has one of these statuses."""
    async with asyncio.timeout(PATIENCE_S):
        while (task := await ask(session, "tasks/get", taskId=task_id))["status"] not in statuses:
            await asyncio.sleep(0.02)
        return task


def text_of(result: CallToolResult) -> str:
    """Return the text at the beginning of the tool's result."""
    (first, *_) = result.content
    assert isinstance(first, TextContent)
    return first.text


async def frames(http: httpx2.AsyncClient, url: str, message: dict[str, Any], **headers: str) -> AsyncGenerator[Any]:
    """Yield the messages that answer a request over HTTP."""
    async with http.stream("POST", url, json=message, headers={**HEADERS, **headers}) as response:
        if response.headers["content-type"].startswith("application/json"):
            yield json.loads(await response.aread())
            return
        async for line in response.aiter_lines():
            if line.startswith("data:") and line[5:].strip():
                yield json.loads(line[5:])


def listening(*task_ids: str, declared: bool = True, token: str | None = None) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the request `subscriptions/listen` of a client that shows forms, and its headers."""
    capabilities: dict[str, Any] = {"elicitation": {}, "extensions": {EXTENSION: {}} if declared else {}}
    mcp = "io.modelcontextprotocol"
    meta = {f"{mcp}/protocolVersion": "2026-07-28", f"{mcp}/clientCapabilities": capabilities}
    params = {"notifications": {"taskIds": list(task_ids), "toolsListChanged": True}, "_meta": meta}
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "subscriptions/listen"}
    headers |= {} if token is None else {"authorization": f"Bearer {token}"}
    return {"jsonrpc": "2.0", "id": 7, "method": "subscriptions/listen", "params": params}, headers


class Older:
    """A client of the protocol 2025-11-25 (or `version`), message by message."""

    def __init__(self, http: httpx2.AsyncClient, url: str, headers: dict[str, str], begun: dict[str, Any]) -> None:
        self.http, self.url, self.headers, self.begun, self._number = http, url, headers, begun, 1

    async def post(self, message: dict[str, Any]) -> None:
        (await self.http.post(self.url, json=message, headers={**HEADERS, **self.headers})).raise_for_status()

    def ask(self, method: str, /, number: int | None = None, **params: Any) -> AsyncIterator[Any]:
        self._number += 1
        message = {"jsonrpc": "2.0", "id": number or self._number, "method": method, "params": params}
        return frames(self.http, self.url, message, **self.headers)

    async def reply(self, method: str, /, number: int | None = None, **params: Any) -> dict[str, Any]:
        """Send a request, and return the last frame."""
        return [frame async for frame in self.ask(method, number, **params)][-1]

    async def task(self, name: str, **arguments: Any) -> str:
        made = await self.reply("tools/call", name=name, arguments=arguments, task={"ttl": 60_000})
        assert made["result"]["task"]["status"] == "working", made
        return str(made["result"]["task"]["taskId"])


@asynccontextmanager
async def older(
    url: str, token: str | None = None, *, version: str = "2025-11-25", **capabilities: Any
) -> AsyncIterator[Older]:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    opening = {**INITIALIZE, "params": {**INITIALIZE["params"], "protocolVersion": version}}
    opening["params"]["capabilities"] = capabilities
    async with asyncio.timeout(PATIENCE_S), httpx2.AsyncClient(timeout=PATIENCE_S) as http:
        opened = await http.post(url, json=opening, headers={**HEADERS, **headers})
        begun = json.loads(opened.text.partition("data:")[2])["result"]
        headers |= {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": version}
        client = Older(http, url, headers, begun)
        await client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        yield client
