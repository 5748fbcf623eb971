"""The `govern` function on moto, invoked with CloudWatch alarms from SNS and with events of the schedule (`events/`)."""

from __future__ import annotations

import dataclasses
import json
import logging
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from tests.functions.conftest import ACCOUNT, MACHINE, REGION, Functions
from tests.support.alerts import raise_alert
from tests.support_run import agent

from helix.core.budget import BudgetDefinition
from helix.core.errors import StoreError
from helix.core.periods import TokenPeriod
from helix.fleet.alerts import unpublished_alerts
from helix.fleet.control import FleetControl
from helix.fleet.decisions import DecisionLog
from helix.fleet.deployed import DeployedRuntime
from helix.fleet.lambdas import alarm_key
from helix.services.activity import LOOK_S, REST_S, note_activity, note_sweep
from helix.services.budget_rows import Demand
from helix.services.row_budgets import RowBudgets

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
ROOMY = agent("roomy", resources={"min": 1, "max": 4})
OWN_MACHINE = MACHINE.replace("default", "roomy")


@pytest.fixture
def fleet(functions: Functions) -> Functions:
    """The deployed agent `roomy`, which has a state machine of its own and a limit of one run."""
    logging.root.manager.loggerDict.pop("govern", None)
    definition = json.dumps({"StartAt": "Done", "States": {"Done": {"Type": "Succeed"}}})
    boto3.client("stepfunctions").create_state_machine(
        name="helix-test-roomy", definition=definition, roleArn=f"arn:aws:iam::{ACCOUNT}:role/machine"
    )
    functions.play([], ROOMY)
    functions.app.run(functions.slots.set_limit("roomy", 1))
    return functions


def come(fleet: Functions, runs: int) -> list[str]:
    """Start this many runs, one after the other, and return their ids."""
    ids = [f"run_{n:02d}" for n in range(runs)]
    for n, run_id in enumerate(ids):
        fleet.app.run(fleet.app.executor.execute(ROOMY, "go", session_id=f"s{n:02d}", run_id=run_id))
    return ids


def bound(fleet: Functions) -> int | None:
    counters = fleet.app.run(fleet.slots.counters())
    return counters["roomy"].bound


def started() -> list[str]:
    """Return the executions of the agent's own state machine in the order of their start."""
    listed = boto3.client("stepfunctions").list_executions(stateMachineArn=OWN_MACHINE)["executions"]
    return [one["name"] for one in sorted(listed, key=lambda one: one["startDate"])]


def history(fleet: Functions) -> list[Any]:
    app = fleet.app
    return app.run(DecisionLog(app.store, app.clock, app.ids).history("roomy"))


def message(fleet: Functions, **changes: Any) -> dict[str, Any]:
    """Return the sample alarm with another message id, name, state or dimensions."""
    event = fleet.sample("govern_alarm")
    sns = event["Records"][0]["Sns"]
    alarm = json.loads(sns["Message"])
    sns["MessageId"] = changes.get("id", sns["MessageId"])
    alarm["AlarmName"] = changes.get("name", alarm["AlarmName"])
    alarm["NewStateValue"] = changes.get("state", alarm["NewStateValue"])
    if "dimensions" in changes:
        alarm["Trigger"]["Dimensions"] = changes["dimensions"]
    sns["Message"] = changes.get("text", json.dumps(alarm))
    return event


def test_an_alarm_about_a_queue_raises_the_limit_and_the_first_in_line_begins(fleet: Functions) -> None:
    ids = come(fleet, 7)
    assert started() == ids[:1]
    assert fleet.invoke("govern", fleet.sample("govern_alarm")) == {"up": 1}
    assert bound(fleet) == 2 and started() == ids[:2]
    [row] = history(fleet)
    assert (row.before, row.after, row.applied, row.trigger) == (1, 2, True, "queue-depth-roomy")
    decisions = [line for line in fleet.measures() if "ScalingDecisions" in line]
    assert [(line["agent"], line["ScalingDecisions"]) for line in decisions] == [("roomy", 1)]


def test_a_message_that_comes_again_changes_nothing(fleet: Functions) -> None:
    come(fleet, 7)
    fleet.invoke("govern", fleet.sample("govern_alarm"))
    assert fleet.invoke("govern", fleet.sample("govern_alarm")) == {"seen before": 1}
    assert bound(fleet) == 2
    assert fleet.invoke("govern", message(fleet, id="another")) == {"unsettled": 1}


