"""The parity suite with inline tools only. One invocation of `call_model` takes as many steps as fit, or one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cloud_executor import configure
from tests.e2e.parity_scenarios import SCENARIOS
from tests.e2e.parity_stage import Stage, stage_of
from tests.e2e.test_parity import leaves_the_same
from tests.support.cloud_agents.cast import INLINE
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.offline_cloud import CloudForTests

from helix.runtime.cloud_settings import variable

STEPS_PER_INVOCATION = variable("steps_per_invocation")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", params=[0, 1], ids=["many_steps", "one_step"])
def steps(cloud: CloudForTests, request: pytest.FixtureRequest) -> Iterator[int]:
    """The maximum number of steps per invocation, where 0 means as many as fit. All tools of all agents are inline in the
    meantime."""
    configure(cloud, "call_model", variables={INLINE: "1", STEPS_PER_INVOCATION: str(request.param)})
    yield request.param
    configure(cloud, "call_model", variables={INLINE: "", STEPS_PER_INVOCATION: "0"})


@pytest.mark.parametrize("name", SCENARIOS)
async def test_the_same_with_inline_tools(
    name: str, steps: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    await leaves_the_same(name, "cloud", tmp_path, request, mark=f"_{steps}")


def invocations(stage: Stage, run_id: str) -> int:
    """Return how many times `call_model` was invoked for the run's first part."""
    assert stage.cloud is not None
    arn = stage.cloud.cloud.machine().replace(":stateMachine:", ":execution:")
    entered = stage.cloud.transitions(f"{arn}:{run_id}")
    assert not {"CallTool", "Calls"} & set(entered), entered
    return entered.count("CallModel")


async def test_how_many_steps_an_invocation_takes(steps: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    async with stage_of("cloud", tmp_path, request, f"ses_steps_{steps}") as stage:
        done = [use(call("look", topic="a"), call("add", amount=1), call("note", key="k", text="v")), use(call("boom"))]
        result = await stage.run("talker", plan(*done, say("Done.")))
        assert (result.status, result.steps) == ("completed", 3)
        # If an invocation takes one step, the next invocation folds the results of its calls.
        assert invocations(stage, result.run_id) == (1 if steps == 0 else 3)


async def test_an_edition_deployed_in_mid_run(steps: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """An invocation runs the code that it started with. The next invocation runs the code that is deployed by then."""
    async with stage_of("cloud", tmp_path, request, f"ses_edition_{steps}") as stage:
        await stage.edition("1")
        gate = use(call("wait", gate=stage.file("gate")))
        message = plan(
            use(call("edited")), gate, use(call("edited")), use(call("gated", topic="x")), use(call("edited"))
        )
        handle = await stage.begin("changing", message, "gate")
        await stage.edition("2")
        stage.open("gate")
        result = await stage.end(handle)
        assert result.status == "paused"
        assert (await stage.answer("changing", result.pending[0])).status == "completed"
        seen = (await stage.executor.sessions.get(stage.session)).custom_state["seen"]
        between = "edition 1" if steps == 0 else "edition 2"
        assert seen == ["edition 1", between, "gated x", "edition 2"]
