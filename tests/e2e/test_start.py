"""Starts of the offline cloud: the fate of a run whose machine disappeared, and the requirements of a start."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.offline_cloud import CloudForTests, deployed, until

from helix.core.chunks import ToolStartChunk


@pytest.mark.timeout(240)
async def test_a_run_in_flight_fails_after_the_next_start_and_can_be_retried(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    asked = plan(use(call("look", topic="a")), use(call("wait", gate=str(gate))), say("Done."))
    with deployed(tmp_path / "state") as cloud:
        async with cloud.user("ada") as client:
            handle = await client.run("talker", asked)
            async for chunk in await handle.stream():
                if isinstance(chunk, ToolStartChunk) and chunk.tool_name == "wait":
                    break
    with deployed(tmp_path / "state") as cloud:
        async with cloud.user("ada") as client:
            until(lambda: swept(cloud), "sweep that finds it", patience_s=120)
            failed = await client.get_session(handle.session_id)
            assert failed.status == "failed", failed
            gate.touch()
            assert (await (await client.retry(handle.session_id)).result(90)).text == "Done."


def swept(cloud: CloudForTests) -> bool:
    """Return whether the sweep finds the run that lost its execution. The sweep ignores runs younger than 20 s."""
    before = len(cloud.log.of("sweep"))
    cloud.cloud.tick()
    said = until(lambda: cloud.log.of("sweep")[before:], "sweep")
    return "has ended without it" in "\n".join(said)
