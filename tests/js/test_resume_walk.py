"""Unmodified `useChat` 7 and 6, resumed at random moments before and after the end of a run, receive the exact parts.

HELIX_EXAMPLES=200 HELIX_SEED=7 .venv/bin/python -m pytest -n0 -m "" tests/js/test_resume_walk.py
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from tests.support.asgi_server import serving
from tests.support.cloud_agents.cast import helper
from tests.support.cloud_agents.planned import PlannedModel
from tests.support.cloud_agents.tools import Notes, gated, look
from tests.support.front_ends import JS, install

import helix.http
from helix import Agent, LLMConfig, LocalExecutor, MemoryStateStore, create_sub_agent_tool
from helix.core.steps import AnyStepResult
from helix.ports.model import LLMGenerateInput

pytestmark = pytest.mark.slow
WALKS = int(os.environ.get("HELIX_EXAMPLES") or 14)
SEED = os.environ.get("HELIX_SEED") or "1"
WORD_S = 0.04
"""The pause between two deltas. A run is long enough that a page can resume before its end, so the test waits for real
time."""


class PacedModel(PlannedModel):
    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        given = request.callbacks.on_text_delta

        async def paced(delta: str) -> None:
            await asyncio.sleep(WORD_S)
            found = given(delta) if given is not None else None
            if found is not None:
                await found

        return await super().generate_step(replace(request, callbacks=replace(request.callbacks, on_text_delta=paced)))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", ["7", "6"])
async def test_pages_that_resume_at_any_moment_have_the_exact_parts(version: str) -> None:
    await asyncio.to_thread(install)
    agent = Agent(
        name="boss",
        system_prompt="Help.",
        tools=[look, gated, create_sub_agent_tool(helper)],
        state_schema=Notes,
        llm_config=LLMConfig(model="planned"),
    )
    async with LocalExecutor(MemoryStateStore(), model=PacedModel()) as executor:

        async def status(request: Request) -> JSONResponse:
            state = await executor.sessions.get(request.path_params["session_id"])
            return JSONResponse({"status": state.status})

        app = Starlette(
            routes=[Route("/status/{session_id}", status), Mount("/", helix.http.app(executor, [agent], heartbeat_s=1))]
        )
        async with serving(app) as url:
            node = await asyncio.create_subprocess_exec(
                *(JS / "node_modules/.bin/node", JS / "resume.mjs", url, version, str(WALKS), SEED),
                stdout=asyncio.subprocess.PIPE,
            )
            found: dict[str, Any] = json.loads((await node.communicate())[0])
    print({name: number for name, number in found.items() if name != "problems"})
    assert found["problems"] == []
    assert found["walks"] == WALKS and found["before"] > 0 and found["after"] > 0
