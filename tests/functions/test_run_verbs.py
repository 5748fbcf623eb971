"""The functions that execute runs, invoked as the state machine, EventBridge and the schedule do (`events/`).

Deliveries repeat. A repeated delivery gets the same response and repeats no effect.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from pydantic import BaseModel
from tests.functions.conftest import MACHINE, Functions
from tests.support_run import a_tool, agent, call, calls

from helix import create_sub_agent_tool
from helix.core.agents import AnyAgent
from helix.core.errors import AccessDeniedError, InvalidInputError, WorkInProgressError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
Json = dict[str, Any]
Claim = Callable[..., Functions]


class Answer(BaseModel):
    text: str


@pytest.fixture
def looked() -> list[str]:
    """Ids of the calls that the looking tools executed, in order."""
    return []


@pytest.fixture
def helper(looked: list[str]) -> AnyAgent:
    def look(arguments: Any, context: Any) -> str:
        looked.append(context.tool_call_id)
        return "seen"

    def fail(arguments: Any, context: Any) -> str:
        raise KeyError("secret content")

    finder = agent("finder", output_schema=Answer)
    tools = [a_tool("look", look), a_tool("peek", look, inline=True), a_tool("fail", fail)]
    return agent("helper", tools=[*tools, create_sub_agent_tool(finder, timeout_s=60)])


@pytest.fixture
def claim(functions: Functions, helper: AnyAgent) -> Claim:
    """A function that claims the run of a sample event, with a model that follows a script."""

    def claimed(*script: Any, of: str = "call_model") -> Functions:
        functions.play(list(script), helper)
        functions.claim(helper, functions.sample(of))
        return functions

    return claimed


def ids(event: Json) -> Json:
    about = json.loads(event["detail"]["input"]) if "detail" in event else event
    return {"session_id": about["session_id"], "run_id": about["run_id"]}


def steps(functions: Functions, event: Json) -> Json:
    """Deliver `call_model` and `call_tool` until another verb follows, and return its event."""
    told = functions.invoke("call_model", event)
    while told["next"] in ("call_tool", "call_model"):
        if told["next"] == "call_tool":
            functions.invoke("call_tool", told)
        told = functions.invoke("call_model", told)
    return told


def child_of(functions: Functions, parent: Json) -> Json:
    """Return the `call_model` event of the sub-agent that was started."""
    (run_id,) = set(functions.executions()) - {parent["run_id"]}
    arn = MACHINE.replace(":stateMachine:", ":execution:") + f":{run_id}"
    return json.loads(boto3.client("stepfunctions").describe_execution(executionArn=arn)["input"])


# --- call_model, call_tool, start_run, finish_run: a whole run --------------------------------------------------------


def test_what_each_function_answers_is_the_next_ones_event(claim: Claim, looked: list[str]) -> None:
    """The samples form one run with a tool, a sub-agent and an answer."""
    functions = claim(
        calls(call("look")), calls(call("subagent__finder", message="find")), {"output": {"text": "x"}}, "Done."
    )
    event = functions.sample("call_model")
    told = functions.invoke("call_model", event)
    assert told == functions.sample("call_tool")
    assert functions.invoke("call_tool", told) == {"call": "done"}
    told = functions.invoke("call_model", told)
    sent = functions.sample("start_run")
    assert told["next"] == "start_run" and told["call"] == sent["call"]
    assert functions.invoke("start_run", sent) == {"call": "waits"}
    child = steps(functions, child_of(functions, event))
    assert child["next"] == "finish" and functions.invoke("finish_run", child) == ids(child)
    assert functions.woken == [sent["token"]]
    told = functions.invoke("call_model", told)
    assert told == functions.sample("finish_run")
    assert functions.session(told["session_id"]).status == "completed" and functions.run(**ids(told)).effects == "open"
    assert functions.invoke("finish_run", told) == ids(told)
    assert functions.run(**ids(told)).effects == "done" and looked == ["call_0"]


def test_a_delivery_that_comes_again_buys_and_does_nothing_more(claim: Claim, looked: list[str]) -> None:
    functions = claim(calls(call("look")), "Done.")
    first, again = (functions.invoke("call_model", functions.sample("call_model")) for _ in range(2))
    assert first == again
    assert [functions.invoke("call_tool", first) for _ in range(2)] == [{"call": "done"}] * 2
    last, again = (functions.invoke("call_model", first) for _ in range(2))
    assert last == again and last["next"] == "finish"
    assert functions.invoke("call_tool", first) == {"call": "over"}, "late: its step is history"
    version, before = functions.session(last["session_id"]).version, len(functions.records())
    assert [functions.invoke("finish_run", last) for _ in range(2)] == [ids(last)] * 2
    assert functions.session(last["session_id"]).version == version
    assert looked == ["call_0"] and len(functions.model.requests) == 2
    assert [record.mark for record in functions.records()[before:]].count("end") == 1


def test_several_calls_go_to_a_map_and_inline_ones_nowhere(claim: Claim, looked: list[str]) -> None:
    functions = claim(calls(call("look"), call("peek"), call("subagent__finder", message="find")))
    told = functions.invoke("call_model", functions.sample("call_model"))
    kinds = [(one["id"], one["kind"]) for one in told["calls"]]
    assert told["next"] == "map" and looked == ["call_1"], "peek ran inside of call_model"
    assert kinds == [("call_0", "call_tool"), ("call_2", "start_run")]


def test_inline_calls_alone_leave_the_next_step_only(claim: Claim, looked: list[str]) -> None:
    functions = claim(calls(call("peek"), call("peek")), "Done.")
    told = functions.invoke("call_model", functions.sample("call_model"))
    assert (told["next"], told["step"], sorted(looked)) == ("call_model", 2, ["call_0", "call_1"])
    assert functions.invoke("call_model", told)["next"] == "finish"


def test_a_long_history_is_rolled_over_to_the_next_part(claim: Claim) -> None:
    functions = claim(calls(call("look")), "Done.")
    event = {**functions.sample("call_model"), "events": 300}
    for _ in range(2):
        assert functions.invoke("call_model", event) == {**event, "next": "rolled"}
    part = f"{event['run_id']}__part-2"
    assert functions.executions() == [event["run_id"], part] and functions.run(**ids(event)).part == 2
    assert not functions.model.requests, "the next part buys the step"
    assert steps(functions, {**event, "part": 2, "events": 0})["next"] == "finish"


# --- start_run --------------------------------------------------------------------------------------------------------


def test_a_child_is_started_once_and_answers_every_token(claim: Claim) -> None:
    functions = claim(calls(call("subagent__finder", message="find")), {"output": {"text": "found"}}, "Done.")
    told = functions.invoke("call_model", functions.sample("call_model"))
    sent = {**functions.sample("start_run"), "call": told["call"]}
    assert [functions.invoke("start_run", {**sent, "token": token}) for token in "aab"] == [{"call": "waits"}] * 3
    child = steps(functions, child_of(functions, told))
    assert functions.woken == []
    functions.invoke("finish_run", child)
    assert sorted(functions.woken) == ["a", "b"]
    assert functions.invoke("start_run", {**sent, "token": "c"}) == {"call": "done"}, "its result is stored"
    assert functions.woken[2:] == ["c"]
    assert functions.invoke("call_model", told)["next"] == "finish"


def test_a_token_of_nobody_is_answered_at_once(functions: Functions) -> None:
    functions.play([])
    assert functions.invoke("start_run", functions.sample("start_run")) == {"call": "over"}
    assert functions.woken == [functions.sample("start_run")["token"]]


# --- fail_run, sweep --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fail_run", "fail_run_status"])
def test_an_execution_that_ended_fails_its_run_once(claim: Claim, name: str) -> None:
    functions = claim(of=name)
    event = functions.sample(name)
    assert [functions.invoke("fail_run", event) for _ in range(2)] == [ids(event)] * 2
    session, row = functions.session(ids(event)["session_id"]), functions.run(**ids(event))
    assert (session.status, row.status, row.effects) == ("failed", "failed", "done")
    assert session.error is not None and session.error.code == "runtime_crash" and session.error.recoverable
    assert [record.mark for record in functions.records() if record.mark == "fail"] == ["fail"]


def test_the_event_of_a_part_that_rolled_over_starts_the_next_again(claim: Claim) -> None:
    functions = claim(of="fail_run_status")
    event = functions.sample("fail_run_status")
    functions.invoke("call_model", {**ids(event), "step": 1, "events": 300})
    assert functions.invoke("fail_run", event) == ids(event)
    run_id = ids(event)["run_id"]
    assert functions.session(ids(event)["session_id"]).status == "running"
    assert functions.executions() == [run_id, f"{run_id}__part-2"]


def test_a_denied_operation_fails_its_run_and_the_log_names_it(claim: Claim) -> None:
    """The requests are real and moto's responses deny them. The function does not repeat any attempt."""
    functions = claim("Never said.", of="fail_run")
    event, asked = functions.sample("fail_run"), list[str]()
    table = "arn:aws:dynamodb:us-east-1:123456789012:table/test-sessions"
    denied = (
        f"User: arn:x is not authorized to perform: dynamodb:PutItem on resource: {table} because no policy allows it"
    )

    def deny(model: Any, **_: Any) -> Any:
        asked.append(model.name)
        return SimpleNamespace(status_code=400), {"Error": {"Code": "AccessDeniedException", "Message": denied}}

    writes = [f"before-call.dynamodb.{name}" for name in ("PutItem", "UpdateItem", "TransactWriteItems")]
    events = functions.app.client("dynamodb").meta.events
    for name in writes:
        events.register(name, deny)
    with pytest.raises(AccessDeniedError) as raised:
        functions.invoke("call_model", {**ids(event), "step": 1})
    for name in writes:
        events.unregister(name, deny)
    assert (raised.value.action, raised.value.resource) == ("dynamodb:PutItem", table)
    assert len(asked) == 1
    assert [line for line in functions.lines() if "dynamodb:PutItem" in str(line) and table in str(line)]
    functions.invoke("fail_run", {**event, "error": {"Error": type(raised.value).__name__}})
    session = functions.session(ids(event)["session_id"])
    assert session.error is not None and (session.status, session.error.code) == ("failed", "access_denied")
    assert table not in session.error.message, "names of tables stay in the log"


