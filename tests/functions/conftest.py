"""The deployed functions in this process: handlers as Lambda loads them, on moto's DynamoDB, Kinesis and Step Functions.

`events/` has the payloads. `Functions.claim` creates the session and the run that a payload names.
"""

from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import boto3
import pytest
from moto import mock_aws
from tests.support.aws_resources import BUCKET, CHUNKS, make_tables, tables
from tests.support_run import agent

from helix import ScriptedModel
from helix.core.agents import AnyAgent
from helix.core.log_records import unpack
from helix.core.registry import AgentRegistry
from helix.core.run_row import RunRow
from helix.core.sequencer import StreamRecord
from helix.core.session_row import SessionRow
from helix.runtime.agent_models import Agents
from helix.runtime.cloud import Application, application
from helix.services.row_slots import RowSlots
from helix.testing.clocks import ShiftedClock

ROOT = Path(__file__).parents[2]
REGION, ACCOUNT = "us-east-1", "123456789012"
MACHINE = f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:helix-test-default"
VERBS = ("call_model", "call_tool", "start_run", "finish_run", "fail_run", "sweep", "start_triggered")


@cache
def client(service: str) -> Any:
    """Return this module's client of the service. Making one costs more than most tests do, and mock_aws serves it in each
    test."""
    given = {"region_name": REGION, "aws_access_key_id": "test", "aws_secret_access_key": "test"}
    return boto3.Session(**given).client(service)


class Functions:
    """The handlers and the application that they share, as if all ran in one process.

    `woken` has the task tokens that were answered, and `begun` the functions that were invoked.
    """

    def __init__(self, app: Application, capsys: pytest.CaptureFixture[str]) -> None:
        self.app, self._capsys = app, capsys
        self.clock = ShiftedClock()
        app.clock = self.clock  # type: ignore[assignment]
        self.woken: list[str] = []
        self.begun: list[str] = []
        self._measures: list[dict[str, Any]] = []
        self.model = ScriptedModel([])
        app._session.register("before-call.stepfunctions.SendTaskSuccess", self._woke)
        app._session.register("before-call.lambda.Invoke", self._begun)
        self._handlers: dict[str, Any] = {}

    @property
    def slots(self) -> RowSlots:
        assert self.app.engine.slots is not None
        return self.app.engine.slots

    def _woke(self, params: Any, **_: Any) -> Any:
        self.woken.append(json.loads(params["body"])["taskToken"])
        return SimpleNamespace(status_code=200, headers={}, raw=b"{}"), {}

    def _begun(self, params: Any, **_: Any) -> Any:
        self.begun.append(unquote(params["url_path"]).split("/")[3])
        assert params["headers"]["X-Amz-Invocation-Type"] == "Event", "no caller waits for it"
        return SimpleNamespace(status_code=202, headers={}, raw=b""), {"StatusCode": 202}

    def play(self, script: Any, *agents: AnyAgent) -> None:
        """Deploy these agents with a model that follows the script."""
        self.model = ScriptedModel(script, record=True)
        registry = AgentRegistry()
        for who in agents or (agent("helper"),):
            registry.register(who)
        self.app.__dict__["agents"] = Agents(registry, self.model)

    def claim(self, who: AnyAgent, event: Any) -> None:
        """Create the session and the run of this event, as `ws_message` does for a client."""
        about = json.loads(event["detail"]["input"]) if "detail" in event else event
        place = {"session_id": about["session_id"], "run_id": about["run_id"]}
        self.app.run(self.app.executor.execute(who, "go", **place))

    def invoke(self, verb: str, event: Any, *, left_s: float = 600.0) -> Any:
        if verb not in self._handlers:
            spec = importlib.util.spec_from_file_location(verb, ROOT / "functions" / verb / "handler.py")
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            self._handlers[verb] = module.handler
        context = SimpleNamespace(aws_request_id=f"request-{verb}", get_remaining_time_in_millis=lambda: left_s * 1000)
        return self._handlers[verb](event, context)

    def sample(self, name: str) -> Any:
        return json.loads((ROOT / "events" / f"{name}.json").read_text())

    def session(self, session_id: str) -> SessionRow:
        return self.app.run(self.app.engine.history.existing(session_id))

    def run(self, session_id: str, run_id: str) -> RunRow:
        return self.app.run(self.app.engine.history.run(session_id, run_id))

    def executions(self) -> list[str]:
        listed = client("stepfunctions").list_executions(stateMachineArn=MACHINE)["executions"]
        return sorted(execution["name"] for execution in listed)

    def records(self) -> list[StreamRecord]:
        """Return all records that writers put on Kinesis."""
        kinesis = client("kinesis")
        shard = kinesis.describe_stream(StreamName=CHUNKS)["StreamDescription"]["Shards"][0]["ShardId"]
        place = {"StreamName": CHUNKS, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
        iterator = kinesis.get_shard_iterator(**place)["ShardIterator"]
        data = [record["Data"] for record in kinesis.get_records(ShardIterator=iterator, Limit=1000)["Records"]]
        return [record for one in data for record in unpack(one)[1]]

    def lines(self) -> list[dict[str, Any]]:
        """Return the log lines since the last call, and store the lines with metrics for `measures`."""
        found = [json.loads(line) for line in self._capsys.readouterr().out.splitlines() if line.startswith("{")]
        self._measures += [line for line in found if "_aws" in line]
        return [line for line in found if "_aws" not in line]

    def measures(self) -> list[dict[str, Any]]:
        """Return the metrics that the engine recorded until now, in embedded metric format."""
        self.lines()
        return self._measures


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Functions]:
    names = tables()
    given = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": REGION,
        "HELIX_SESSIONS_TABLE": names["sessions"],
        "HELIX_STREAMS_TABLE": names["streams"],
        "HELIX_CONTROL_TABLE": names["control"],
        "HELIX_BUCKET": BUCKET,
        "HELIX_CHUNKS": CHUNKS,
        "HELIX_MACHINE": MACHINE.replace("default", "{profile}"),
        "HELIX_ROLL_OVER_EVENTS": "300",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    _forget_loggers()
    application.cache_clear()
    with mock_aws():
        make_tables(client("dynamodb"))
        client("s3").create_bucket(Bucket=BUCKET)
        client("kinesis").create_stream(StreamName=CHUNKS, ShardCount=1)
        definition = json.dumps({"StartAt": "Done", "States": {"Done": {"Type": "Succeed"}}})
        role = f"arn:aws:iam::{ACCOUNT}:role/machine"
        client("stepfunctions").create_state_machine(name="helix-test-default", definition=definition, roleArn=role)
        made = Functions(application(), capsys)
        yield made
        made.app.close()
    application.cache_clear()
    _forget_loggers()


def _forget_loggers() -> None:
    """Remove the loggers: Powertools makes one per service and process, bound to the standard output at that time."""
    for verb in VERBS:
        logging.root.manager.loggerDict.pop(verb, None)
