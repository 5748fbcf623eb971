"""`helix dev` shows traces: the endpoint that functions send them to, and the text that a person reads."""

from __future__ import annotations

import json

import pytest

from helix.adapters.system import SystemClock
from helix.cli.cloud.dev import show_traces, tracing
from helix.core.spans import Span, SpanRef, run_ref
from helix.runtime.tracing import ENDPOINT, TRACES_ENDPOINT, open_tracer

NOW = SystemClock().now()


def a_run() -> list[Span]:
    root = run_ref("run_1", None)
    told: dict[str, str | float] = {"gen_ai.operation.name": "chat", "helix.cost_usd": 0.5}
    return [
        Span(SpanRef(root.trace_id, "1" * 16), "chat m", NOW, NOW + 1, parent=root.span_id, attributes=told),
        Span(root, "run helper", NOW, NOW + 2),
    ]


@pytest.mark.parametrize("logs", ["text", "json"])
def test_a_finished_run_is_shown_in_the_format_of_the_logs(logs: str, capsys: pytest.CaptureFixture[str]) -> None:
    with tracing(show_traces(logs == "json"), {}) as (variables, where):
        assert variables == {ENDPOINT: where}
        tracer = open_tracer(variables)
        for span in a_run():
            tracer.record(span)
        tracer.close()
    shown = capsys.readouterr().out
    if logs == "json":
        line = json.loads(shown)
        assert line["trace"] == run_ref("run_1", None).trace_id
        assert [span["name"] for span in line["spans"]] == ["chat m", "run helper"]
    else:
        head, below = shown.strip().splitlines()
        assert head.startswith("run helper") and "2.000 s" in head and "$0.500000" in head
        assert below.strip().startswith("└─ chat m") and "1.000 s" in below


@pytest.mark.parametrize("name", [ENDPOINT, TRACES_ENDPOINT])
def test_an_endpoint_of_ones_own_gets_the_traces(name: str) -> None:
    with tracing(lambda spans: None, {name: "http://collector:4318"}) as (variables, where):
        assert variables == {name: "http://collector:4318"} and where == "http://collector:4318"
