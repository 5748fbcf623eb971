"""The state machine in Amazon States Language. It executes one part of a run, delivery by delivery.

    CallModel ─> Route ─┬─ one call ──────> CallTool  ─┐
        ▲               ├─ one child ─────> StartRun  ─┤   on a task token
        │               ├─ several ───────> Calls     ─┤   a Map of both
        │               ├─ the model's limit ─> Wait ──┤
        └───────────────┴─ another step ───────────────┘
                        ├─ finish ────────> FinishRun
                        └─ rolled over ───> Rolled          the next part has been started
    a call that finds no free Lambda ─────> CallModel       which schedules it again
    every permanent failure ──────────────> FailRun ─> Failed

Law: states pass only ids and counters to each other; everything else is in the store. A step with one tool costs three
transitions: CallModel, Route, CallTool. A run waits for a free Lambda. CallModel waits for hours; a call waits for
minutes, and then CallModel decides again. The execution's history has room for every attempt
(docs/adr/0025-runs-wait-for-a-free-lambda.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helix.core.errors import AccessDeniedError, ContentionError, ObjectGoneError, StoreError, WorkInProgressError
from helix.engine.missing import RowMissingError, StateMissingError
from helix.engine.verbs import CALL_RETRIES

State = dict[str, Any]

INVOKE = "arn:${Partition}:states:::lambda:invoke"
INVOKE_AND_WAIT = f"{INVOKE}.waitForTaskToken"

VERBS = {
    "CallModel": "call_model",
    "CallTool": "call_tool",
    "StartRun": "start_run",
    "FinishRun": "finish_run",
    "FailRun": "fail_run",
}
"""The verb of the function whose ARN replaces each placeholder of the definition."""

TASK_S = {"call_model": 930, "call_tool": 930, "start_run": 90, "finish_run": 90, "fail_run": 90}
"""The timeout of one delivery by verb, in seconds. It is a little longer than the function's own, so that the function's
fires first."""

WORK_IN_PROGRESS = [WorkInProgressError.__name__]
"""The errors of a delivery whose work another delivery has claimed. The other delivery may still be running, for up to 15
minutes, because its response was lost or the platform delivered twice. Or it has died and its claim has not expired yet,
which takes up to 30 seconds."""
OVERLOAD = [
    "Lambda.TooManyRequestsException",
    "Lambda.ServiceException",
    "Lambda.SdkClientException",
    "Lambda.SnapStartException",
    "Lambda.SnapStartNotReadyException",
    "Lambda.SnapStartRegenerationFailureException",
    "Lambda.SnapStartTimeoutException",
    "Lambda.CodeArtifactUserPendingException",
    "Lambda.CodeArtifactUserDeletedException",
    "Lambda.ResourceConflictException",
    "Lambda.ResourceNotReadyException",
    "Lambda.ENINotReadyException",
    "Lambda.ENILimitReachedException",
    "Lambda.SubnetIPAddressLimitReachedException",
    "Lambda.EC2ThrottledException",
    "Lambda.EC2UnexpectedException",
]
"""The errors that occur before anything is executed. A later attempt may succeed. After weeks without an invocation, Lambda
must recreate a function's snapshot, code and network interfaces
(https://docs.aws.amazon.com/lambda/latest/dg/functions-states.html)."""
TIMED_OUT = "States.Timeout"
INFRASTRUCTURE = [
    StoreError.__name__,
    ContentionError.__name__,
    ObjectGoneError.__name__,  # a state machine matches names, not base classes
    RowMissingError.__name__,
    StateMissingError.__name__,
    "Lambda.AWSLambdaException",
    "Lambda.ClientExecutionTimeoutException",
    "Lambda.Unknown",
    "Runtime.ExitError",
    "Runtime.OutOfMemory",
    "Sandbox.Timedout",
    TIMED_OUT,
]
"""The errors after which the outcome is unknown. The next delivery finds out. Lambda's own errors are listed in
https://docs.aws.amazon.com/step-functions/latest/dg/sfn-best-practices.html#bp-lambda-serviceexception."""

DENIED = [AccessDeniedError.__name__]
"""The errors that a missing permission causes. A permission that a deployment grants takes a few seconds to take effect
everywhere. If the permission remains missing, the run soon fails, and a repeatable tool is started at most three times."""

INFRASTRUCTURE_ATTEMPTS, DENIED_ATTEMPTS = 6, 2
HOURS, MINUTES = 360, CALL_RETRIES - INFRASTRUCTURE_ATTEMPTS - DENIED_ATTEMPTS
"""The numbers of retries after overload. The pauses have full jitter, up to two minutes, so `HOURS` retries take six
hours on average. A call is retried for a few minutes."""

FAILED = (
    "The run's record says why: helix show SESSION. To continue: helix retry AGENT SESSION. A redrive changes nothing."
)
ROUTES = {
    "call_tool": "CallTool",
    "start_run": "StartRun",
    "map": "Calls",
    "wait": "Wait",
    "call_model": "CallModel",
    "finish": "FinishRun",
    "rolled": "Rolled",
}


def definition(*, run_s: int, child_s: int) -> dict[str, Any]:
    """Return the definition with placeholders: `${CallModel}` and so on (see `VERBS`) for the functions' ARNs, and
    `${Partition}` for the AWS partition. `run_s`, `child_s`: the timeouts, in seconds, of one execution and of the wait for
    one sub-agent."""
    place = {"session_id.$": "$.session_id", "run_id.$": "$.run_id", "part.$": "$.part"}
    position = {**place, "step.$": "$.step", "events.$": "$.events"}
    attempt = {**position, "retries.$": "$$.State.RetryCount", "waits": True}
    call = {**place, "call.$": "$.call"}
    again = {"ResultPath": None, "Next": "CallModel"}
    end = {"ResultPath": None, "End": True}
    one, of_several = {"Catch": [_later("CallModel"), *_catch()]}, {"Catch": [_later("Later")]}
    return {
        "Comment": "One part of a run; written by infra/definition.py",
        "StartAt": "CallModel",
        "TimeoutSeconds": run_s,
        "States": {
            "CallModel": _task("CallModel", attempt, {"OutputPath": "$.Payload", "Next": "Route"}, overload=HOURS),
            "Route": _choice("$.next", ROUTES),
            "CallTool": _task("CallTool", call, {**one, **again}),
            "StartRun": _token_task(call, child_s, {**one, **again}),
            "Calls": {
                "Type": "Map",
                "ItemsPath": "$.calls",
                "ItemSelector": {**place, "call.$": "$$.Map.Item.Value"},
                "ItemProcessor": {
                    "ProcessorConfig": {"Mode": "INLINE"},
                    "StartAt": "Kind",
                    "States": {
                        "Kind": _choice("$.call.kind", {"call_tool": "CallOneTool", "start_run": "StartOneRun"}),
                        "CallOneTool": _task("CallTool", call, {**of_several, **end}),
                        "StartOneRun": _token_task(call, child_s, {**of_several, **end}),
                        "Later": {"Type": "Succeed"},
                    },
                },
                "Catch": _catch(),
                **again,
            },
            "FinishRun": _task("FinishRun", place, {"OutputPath": "$.Payload", "End": True}, overload=HOURS),
            "Wait": {"Type": "Wait", "SecondsPath": "$.seconds", "Next": "CallModel"},
            "Rolled": {"Type": "Succeed"},
            "FailRun": _task(
                "FailRun",
                {**place, "error.$": "$.error"},
                {
                    "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": None, "Next": "Failed"}],
                    "ResultPath": None,
                    "Next": "Failed",
                },
            ),
            "Failed": {"Type": "Fail", "Error": "RunFailed", "Cause": FAILED},
        },
    }


