"""`govern` judges health each minute: the model calls of each agent and the number of failing checks, on moto."""

from __future__ import annotations

import json
import logging
from typing import Any

import boto3
import pytest
from tests.functions.conftest import ACCOUNT, MACHINE, Functions
from tests.support_run import agent

from helix.core.errors import StoreError
from helix.core.health import CheckType, HealthCheck, HealthResult, HealthStatus
from helix.fleet.health import HealthChecker
from helix.fleet.llm_health import FRESH_S

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
ROOMY = agent("roomy", resources={"min": 1, "max": 4})
FREE = agent("free")
QUESTION = "provide-client-params.cloudwatch.GetMetricData"


@pytest.fixture
def fleet(functions: Functions) -> Functions:
    """Two agents: `roomy` may run one at a time, and `free` has no limit."""
    logging.root.manager.loggerDict.pop("govern", None)
    definition = json.dumps({"StartAt": "Done", "States": {"Done": {"Type": "Succeed"}}})
    boto3.client("stepfunctions").create_state_machine(
        name=MACHINE.replace("default", "roomy").rpartition(":")[2],
        definition=definition,
        roleArn=f"arn:aws:iam::{ACCOUNT}:role/machine",
    )
    functions.play(["Done."], ROOMY, FREE)
    functions.app.run(functions.slots.set_limit("roomy", 1))
    return functions


def come(fleet: Functions, name: str, runs: int = 1) -> None:
    who = {"roomy": ROOMY, "free": FREE}[name]
    for n in range(runs):
        fleet.app.run(fleet.app.executor.execute(who, "go", session_id=f"{name}{n}", run_id=f"run_{name}_{n}"))


def call(name: str, **values: float) -> None:
    """Record metrics of the agent's calls in CloudWatch."""
    dimensions = [{"Name": "stage", "Value": "dev"}, {"Name": "agent", "Value": name}]
    data: Any = [{"MetricName": what, "Dimensions": dimensions, "Value": value} for what, value in values.items()]
    boto3.client("cloudwatch").put_metric_data(Namespace="Helix", MetricData=data)


def minute(fleet: Functions) -> Any:
    return fleet.invoke("govern", fleet.sample("govern"))


def checker(fleet: Functions) -> HealthChecker:
    return HealthChecker(fleet.app.store, clock=fleet.app.clock)


def kept(fleet: Functions, name: str) -> list[HealthResult]:
    return fleet.app.run(checker(fleet).results(name))


def counted(fleet: Functions) -> list[tuple[str | None, int]]:
    """Return the (agent, number) pairs of unhealthy checks that were recorded since the last call."""
    told = [(line.get("agent"), line["UnhealthyChecks"]) for line in fleet.measures() if "UnhealthyChecks" in line]
    fleet.measures().clear()
    return told


def refuse(**_: Any) -> Any:
    raise StoreError("no metrics now")


def fail(fleet: Functions, target: str, kind: CheckType, times: int = 1) -> None:
    """Let a check of the target fail this many times. Two failures make it unhealthy."""
    asks = checker(fleet)
    check = HealthCheck(name="disk", check_type=kind, check_fn=lambda: (False, "full"), failure_threshold=2)
    fleet.app.run(asks.register_check(target, check))
    for _ in range(times):
        fleet.app.run(asks.check_health(target, run=True))


@pytest.mark.parametrize("name", ["roomy", "free"])
def test_the_minute_judges_how_an_agents_model_calls_do(fleet: Functions, name: str) -> None:
    """Agents without a limit are judged too."""
    come(fleet, name)
    call(name, ModelCalls=3, TotalTokens=0)
    minute(fleet)
    [result] = kept(fleet, name)
    assert (result.check, result.status, result.message) == ("llm", "unhealthy", "3 requests and no tokens")
    minute(fleet)
    assert counted(fleet) == [], "its figures have separate alarms"


