"""The state machine as data: its transitions, its costs, its retries, and its waits."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator, Sequence
from typing import Any

import botocore.session
import pytest
from pydantic import ValidationError

import helix.engine
from helix.core.errors import AccessDeniedError, DamagedRowError, StoreError
from helix.engine.claims.liveness import LostClaimError
from helix.engine.engine import Settings as EngineSettings
from helix.engine.verbs import CALL_EVENTS, CALL_RETRIES, MAP_CALLS, MAP_EVENTS, MODEL_EVENTS, RETRY_EVENTS
from helix.infra.config import Settings
from helix.infra.definition import (
    DENIED,
    INFRASTRUCTURE,
    OVERLOAD,
    TASK_S,
    VERBS,
    WORK_IN_PROGRESS,
    definition,
    longest_retries_s,
    substitutions,
)
from helix.infra.verbs import SIZES
from helix.runtime.cloud_settings import CloudSettings

DAY_S, CHILD_S = 24 * 3600, 3600
MACHINE = definition(run_s=30 * DAY_S, child_s=CHILD_S)
STATES: dict[str, Any] = MACHINE["States"]
PAYLOADS = {
    "CallModel": {"session_id", "run_id", "part", "step", "events", "retries", "waits"},
    "CallTool": {"session_id", "run_id", "part", "call"},
    "CallOneTool": {"session_id", "run_id", "part", "call"},
    "StartRun": {"session_id", "run_id", "part", "call", "token"},
    "StartOneRun": {"session_id", "run_id", "part", "call", "token"},
    "FinishRun": {"session_id", "run_id", "part"},
    "FailRun": {"session_id", "run_id", "part", "error"},
}


def all_states(states: dict[str, Any] = STATES) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, state in states.items():
        yield name, state
        if "ItemProcessor" in state:
            yield from all_states(state["ItemProcessor"]["States"])


TASKS = {name: state for name, state in all_states() if state["Type"] == "Task"}


def route(next_: str) -> str:
    rules = [rule for rule in STATES["Route"]["Choices"] if rule["StringEquals"] == next_]
    assert len(rules) == 1 and rules[0]["Variable"] == "$.next"
    state: str = rules[0]["Next"]
    return state


def test_a_step_with_one_tool_costs_three_transitions() -> None:
    path = [MACHINE["StartAt"]]
    path.append(STATES[path[-1]]["Next"])
    path.append(route("call_tool"))
    assert path == ["CallModel", "Route", "CallTool"]
    assert STATES["CallTool"]["Next"] == "CallModel"


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ("call_tool", "CallTool"),
        ("start_run", "StartRun"),
        ("map", "Calls"),
        ("call_model", "CallModel"),
        ("finish", "FinishRun"),
        ("rolled", "Rolled"),
    ],
)
def test_what_call_model_answers_leads_somewhere(answer: str, state: str) -> None:
    assert route(answer) == state
    assert state in STATES


def test_every_state_is_reached_and_ends_or_goes_on() -> None:
    def goes_to(state: dict[str, Any]) -> set[str]:
        found = {state["Next"]} if "Next" in state else set()
        return found | {rule["Next"] for rule in [*state.get("Choices", []), *state.get("Catch", [])]}

    def check(start: str, states: dict[str, Any]) -> None:
        reached, waiting = set[str](), {start}
        while waiting:
            name = waiting.pop()
            reached.add(name)
            waiting |= goes_to(states[name]) - reached
            if "ItemProcessor" in states[name]:
                check(states[name]["ItemProcessor"]["StartAt"], states[name]["ItemProcessor"]["States"])
            ends = states[name].get("End") or states[name]["Type"] in ("Succeed", "Fail")
            assert ends or goes_to(states[name]), name
        assert reached == set(states)

    check(MACHINE["StartAt"], STATES)
    names = [name for name, _ in all_states()]
    assert len(names) == len(set(names)), "names are unique in the whole machine, maps included"


def test_payloads_are_ids_and_counters() -> None:
    given = {name: {key.removesuffix(".$") for key in task["Parameters"]["Payload"]} for name, task in TASKS.items()}
    assert given == PAYLOADS
    for name, task in TASKS.items():
        keeps = task.get("OutputPath") == "$.Payload"
        assert keeps == (name in ("CallModel", "FinishRun")), "the payload does not have the tool's result"
        assert keeps or task["ResultPath"] is None
    assert STATES["Calls"]["ResultPath"] is None


def test_several_calls_run_at_once_each_with_its_place() -> None:
    calls = STATES["Calls"]
    assert (calls["ItemsPath"], calls["ItemProcessor"]["ProcessorConfig"]) == ("$.calls", {"Mode": "INLINE"})
    assert "MaxConcurrency" not in calls
    assert set(calls["ItemSelector"]) == {"session_id.$", "run_id.$", "part.$", "call.$"}
    kinds = {r["StringEquals"]: r["Next"] for r in calls["ItemProcessor"]["States"]["Kind"]["Choices"]}
    assert kinds == {"call_tool": "CallOneTool", "start_run": "StartOneRun"}


@pytest.mark.parametrize("name", TASKS)
def test_every_task_repeats_with_jitter_and_ends(name: str) -> None:
    task = TASKS[name]
    assert task["TimeoutSeconds"] > 0
    for rule in task["Retry"]:
        assert rule["JitterStrategy"] == "FULL" and rule["MaxDelaySeconds"] <= 120 and rule["MaxAttempts"] > 0
        assert not {"States.ALL", "States.TaskFailed"} & set(rule["ErrorEquals"]), "a permanent error is not retried"
    first = task["Retry"][0]
    assert first["ErrorEquals"] == WORK_IN_PROGRESS == ["WorkInProgressError"]
    assert first["MaxDelaySeconds"] <= 5, "the run continues within this time after a dead holder's claim has expired"
    # A live holder may take a function's whole timeout, and then die. Full jitter waits half of the longest delay on
    # average. Three standard deviations less must still be enough.
    mean = first["MaxAttempts"] * first["MaxDelaySeconds"] / 2
    deviation = first["MaxDelaySeconds"] / 12**0.5 * first["MaxAttempts"] ** 0.5
    assert mean - 3 * deviation > max(size.timeout_s for size in SIZES.values()) + EngineSettings().claim_s


def test_every_store_error_that_may_pass_is_repeated_under_its_own_name() -> None:
    for module in pkgutil.walk_packages(helix.engine.__path__, "helix.engine."):
        importlib.import_module(module.name)
    # A lost claim is not reported to the platform, a damaged row stays damaged, and a denied operation has its own rule.
    others = {LostClaimError, DamagedRowError, AccessDeniedError}
    assert [AccessDeniedError.__name__] == DENIED
    errors: set[type[Exception]] = {StoreError, *StoreError.__subclasses__()}
    assert others <= errors - {StoreError}
    names = {cls.__name__ for cls in errors - others}
    assert names == {name for name in INFRASTRUCTURE if "." not in name}
    assert {"Runtime.ExitError", "Runtime.OutOfMemory", "Sandbox.Timedout"} <= set(INFRASTRUCTURE)


FINAL = {
    "CodeArtifactUserFailedException": "the code has to be deployed again",
    "EC2AccessDeniedException": "a right is missing",
    "InvalidRuntimeException": "Lambda no longer has the runtime",
    "InvalidSecurityGroupIDException": "the network's settings are wrong",
    "InvalidSubnetIDException": "the network's settings are wrong",
    "InvalidZipFileException": "the code has to be deployed again",
    "InvalidParameterValueException": "the definition is wrong",
    "InvalidRequestContentException": "the definition is wrong",
    "RequestTooLargeException": "the input stays as large",
    "SerializedRequestEntityTooLargeException": "the input stays as large",
    "UnsupportedMediaTypeException": "the definition is wrong",
    "ModeNotSupportedException": "the definition is wrong",
    "NoPublishedVersionException": "the function or its version is gone",
    "ResourceNotFoundException": "the function or its version is gone",
    "RecursiveInvocationException": "Lambda has stopped a loop",
    "ServiceQuotaExceededException": "a quota of the account, not of the moment",
}
UNUSED = ("EFS", "S3Files", "DurableExecution")
KEYS = "KMS"
"""Errors of the variables' key, which an administrator must fix."""