def substitutions(arns: Mapping[str, str], partition: str) -> dict[str, str]:
    """Return the `DefinitionSubstitutions`. `arns`: the ARN of each verb's alias."""
    return {**{name: arns[verb] for name, verb in VERBS.items()}, "Partition": partition}


def longest_retries_s() -> int:
    """Return the maximum duration of a task's retries in seconds, with the longest deliveries and pauses."""
    waiting: int = sum(rule["MaxAttempts"] * rule["MaxDelaySeconds"] for rule in _retry(HOURS))
    executed = 1 + INFRASTRUCTURE_ATTEMPTS + DENIED_ATTEMPTS  # other attempts are refused immediately
    return executed * max(TASK_S.values()) + waiting


def _task(name: str, payload: State, rest: State, *, overload: int = MINUTES) -> State:
    return {
        "Type": "Task",
        "Resource": INVOKE,
        "Parameters": {"FunctionName": f"${{{name}}}", "Payload": payload},
        "TimeoutSeconds": TASK_S[VERBS[name]],
        "Retry": _retry(overload),
        "Catch": _catch(),
        **rest,
    }


def _token_task(call: State, child_s: int, rest: State) -> State:
    """Return a task that waits for a sub-agent. It continues when the sub-agent's end completes the task token, which
    `start_run` stores with the sub-agent's session."""
    payload = {**call, "token.$": "$$.Task.Token"}
    task = _task("StartRun", payload, rest) | {"Resource": INVOKE_AND_WAIT, "TimeoutSeconds": child_s}
    # A timeout is not retried. The sub-agent's time is up or its token is lost, so another delivery would also time out.
    retry = [{**rule, "ErrorEquals": [e for e in rule["ErrorEquals"] if e != TIMED_OUT]} for rule in task["Retry"]]
    return {**task, "Retry": retry}


def _choice(variable: str, routes: Mapping[str, str]) -> State:
    """Return a choice without a default. An unlisted value fails the execution, and its status event reaches
    `fail_run`."""
    rules = [{"Variable": variable, "StringEquals": word, "Next": state} for word, state in routes.items()]
    return {"Type": "Choice", "Choices": rules}


def _retry(overload: int) -> list[State]:
    return [
        # A live holder of the claim cannot be told apart from a dead one. Short pauses let the run continue soon after a
        # death, at most 35 seconds later including the claim's expiry. The many attempts outlast a live holder. With full
        # jitter a pause is half of its limit on average, so 420 pauses take 17 minutes, and hardly ever less than 16.
        _rule(WORK_IN_PROGRESS, interval=1, rate=1.5, longest=5, attempts=420),
        _rule(OVERLOAD, interval=1, rate=2, longest=120, attempts=overload),
        _rule(INFRASTRUCTURE, interval=1, rate=2, longest=30, attempts=INFRASTRUCTURE_ATTEMPTS),
        _rule(DENIED, interval=5, rate=2, longest=10, attempts=DENIED_ATTEMPTS),
    ]


def _rule(errors: list[str], *, interval: int, rate: float, longest: int, attempts: int) -> State:
    return {
        "ErrorEquals": errors,
        "IntervalSeconds": interval,
        "BackoffRate": rate,
        "MaxDelaySeconds": longest,
        "MaxAttempts": attempts,
        "JitterStrategy": "FULL",
    }


def _later(state: str) -> State:
    """Return the catcher for a call that was not executed. The next CallModel detects this, and schedules the call again or
    lets the run roll over."""
    return {"ErrorEquals": OVERLOAD, "ResultPath": None, "Next": state}


def _catch() -> list[State]:
    return [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.error", "Next": "FailRun"}]
