"""The same agents and the same model leave the same session and stream in this process and in the deployed app.

Each scenario plays in both runtimes, and both must leave consistent sessions. The result of the runtime is compared with
that of a second execution in this process: messages, checkpoints, state, run rows and chunks. See `parity_story` for what
is not compared.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.parity_scenarios import SCENARIOS
from tests.e2e.parity_stage import Stage, stage_of
from tests.e2e.parity_story import differences
from tests.support.cloud_agents.cast import changing
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.offline_cloud import CloudForTests, until


@pytest.mark.parametrize("runtime", ["local", "cloud"])
@pytest.mark.parametrize("name", SCENARIOS)
async def test_the_same_everywhere(name: str, runtime: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    await leaves_the_same(name, runtime, tmp_path, request)


async def leaves_the_same(
    name: str, runtime: str, tmp_path: Path, request: pytest.FixtureRequest, mark: str = ""
) -> None:
    """Play the scenario and compare the results. `mark` separates the sessions of one cloud."""
    stories = []
    for place, where in (("reference", "local"), (runtime, runtime)):
        session = f"ses_{name}_{place}{mark}"
        async with stage_of(where, tmp_path / place, request, session) as stage:
            await SCENARIOS[name](stage)
            stories.append(await stage.story())
            if stage.cloud is not None:
                await _was_executed(stage, stage.cloud)
    one, other = stories
    found = list(differences(one, other))
    assert not found, "\n".join([f"{len(found)} differences", *found[:40]])


async def _was_executed(stage: Stage, cloud: CloudForTests) -> None:
    """Check that Step Functions executed each run, so that the comparison is about the deployed app."""
    for run in (await stage.executor.sessions.list_runs(stage.session)).runs:
        profile = stage.agents[run.part_agent or run.agent_type].profile
        arn = cloud.cloud.machine(profile).replace(":stateMachine:", ":execution:")
        last = run.run_id if run.part == 1 else f"{run.run_id}__part-{run.part}"
        until(partial(_has_ended, cloud, f"{arn}:{last}"), f"end of the execution of {last}")


def _has_ended(cloud: CloudForTests, execution: str) -> bool:
    return cloud.describe(execution)["status"] in ("SUCCEEDED", "ABORTED")


async def test_an_edition_deployed_in_mid_run(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A run is data. Its next step runs the new code, and its row says that the agent has changed."""
    async with stage_of("cloud", tmp_path, request, "ses_edition") as stage:
        await stage.edition("1")
        steps = [use(call("edited")), use(call("wait", gate=stage.file("gate"))), use(call("edited")), say("Both.")]
        handle = await stage.begin("changing", plan(*steps), "gate")
        await stage.edition("2")
        stage.open("gate")
        assert (await stage.end(handle)).text == "Both."
        state = (await stage.executor.sessions.get(stage.session)).custom_state
        assert state["seen"] == ["edition 1", "edition 2"]
        run = await stage.executor.sessions.get_current_run(stage.session)
        assert run.fingerprint == changing("1").fingerprint()
        assert changing("2").fingerprint() in json.dumps(run.model_dump(mode="json"))
