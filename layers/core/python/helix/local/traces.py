"""Traces of the offline cloud: a small OTLP/HTTP receiver on loopback, told of by the functions' own exporter.

    POST /v1/traces      what an OpenTelemetry exporter sends (protobuf, also compressed)
    GET  /               the last traces, one line each
    GET  /<trace id>     one of them, as a tree

Law: it listens on 127.0.0.1 alone, keeps the last traces in memory, and forgets them with its process. A trace is told
of when its root is over: functions send their spans before they answer, so by then the others are here.
"""

from __future__ import annotations

import gzip
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from helix.local.trace_tree import Received, dollars, render, root_of

KEPT = 200
MAX_BODY = 64 * 1024 * 1024
PATH = "/v1/traces"

Listener = Callable[[list[Received]], None]


class TraceReceiver:
    """listener: told of each trace whose root came in, from a thread of its own: with all its spans so far."""

    def __init__(self, listener: Listener | None = None, *, port: int = 0) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._traces: OrderedDict[str, dict[str, Received]] = OrderedDict()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    @property
    def url(self) -> str:
        """For OTEL_EXPORTER_OTLP_ENDPOINT, and for people."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> TraceReceiver:
        self._thread.start()
        return self

    def close(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> TraceReceiver:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def traces(self) -> list[list[Received]]:
        """The last, newest first."""
        with self._lock:
            return [list(spans.values()) for spans in reversed(self._traces.values())]

    def trace(self, trace_id: str) -> list[Received]:
        with self._lock:
            return list(self._traces.get(trace_id, {}).values())

    def take(self, body: bytes) -> None:
        """An export. Raises what the protobuf library raises for one that is none."""
        roots = []
        with self._lock:
            for span in decode(body):
                spans = self._traces.setdefault(span.trace_id, {})
                known = spans.get(span.span_id)
                spans[span.span_id] = span
                self._traces.move_to_end(span.trace_id)
                if known is None and root_of([span]) is not None:
                    roots.append(span.trace_id)
            while len(self._traces) > KEPT:
                self._traces.popitem(last=False)
        for trace_id in roots if self._listener is not None else ():
            self._listener(self.trace(trace_id))  # type: ignore[misc]


def decode(body: bytes) -> Iterator[Received]:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest()
    request.ParseFromString(body)
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Received(
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    name=span.name,
                    start=span.start_time_unix_nano / 1e9,
                    end=span.end_time_unix_nano / 1e9,
                    attributes={pair.key: _value(pair.value) for pair in span.attributes},
                    events=tuple(event.name for event in span.events),
                    failed=span.status.code == 2,
                )


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    found = getattr(value, kind)
    return [_value(item) for item in found.values] if kind == "array_value" else found


def _page(receiver: TraceReceiver, path: str) -> str | None:
    name = path.strip("/")
    if name:
        spans = receiver.trace(name)
        return "\n".join(render(spans)) + "\n" if spans else None
    lines = []
    for spans in receiver.traces():
        root = root_of(spans)
        about = f"{root.name}  {root.seconds:.3f} s" if root is not None else "not over yet"
        lines.append(f"/{spans[0].trace_id}  {about}  ${dollars(spans):.6f}  {len(spans)} spans")
    return "\n".join(lines or ["no traces yet"]) + "\n"


def _handler(receiver: TraceReceiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            if length > MAX_BODY:
                self.close_connection = True  # what is not read cannot be followed by another request
                return self._answer(413, b"")
            body = self.rfile.read(length)
            if self.path != PATH:
                return self._answer(404, b"")
            try:
                receiver.take(_unpacked(body, self.headers.get("content-encoding", "")))
            except Exception as error:
                return self._answer(400, type(error).__name__.encode())
            return self._answer(200, b"", "application/x-protobuf")

        def do_GET(self) -> None:
            page = _page(receiver, self.path.partition("?")[0])
            self._answer(404 if page is None else 200, (page or "no such trace\n").encode())

        def _answer(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler


def _unpacked(body: bytes, encoding: str) -> bytes:
    if encoding == "gzip":
        return gzip.decompress(body)
    return zlib.decompress(body) if encoding == "deflate" else body