def test_what_lambda_reports_without_having_executed_is_repeated() -> None:
    """The list has all errors of Lambda's API by their names. Each error that is not retried has a reason."""
    invoke = botocore.session.get_session().get_service_model("lambda").operation_model("Invoke")
    names = {shape.name for shape in invoke.error_shapes if not shape.name.startswith((*UNUSED, KEYS))}
    api = {name for name in OVERLOAD if name != "Lambda.SdkClientException"}
    assert {f"Lambda.{name}" for name in names - FINAL.keys()} == api
    assert FINAL.keys() <= names
    snap_start = {f"Lambda.{name}" for name in names - FINAL.keys()}
    # https://docs.aws.amazon.com/step-functions/latest/dg/sfn-best-practices.html#bp-lambda-serviceexception
    transient = ("ClientExecutionTimeoutException", "ServiceException", "AWSLambdaException", "SdkClientException")
    for name, task in TASKS.items():
        repeated = {error for rule in task["Retry"] for error in rule["ErrorEquals"]}
        assert snap_start | {f"Lambda.{error}" for error in transient} <= repeated, name


@pytest.mark.parametrize("name", TASKS)
def test_a_task_that_timed_out_is_repeated_but_not_a_wait_for_a_sub_agent(name: str) -> None:
    repeated = {error for rule in TASKS[name]["Retry"] for error in rule["ErrorEquals"]}
    assert ("States.Timeout" in repeated) is (name not in ("StartRun", "StartOneRun"))


