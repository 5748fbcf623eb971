"""Measure the time from a model's word to a page over HTTP, in each encoding of `helix.http`.

    python bench/front_ends.py        prints the table and saves it to bench/results/front_ends.md (one minute)

The app is a separate process. The model writes 40 words a second. Each word is the time at which it was written, and the
reader records when the event with that word arrives. `bench/coalesced_words.py` measures the WebSocket of a deployed stage.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import socket
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from words import Speaker, delays, quantile, served

import helix.http
from helix import Agent, LLMConfig, LocalExecutor

RATE, SECONDS = 40, 8
AT_MOST_MS = 100.0
MESSAGE = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "go"}]}
AG_UI = {"runId": "r1", "tools": [], "context": [], "state": {}, "forwardedProps": {}}
ASKED: dict[str, dict[str, Any]] = {
    "ai-sdk": {"messages": [MESSAGE], "trigger": "submit-message"},
    "ai-sdk-v6": {"messages": [MESSAGE], "trigger": "submit-message"},
    "ag-ui": {"messages": [{"id": "m1", "role": "user", "content": "go"}], **AG_UI},
    "chunks": {"message": "go"},
}
NAMES = {"ai-sdk": "AI SDK 7", "ai-sdk-v6": "AI SDK 6", "ag-ui": "AG-UI", "chunks": "Helix's own messages"}


def serve() -> None:
    """Print the address, and serve until the parent ends this process."""
    agent = Agent(name="speaker", system_prompt="Speak.", llm_config=LLMConfig(model="none"))
    executor = LocalExecutor(":memory:", model=Speaker(RATE * SECONDS, RATE))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        config = uvicorn.Config(helix.http.app(executor, [agent]), log_config=None, lifespan="off")
        asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


def word_of(event: Mapping[str, Any]) -> str | None:
    """Return the text that an event adds, in any of the encodings."""
    said = event.get("chunk") or event
    return said["delta"] if said.get("type") in ("text-delta", "TEXT_MESSAGE_CONTENT", "text_delta") else None


async def heard(url: str, encoding: str) -> list[float]:
    """Return the delay of each word in milliseconds."""
    session = f"ses-{encoding}"
    names = {"ag-ui": {"threadId": session}, "chunks": {"session_id": session}}.get(encoding, {"id": session})
    found = []
    async with httpx.AsyncClient(timeout=60) as client:
        address = f"{url}/speaker/{encoding}"
        async with client.stream("POST", address, json={**ASKED[encoding], **names}) as response:
            assert response.status_code == 200, (await response.aread()).decode()
            async for line in response.aiter_lines():
                if line.startswith("data: {") and (word := word_of(json.loads(line.removeprefix("data: ")))):
                    found += [(time.monotonic(), each) for each in word.split()]
    assert len(found) == RATE * SECONDS, f"{encoding}: {len(found)} words"
    return delays(found)


async def table() -> list[str]:
    lines = [
        "# A model's word to a page over HTTP",
        "",
        f"Python {platform.python_version()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f} before; "
        f"`python bench/front_ends.py`. {RATE} words a second for {SECONDS} s.",
        "",
        "| encoding | p50, ms | p95, ms | most, ms | p50 at most | |",
        "|---|---:|---:|---:|---:|---|",
    ]
    with served(__file__) as url:
        for encoding, name in NAMES.items():
            found = await heard(url, encoding)
            p50 = statistics.median(found)
            met = "met" if p50 <= AT_MOST_MS else "**missed**"
            lines.append(
                f"| {name} | {p50:.1f} | {quantile(found, 0.95):.1f} | {max(found):.1f} | {AT_MOST_MS:g} | {met} |"
            )
    return lines


def main() -> None:
    if sys.argv[1:] == ["serve"]:
        serve()
        return
    text = "\n".join(asyncio.run(table())) + "\n"
    print(text)
    (Path(__file__).parent / "results" / "front_ends.md").write_text(text)


if __name__ == "__main__":
    main()
