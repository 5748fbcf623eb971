"""`helix destroy` stops executions and switches the schedules off, and on again if the deletion fails, on moto."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from helix.adapters.system import SystemClock
from helix.cli.cloud.stack import MACHINE, RULE, Deployed, Resource
from helix.cli.cloud.stopping import Stopping, schedules_off

REGION = {"region_name": "us-east-1"}
SCHEDULE, PATTERN = "helix-test-sweep", "helix-test-ended"

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        yield


@pytest.fixture
def events(aws: None) -> Any:
    client = boto3.client("events", **REGION)
    client.put_rule(Name=SCHEDULE, ScheduleExpression="rate(1 minute)", State="ENABLED")
    client.put_rule(Name=PATTERN, EventPattern='{"source": ["aws.states"]}', State="ENABLED")
    return client


def stage(*resources: tuple[str, str]) -> Deployed:
    return Deployed("123456789012", False, tuple(Resource(kind, name, False) for kind, name in resources))


RULES = stage((RULE, SCHEDULE), (RULE, PATTERN))


def states(events: Any) -> dict[str, str]:
    return {rule["Name"]: rule["State"] for rule in events.list_rules()["Rules"]}


def test_only_schedules_are_off_so_that_ended_executions_are_still_heard_of(events: Any) -> None:
    with schedules_off(events, RULES):
        assert states(events) == {SCHEDULE: "DISABLED", PATTERN: "ENABLED"}
    assert states(events)[SCHEDULE] == "DISABLED", "the stack deletes it"


def test_they_are_on_again_where_the_deletion_fails(events: Any) -> None:
    with pytest.raises(KeyboardInterrupt), schedules_off(events, RULES):
        raise KeyboardInterrupt
    assert set(states(events).values()) == {"ENABLED"}


def test_every_execution_of_the_stage_is_stopped_and_no_other(aws: None) -> None:
    states = boto3.client("stepfunctions", **REGION)
    made = {"definition": '{"StartAt": "A", "States": {"A": {"Type": "Succeed"}}}'}
    made["roleArn"] = "arn:aws:iam::123456789012:role/machine"
    machines = [states.create_state_machine(name=f"machine-{n}", **made)["stateMachineArn"] for n in range(3)]
    runs = [states.start_execution(stateMachineArn=machine)["executionArn"] for machine in machines for _ in range(3)]
    mine = stage(*((MACHINE, machine) for machine in machines[:2]))
    stopping = Stopping(
        lambda service: boto3.client(service, **REGION), mine, "helix-test-fail_run", None, SystemClock()
    )
    assert asyncio.run(stopping.stop()) == 0
    found = [states.describe_execution(executionArn=run)["status"] for run in runs]
    assert found == ["ABORTED"] * 6 + ["RUNNING"] * 3
