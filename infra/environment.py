"""What functions are told by their environment.

Law: the names are those of `helix.runtime.cloud_settings`, which reads them. A variable that would be empty is left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from helix.core.measures import NAMESPACE
from helix.runtime import cloud_settings as variables
from infra.config import ENDPOINT, Settings
from infra.endpoints import Endpoints
from infra.executions import Executions
from infra.sockets import Sockets
from infra.storage import Storage
from infra.streaming import Streaming
from infra.topics import Topics

METRICS_NAMESPACE = "POWERTOOLS_METRICS_NAMESPACE"
TRACES, TRACE_HEADERS = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS"
"""OpenTelemetry's own."""


def environment(
    settings: Settings, storage: Storage, streaming: Streaming, executions: Executions, sockets: Sockets
) -> dict[str, str]:
    """What every function is told."""
    told = {
        variables.STAGE: settings.stage,
        variables.SESSIONS_TABLE: storage.tables["sessions"].table_name,
        variables.STREAMS_TABLE: storage.tables["streams"].table_name,
        variables.CONTROL_TABLE: storage.tables["control"].table_name,
        variables.BUCKET: storage.bucket.bucket_name,
        variables.CHUNKS: streaming.stream.stream_name,
        variables.MACHINE: executions.pattern,
        variables.SOCKETS: sockets.management_url,
        variables.AGENTS: settings.agents,
        variables.MODEL: settings.model,
        variables.AUTH: settings.auth,
        variables.JWT_ISSUER: settings.jwt_issuer,
        variables.JWT_AUDIENCE: settings.jwt_audience,
        variables.JWKS_URL: settings.jwks_url,
        variables.ROLL_OVER_EVENTS: str(settings.roll_over_events),
        variables.STREAM_DAYS: str(settings.stream_days),
        variables.MAX_RUNS: str(settings.max_runs) if settings.max_runs else "",
        variables.LOG: settings.log_level,
        variables.TRACE_CONTENT: "true" if settings.trace_content else "",
        TRACES: settings.otlp_endpoint,
        TRACE_HEADERS: settings.otlp_headers,
        METRICS_NAMESPACE: NAMESPACE,
        ENDPOINT: settings.endpoint if settings.for_sam else "",  # the offline cloud tells its workers itself
    }
    return _filled(told)


def own_environment(settings: Settings, topics: Topics, endpoints: Endpoints) -> Mapping[str, Mapping[str, str]]:
    """What only these verbs are told: none other has the right to it."""
    return {
        "call_model": _filled({variables.MODEL_SECRETS: ",".join(settings.model_secrets)}),
        "govern": _filled(
            {
                variables.NOTICES: topics.notices.topic_arn,
                variables.PROVISION_AGENTS: "true" if settings.provision_agents else "",
            }
        ),
        "health": {variables.METRICS_SECRET: endpoints.token_arn},
    }


def _filled(told: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in told.items() if value}
