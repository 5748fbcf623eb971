"""Every documented error of every Lambda state is played one by one, and the documented table agrees with the results."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import botocore.session
import pytest
from tests.docs.documents import ROOT
from tests.support.error_plays import VERB, Outcome, play

from helix.core.errors import DamagedRowError, InvalidInputError
from helix.infra.definition import DENIED, INFRASTRUCTURE, WORK_IN_PROGRESS

PAGE = ROOT / "docs" / "appendix" / "function-errors.md"
OTHER = "SomeOtherError"

# https://docs.aws.amazon.com/step-functions/latest/dg/concepts-error-handling.html, without the errors of other kinds of
# states, of JSONata, of HTTP tasks and of heartbeats.
STATES = [
    f"States.{name}"
    for name in (
        *("Timeout", "TaskFailed", "Permissions", "ParameterPathFailure", "ResultPathMatchFailure", "IntrinsicFailure"),
        *("DataLimitExceeded", "Runtime"),
    )
]
# https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html#API_Invoke_Errors, as its API model has them.
INVOKE = [
    f"Lambda.{shape.name}"
    for shape in botocore.session.get_session().get_service_model("lambda").operation_model("Invoke").error_shapes
]
# https://docs.aws.amazon.com/step-functions/latest/dg/sfn-best-practices.html#bp-lambda-serviceexception
STEP_FUNCTIONS = [
    f"Lambda.{name}"
    for name in ("AWSLambdaException", "SdkClientException", "ClientExecutionTimeoutException", "Unknown")
]
# https://docs.aws.amazon.com/lambda/latest/dg/troubleshooting-invocation.html
RUNTIME = [
    *("Runtime.ExitError", "Runtime.OutOfMemory", "Sandbox.Timedout", "Function.ResponseSizeTooLarge"),
    *("Runtime.ImportModuleError", "Runtime.HandlerNotFound", "Runtime.UserCodeSyntaxError"),
]
HELIX = [
    *WORK_IN_PROGRESS,
    *DENIED,
    *(name for name in INFRASTRUCTURE if "." not in name),
    *(DamagedRowError.__name__, InvalidInputError.__name__),
]
ERRORS = list(dict.fromkeys([*HELIX, *STATES, *STEP_FUNCTIONS, *INVOKE, *RUNTIME, OTHER]))
FOLLOWS = {
    "FailRun": "the run fails",
    "CallModel": "`CallModel` decides anew",
    "Later": "`CallModel` decides anew",
    "Failed": "the execution fails",
    "": "the execution fails",
}
GOES_ON = {"CallModel": "Route", "FinishRun": "", "FailRun": "Failed"}
"""The next state after success, for states after which it is not CallModel."""


def played() -> dict[str, dict[str, Outcome]]:
    """Return error -> state -> outcome for a state whose function always fails with that error."""

    async def all_plays() -> dict[str, dict[str, Outcome]]:
        return {error: {state: await play(state, error) for state in VERB} for error in ERRORS}

    return asyncio.run(all_plays())


def duration(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{round(seconds / size)} {unit}"
    return f"{round(seconds)} s"


def cell(outcome: Outcome) -> str:
    end = FOLLOWS[outcome.follows]
    return f"{outcome.retries} in {duration(outcome.waited_s)}, then {end}" if outcome.retries else f"none, {end}"


def table(outcomes: dict[str, dict[str, Outcome]]) -> str:
    """Return the table. States with equal columns share one column, and errors with equal rows share one row."""
    cells = {error: {state: cell(outcome) for state, outcome in row.items()} for error, row in outcomes.items()}
    columns = defaultdict[tuple[str, ...], list[str]](list)
    for state in VERB:
        columns[tuple(row[state] for row in cells.values())].append(state)
    rows = defaultdict[tuple[str, ...], list[str]](list)
    for error, row in cells.items():
        rows[tuple(row[states[0]] for states in columns.values())].append(error)
    heads = [", ".join(f"`{state}`" for state in states) for states in columns.values()]
    lines = [f"| Error | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for same, errors in rows.items():
        names = [f"`{error}`" for error in sorted(errors) if error != OTHER]
        lines.append(f"| {', '.join([*names, *(['any other'] if OTHER in errors else [])])} | {' | '.join(same)} |")
    return "\n".join(lines)


def test_the_page_says_what_was_played() -> None:
    made = table(played())
    assert made in PAGE.read_text(encoding="utf-8"), f"the table of {PAGE.name} is now:\n{made}"


@pytest.mark.parametrize("state", VERB)
async def test_one_failure_that_is_retried_changes_nothing(state: str) -> None:
    retried = 0
    for error in ERRORS:
        for_ever, once = await play(state, error), await play(state, error, times=1)
        if for_ever.retries:
            retried += 1
            assert (once.retries, once.follows) == (1, GOES_ON.get(state, "CallModel")), error
        else:
            assert once == for_ever, error
    assert retried > 20


@pytest.mark.parametrize("state", VERB)
async def test_no_error_leads_anywhere_but_to_a_failed_run_or_another_decision(state: str) -> None:
    for error in ERRORS:
        follows = (await play(state, error)).follows
        expected = {"Failed", ""} if state == "FailRun" else {"FailRun", ""}
        if state.startswith(("CallTool", "CallOneTool", "StartRun", "StartOneRun")):
            expected |= {"Later" if "One" in state else "CallModel"}
        assert follows in expected, error
        assert (follows == "") == (error in ("States.DataLimitExceeded", "States.Runtime")), error