@pytest.mark.parametrize(("status", "counted"), [("FAILED", 1), ("TIMED_OUT", 1), ("ABORTED", 0)])
def test_an_execution_that_fails_is_a_failure_and_one_that_a_person_stops_is_none(
    claim: Claim, status: str, counted: int
) -> None:
    functions = claim(of="fail_run_status")
    event = functions.sample("fail_run_status")
    functions.invoke("fail_run", event | {"detail": {**event["detail"], "status": status}})
    found = [line["failures"] for line in functions.measures() if "Failures" in line]
    assert found == ["executions-failed"] * counted
    assert not any("Warnings" in line for line in functions.measures()), "that alarm may sound already"


def test_a_sweep_that_raises_is_a_failure(functions: Functions, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep's heartbeat is not late then, and no alarm watches its errors, so it records a failure."""

    async def broken(*_: Any) -> Any:
        raise RuntimeError("secret content")

    monkeypatch.setattr("helix.runtime.verbs.sweep_runs", broken)
    functions.play([])
    with pytest.raises(RuntimeError):
        functions.invoke("sweep", functions.sample("sweep"))
    assert [line["failures"] for line in functions.measures() if "Failures" in line] == ["sweep-fails"]


@pytest.mark.parametrize("verb", ["call_model", "call_tool", "finish_run", "fail_run"])
def test_what_is_about_nobody_is_done(functions: Functions, verb: str) -> None:
    """The session was deleted meanwhile, and the execution gets a regular response instead of an error."""
    functions.play([])
    event = functions.sample(verb)
    wanted = {"call_model": {**event, "next": "rolled"}, "call_tool": {"call": "over"}}
    assert functions.invoke(verb, event) == wanted.get(verb, ids(event))


def test_a_sweep_finds_what_no_event_told(claim: Claim) -> None:
    functions = claim()
    event, about = functions.sample("sweep"), ids(functions.sample("call_model"))
    assert functions.invoke("sweep", event) == {"young": 1}
    functions.clock.ahead_s = 60
    assert functions.invoke("sweep", event) == {"running": 1}
    arn = MACHINE.replace(":stateMachine:", ":execution:") + f":{about['run_id']}"
    boto3.client("stepfunctions").stop_execution(executionArn=arn)
    assert functions.invoke("sweep", event) == {"failed run": 1}
    assert (functions.session(about["session_id"]).status, functions.run(**about).effects) == ("failed", "done")
    assert functions.invoke("sweep", event) == {}


# --- invalid input ----------------------------------------------------------------------------------------------------

ABOUT = {"session_id": "s", "run_id": "r"}


@pytest.mark.parametrize(
    ("verb", "event", "field"),
    [
        ("call_model", {}, "session_id"),
        ("call_model", {**ABOUT, "step": "secret content"}, "step"),
        ("call_model", "secret content", "event"),
        ("call_tool", ABOUT, "call"),
        ("call_tool", {**ABOUT, "call": {"id": "call_1"}}, "call.step"),
        ("start_run", {**ABOUT, "call": {"step": 1, "id": "call_1"}}, "token"),
        ("finish_run", {"session_id": "s"}, "run_id"),
        ("fail_run", {"session_id": "s"}, "event"),
        ("fail_run", {"detail": {"status": "ABORTED", "input": "secret content"}}, "detail.input"),
        ("sweep", None, "event"),
    ],
)
def test_a_wrong_event_is_refused_by_the_field_that_is_wrong(
    functions: Functions, verb: str, event: Any, field: str
) -> None:
    with pytest.raises(InvalidInputError, match=f"^{verb}: {field}: ") as refused:
        functions.invoke(verb, event)
    (line,) = functions.lines()
    assert (line["level"], line["error"]) == ("WARNING", "invalid_input")
    assert "secret" not in f"{refused.value} {line}"


# --- logs -------------------------------------------------------------------------------------------------------------


def test_every_invocation_says_how_long_it_took_and_measures_nothing(claim: Claim) -> None:
    """Lambda's own metrics have durations and errors free of charge. Functions that run each minute log their result."""
    functions = claim(calls(call("look")), "Done.")
    functions.invoke("finish_run", steps(functions, functions.sample("call_model")))
    functions.invoke("sweep", functions.sample("sweep"))
    said = [line for line in functions.lines() if line["message"] == "done"]
    assert [line["service"] for line in said] == ["call_model", "call_tool", "call_model", "finish_run"]
    about = functions.sample("call_model")
    assert [line.get("session_id") for line in said] == [about["session_id"]] * 4
    assert all(line["took_ms"] > 0 and "_aws" not in line for line in said)


def test_lines_name_what_they_are_about_and_say_no_content(claim: Claim) -> None:
    functions = claim(calls(call("fail")), "Done.")
    event = {**functions.sample("call_model"), "events": 300}
    functions.invoke("call_model", event)
    assert steps(functions, {**event, "part": 2, "events": 0})["next"] == "finish"
    lines = functions.lines()
    assert {line["service"] for line in lines} == {"call_model", "call_tool"}
    assert all(ids(line) == ids(event) and line["request_id"] == f"request-{line['service']}" for line in lines)
    assert not any("secret content" in line["message"] for line in lines)
    functions.invoke("sweep", functions.sample("sweep"))
    (line,) = functions.lines()
    assert (line["message"], line["service"]) == ("swept: {'young': 1}", "sweep") and "session_id" not in line


def test_work_of_another_delivery_is_an_error_that_says_so(functions: Functions, helper: AnyAgent) -> None:
    """The state machine's retries match the name of the error. This delivery has no time left to call the model."""
    event = functions.sample("call_model")
    functions.play(["Done."], helper)
    functions.claim(helper, event)
    with pytest.raises(WorkInProgressError):
        functions.invoke("call_model", event, left_s=0)
    (line,) = functions.lines()
    assert (line["level"], line["session_id"], line["step"]) == ("WARNING", event["session_id"], 1)
    assert line["message"].startswith("WorkInProgressError: ") and line["error"] == "work_in_progress"


@pytest.mark.parametrize("shown", ["", "1"])
def test_what_nobody_expected_is_logged_with_its_class(
    claim: Claim, monkeypatch: pytest.MonkeyPatch, shown: str
) -> None:
    """The log always has the class and the place of the exception. Text and traceback are logged only if content is
    shown."""
    monkeypatch.setenv("HELIX_LOG_CONTENT", shown)
    functions = claim()
    functions.app.__dict__["engine"] = None  # breaks the function with an unexpected error
    with pytest.raises(AttributeError):
        functions.invoke("call_model", functions.sample("call_model"))
    (line,) = functions.lines()
    assert (line["level"], line["exception_name"]) == ("ERROR", "AttributeError")
    place = "" if shown else r" \(AttributeError at verbs\.py:\d+\)"
    assert re.fullmatch("unhandled exception" + place, line["message"])
    assert ("no attribute" in json.dumps(line), "exception" in line) == (bool(shown), bool(shown))
