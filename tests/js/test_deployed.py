"""The TypeScript client against the deployed app, offline: the same functions, tables and sockets as in the cloud."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.offline_cloud import CloudForTests

pytestmark = pytest.mark.slow


async def test_a_run_an_approval_and_a_long_question(cloud: CloudForTests, typescript: Any) -> None:
    """Both clients receive the same messages of a run."""
    gated = plan(use(call("gated", topic="x"), text="May I?"), say("Allowed."))
    long = plan(use(call("look", topic="great " * 10_000)), say("Long."))
    made = [
        ["run", "talker", gated],
        ["result@0"],
        ["answer@0", "call_0"],  # 2
        ["result@2"],
        ["stream@0"],  # 4
        ["run", "talker", long],  # 5
        ["result@5"],
        ["stream@5"],  # 7
        ["getSession", "nobody:none"],
    ]
    answer = await typescript("calls", url=cloud.url, token=cloud.key("script"), calls=made)
    found = answer["results"]
    assert (found[1]["status"], found[3]["text"], found[6]["text"]) == ("paused", "Allowed.", "Long.")
    assert found[8]["error"]["code"] == "session_not_found"
    async with cloud.user("script") as client:
        for run, stream in ((found[0], found[4]), (found[5], found[7])):
            handle = await client.handle(run["session_id"], run["run_id"])
            assert stream == [chunk.model_dump(mode="json") async for chunk in await handle.stream()]
