"""Lines in CloudWatch's embedded metric format, parsed as CloudWatch parses them."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from helix.adapters.aws.emf import EmfMetrics
from helix.core.measures import NAMESPACE, UNITS, Measures
from helix.local.metrics import data_of, embedded
from helix.testing.clocks import SetClock


def written(measures: Measures, stage: str = "prod") -> dict[str, Any]:
    out = io.StringIO()
    EmfMetrics(stage, SetClock(1_700_000_000.5), out=out).record(measures)
    (line,) = out.getvalue().splitlines()
    document = embedded(line)
    assert document is not None and document == json.loads(line)
    return document


def check_specification(document: dict[str, Any]) -> None:
    """Check the rules of the specification that our documents could break."""
    (directive,) = document["_aws"]["CloudWatchMetrics"]
    assert set(document["_aws"]) == {"Timestamp", "CloudWatchMetrics"} and type(document["_aws"]["Timestamp"]) is int
    assert set(directive) == {"Namespace", "Dimensions", "Metrics"} and 1 <= len(directive["Metrics"]) <= 100
    for names in directive["Dimensions"]:
        assert len(names) <= 30 and all(isinstance(document[name], str) and document[name] for name in names)
    for metric in directive["Metrics"]:
        value = document[metric["Name"]]
        assert isinstance(value, int | float) and not isinstance(value, bool)
    assert len(json.dumps(document)) < 256 * 1024


def test_an_agents_measures_count_for_it_and_for_the_stage() -> None:
    details: dict[str, str | int] = {"session_id": "ses_1", "step": 3, "model": "openai/gpt-4o"}
    document = written(Measures({"ModelCalls": 1, "ModelLatency": 1234.5, "CostUsd": 0.002}, "chat", details))
    check_specification(document)
    assert document["_aws"]["Timestamp"] == 1_700_000_000_500
    assert (document["session_id"], document["step"], document["model"]) == ("ses_1", 3, "openai/gpt-4o")
    data = list(data_of(document))
    assert {namespace for namespace, _ in data} == {NAMESPACE} == {"Helix"}
    told = {
        (datum["MetricName"], tuple((d["Name"], d["Value"]) for d in datum["Dimensions"])): (
            datum["Values"],
            datum["Unit"],
        )
        for _, datum in data
    }
    stage, agent = (("stage", "prod"),), (("stage", "prod"), ("agent", "chat"))
    assert told == {
        ("ModelCalls", stage): ([1.0], "Count"),
        ("ModelCalls", agent): ([1.0], "Count"),
        ("ModelLatency", stage): ([1234.5], "Milliseconds"),
        ("ModelLatency", agent): ([1234.5], "Milliseconds"),
        ("CostUsd", stage): ([0.002], "None"),
        ("CostUsd", agent): ([0.002], "None"),
    }


def test_measures_of_all_agents_count_for_the_stage_only() -> None:
    document = written(Measures({"QueueDepth": 4}), stage="")
    check_specification(document)
    ((_, datum),) = data_of(document)
    assert datum["Dimensions"] == [{"Name": "stage", "Value": "dev"}] and datum["Values"] == [4.0]


@pytest.mark.parametrize("name", sorted(UNITS))
def test_every_metric_of_the_table_can_be_written(name: str) -> None:
    document = written(Measures({name: 1.5}, "chat"))
    check_specification(document)
    assert [datum["Unit"] for _, datum in data_of(document)] == [UNITS[name]] * 2


def test_details_do_not_hide_what_is_measured() -> None:
    document = written(Measures({"ModelCalls": 1}, "chat", {"agent": "x", "stage": "y", "ModelCalls": 9}))
    assert (document["agent"], document["stage"], document["ModelCalls"]) == ("chat", "prod", 1)


def test_a_metric_that_is_not_in_the_table_cannot_be_recorded() -> None:
    with pytest.raises(KeyError):
        Measures({"Mood": 1})


def test_what_cannot_be_written_fails_nobody() -> None:
    out = io.StringIO()
    metrics = EmfMetrics("prod", SetClock(), out=out)
    metrics.record(Measures({}))
    metrics.record(Measures({"ModelLatency": float("nan")}, "chat"))
    assert "NaN" not in out.getvalue(), "not valid JSON, so CloudWatch would drop the line"
    out.close()
    metrics.record(Measures({"ModelCalls": 1}, "chat"))


def test_lines_go_where_the_process_writes(capsys: pytest.CaptureFixture[str]) -> None:
    EmfMetrics("prod", SetClock()).record(Measures({"ModelCalls": 1}, "chat"))
    assert '"ModelCalls":1' in capsys.readouterr().out