def test_whatever_fails_for_good_reaches_fail_run() -> None:
    caught = {name for name, state in STATES.items() if state.get("Catch")}
    assert caught == {"CallModel", "CallTool", "StartRun", "Calls", "FinishRun", "FailRun"}
    for name in caught - {"FailRun"}:
        assert STATES[name]["Catch"][-1] == {"ErrorEquals": ["States.ALL"], "ResultPath": "$.error", "Next": "FailRun"}
    assert STATES["FailRun"]["Next"] == STATES["FailRun"]["Catch"][0]["Next"] == "Failed"
    assert STATES["Failed"]["Type"] == "Fail", "a failed execution is reported, and EventBridge calls fail_run"
    assert "helix retry" in STATES["Failed"]["Cause"], "the console shows what to do"


@pytest.mark.parametrize("name", ["CallModel", "FinishRun"])
def test_a_run_waits_for_hours_where_lambda_is_at_its_limit(name: str) -> None:
    rule = next(rule for rule in TASKS[name]["Retry"] if rule["ErrorEquals"] == OVERLOAD)
    assert rule["MaxAttempts"] * rule["MaxDelaySeconds"] / 2 >= 6 * 3600, "full jitter waits half of it on average"
    assert "Lambda.TooManyRequestsException" in OVERLOAD


@pytest.mark.parametrize("name", ["CallTool", "StartRun", "CallOneTool", "StartOneRun"])
def test_a_call_that_finds_no_lambda_is_decided_anew(name: str) -> None:
    later = {"ErrorEquals": OVERLOAD, "ResultPath": None, "Next": "Later" if "One" in name else "CallModel"}
    assert TASKS[name]["Catch"][0] == later
    assert dict(all_states())["Later"] == {"Type": "Succeed"}


def test_all_retries_fit_into_the_history_that_roll_over_leaves() -> None:
    """The worst case is a step with as many calls as a map takes at the limit, then retries for hours, and the longest end
    of a run."""
    with pytest.raises(ValidationError):
        Settings(roll_over_events=Settings().roll_over_events + 1)
    assert Settings().roll_over_events == EngineSettings().roll_over_events == CloudSettings().roll_over_events

    def most(name: str, errors: Sequence[list[str]] = (WORK_IN_PROGRESS, OVERLOAD, INFRASTRUCTURE, DENIED)) -> int:
        chosen = [rule for rule in TASKS[name]["Retry"] if any(set(rule["ErrorEquals"]) <= set(e) for e in errors)]
        return sum(rule["MaxAttempts"] for rule in chosen)

    for name in ("CallTool", "StartRun", "CallOneTool", "StartOneRun"):
        assert most(name, [OVERLOAD, INFRASTRUCTURE, DENIED]) == CALL_RETRIES
    # The events of one call: its item, its choice, the state after a caught error, and six for its last attempt.
    assert CALL_EVENTS == 12 + RETRY_EVENTS * CALL_RETRIES
    retries = sum(most(name) for name in ("CallModel", "FinishRun", "FailRun")) * RETRY_EVENTS
    states = 4 * MODEL_EVENTS  # CallModel twice, FinishRun, FailRun
    assert Settings().roll_over_events + MAP_EVENTS + MAP_CALLS * CALL_EVENTS + retries + states < 25_000


def test_timeouts_fit_into_each_other() -> None:
    for verb, limit in TASK_S.items():
        assert limit > SIZES[verb].timeout_s, "the function's own timeout comes first and names the cause"
    for name in ("StartRun", "StartOneRun"):
        assert TASKS[name]["TimeoutSeconds"] == CHILD_S
        assert TASKS[name]["Resource"].endswith(":lambda:invoke.waitForTaskToken")
        assert TASKS[name]["Parameters"]["Payload"]["token.$"] == "$$.Task.Token"
    assert longest_retries_s() < DAY_S, "run_days is at least one day"
    settings = Settings()
    assert settings.child_hours * 3600 <= settings.run_days * DAY_S


def test_the_functions_are_places_to_fill_in() -> None:
    text = json.dumps(MACHINE)
    arns = {verb: f"arn:{verb}" for verb in SIZES}
    given = {name: f"arn:{verb}" for name, verb in VERBS.items()}
    assert substitutions(arns, "aws-cn") == {**given, "Partition": "aws-cn"}
    resources = {task["Resource"].partition(".")[0] for task in TASKS.values()}
    assert resources == {"arn:${Partition}:states:::lambda:invoke"}
    assert {task["Parameters"]["FunctionName"] for task in TASKS.values()} == {f"${{{name}}}" for name in VERBS}
    assert "arn:aws" not in text
