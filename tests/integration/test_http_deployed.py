"""`helix.http` over the executor of a deployed stage. Runs execute elsewhere, and the app reads the stage's log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.integration.test_http import answered, approval, call, chat, desk, post, who
from tests.support.asgi_server import Sent, serving
from tests.support.delivery_stage import Stage, event_of

import helix.http
from helix.ports.launcher import Part

ANN = {"x-user": "ann"}


class Platform:
    """A platform that executes started runs, one after the other, while `open` is set."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self._begun = stage, list[Part]()
        self.open = asyncio.Event()
        self.open.set()

    async def play(self) -> None:
        while True:
            await self.open.wait()
            for part in [part for part in self._stage.held.starts if part not in self._begun]:
                self._begun.append(part)
                told = await self._stage.follow(event_of(part))
                await self._stage.deliver("finish_run", told)
                self._stage.held.states[part.run_id] = "ended"
            await asyncio.sleep(0.01)


@asynccontextmanager
async def deployed(*answers: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Stage, Platform]]:
    stage = Stage(list(answers), desk)
    platform = Platform(stage)
    playing = asyncio.create_task(platform.play())
    app = Starlette(routes=[Mount("/agents", helix.http.app(stage.executor, [desk], user=who, heartbeat_s=0.5))])
    try:
        async with serving(app) as url:
            async with httpx.AsyncClient(base_url=f"{url}/agents", trust_env=False, timeout=20) as client:
                yield client, stage, platform
    finally:
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)


def asked(encoding: str, text: str = "Refund o1") -> Any:
    said = {"id": "u1", "role": "user", "content": text}
    return chat(text) if encoding == "ai-sdk" else {"threadId": "chat", "runId": "r", "messages": [said]}


def answer(encoding: str) -> Any:
    entry = {"interruptId": "call_0", "status": "resolved", "payload": {"approved": True}}
    return answered(approval("call_0", True)) if encoding == "ai-sdk" else {"threadId": "chat", "resume": [entry]}


def shown(sent: list[Sent]) -> list[tuple[str, str]]:
    return [(one.id, one.data) for one in sent if one.data != "[DONE]"]


@pytest.mark.parametrize("encoding", ["ai-sdk", "ag-ui"])
async def test_a_run_elsewhere_is_started_streamed_answered_and_resumed(encoding: str) -> None:
    async with deployed(call("refund", order="o1"), "Done.") as (client, stage, _):
        first = shown(await post(client, f"/desk/{encoding}", asked(encoding)))
        assert "tool-calls" in first[-1][1] or "interrupt" in first[-1][1]
        again = shown(await post(client, f"/desk/{encoding}", asked(encoding)))
        assert again == first and len(stage.held.starts) == 1, "a request that comes twice starts one run"
        last = shown(await post(client, f"/desk/{encoding}", answer(encoding)))
        assert "o1 is refunded." in str(last) and "Done." in str(last)
        assert len({part.run_id for part in stage.held.starts}) == 2
        for n, (name, _) in enumerate(last):
            found = await client.get(f"/desk/{encoding}/chat/stream", headers={**ANN, "last-event-id": name})
            lines = [line[6:] for line in found.text.splitlines() if line.startswith("data: {")]
            lines = [line for line in lines if "MESSAGES_SNAPSHOT" not in line]  # after the beginning of a run
            assert lines == [data for _, data in last[n + 1 :]]


@pytest.mark.parametrize("encoding", ["ai-sdk", "ag-ui"])
async def test_a_run_elsewhere_is_stopped(encoding: str) -> None:
    async with deployed("Never said.") as (client, stage, platform):
        platform.open.clear()
        running = asyncio.create_task(post(client, f"/desk/{encoding}", asked(encoding)))
        while not stage.held.starts:
            await asyncio.sleep(0.01)
        stopped = await client.delete(f"/desk/{encoding}/chat/stream", headers=ANN)
        assert stopped.json() == {"interrupted": True}
        platform.open.set()
        sent = shown(await running)
        assert "interrupted" in sent[-1][1] or "cancelled" in sent[-1][1]
        assert "Never said." not in str(sent)
