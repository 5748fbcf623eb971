"""The deployed functions under moto's Step Functions interpreter instead of MiniStack's: the same definition, other code.

The interpreter runs in its own process. It invokes the stage's functions, whose Step Functions clients point to it.
docs/guide/offline.md#emulators lists where the interpreters disagree.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cloud_executor import AdminApplication, configure, variables_of
from tests.support.aws_servers import MotoServer
from tests.support.cloud_agents.plans import ask, call, finish, plan, say, use
from tests.support.cloud_agents.tools import Answer
from tests.support.offline_cloud import CloudForTests, until

from helix.local.cloud import REGION
from helix.local.emulator import ACCOUNT
from helix.testing.invariants import check_session

STARTERS = ("call_model", "start_run", "finish_run", "fail_run", "sweep")
"""The functions that call Step Functions."""
ENDPOINT = "AWS_ENDPOINT_URL_SFN"
UNSEEN = {
    "TaskStarted": 7,
    "MapStateStarted": 1,
    "MapIterationStarted": 2,
    "MapIterationSucceeded": 2,
    "MapStateSucceeded": 1,
}
BEGUN = 2
"""The history events for the execution's start and for entering a state."""
ROLE = f"arn:aws:iam::{ACCOUNT}:role/machine"


class Moto(AdminApplication):
    """The administrator's application, with moto's Step Functions."""

    def __init__(self, cloud: CloudForTests, server: MotoServer, refusals: Path) -> None:
        super().__init__(cloud)
        self.cloud, self._refusals = cloud, refusals
        self.states = server.client("stepfunctions", region_name=REGION)

    def client(self, service: str, *, endpoint: str | None = None, config: Any = None) -> Any:
        return self.states if service == "stepfunctions" else super().client(service, endpoint=endpoint, config=config)

    def refuse(self, verb: str, code: str, times: int) -> None:
        """Let Lambda answer the next `times` invocations of that function with that error."""
        for number in range(times):
            (self._refusals / f"{self.cloud.cloud.function(verb)}~{code}~{number}").touch()

    async def begin(self, agent: str, message: str, session: str) -> Any:
        """Start a run, and return its handle."""
        return await self.executor.execute(self.executor.agents.named(agent), message, session_id=session)

    def history(self, run_id: str, status: str = "SUCCEEDED") -> list[dict[str, Any]]:
        """Return the events of the run's execution, once it has that status."""
        arn = f"{self.cloud.cloud.machine().replace(':stateMachine:', ':execution:')}:{run_id}"

        def ended() -> bool:
            found = self.states.describe_execution(executionArn=arn)["status"]
            assert found in ("RUNNING", status), found
            return bool(found == status)

        until(ended, f"{status} of the execution")
        return list(self.states.get_execution_history(executionArn=arn, maxResults=1000)["events"])


