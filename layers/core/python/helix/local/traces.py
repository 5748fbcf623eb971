"""Traces in the offline cloud: a small OTLP/HTTP receiver on loopback for the functions' exporter.

    POST /v1/traces      the request of an OpenTelemetry exporter (protobuf, also compressed)
    GET  /               the last traces, one line each
    GET  /<trace id>     one of them as a tree: its spans, their durations and costs

All paths begin with a random prefix, which is part of the URL and acts as a secret. Other users on the machine and web
pages do not know it.

    run librarian            1.24 s   $0.0015   completed
    └─ invoke_agent          1.21 s
       ├─ chat gpt-4o        0.80 s   $0.0010   512 + 45 tokens
       ├─ execute_tool find  0.10 s             attempt 2
       └─ chat gpt-4o        0.31 s   $0.0005   603 + 12 tokens

Law: the receiver listens on 127.0.0.1 only, and keeps the latest traces in memory until its process ends. A trace is
reported when its root span arrives. Functions send their spans before they return, so the other spans have arrived by then.
A span whose parent is missing is shown at the top level, so no span is lost.
"""

from __future__ import annotations

import hmac
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helix.adapters.system import SystemIds
from helix.core import genai
from helix.gateway.loopback_pages import LoopbackHandler, PageServer
from helix.ports.ids import new_secret


@dataclass(frozen=True, slots=True)
class Received:
    """A received span."""

    trace_id: str
    """The trace's id in hexadecimal."""
    span_id: str
    """The span's id in hexadecimal."""
    parent_id: str
    """The id of the parent span in hexadecimal. Empty: the span is the root of its trace."""
    name: str
    """The span's name, such as `run <agent>` or `chat <model>`."""
    start: float
    """The start in Unix seconds."""
    end: float
    """The end in Unix seconds."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """The attributes by name."""
    events: tuple[str, ...] = ()
    """The names of the span's events."""
    failed: bool = False
    """Whether the span's status is an error."""

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def dollars(self) -> float | None:
        """The span's own cost, for a model call or a tool that reports its usage. None for spans that aggregate others."""
        if self.attributes.get(genai.OPERATION) in (genai.CHAT, genai.EXECUTE_TOOL):
            found = self.attributes.get(genai.COST)
            return None if found is None else float(found)
        return None


def dollars(spans: Sequence[Received]) -> float:
    return sum(span.dollars or 0 for span in spans)


def root_of(spans: Sequence[Received]) -> Received | None:
    """Return the span of the run that the trace belongs to, or None until it has arrived."""
    return next((span for span in spans if not span.parent_id and span.name.startswith("run ")), None)


def render(spans: Sequence[Received]) -> list[str]:
    """Return one line for each span, as a tree in the order of their starts."""
    lines = list(_lines(spans))
    width = max((len(head) for head, _ in lines), default=0)
    return [f"{head:<{width}}  {_figures(span, spans)}".rstrip() for head, span in lines]


def _lines(spans: Sequence[Received]) -> Iterator[tuple[str, Received]]:
    known = {span.span_id for span in spans}
    below: dict[str, list[Received]] = {}
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        below.setdefault(span.parent_id if span.parent_id in known else "", []).append(span)

    def walk(parent: str, indent: str) -> Iterator[tuple[str, Received]]:
        children = below.get(parent, [])
        for n, span in enumerate(children):
            last = n + 1 == len(children)
            branch, deeper = ("└─ ", "   ") if last else ("├─ ", "│  ")
            yield f"{indent}{branch if parent else ''}{span.name}", span
            yield from walk(span.span_id, indent + deeper if parent else indent)

    return walk("", "")


def _figures(span: Received, spans: Sequence[Received]) -> str:
    cost = dollars(spans) if not span.parent_id else span.dollars
    return "  ".join([f"{span.seconds:8.3f} s", f"{f'${cost:.6f}' if cost else '':>11}", *_list_remarks(span)])