def test_an_alarm_is_recorded_when_it_arrives(fleet: Functions) -> None:
    """`helix check --stage` waits for this record, so it is written even if there is nothing to do or to log."""
    key = alarm_key("helix-test-govern-fails")
    for id_ in ("one", "two"):
        fleet.invoke("govern", message(fleet, id=id_, name="helix-test-govern-fails"))
        assert fleet.app.run(fleet.app.store.get([key])) == [{"message": id_}]
    fleet.invoke("govern", fleet.sample("govern"))
    assert fleet.app.run(fleet.app.store.get([key])) == [{"message": "two"}]


def test_an_alarm_that_is_over_starts_no_look_and_is_not_recorded(fleet: Functions) -> None:
    """`helix check --stage` waits only for the alarm that it set."""
    come(fleet, 7)
    assert fleet.invoke("govern", message(fleet, state="OK", name="helix-test-govern-fails")) == {}
    assert bound(fleet) == 1 and not history(fleet)
    assert fleet.app.run(fleet.app.store.get([alarm_key("helix-test-govern-fails")])) == [None]
    assert fleet.invoke("govern", message(fleet, name="helix-test-govern-fails")) == {"up": 1}


@pytest.mark.parametrize("spelling", [("name", "value"), ("Name", "Value")])
def test_dimensions_say_whom_it_is_about(fleet: Functions, spelling: tuple[str, str]) -> None:
    come(fleet, 7)
    name, value = spelling
    stage, other = {name: "stage", value: "dev"}, {name: "agent", value: "other"}
    assert fleet.invoke("govern", message(fleet, dimensions=[stage, other])) == {}
    assert fleet.invoke("govern", message(fleet, dimensions=[{name: "stage", value: "prod"}])) == {}
    assert bound(fleet) == 1
    assert fleet.invoke("govern", message(fleet, dimensions=[stage])) == {"up": 1}, "no agent: all of them"


def test_dimensions_of_an_expression_count_too(fleet: Functions) -> None:
    come(fleet, 7)
    dimensions = [{"name": "stage", "value": "dev"}, {"name": "agent", "value": "other"}]
    metric = {"Id": "m", "MetricStat": {"Metric": {"MetricName": "CostUsd", "Dimensions": dimensions}}}
    text = json.dumps({"AlarmName": "helix-dev-cost", "Trigger": {"Metrics": [metric, {"Id": "e", "Expression": "m"}]}})
    assert fleet.invoke("govern", message(fleet, text=text)) == {}
    assert fleet.invoke("govern", message(fleet, text=json.dumps({"AlarmName": "composite"}))) == {"up": 1}


@pytest.mark.parametrize("text", ["", "Hello", "[]", '{"budget": 1}', '{"AlarmName": null}'])
def test_what_is_no_alarm_is_ignored(fleet: Functions, text: str) -> None:
    come(fleet, 7)
    assert fleet.invoke("govern", message(fleet, text=text)) == {}
    assert bound(fleet) == 1


def test_the_schedule_tells_the_gauges_of_each_agent_and_of_all(fleet: Functions) -> None:
    app = fleet.app
    come(fleet, 4)
    budget = BudgetDefinition(scope="agent:roomy", period=TokenPeriod.DAILY, unit="micros", limit=1_000_000)
    app.run(RowBudgets(app.store).define(budget, app.clock.now()))
    resting = budget.model_copy(update={"scope": "agent:resting"})
    app.run(RowBudgets(app.store).define(resting, app.clock.now()))
    fleet.measures().clear()
    fleet.invoke("govern", fleet.sample("govern"))
    assert [line["BudgetUtilization"] for line in fleet.measures() if line.get("agent") == "resting"] == [0]
    told = [line for line in fleet.measures() if "QueueDepth" in line]
    wanted = {"QueueDepth": 3, "RunsActive": 1, "ConcurrencyLimit": 1, "BudgetUtilization": 0}
    assert [line.get("agent") for line in told] == ["roomy", None]
    for line in told:
        assert {name: line[name] for name in wanted} == wanted


def test_a_stage_at_rest_records_no_metric(fleet: Functions) -> None:
    """CloudWatch bills a metric for each hour in which it arrives. Limits and budgets do not change while nothing runs."""
    app = fleet.app
    app.run(note_activity(app.store, app.clock.now()))
    budget = BudgetDefinition(scope="agent:roomy", period=TokenPeriod.DAILY, unit="micros", limit=1_000_000)
    app.run(RowBudgets(app.store).define(budget, app.clock.now()))
    for verb in ("sweep", "govern"):
        fleet.measures().clear()
        fleet.invoke(verb, fleet.sample(verb))
        assert fleet.measures() == []


