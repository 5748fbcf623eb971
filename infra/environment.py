"""The environment of the functions.

Law: the names are those that `helix.runtime.cloud_settings` reads. An empty variable is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from helix.core.measures import NAMESPACE
from helix.core.thresholds import Thresholds
from helix.infra.concurrency import runs_at_once
from helix.infra.config import Settings
from helix.infra.console import Console
from helix.infra.endpoints import Endpoints
from helix.infra.executions import Executions
from helix.infra.sockets import Sockets
from helix.infra.storage import Storage
from helix.infra.streaming import Streaming
from helix.infra.topics import Topics
from helix.infra.triggers import Triggers
from helix.local.endpoint import ENDPOINT
from helix.runtime.cloud_settings import variable

LOG, TRACE_CONTENT = "HELIX_LOG", "HELIX_TRACE_CONTENT"
METRICS_NAMESPACE = "POWERTOOLS_METRICS_NAMESPACE"
TRACES, TRACE_HEADERS = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS"
"""The variables that OpenTelemetry reads."""


def environment(
    settings: Settings, storage: Storage, streaming: Streaming, executions: Executions, sockets: Sockets
) -> dict[str, str]:
    """Return the variables of every function."""
    known = {
        variable("stage"): settings.stage,
        variable("sessions_table"): storage.tables["sessions"].table_name,
        variable("streams_table"): storage.tables["streams"].table_name,
        variable("control_table"): storage.tables["control"].table_name,
        variable("bucket"): storage.bucket.bucket_name,
        variable("chunks"): streaming.stream.stream_name if streaming.stream else "",
        variable("streaming"): settings.streaming if settings.streaming != "kinesis" else "",
        variable("machine"): executions.pattern,
        variable("sockets"): sockets.management_url,
        variable("agents"): settings.agents,
        variable("model"): settings.model,
        variable("auth"): settings.auth,
        variable("jwt_issuer"): settings.jwt_issuer,
        variable("jwt_audience"): settings.jwt_audience,
        variable("jwks_url"): settings.jwks_url,
        variable("jwt_user_claim"): settings.jwt_user_claim if settings.jwt_user_claim != "sub" else "",
        variable("roll_over_events"): str(settings.roll_over_events),
        variable("steps_per_invocation"): str(settings.steps_per_invocation),
        variable("stream_days"): str(settings.stream_days),
        variable("session_days"): str(settings.session_days) if settings.session_days else "",
        variable("keep_checkpoints"): str(settings.keep_checkpoints) if settings.keep_checkpoints else "",
        variable("budgets"): json.dumps(settings.budgets) if settings.budgets else "",
        variable("limits"): json.dumps(settings.limits) if settings.limits else "",
        variable("max_runs"): str(runs) if (runs := runs_at_once(settings)) else "",
        LOG: settings.log_level,
        TRACE_CONTENT: "true" if settings.trace_content else "",
        TRACES: settings.otlp_endpoint,
        TRACE_HEADERS: settings.otlp_headers,
        METRICS_NAMESPACE: NAMESPACE,
        ENDPOINT: settings.endpoint if settings.for_sam else "",  # the offline cloud sets it for its workers
    }
    return _drop_empty(known)


def own_environment(
    settings: Settings, topics: Topics, endpoints: Endpoints, triggers: Triggers, console: Console
) -> Mapping[str, Mapping[str, str]]:
    """Return the variables that are for only one verb, by verb. Other verbs do not have permissions for the named
    resources."""
    return {
        "call_model": _drop_empty({variable("model_secrets"): ",".join(settings.model_secrets)}),
        "govern": _drop_empty(
            {
                variable("notices"): topics.notices.topic_arn,
                variable("thresholds"): _thresholds(settings),
                variable("provision_agents"): "true" if settings.provision_agents else "",
            }
        ),
        **{
            verb: _drop_empty({variable(field): value for field, value in fields.items()})
            for verb, fields in triggers.environment.items()
        },
        "serve_console": {variable("console"): console.config} if console.verbs else {},
        "health": _drop_empty({variable("metrics_secret"): endpoints.token_arn}),
    }


def _thresholds(settings: Settings) -> str:
    """Return the thresholds that differ from their defaults as JSON, or "" if none does."""
    chosen = settings.model_dump(include=set(Thresholds.model_fields), exclude_defaults=True)
    return json.dumps(chosen) if chosen else ""


def _drop_empty(known: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in known.items() if value}