@pytest.fixture(scope="module")
def moto(cloud: CloudForTests, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    folder, refusals = tmp_path_factory.mktemp("moto"), tmp_path_factory.mktemp("refusals")
    keys = cloud.cloud.emulator.credentials.variables
    functions = {
        "LAMBDA_URL": cloud.cloud.emulator.url,
        "LAMBDA_KEY": keys["AWS_ACCESS_KEY_ID"],
        "LAMBDA_SECRET": keys["AWS_SECRET_ACCESS_KEY"],
        "REFUSALS": str(refusals),
        "MOTO_ACCOUNT_ID": ACCOUNT,
    }
    before = {verb: variables_of(cloud, verb) for verb in STARTERS}
    with MotoServer(folder, functions) as server:
        made = Moto(cloud, server, refusals)
        deployed = cloud.aws("stepfunctions").describe_state_machine(stateMachineArn=cloud.cloud.machine())
        machine = {name: deployed[name] for name in ("name", "definition")}
        arn = made.states.create_state_machine(**machine, roleArn=ROLE)["stateMachineArn"]
        assert arn == cloud.cloud.machine()
        for verb in STARTERS:
            configure(cloud, verb, variables={ENDPOINT: server.url})
        yield made
        for verb, variables in before.items():
            configure(cloud, verb, Environment={"Variables": variables})


def entered(history: list[dict[str, Any]]) -> list[str]:
    return [event["stateEnteredEventDetails"]["name"] for event in history if "stateEnteredEventDetails" in event]


async def test_a_run_with_a_tool(moto: Moto) -> None:
    handle = await moto.begin("talker", plan(use(call("add", amount=2)), say("Two.")), "ses_moto_tool")
    result = await handle.result(timeout_s=60)
    assert (result.status, result.text) == ("completed", "Two.")
    history = moto.history(handle.run_id)
    assert entered(history) == ["CallModel", "Route", "CallTool", "CallModel", "Route", "FinishRun"]
    assert (await moto.executor.sessions.get("ses_moto_tool")).custom_state["total"] == 2
    assert moto.cloud.executions("ses_moto_tool") == [], "MiniStack's Step Functions had no part in it"
    await check_session(moto.executor.store, moto.executor.streams, "ses_moto_tool", at_rest=True)


async def test_calls_of_a_map_run_at_the_same_time(moto: Moto, tmp_path: Path) -> None:
    gates = [tmp_path / f"gate{n}" for n in range(3)]
    steps = use(*(call("wait", gate=str(gate)) for gate in gates)), say("All three.")
    handle = await moto.begin("talker", plan(*steps), "ses_moto_map")
    until(lambda: all(Path(f"{gate}.entered").exists() for gate in gates), "three calls at once")
    for gate in gates:
        gate.touch()
    assert (await handle.result(timeout_s=60)).text == "All three."
    history = moto.history(handle.run_id)
    counted = Counter(event["type"] for event in history)
    assert counted["MapIterationSucceeded"] == 3 and counted["MapStateEntered"] == 1
    assert Counter(entered(history))["CallOneTool"] == 3


async def test_a_sub_agent_answers_its_token(moto: Moto) -> None:
    child = plan(finish(summary="It is.", sources=[]))
    handle = await moto.begin(
        "boss", plan(use(ask("helper", child)), finish(summary="So it is.", sources=[])), "ses_moto_child"
    )
    result = await handle.result(timeout_s=60)
    assert result.status == "completed" and result.output == Answer(summary="So it is.")
    assert "StartRun" in entered(moto.history(handle.run_id))


async def test_a_throttled_call_is_retried(moto: Moto) -> None:
    moto.refuse("call_tool", "TooManyRequestsException", 2)
    handle = await moto.begin("talker", plan(use(call("add", amount=1)), say("One.")), "ses_moto_throttled")
    assert (await handle.result(timeout_s=60)).text == "One."
    history = moto.history(handle.run_id)
    failed = [event["taskFailedEventDetails"]["error"] for event in history if event["type"] == "TaskFailed"]
    assert failed == ["Lambda.TooManyRequestsException"] * 2
    assert (await moto.executor.sessions.get("ses_moto_throttled")).custom_state["total"] == 1


async def test_a_final_error_fails_the_run_which_can_be_retried(moto: Moto) -> None:
    moto.refuse("call_tool", "ResourceNotFoundException", 1)
    handle = await moto.begin("talker", plan(use(call("add", amount=1)), say("One.")), "ses_moto_final")
    result = await handle.result(timeout_s=60)
    assert (result.status, result.error_code) == ("failed", "runtime_crash")
    assert "Lambda.ResourceNotFoundException" in result.error
    history = moto.history(handle.run_id, "FAILED")
    assert entered(history) == ["CallModel", "Route", "CallTool", "FailRun", "Failed"]
    again = await (await moto.executor.get_handle(moto.executor.agents.named("talker"), "ses_moto_final")).retry()
    assert (await again.result(timeout_s=60)).text == "One."


async def test_both_histories_have_the_same_states(moto: Moto) -> None:
    """The stage's users play the same plan on MiniStack's interpreter. Its histories lack the events in `UNSEEN`."""
    steps = plan(use(call("add", amount=1)), use(call("add", amount=2), call("add", amount=3)), say("Six."))
    handle = await moto.begin("talker", steps, "ses_moto_same")
    await handle.result(timeout_s=60)
    async with moto.cloud.user("ministack") as client:
        other = await client.run("talker", steps)
        await other.result(60)
    (execution,) = until(lambda: moto.cloud.executions(other.session_id, status="SUCCEEDED"), "end of the execution")
    ministack, second = moto.cloud.history(execution["executionArn"]), moto.history(handle.run_id)
    assert entered(ministack) == entered(second)
    counts = [Counter(event["type"] for event in events) for events in (ministack, second)]
    assert counts[1] - counts[0] == UNSEEN and not counts[0] - counts[1]
    for event in second:  # the counter in the payload is never below the number of events
        if event.get("stateEnteredEventDetails", {}).get("name") == "CallModel":
            assert json.loads(event["stateEnteredEventDetails"]["input"])["events"] >= event["id"] - BEGUN