def test_the_minute_starts_the_sweep_until_the_stage_rests(fleet: Functions) -> None:
    """Sweeps run each minute until nothing is open and no function has worked for two hours. After that they run each
    hour."""
    sweep, minute, app = fleet.sample("sweep"), fleet.sample("govern"), fleet.app

    def begins_a_sweep() -> bool:
        fleet.begun.clear()
        fleet.invoke("govern", minute)
        return fleet.begun == ["helix-dev-sweep:live"]

    assert begins_a_sweep(), "the first"
    app.run(note_activity(app.store, app.clock.now()))
    fleet.clock.ahead_s += REST_S - 60
    fleet.invoke("sweep", sweep)
    assert begins_a_sweep()
    fleet.clock.ahead_s += 120
    assert not begins_a_sweep()
    fleet.clock.ahead_s += LOOK_S
    assert begins_a_sweep(), "the entry that a lost write hides"
    fleet.invoke("sweep", sweep)
    assert not begins_a_sweep()
    come(fleet, 1)
    fleet.measures().clear()
    assert begins_a_sweep() and not [line for line in fleet.measures() if "Failures" in line], "no sweep was due before"
    fleet.clock.ahead_s += REST_S + LOOK_S
    fleet.invoke("sweep", sweep)
    assert begins_a_sweep(), "the run is still open"


def test_the_sweep_begins_whatever_breaks_the_look(fleet: Functions, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no look")

    monkeypatch.setattr("helix.fleet.lambdas._governor", broken)
    with pytest.raises(RuntimeError):
        fleet.invoke("govern", fleet.sample("govern"))
    assert fleet.begun == ["helix-dev-sweep:live"]


def test_a_sweep_that_cannot_be_started_fails_the_minute(fleet: Functions) -> None:
    denied = {"Error": {"Code": "TooManyRequestsException", "Message": "Rate exceeded"}}
    fleet.app.client("lambda").meta.events.register_first(
        "before-call.lambda.Invoke", lambda **_: (SimpleNamespace(status_code=429, headers={}, raw=b""), denied)
    )
    with pytest.raises(StoreError, match="1 evaluations failed"):
        fleet.invoke("govern", fleet.sample("govern"))
    assert "starting the sweep" in str(fleet.lines())


def test_thresholds_of_the_stage_are_one_metric_whose_line_names_them(fleet: Functions) -> None:
    app = fleet.app
    app.run(note_sweep(app.store, app.clock.now(), found=True))
    come(fleet, 4)
    object.__setattr__(app.settings, "thresholds", json.dumps({"alarm_queue_depth": 3}))
    data: Any = [{"MetricName": "CostUsd", "Dimensions": [{"Name": "stage", "Value": "dev"}], "Value": 9.0}]
    boto3.client("cloudwatch").put_metric_data(Namespace="Helix", MetricData=data)
    fleet.measures().clear()
    fleet.invoke("govern", fleet.sample("govern"))
    (line,) = (line for line in fleet.measures() if "Warnings" in line)
    assert (line["Warnings"], line["warnings"]) == (2, "cost-warning, queue-depth") and "agent" not in line
    fleet.clock.ahead_s += 400
    fleet.measures().clear()
    fleet.invoke("govern", fleet.sample("govern"))
    (line,) = (line for line in fleet.measures() if "Failures" in line)
    assert line["failures"] == "sweep", "no other function reports that the sweep is late"


def test_the_schedule_tells_alerts_of_budgets_once(fleet: Functions) -> None:
    app = fleet.app
    topic = boto3.client("sns").create_topic(Name="helix-dev-notices")["TopicArn"]
    queue = boto3.client("sqs").create_queue(QueueName="people")["QueueUrl"]
    arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:people"
    boto3.client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    app.run(raise_alert(app.store, "roomy", "alert-1", app.clock.now()))
    fleet.invoke("govern", fleet.sample("govern"))
    assert len(app.run(unpublished_alerts(app.store))) == 1, "the stage has no topic for notices"
    app.settings = dataclasses.replace(app.settings, notices=topic)
    assert fleet.invoke("govern", fleet.sample("govern"))["alerts published"] == 1
    assert app.run(unpublished_alerts(app.store)) == []
    fleet.invoke("govern", fleet.sample("govern"))
    received = boto3.client("sqs").receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]
    [notice] = [json.loads(one["Body"]) for one in received]
    assert notice["Subject"] == "Helix dev: warning: budget agent:roomy/day"
    told = json.loads(notice["Message"])
    assert (told["stage"], told["alert_id"], told["level"], told["utilization"]) == ("dev", "alert-1", "warning", 0.8)


