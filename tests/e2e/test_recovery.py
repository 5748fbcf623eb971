"""A function's process is killed during its work, and the run continues within the length of a claim plus a pause.

Nothing is configured for the test: claims have the deployed length, and retries pause as long as on AWS.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.offline_cloud import CloudForTests, until

from helix.client import HelixClient
from helix.engine.engine import Settings
from helix.infra.definition import definition

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CLAIM_S = 30.0
SLACK_S = 15.0
"""Time for a worker's cold start and the rest of the run, on a busy machine."""
PATIENCE_S = 120.0
TOOLS = {"again": "completed", "once": "completed", "care": "paused"}
"""The tools, each of which dies at its first attempt, and the run's status by its policy: retry, skip, ask."""


def longest_pause_s() -> float:
    """Return the longest pause between two deliveries of a call on which another delivery may still work."""
    rule = definition(run_s=1, child_s=1)["States"]["CallModel"]["Retry"][0]
    assert rule["ErrorEquals"] == ["WorkInProgressError"]
    return float(rule["MaxDelaySeconds"])


AT_MOST_S = CLAIM_S + longest_pause_s() + SLACK_S


@asynccontextmanager
async def measured(what: str) -> AsyncIterator[None]:
    """Measure the time that the run takes after its worker's death."""
    clock = asyncio.get_running_loop().time
    begun = clock()
    yield
    took = clock() - begun
    print(f"\n{what}: {took:.1f} s")
    assert took < AT_MOST_S, what


def test_claims_are_as_long_as_they_are() -> None:
    assert Settings().claim_s == CLAIM_S


async def test_killed_in_a_model_call(unhurried: CloudForTests, tmp_path: Path) -> None:
    """The worker dies in the second step of its invocation. The first step is not repeated."""
    gate = tmp_path / "gate"
    async with unhurried.user("model") as client:
        message = plan(use(call("count", amount=1)), say("All of it, after all.", gate=str(gate)))
        handle = await client.run("swift", message)
        await asyncio.to_thread(until, Path(f"{gate}.entered").exists, "a model call")
        assert unhurried.cloud.kill_worker("call_model") == 1
        gate.touch()
        async with measured("in a model call"):
            result = await handle.result(PATIENCE_S)
        assert (result.status, result.text, result.steps) == ("completed", "All of it, after all.", 2)
        assert (await client.get_session(handle.session_id)).custom_state["total"] == 1


@pytest.mark.parametrize("agent", ["talker", "swift"])
async def test_killed_in_a_tool(agent: str, unhurried: CloudForTests, tmp_path: Path) -> None:
    """`talker`'s tools have deliveries of their own; `swift`'s are executed by the worker that asked the model."""
    async with unhurried.user("tools") as client:
        handles = [await _begun(client, agent, name, tmp_path / name) for name in TOOLS]
        results = await asyncio.gather(*(_ended(agent, name, h, tmp_path / name) for name, h in handles))
        assert dict(zip(TOOLS, (result.status for result in results), strict=True)) == TOOLS
        content = {name: await _content(client, handle.session_id) for name, handle in handles}
        assert content["again"] == "done at last"
        assert "unknown" in content["once"]
        (pending,) = (await client.get_session(handles[-1][1].session_id)).pending
        assert pending.kind == "unknown"


async def _begun(client: HelixClient, agent: str, name: str, mark: Path) -> tuple[str, Any]:
    return name, await client.run(agent, plan(use(call(name, mark=str(mark))), say("Over.")))


async def _ended(agent: str, name: str, handle: Any, mark: Path) -> Any:
    await asyncio.to_thread(until, mark.exists, f"death in {name}")
    async with measured(f"in the tool {name!r} of {agent}"):
        return await handle.result(PATIENCE_S)


async def _content(client: HelixClient, session_id: str) -> str:
    """Return the content of the call's result, or an empty text."""
    told: dict[str, Any] = await client.get_messages(session_id)
    return " ".join(str(message["content"]) for message in told["messages"] if message["role"] == "tool")
