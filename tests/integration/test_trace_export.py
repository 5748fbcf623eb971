"""The export of spans: OTLP over HTTP to a receiver, and the loss of spans without a receiver."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import threading
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from tests.support_run import Text, World, a_tool, agent, call, calls, play

from helix.adapters.otel import BUFFERED, REST_S, OtelTracer
from helix.adapters.system import SystemClock
from helix.core.spans import Span, SpanRef, run_ref, trace_id
from helix.local.traces import Received, TraceReceiver, render
from helix.ports.tracing import NoTracer
from helix.runtime.tracing import open_tracer
from helix.testing.clocks import ShiftedClock

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
PATIENCE_S = 10.0


@pytest.fixture
def told() -> list[list[Received]]:
    return []


@pytest.fixture
def receiver(told: list[list[Received]]) -> Iterator[TraceReceiver]:
    with TraceReceiver(told.append) as made:
        yield made


def a_span(n: int = 0) -> Span:
    return Span(SpanRef(trace_id(f"run_{n}"), f"{n + 1:016x}"), f"span {n}", 1.0, 2.0)


class Exporter(SpanExporter):
    """An exporter that waits until the test lets it send, and fails if the test says so."""

    def __init__(self, *, fails: bool = False, blocks: bool = False) -> None:
        self.fails, self.names = fails, list[str]()
        self.open = threading.Event()
        if not blocks:
            self.open.set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.open.wait(PATIENCE_S)
        self.names += [span.name for span in spans]
        if self.fails:
            raise OSError("nobody there")
        return SpanExportResult.SUCCESS


# --- to a receiver ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["none", "gzip", "deflate"])
async def test_a_run_reaches_the_receiver_whole_and_is_told_of_once(
    quick_world: World,
    receiver: TraceReceiver,
    told: list[list[Received]],
    compression: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", compression)
    tracer = open_tracer({ENDPOINT: receiver.url}, service="it")
    echo = a_tool("echo", lambda given, context: given.text, input_schema=Text)
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "cost_micros": 250_000, "calls": 1}
    answer = {"content": "done", "usage": usage}
    executor = quick_world.executor([calls(call("echo", text="x")), answer], tracer=tracer)
    handle, _, _ = await play(executor, agent(tools=[echo]))
    await asyncio.to_thread(tracer.close)
    (spans,) = told
    assert {span.name for span in spans} == {"run helper", "invoke_agent helper", "chat scripted", "execute_tool echo"}
    assert {span.trace_id for span in spans} == {run_ref(handle.run_id, None).trace_id}
    lines = render(spans)
    assert [re.search(r"[a-z_]+ [a-z]+", line)[0] for line in lines] == [  # type: ignore[index]
        "run helper",
        "invoke_agent helper",
        "chat scripted",
        "execute_tool echo",
        "chat scripted",
    ]
    assert "$0.250000" in lines[0] and "completed (execute)" in lines[0]
    assert "9 + 2 tokens" in lines[-1] and "$0.250000" in lines[-1]
    async with httpx.AsyncClient(base_url=receiver.url) as http:
        listed = (await http.get("/")).text
        assert handle.run_id not in listed and "run helper" in listed and "5 spans" in listed
        page = await http.get(f"/{spans[0].trace_id}")
        assert page.text.splitlines() == lines
        assert (await http.get("/0123")).status_code == 404


async def test_what_is_no_export_is_refused(receiver: TraceReceiver) -> None:
    async with httpx.AsyncClient(base_url=receiver.url) as http:
        assert (await http.post("/v1/traces", content=b"\xff\xff\xff")).status_code == 400
        assert (await http.post("/v1/traces", content=b"")).status_code == 200, "an export of nothing"
        assert (await http.post("/v1/logs", content=b"x")).status_code == 404
        packed = {"content-encoding": "gzip"}
        assert (await http.post("/v1/traces", content=b"no gzip", headers=packed)).status_code == 400
        assert (await http.get("/")).text == "no traces yet\n"


def asked(receiver: TraceReceiver, head: str, body: bytes = b"") -> int:
    """Return the status of a request that no client library would send."""
    path = receiver.url.removeprefix(f"http://127.0.0.1:{receiver.port}")
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=20) as connection:
        request = f"POST {path}/v1/traces HTTP/1.1\r\nHost: 127.0.0.1:{receiver.port}\r\n{head}\r\n\r\n"
        connection.sendall(request.encode() + body)
        return int(connection.makefile("rb").readline().split()[1])


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("Content-Length: 0", 200),
        ("Content-Length: -1", 400),
        ("Content-Length: 1, 1", 400),
        ("Content-Length: 1\r\nContent-Length: 1", 400),
        ("Content-Length: +1", 400),
        ("Content-Length: 1_0", 400),
        ("Content-Length: ١", 400),
        (f"Content-Length: {'1' * 5_000}", 400),
        ("Content-Length: 999999999999999", 413),
        ("Transfer-Encoding: chunked", 400),
    ],
)
def test_a_length_that_is_not_one_number_is_refused(receiver: TraceReceiver, head: str, status: int) -> None:
    assert asked(receiver, head, b"x") == status


def test_what_is_packed_is_bounded(receiver: TraceReceiver) -> None:
    """70 MB are compressed to 70 KB."""
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    body = b"".join([*(packer.compress(bytes(2**20)) for _ in range(70)), packer.flush()])
    assert asked(receiver, f"Content-Encoding: gzip\r\nContent-Length: {len(body)}", body) == 413
    assert asked(receiver, f"Content-Encoding: gzip\r\nContent-Length: {len(body) // 2}", body[: len(body) // 2]) == 400


async def test_an_executor_traces_where_the_environment_says(
    quick_world: World, receiver: TraceReceiver, told: list[list[Received]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENDPOINT, receiver.url)
    executor = quick_world.executor(["done"])
    await play(executor, agent())
    await executor.close()  # this sends the rest
    assert len(told) == 1


def test_a_span_without_its_parent_is_shown_nevertheless() -> None:
    lines = render([Received("t", "b", "gone", "chat it", 1.0, 1.5), Received("t", "c", "b", "below", 1.1, 1.2)])
    assert [line.split("  ")[0] for line in lines] == ["chat it", "└─ below"]


# --- by the environment -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {ENDPOINT: " "},
        {ENDPOINT: "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"},
        {ENDPOINT: "http://127.0.0.1:9", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_without_an_endpoint_nobody_is_asked_for_spans(environment: dict[str, str]) -> None:
    assert isinstance(open_tracer(environment), NoTracer)


def test_a_protocol_that_helix_does_not_speak_is_said(caplog: pytest.LogCaptureFixture) -> None:
    given = {ENDPOINT: "http://127.0.0.1:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    assert isinstance(open_tracer(given), NoTracer)
    assert "http/protobuf only" in caplog.text


@pytest.mark.parametrize(
    ("sampler", "argument", "kept"),
    [("always_off", "", 0), ("traceidratio", "0", 0), ("parentbased_traceidratio", "1", 1), ("odd", "", 1)],
)
def test_samplers_are_understood_by_their_names(
    receiver: TraceReceiver, sampler: str, argument: str, kept: int, caplog: pytest.LogCaptureFixture
) -> None:
    given = {ENDPOINT: receiver.url, "OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": argument}
    tracer = open_tracer(given)
    tracer.record(a_span())
    tracer.close()
    assert len(receiver.traces()) == kept
    assert ("not understood" in caplog.text) is (sampler == "odd")


def test_content_is_off_unless_asked() -> None:
    for text, content in (("", False), ("false", False), ("true", True)):
        tracer = open_tracer({ENDPOINT: "http://127.0.0.1:9", "HELIX_TRACE_CONTENT": text})
        assert tracer.on and tracer.content is content
        tracer.close()


# --- without a receiver ------------------------------------------------------------------------------------------


async def test_an_endpoint_that_is_down_harms_no_run(quick_world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]  # no server will listen there
    tracer = open_tracer({ENDPOINT: f"http://127.0.0.1:{port}"})
    executor = quick_world.executor(["done"], tracer=tracer)
    _, result, _ = await play(executor, agent())
    assert result.status == "completed"
    await asyncio.to_thread(tracer.close)


def test_after_a_failure_the_exporter_is_left_alone_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    exporter, clock = Exporter(fails=True), ShiftedClock()
    tracer = OtelTracer(exporter, clock)
    for n in range(3):
        tracer.record(a_span(n))
        assert tracer.flush(PATIENCE_S), "spans that cannot be sent are dropped"
    assert exporter.names == ["span 0"]
    assert caplog.text.count("cannot be exported") == 1
    exporter.fails = False
    clock.ahead_s += REST_S
    tracer.record(a_span(3))
    assert tracer.flush(PATIENCE_S)
    assert exporter.names == ["span 0", "span 3"]
    tracer.close()


def test_nobody_waits_longer_than_he_said_and_the_buffer_is_bounded() -> None:
    exporter = Exporter(blocks=True)
    tracer = OtelTracer(exporter, SystemClock())
    for n in range(BUFFERED + 1000):
        tracer.record(a_span(n))
    assert not tracer.flush(0.05)
    exporter.open.set()
    assert tracer.flush(PATIENCE_S)
    assert len(exporter.names) <= BUFFERED + 1000 and exporter.names[-1] == f"span {BUFFERED + 999}", "the newest stay"
    tracer.close()
    tracer.record(a_span(1))  # too late, and harmless
    tracer.close()


async def test_a_span_that_cannot_be_told_fails_nothing(quick_world: World, caplog: pytest.LogCaptureFixture) -> None:
    class Odd(NoTracer):
        on = True

        def record(self, span: Span) -> Any:
            raise RuntimeError("no")

    executor = quick_world.executor(["done"], tracer=Odd())
    with caplog.at_level(logging.WARNING):
        _, result, _ = await play(executor, agent())
    assert result.status == "completed"
    assert "a span could not be recorded" in caplog.text
