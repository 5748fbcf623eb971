"""Each deployed function sends its spans before it responds, and does not fail or wait long because of traces."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from tests.functions.conftest import Functions
from tests.support_run import Text, a_tool, agent, call, calls

from helix.core.spans import run_ref
from helix.local.traces import TraceReceiver, render

ECHO = a_tool("echo", lambda given, context: given.text, input_schema=Text)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[TraceReceiver]:
    with TraceReceiver() as made:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
        monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "helix-test-call_model")
        yield made


def play(functions: Functions) -> dict[str, Any]:
    """Play a run of two steps and return the event of the last function."""
    functions.play([calls(call("echo", text="x")), "done"], who := agent("helper", tools=[ECHO]))
    functions.claim(who, event := functions.sample("call_model"))
    told = functions.invoke("call_model", event)
    functions.invoke("call_tool", told)
    told = functions.invoke("call_model", told)
    assert told["next"] == "finish"
    return told


def test_spans_are_sent_before_the_answer(receiver: TraceReceiver, functions: Functions) -> None:
    told = play(functions)
    trace = run_ref(told["run_id"], None).trace_id
    assert sorted(span.name for span in receiver.trace(trace)) == [
        "chat scripted",
        "chat scripted",
        "execute_tool echo",
    ]
    functions.invoke("finish_run", told)
    lines = render(receiver.trace(trace))
    assert lines[0].startswith("run helper") and len(lines) == 5


def test_a_collector_that_is_gone_costs_no_answer(functions: Functions, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    told = play(functions)
    functions.invoke("finish_run", told)
    assert functions.run(told["session_id"], told["run_id"]).effects == "done"


def test_a_collector_that_is_silent_holds_up_an_answer_for_two_seconds_at_most(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        begun = functions.clock.now()
        told = play(functions)
        functions.invoke("finish_run", told)
        assert functions.clock.now() - begun < 10, "after the first failure no function waits for the receiver"
        assert functions.run(told["session_id"], told["run_id"]).effects == "done"


def test_without_an_endpoint_there_is_no_tracer(functions: Functions) -> None:
    play(functions)
    assert not functions.app.tracer.on