def test_a_stop_by_a_budget_is_published_by_the_look_that_makes_it(fleet: Functions) -> None:
    """Alerts are published even by a look that an alarm started, without waiting for the schedule or for a refused call."""
    app = fleet.app
    topic = boto3.client("sns").create_topic(Name="helix-dev-notices")["TopicArn"]
    queue = boto3.client("sqs").create_queue(QueueName="people")["QueueUrl"]
    boto3.client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=f"arn:aws:sqs:{REGION}:{ACCOUNT}:people")
    app.settings = dataclasses.replace(app.settings, notices=topic)
    come(fleet, 3)
    budget = BudgetDefinition(scope="agent:roomy", period=TokenPeriod.DAILY, unit="tokens", limit=100)
    budgets = RowBudgets(app.store)
    count = app.run(budgets.define(budget, app.clock.now()))
    app.run(budgets.open(budget, app.clock.now(), count))
    window = budget.window(app.clock.now())[0]
    app.run(budgets.draw("spender", 1, [Demand(window, "tokens", 100, 100)]))
    assert fleet.invoke("govern", fleet.sample("govern_alarm")) == {"held": 1}, "reserved money is not spent"
    app.run(budgets.give_back("spender", {window: 100}))
    assert fleet.invoke("govern", message(fleet, id="m2")) == {"down": 1, "alerts published": 3}
    received = boto3.client("sqs").receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]
    subjects = [json.loads(one["Body"])["Subject"] for one in received]
    assert "Helix dev: exceeded: budget agent:roomy/day" in subjects
    listed = app.run(DeployedRuntime(app.store, clock=app.clock).list_agents())
    assert [(one["status"], one["stopped_by"]) for one in listed] == [("stopped", f"budget {budget.name}")]


def test_the_numbers_are_those_of_cloudwatch(fleet: Functions) -> None:
    """Throttled calls in the last minutes keep the limit from rising."""
    come(fleet, 7)
    dimensions = [{"Name": "stage", "Value": "dev"}, {"Name": "agent", "Value": "roomy"}]
    datum = {"MetricName": "ModelThrottles", "Dimensions": dimensions, "Value": 3.0, "Unit": "Count"}
    boto3.client("cloudwatch").put_metric_data(Namespace="Helix", MetricData=[datum])
    assert fleet.invoke("govern", fleet.sample("govern_alarm")) == {"held by throttling": 1}
    [row] = history(fleet)
    assert row.blocked_by == "throttling" and row.metrics["throttles"] == 3


def test_an_agent_that_was_stopped_stays_so(fleet: Functions) -> None:
    app = fleet.app
    come(fleet, 7)
    from helix.core.resources import ResourceConfig

    known = {"roomy": ResourceConfig.of(ROOMY.resources, "roomy")}
    app.run(FleetControl(app.store, app.clock, slots=app.engine.slots, known=known).stop("roomy"))
    assert fleet.invoke("govern", fleet.sample("govern_alarm")) == {"closed by an operator": 1}
    assert bound(fleet) == 0


def test_functions_are_kept_warm_where_the_stage_says_so(fleet: Functions) -> None:
    """moto does not support these calls and returns an error. The limit stays, and the next look tries again."""
    come(fleet, 7)
    asked: list[Any] = []
    fleet.app.settings = dataclasses.replace(fleet.app.settings, provision_agents=True)
    fleet.app._session.register(
        "provide-client-params.lambda.PutProvisionedConcurrencyConfig", lambda params, **_: asked.append(params)
    )
    assert fleet.invoke("govern", fleet.sample("govern_alarm")) == {"up": 1}
    wanted = {"FunctionName": "helix-dev-roomy-call_model", "Qualifier": "live", "ProvisionedConcurrentExecutions": 2}
    assert asked == [wanted] and bound(fleet) == 2
    assert fleet.invoke("govern", message(fleet, id="another")) == {"unsettled": 1}
    assert asked == [wanted, wanted]


def test_what_cannot_be_looked_at_is_an_error_in_the_end(fleet: Functions) -> None:
    """The error makes SNS deliver the message again and raises the alarm on the function's errors."""
    come(fleet, 7)

    def refuse(**_: Any) -> Any:
        raise StoreError("no metrics now")

    fleet.app._session.register("provide-client-params.cloudwatch.GetMetricData", refuse)
    with pytest.raises(StoreError, match="1 evaluations failed"):
        fleet.invoke("govern", fleet.sample("govern_alarm"))
    assert bound(fleet) == 1
