"""Hostile values through the MCP server: arguments, ids and answers, over HTTP."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import httpx
from mcp.server.auth.provider import AccessToken, TokenVerifier
from tests.properties.hostile_desks import Desk
from tests.support_gateway import ADA

from helix import Agent
from helix.gateway.authoriser import prefix_of
from helix.mcp import ExecutorSource, MCPApp
from helix.mcp.tasks import EXTENSION
from helix.mcp.tools import ANSWER, INTERRUPT, WAIT

S = f"{prefix_of(ADA)}s"
VERSION = "2026-07-28"
INTERNAL_ERROR = -32603


class _Ada(TokenVerifier):
    async def verify_token(self, token: str) -> AccessToken:
        return AccessToken(token=token, client_id=ADA, subject=ADA, scopes=[])


def _asked(desk: Desk, who: Agent[Any, Any], value: Any) -> dict[str, Any]:
    """Return a request in which one field is the value."""
    rng = desk.rng
    ids = {"session_id": S, "run_id": "run_000001_X"}
    called: dict[str, dict[str, Any]] = {
        who.name: {"message": "go", "session_id": S},
        WAIT: ids,
        INTERRUPT: ids,
        ANSWER: {**ids, "call_id": "c", "approved": True, "data": None, "reason": "r", "call_session_id": S},
    }
    name = rng.choice(tuple(called))
    params: dict[str, Any]
    if rng.random() < 0.3:
        method, params = f"tasks/{rng.choice(('get', 'update', 'cancel'))}", {"taskId": f"{S}/run_000001_X"}
        params |= {"inputResponses": {"k": {"action": "accept", "content": {"approve": True}}}}
    else:
        method, params = "tools/call", {"name": name, "arguments": called[name]}
        if rng.random() < 0.3:
            params |= {"requestState": f"{S}/run_000001_X", "inputResponses": {"k": {"action": "decline"}}}
    inner = params.get("arguments", params)
    given = rng.choice((params, inner))
    given[rng.choice(tuple(given))] = value
    capabilities: dict[str, Any] = {"elicitation": {}} if rng.random() < 0.5 else {}
    capabilities |= {"extensions": {EXTENSION: {}}} if method != "tools/call" or rng.random() < 0.3 else {}
    prefix = "io.modelcontextprotocol"
    meta = {f"{prefix}/protocolVersion": VERSION, f"{prefix}/clientCapabilities": capabilities}
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}


async def by_mcp(desk: Desk, who: Agent[Any, Any], value: Any) -> None:
    """Send an MCP client's request."""
    asked = _asked(desk, who, value)
    content: bytes = desk.rng.choice((b"[]", b"{" * 50_000, b"null", b""))
    with suppress(ValueError, TypeError, RecursionError):
        content = json.dumps(asked, ensure_ascii=desk.rng.random() < 0.5).encode("utf-8", "surrogatepass")
    headers = {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "authorization": "Bearer ada",
        "mcp-protocol-version": VERSION,
        "mcp-method": asked["method"],
    }
    name = asked["params"].get("name" if asked["method"] == "tools/call" else "taskId")
    if isinstance(name, str) and name.isascii() and name.isprintable():
        headers["mcp-name"] = name
    app = MCPApp(ExecutorSource(desk.executor), _Ada(), ["desk"], [], 0.2, lists_tasks=True)
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://desk", timeout=30) as client:
            answering = asyncio.ensure_future(client.post("/mcp", content=content, headers=headers))
            async with asyncio.timeout(30):
                while not answering.done():
                    await desk.settle()
                    await asyncio.sleep(0)
        answer = await answering
        assert answer.status_code < 500, answer.text
        assert f'"code":{INTERNAL_ERROR}' not in answer.text.replace(" ", ""), answer.text
    finally:
        await app.aclose()
