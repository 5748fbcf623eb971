"""The tracer of a process, chosen by OpenTelemetry's own environment variables.

    OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT    destination of spans; with neither, nothing is traced
    OTEL_EXPORTER_OTLP_HEADERS, _TIMEOUT, _COMPRESSION, _CERTIFICATE   as the exporter understands them
    OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES                        the names under which spans appear
    OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG                       the share of traces that is kept
    OTEL_SDK_DISABLED=true, OTEL_TRACES_EXPORTER=none                  nothing is traced
    HELIX_TRACE_CONTENT=true                                           spans contain the text of people, models and tools

Law: without an endpoint nothing is imported. If a tracer cannot be created, a warning is logged and nothing is traced, but
runs do not fail.
"""

from __future__ import annotations

from collections.abc import Mapping

from helix._log import get_logger
from helix.adapters.system import SystemClock
from helix.ports.tracing import NoTracer, Tracer

logger = get_logger("helix.tracing")

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
CONTENT = "HELIX_TRACE_CONTENT"
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
EXPORT_S = 3.0
"""The timeout of one export including its retries, if the environment does not set one."""
_TIMEOUTS = frozenset({"OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"})
_SAMPLERS = {"always_on": 1.0, "parentbased_always_on": 1.0, "always_off": 0.0, "parentbased_always_off": 0.0}
_RATIOS = ("traceidratio", "parentbased_traceidratio")


def open_tracer(environment: Mapping[str, str], *, service: str = "helix") -> Tracer:
    """Return the tracer. `service` names the process if OTEL_SERVICE_NAME is not set. The caller closes the tracer."""
    given = {name: value.strip() for name, value in environment.items() if value.strip()}
    url = given.get(TRACES_ENDPOINT) or _traces_path(given.get(ENDPOINT, ""))
    off = given.get("OTEL_SDK_DISABLED", "").lower() == "true" or given.get("OTEL_TRACES_EXPORTER") == "none"
    if not url or off:
        return NoTracer()
    protocol = next((given[name] for name in PROTOCOLS if name in given), "http/protobuf")
    if protocol != "http/protobuf":
        logger.warning("nothing is traced: %s is %r, and Helix speaks http/protobuf only", PROTOCOLS[1], protocol)
        return NoTracer()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        from helix.adapters.otel import OtelTracer
    except ImportError:
        logger.warning(
            "%s is set, but nothing is traced, because OpenTelemetry is not installed; pip install 'helix-agents[otel]'",
            ENDPOINT,
        )
        return NoTracer()
    resource = {} if "OTEL_SERVICE_NAME" in given else {"service.name": service}
    if "AWS_LAMBDA_FUNCTION_NAME" in given:
        resource["faas.name"] = given["AWS_LAMBDA_FUNCTION_NAME"]
        resource["faas.version"] = given.get("AWS_LAMBDA_FUNCTION_VERSION", "")
    return OtelTracer(
        OTLPSpanExporter(endpoint=url, timeout=None if _TIMEOUTS & given.keys() else EXPORT_S),
        SystemClock(),
        resource=resource,
        ratio=_ratio(given),
        content=given.get(CONTENT, "").lower() in ("true", "1", "yes"),
    )


def _traces_path(base: str) -> str:
    return f"{base.rstrip('/')}/v1/traces" if base else ""


def _ratio(given: Mapping[str, str]) -> float:
    """Return the share of traces to keep. An invalid value keeps all of them, with a warning."""
    sampler = given.get("OTEL_TRACES_SAMPLER", "always_on")
    if sampler in _SAMPLERS:
        return _SAMPLERS[sampler]
    try:
        ratio = float(given.get("OTEL_TRACES_SAMPLER_ARG", "1"))
    except ValueError:
        ratio = -1.0
    if sampler not in _RATIOS or not 0 <= ratio <= 1:
        logger.warning("OTEL_TRACES_SAMPLER %r with %r is not understood: every trace is kept", sampler, ratio)
        return 1.0
    return ratio