def _list_remarks(span: Received) -> Iterator[str]:
    attributes = span.attributes
    if (status := attributes.get("helix.run.status")) is not None:
        yield f"{status} ({attributes.get('helix.run.mode')})"
    if attributes.get(genai.OPERATION) == genai.CHAT and genai.INPUT_TOKENS in attributes:
        yield f"{attributes[genai.INPUT_TOKENS]} + {attributes.get(genai.OUTPUT_TOKENS, 0)} tokens"
    if attributes.get(genai.RETRY):
        yield f"attempt {attributes.get(genai.ATTEMPT)}"
    if span.events:
        yield ", ".join(span.events)
    if (error := attributes.get(genai.ERROR_TYPE)) is not None:
        yield f"FAILED: {error}" if span.failed else str(error)


RETAINED = 200
MAX_BODY = 64 * 1024 * 1024
PATH = "/v1/traces"

Listener = Callable[[list[Received]], None]


class TraceReceiver:
    """The receiver. listener: called from a separate thread with all spans of a trace whose root has arrived."""

    def __init__(self, listener: Listener | None = None, *, port: int = 0) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._traces: OrderedDict[str, dict[str, Received]] = OrderedDict()
        self._secret = f"/{new_secret(SystemIds())}"
        self._server = PageServer(port, _handler(self))

    @property
    def url(self) -> str:
        """The URL for OTEL_EXPORTER_OTLP_ENDPOINT, which can also be opened in a browser."""
        return f"http://127.0.0.1:{self.port}{self._secret}"

    @property
    def port(self) -> int:
        return self._server.port

    def strip_secret(self, path: str) -> str | None:
        """Return the path after the secret prefix, or None if the path does not begin with it."""
        head, rest = path[: len(self._secret)], path[len(self._secret) :]
        return rest if hmac.compare_digest(head.encode(), self._secret.encode()) else None

    def __enter__(self) -> TraceReceiver:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def traces(self) -> list[list[Received]]:
        """Return the latest traces, newest first."""
        with self._lock:
            return [list(spans.values()) for spans in reversed(self._traces.values())]

    def trace(self, trace_id: str) -> list[Received]:
        with self._lock:
            return list(self._traces.get(trace_id, {}).values())

    def store_export(self, body: bytes) -> None:
        """Store an export request. Raises the protobuf library's error if `body` is invalid."""
        roots = []
        with self._lock:
            for span in decode(body):
                spans = self._traces.setdefault(span.trace_id, {})
                known = spans.get(span.span_id)
                spans[span.span_id] = span
                self._traces.move_to_end(span.trace_id)
                if known is None and root_of([span]) is not None:
                    roots.append(span.trace_id)
            while len(self._traces) > RETAINED:
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
        lines.append(f"{receiver.url}/{spans[0].trace_id}  {about}  ${dollars(spans):.6f}  {len(spans)} spans")
    return "\n".join(lines or ["no traces yet"]) + "\n"


def _handler(receiver: TraceReceiver) -> type[LoopbackHandler]:
    class Handler(LoopbackHandler):
        def do_POST(self) -> None:
            if (path := self._admit()) is None:
                return None
            body = self.read_body(MAX_BODY)
            if path != PATH:
                return self.respond(404, b"")
            try:
                body = _decompress(body, self.headers.get("content-encoding", ""))
                if len(body) > MAX_BODY:
                    return self.respond(413, b"")
                receiver.store_export(body)
            except Exception as error:
                return self.respond(400, type(error).__name__.encode())
            return self.respond(200, b"", "application/x-protobuf")

        def do_GET(self) -> None:
            if (path := self._admit()) is not None:
                page = _page(receiver, path.partition("?")[0])
                self.respond(404 if page is None else 200, (page or "no such trace\n").encode())

        def _admit(self) -> str | None:
            """Return the path if the request is allowed. Otherwise send the error response and return None."""
            why, path = self.find_refusal(receiver.port), receiver.strip_secret(self.path)
            if why is None and path is not None:
                return path
            if why is not None:
                self.refuse(why)
            else:
                self.close_connection = True  # the body is not read
                self.respond(404, b"")
            return None

    return Handler


def _decompress(body: bytes, encoding: str) -> bytes:
    """Return the decompressed body, at most one byte longer than `MAX_BODY`."""
    if encoding not in ("gzip", "deflate"):
        return body
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)  # for both formats
    found = unpacker.decompress(body, MAX_BODY + 1)
    if not unpacker.eof and len(found) <= MAX_BODY:
        raise ValueError("the body ends within what is packed")
    return found