def test_a_run_without_a_limit_uses_nothing_up(fleet: Functions) -> None:
    come(fleet, "free")
    call("free", ModelCalls=1, TotalTokens=9)
    minute(fleet)
    assert [result.status for result in kept(fleet, "free")] == ["healthy"]


def test_who_has_been_quiet_is_well_again(fleet: Functions) -> None:
    come(fleet, "free")
    call("free", ModelCalls=3, TotalTokens=0)
    minute(fleet)
    assert [result.status for result in kept(fleet, "free")] == ["unhealthy"]
    fleet.clock.ahead_s += 7200
    minute(fleet)
    assert [result.status for result in kept(fleet, "free")] == ["healthy"]


def test_a_run_that_has_ended_before_the_minute_counts(fleet: Functions) -> None:
    event = {"session_id": "s1", "run_id": "run_1", "step": 1, "part": 1, "events": 0}
    fleet.claim(FREE, event)
    fleet.invoke("call_model", event)
    fleet.invoke("finish_run", event)
    call("free", ModelCalls=1, TotalTokens=10)
    minute(fleet)
    assert [(result.check, result.status) for result in kept(fleet, "free")] == [("llm", "healthy")]


def test_an_agent_that_rests_costs_no_question_and_one_at_work_costs_one(fleet: Functions) -> None:
    asked: list[Any] = []
    fleet.app._session.register(QUESTION, lambda params, **_: asked.append(params))
    call("roomy", ModelCalls=1)
    minute(fleet)
    assert asked == [] and kept(fleet, "roomy") == []
    come(fleet, "roomy", 7)
    assert minute(fleet) == {"up": 1}
    numbers, cost = asked
    assert len(numbers["MetricDataQueries"]) > 1, "decisions, health and warnings use the same numbers"
    assert [q["Id"] for q in cost["MetricDataQueries"]] == ["cost"], "of the last hour"


def test_an_answer_of_cloudwatch_holds_for_five_minutes(fleet: Functions) -> None:
    """The response is reused for as long as the window that is judged. An alarm asks again."""
    asked: list[Any] = []
    fleet.app._session.register(QUESTION, lambda params, **_: asked.append(len(params["MetricDataQueries"])))
    come(fleet, "roomy", 3)
    for _ in range(10):
        minute(fleet)
        fleet.clock.ahead_s += 60
    assert asked == [8, 1, 8, 1], "its calls, and the cost of all agents in an hour"
    fleet.invoke("govern", fleet.sample("govern_alarm"))
    assert asked == [8, 1, 8, 1, 8]


def test_what_cannot_be_judged_is_an_error_after_all_else_is_told(fleet: Functions) -> None:
    come(fleet, "free")
    fleet.app._session.register(QUESTION, refuse)
    with pytest.raises(StoreError, match="1 evaluations failed"):
        minute(fleet)
    assert [line["RunsActive"] for line in fleet.measures() if line.get("agent") == "free" and "RunsActive" in line]


@pytest.mark.parametrize("kind", list(CheckType))
def test_checks_that_say_no_are_counted_for_their_agent_and_for_all(fleet: Functions, kind: CheckType) -> None:
    minute(fleet)
    assert counted(fleet) == [], "no check is registered"
    fail(fleet, "roomy", kind)
    minute(fleet)
    assert counted(fleet) == [("roomy", 0), (None, 0)], "one failure is no outage"
    fail(fleet, "roomy", kind)
    fail(fleet, "database", kind, times=2)
    minute(fleet)
    assert counted(fleet) == [("roomy", 1), (None, 2)]


def test_a_check_that_nobody_asks_any_more_is_silent(fleet: Functions) -> None:
    fail(fleet, "roomy", CheckType.LIVENESS, times=2)
    assert [result.status for result in kept(fleet, "roomy")] == [HealthStatus.UNHEALTHY]
    fleet.clock.ahead_s += FRESH_S + 60
    minute(fleet)
    assert counted(fleet) == [], "an unchanged metric would be billed"
