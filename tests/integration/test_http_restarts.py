"""The server is killed in the middle of an answer and started again. Its readers receive the complete answer."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.asgi_server import Sent, events
from tests.support.cloud_agents.plans import plan, say

pytestmark = pytest.mark.slow
LONG = "A sentence that is long enough to be streamed in more than one piece, and a word at its end."


@asynccontextmanager
async def server(database: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, httpx.AsyncClient]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.http_server", str(database), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30) as client:
            yield process, client
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


REQUESTS: dict[str, Any] = {
    "chunks": lambda text: {"message": text, "session_id": "s"},
    "ai-sdk": lambda text: {
        "id": "s",
        "messages": [{"id": "u", "role": "user", "parts": [{"type": "text", "text": text}]}],
    },
    "ag-ui": lambda text: {"threadId": "s", "runId": "r", "messages": [{"id": "u", "role": "user", "content": text}]},
}


@pytest.mark.parametrize("encoding", REQUESTS)
async def test_a_reader_comes_to_the_end_over_the_death_of_the_server(encoding: str, tmp_path: Path) -> None:
    gate, seen = tmp_path / "gate", list[Sent]()
    async with server(tmp_path / "helix.db") as (process, client):
        with pytest.raises(httpx.TransportError):
            body = REQUESTS[encoding](plan(say(LONG, gate=str(gate))))
            async with client.stream("POST", f"/talker/{encoding}", json=body) as response:
                async for sent in events(response):
                    seen.append(sent)
                    if process.returncode is None and Path(f"{gate}.entered").exists():
                        process.kill()
    assert seen and LONG not in words(encoding, seen)
    gate.touch()
    async with server(tmp_path / "helix.db") as (_, client):
        after = {} if encoding == "ai-sdk" else {"last-event-id": seen[-1].id}
        async with client.stream("GET", f"/talker/{encoding}/s/stream", headers=after) as response:
            rest = [sent async for sent in events(response) if sent.data != "[DONE]"]
    if encoding == "ai-sdk":  # useChat reads the message from its beginning
        seen = []
    whole = [*seen, *rest]
    assert words(encoding, whole) == LONG
    assert whole[-1].json.get("status", whole[-1].json.get("type")) in ("completed", "finish", "RUN_FINISHED")
    if encoding == "chunks":
        assert [sent.json["sequence"] for sent in whole] == list(range(1, len(whole) + 1))


def words(encoding: str, sent: list[Sent]) -> str:
    """Return the text that the reader shows at the end."""
    text = ""
    for one in (event.json for event in sent):
        match one.get("type") or one.get("chunk", {}).get("type"):
            case "text_delta":
                text += one["chunk"]["delta"]
            case "text-delta" | "TEXT_MESSAGE_CONTENT":
                text += one["delta"]
            case "step_discarded" | "reset-step" | "MESSAGES_SNAPSHOT":
                text = ""
    return text
