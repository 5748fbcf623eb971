"""Hostile values through the edges for clients: the gateway's requests, and the HTTP app of front ends."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import httpx
from tests.properties.hostile_desks import Desk
from tests.properties.hostile_values import TEXTS
from tests.support_gateway import ADA, Mailbox

import helix.http
from helix import Agent
from helix.gateway.authoriser import Authoriser, prefix_of
from helix.gateway.backend import Backend
from helix.gateway.connections import Connections
from helix.gateway.gateway import Gateway

S = f"{prefix_of(ADA)}s"
ABOUT_FILES = ("upload", "finish_upload", "get_file")
FILE_FIELDS = ("sha256", "size", "media_type", "name", "session_id")
PART_FIELDS = ("kind", "media_type", "sha256", "url", "size", "name", "width", "height", "pages", "after_text", "more")


async def by_frame(desk: Desk, who: Agent[Any, Any], value: Any) -> None:
    """Send a client's text, which may be JSON."""
    rng, executor = desk.rng, desk.executor
    mailbox = Mailbox()
    clock, connections = executor.engine.clock, Connections(executor.store, executor.engine.clock)
    backend = Backend(
        executor=executor,
        connections=connections,
        sockets=mailbox,
        authoriser=Authoriser(clock, anonymous=True),
        registry=executor.registry,
        clock=clock,
    )
    codes: list[str] = []
    gateway = Gateway(backend, count=lambda action, code: codes.append(code))
    await gateway.connect("c", ADA, clock.now() + 3600)
    fields: dict[str, Any] = {"v": 1, "id": "r", "action": "run", "agent": who.name, "message": "go", "session_id": S}
    if rng.random() < 0.4:
        actions = [
            *(
                "answer",
                "resume",
                "abort",
                "clone",
                "get_session",
                "subscribe",
                "list_checkpoints",
                "delete",
                "compact",
                "rename",
                "change_tags",
            ),
            *("get_checkpoint", "diff_checkpoints", "get_step", "get_cost", "get_budgets", "get_usage", "list_agents"),
            *(
                "compare",
                "get_fleet",
                "get_context",
                "get_executions",
                "get_logs",
                "upload",
                "finish_upload",
                "get_file",
            ),
        ]
        fields = {"v": 1, "id": "r", "action": rng.choice(actions), "session_id": S}
        if fields["action"] in ABOUT_FILES:
            fields |= {"sha256": "0" * 64, **({"size": 3} if fields["action"] == "upload" else {})}
        if fields["action"] == "compare":
            fields["other_session_id"] = S
        extra = (
            "data",
            "arguments",
            "before",
            "step",
            "focus",
            "title",
            "add",
            "remove",
            "hours",
            "user",
            "offset",
            "reason",
            "run_id",
            "after",
            "checkpoint_id",
            "message",
            "tool_call_id",
            "target",
            "messages",
            "key",
        )
        fields[rng.choice(FILE_FIELDS if fields["action"] in ABOUT_FILES else extra)] = value
        if fields["action"] in ("get_usage", "list_agents", "get_fleet"):
            del fields["session_id"]
    else:
        name = rng.choice(
            ("state", "metadata", "input", "tags", "message", "agent", "id", "session_id", "key", "priority", "v")
        )
        fields[name] = value
        if name == "input":
            del fields["message"]
    if fields["action"] in ("run", "resume") and rng.random() < 0.3:
        at = {"url": "https://example.com/a.png"} if rng.random() < 0.5 else {"sha256": "0" * 64}
        part: dict[str, Any] = {"kind": "image", "media_type": "image/png", **at}
        part[rng.choice(PART_FIELDS)] = value
        fields["files"] = rng.choice(([part], [part] * 60, value))
    text = rng.choice(('{"v":1', "[]", "\ufeff{}", "{" * 50_000, "[" * 50_000, "null", '{"v":1,"v":1}'))
    with suppress(ValueError, TypeError, RecursionError):
        text = json.dumps(fields, ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.1:
        text = text[: rng.randrange(len(text) + 1)]
    body: str | bytes = text if rng.random() < 0.5 else text.encode("utf-8", "surrogatepass")
    await gateway.handle("c", body)
    told = [frame for frame in mailbox.read("c") if frame["type"] in ("reply", "error")]
    assert len(told) == len(codes) == 1, (told, codes)
    assert codes[0] != "internal_error", told
    await desk.settle()


async def by_http(desk: Desk, who: Agent[Any, Any], value: Any) -> None:
    """Send a front end's request, in each encoding."""
    rng = desk.rng
    part: dict[str, Any] = {"type": "text", "text": "go", "toolCallId": "c", "state": "approval-responded"}
    given_file: dict[str, Any] = {"data": "aGk=", "media_type": "text/plain", "name": "a", "after_text": 1}
    shown: dict[str, Any] = {"type": "file", "mediaType": "text/plain", "filename": "a", "url": "data:;base64,aGk="}
    source: dict[str, Any] = {"type": rng.choice(("data", "url", "file")), "value": "aGk=", "mimeType": "text/plain"}
    media: dict[str, Any] = {"type": rng.choice(("document", "image")), "source": source, "metadata": {"filename": "a"}}
    binary: dict[str, Any] = {"type": "binary", "mimeType": "text/plain", "data": "aGk=", "filename": "a"}
    files = rng.random() < 0.5
    parts, content_parts = ([part, shown], [part, rng.choice((media, binary))]) if files else ([part], "go")
    said: dict[str, Any] = {
        "id": "u",
        "role": rng.choice(("user", "assistant")),
        "parts": parts,
        "content": content_parts,
    }
    resume: dict[str, Any] = {"interruptId": "c", "status": "resolved", "payload": {"approved": True}}
    body: dict[str, Any] = {
        "chunks": {"message": "go", "session_id": S, "key": "k", "files": [given_file] if files else []},
        "ai-sdk": {"id": S, "messages": [said], "trigger": rng.choice(("submit-message", "regenerate-message"))},
        "ag-ui": {"threadId": S, "runId": "r", "messages": [said], "resume": rng.choice(([], [resume]))},
    }
    encoding = rng.choice(tuple(body))
    of_files = (given_file, shown, source, media, binary) if files else ()
    given = rng.choice((body[encoding], body[encoding], said, part, resume, *of_files))
    given[rng.choice(tuple(given))] = value
    content: str | bytes = rng.choice(("[]", "{" * 50_000, "null", ""))
    with suppress(ValueError, TypeError, RecursionError):
        content = json.dumps(body[encoding], ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    transport = httpx.ASGITransport(helix.http.app(desk.executor, [who], heartbeat_s=1))
    async with httpx.AsyncClient(transport=transport, base_url="http://desk", timeout=30) as client:
        if rng.random() < 0.2:
            asks = {"after": rng.choice(("1.1", "x", "9" * 30, "-1", "²"))}
            if rng.random() < 0.5:
                asks["run"] = rng.choice(TEXTS)[:9_000].encode("utf-8", "replace").decode()
            wanted = rng.choice((S, S, "x" * 3_000, "%F0%9F%98%80" * 300))
            asked = client.get(f"/{who.name}/{encoding}/{wanted}/stream", params=asks)
        else:
            asked = client.post(f"/{who.name}/{encoding}", content=content)
        answering = asyncio.ensure_future(asked)
        async with asyncio.timeout(30):
            while not answering.done():
                await desk.settle()
                await asyncio.sleep(0)
    assert (await answering).status_code < 500, (await answering).text
