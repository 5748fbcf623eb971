"""A real run in the deployed functions records every metric that the engine owns, with the values that its rows have."""

from __future__ import annotations

from typing import Any

from tests.functions.conftest import Functions
from tests.support_measures import says, used
from tests.support_run import a_tool, agent, call, calls

from helix.core.entries import AssistantRow
from helix.core.measures import UNITS
from helix.local.metrics import data_of
from helix.services.usage_counters import agent_scope, read_totals
from helix.sessions.session_rows import read_session_rows

OF_A_RUN = {
    *("ModelCalls", "ModelErrors", "ModelThrottles", "InputTokens", "OutputTokens", "CachedTokens", "TotalTokens"),
    *("CostUsd", "ModelLatency", "TimeToFirstToken", "ToolCalls", "ToolErrors", "ToolLatency"),
    *("RunsStarted", "RunsCompleted", "RunsFailed", "RunDuration"),
}
"""The metrics that every run records, however it ends. `RunsStopped` is for runs that a person stops."""


def finish(functions: Functions, event: Any) -> None:
    told = functions.invoke("call_model", event)
    while told["next"] in ("call_tool", "call_model"):
        if told["next"] == "call_tool":
            functions.invoke("call_tool", told)
        told = functions.invoke("call_model", told)
    assert told["next"] == "finish"
    functions.invoke("finish_run", told)


def summed(lines: list[dict[str, Any]], stage: str, who: str | None) -> dict[str, float]:
    """Sum the metrics with these dimensions, as CloudWatch does."""
    wanted = [{"Name": "stage", "Value": stage}] + ([{"Name": "agent", "Value": who}] if who else [])
    sums: dict[str, float] = {}
    for line in lines:
        for namespace, datum in data_of(line):
            assert namespace == "Helix" and datum["Unit"] == UNITS[datum["MetricName"]]
            if datum["Dimensions"] == wanted:
                sums[datum["MetricName"]] = sums.get(datum["MetricName"], 0) + sum(datum["Values"])
    return sums


def test_a_run_in_the_functions_is_measured_as_its_rows_say(functions: Functions) -> None:
    who = agent("helper", tools=[a_tool("look", lambda _, __: "found"), a_tool("fail", lambda _, __: 1 / 0)])
    first = {**calls(call("look")), "usage": used(200, 20, 900, cached_tokens=50).model_dump()}
    second = {**calls(call("fail")), "usage": used(250, 25, 1000).model_dump()}
    functions.play([first, second, says("Done.", used(300, 30, 1200))], who)
    event = functions.sample("call_model")
    functions.claim(who, event)
    finish(functions, event)

    lines = functions.measures()
    stage = functions.app.settings.stage
    helper, all_of_it = summed(lines, stage, "helper"), summed(lines, stage, None)
    assert helper == all_of_it
    rows = functions.app.run(read_session_rows(functions.app.store, event["session_id"]))
    answers = [entry for entry in rows.entries.values() if isinstance(entry, AssistantRow)]
    assert helper["ModelCalls"] == len(answers) == 3
    assert helper["InputTokens"] == sum(answer.usage.prompt_tokens for answer in answers) == 750
    assert round(helper["CostUsd"] * 1e6) == sum(answer.usage.cost_micros for answer in answers) == 3100
    assert (helper["ToolCalls"], helper["ToolErrors"]) == (2, 1)
    assert (helper["RunsStarted"], helper["RunsCompleted"]) == (1, 1)

    (total,) = functions.app.run(read_totals(functions.app.store, agent_scope("helper")))
    assert (total.input, total.output, total.micros, total.calls, total.runs) == (750, 75, 3100, 3, 1)


def test_every_name_that_a_run_has_is_measured(functions: Functions) -> None:
    who = agent("helper", tools=[a_tool("look", lambda _, __: "found")])
    failing = {"error": "slow down", "code": "rate_limited", "retryable": True}
    functions.play([calls(call("look")), says("Done.", used()), failing], who)
    event = functions.sample("call_model")
    functions.claim(who, event)
    finish(functions, event)
    second = {**event, "run_id": event["run_id"].replace("000001", "000002"), "step": 3}
    functions.claim(who, second)
    finish(functions, second)
    lines = functions.measures()
    assert {name for line in lines for _, datum in data_of(line) for name in [datum["MetricName"]]} == OF_A_RUN
    places = [(line["run_id"], line["step"], line["attempt"]) for line in lines if "ModelCalls" in line]
    assert len(set(places)) == len(places) == 3


def test_a_delivery_that_comes_again_measures_nothing_again(functions: Functions) -> None:
    functions.play([says("Done.", used())])
    event = functions.sample("call_model")
    who = functions.app.agents.named("helper")
    functions.claim(who, event)
    finish(functions, event)
    before = len(functions.measures())
    finish(functions, event)
    assert len(functions.measures()) == before == 3
