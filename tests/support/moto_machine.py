"""The deployed state machine on moto's Step Functions interpreter, in this process. A `Scene` answers for the functions."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws
from moto.core.config import DefaultConfig
from moto.stepfunctions.parser.asl.component.common.retry import retrier_decl
from moto.stepfunctions.parser.asl.component.common.timeouts.timeout import EvalTimeoutError
from moto.stepfunctions.parser.asl.component.state.exec.state_task import lambda_eval_utils
from tests.support.error_plays import START, Outcome, Scene, follower
from tests.support.state_machine import PAYLOAD_BYTES, ExecutionFailedError

from helix.infra.definition import VERBS, definition, substitutions

REGION, ACCOUNT, PATIENCE_S = "us-east-1", "123456789012", 60.0
ROLE = f"arn:aws:iam::{ACCOUNT}:role/machine"
CONFIG: DefaultConfig = {"stepfunctions": {"execute_state_machine": True}}


class SceneFunctions:
    """The interpreter's client of Lambda. Functions are named after their verbs. `failures` records the names of the errors
    that `fail_run` receives."""

    def __init__(self, scene: Scene, tokens: Any, failures: list[str]) -> None:
        self._scene, self._tokens, self._failures = scene, tokens, failures

    def invoke(self, *, FunctionName: str, Payload: bytes) -> dict[str, Any]:
        verb = FunctionName.rpartition(":")[2]
        if verb == "fail_run":
            self._failures.append(json.loads(Payload)["error"]["Error"])
        try:
            answer = self._scene.answer(verb)
        except ExecutionFailedError as error:
            return _failed(str(error.args[0]))
        if verb == "start_run":
            self._tokens.send_task_success(taskToken=json.loads(Payload)["token"], output="{}")
        return {"StatusCode": 200, "Payload": io.BytesIO(json.dumps(answer).encode())}


def _failed(name: str) -> dict[str, Any]:
    """Return the error as Lambda reports it: an error of its API, or an answer with the name of an exception. Step
    Functions detects the others itself: no answer in time, or an answer that is too large."""
    service, _, code = name.partition(".")
    if name == "States.Timeout":
        raise EvalTimeoutError
    if name == "States.DataLimitExceeded":
        return {"StatusCode": 200, "Payload": io.BytesIO(json.dumps("x" * PAYLOAD_BYTES).encode())}
    if service == "Lambda":
        meta = {"HTTPStatusCode": 400, "RequestId": "request-1"}
        raise ClientError({"Error": {"Code": code, "Message": name}, "ResponseMetadata": meta}, "Invoke")
    body = json.dumps({"errorType": name, "errorMessage": "as planned"}).encode()
    return {"StatusCode": 200, "FunctionError": "Unhandled", "Payload": io.BytesIO(body)}


class MotoMachine:
    """A machine that plays one scene after the other. Pauses before retries take no time. `failures` records the input of
    each `fail_run`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch, self._count, self.failures = patch, 0, list[str]()
        self._client = boto3.client("stepfunctions", region_name=REGION)
        text = json.dumps(definition(run_s=86_400, child_s=3600))
        arns = {verb: f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{verb}" for verb in VERBS.values()}
        for name, value in substitutions(arns, "aws").items():
            text = text.replace(f"${{{name}}}", value)
        made = self._client.create_state_machine(name="helix-test-default", definition=text, roleArn=ROLE)
        self._machine: str = made["stateMachineArn"]
        patch.setattr(retrier_decl, "time", SimpleNamespace(sleep=lambda _: None))

    def play(self, state: str, error: str) -> Outcome:
        """Play an execution in which the state's function always fails with that error."""
        functions = SceneFunctions(Scene(state, error), self._client, self.failures)
        self._patch.setattr(lambda_eval_utils, "boto_client_for", lambda **_: functions)
        self._count += 1
        start = {"name": f"run_{self._count}", "input": json.dumps(START)}
        arn = self._client.start_execution(stateMachineArn=self._machine, **start)["executionArn"]
        ends = time.monotonic() + PATIENCE_S
        while self._client.describe_execution(executionArn=arn)["status"] == "RUNNING":
            assert time.monotonic() < ends, f"{state} with {error} does not end"
            time.sleep(0.01)
        history = self._client.get_execution_history(executionArn=arn)["events"]
        entered = [e["stateEnteredEventDetails"]["name"] for e in history if "stateEnteredEventDetails" in e]
        details = [value for event in history for value in event.values() if isinstance(value, dict)]
        failures = sum(value.get("error") == error and "resource" in value for value in details)
        return Outcome(failures - 1, follower(state, entered), len(history))


@contextmanager
def moto_machine() -> Iterator[MotoMachine]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        with mock_aws(config=CONFIG):
            yield MotoMachine(patch)
