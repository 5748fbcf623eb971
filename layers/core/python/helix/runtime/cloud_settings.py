"""Settings of a deployed function: what its environment says, as one typed value.

Law: this is the one list of variable names that infrastructure and code share; the environment is read once, when the
process starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from helix.core.errors import InvalidInputError

STAGE = "HELIX_STAGE"
SESSIONS_TABLE = "HELIX_SESSIONS_TABLE"
STREAMS_TABLE = "HELIX_STREAMS_TABLE"
CONTROL_TABLE = "HELIX_CONTROL_TABLE"
BUCKET = "HELIX_BUCKET"
CHUNKS = "HELIX_CHUNKS"
MACHINE = "HELIX_MACHINE"
SOCKETS = "HELIX_SOCKETS"
AGENTS = "HELIX_AGENTS"
MODEL = "HELIX_MODEL"
AUTH = "HELIX_AUTH"
JWT_ISSUER = "HELIX_JWT_ISSUER"
JWT_AUDIENCE = "HELIX_JWT_AUDIENCE"
JWKS_URL = "HELIX_JWKS_URL"
ROLL_OVER_EVENTS = "HELIX_ROLL_OVER_EVENTS"
STREAM_DAYS = "HELIX_STREAM_DAYS"
MODEL_SECRETS = "HELIX_MODEL_SECRETS"
MAX_RUNS = "HELIX_MAX_RUNS"
NOTICES = "HELIX_NOTICES"
PROVISION_AGENTS = "HELIX_PROVISION_AGENTS"
METRICS_SECRET = "HELIX_METRICS_SECRET"
TRACE_CONTENT = "HELIX_TRACE_CONTENT"
LOG = "HELIX_LOG"

AUTH_MODES = frozenset({"keys", "jwt", "none"})


@dataclass(frozen=True, slots=True)
class CloudSettings:
    """Where a function finds what it works with. What a function has no use for is empty.

    machine: ARN of the state machines, with `{profile}` in place of a profile's name. sockets: https URL of the WebSocket
    API's management side. agents: modules that register agents when they are imported. model: "demo"; a litellm name;
    `import:module:attribute` for an `LLMAdapter` or a function agent -> adapter; empty for each agent's own.
    auth: which proofs of identity are accepted. roll_over_events: after so many events in its history an execution hands
    over to the next. stream_days: how long streams can be replayed; 0 is for ever.
    model_secrets: ARNs of Secrets Manager secrets, each a JSON object of variables such as OPENAI_API_KEY: the process's
    environment has them before its first model call.
    max_runs: so many runs of the stage are at work at once; 0 leaves it to the agents' own limits. notices: ARN of the
    topic that tells people of budgets and decisions. provision_agents: functions of agents with resources are kept warm,
    as many as their limit. metrics_secret: ARN of the secret whose text is the bearer token for /metrics.
    """

    stage: str = "dev"
    sessions_table: str = ""
    streams_table: str = ""
    control_table: str = ""
    bucket: str = ""
    chunks: str = ""
    machine: str = ""
    sockets: str = ""
    agents: tuple[str, ...] = ("agents",)
    model: str = ""
    auth: frozenset[str] = frozenset({"keys"})
    jwt_issuer: str = ""
    jwt_audience: str = ""
    jwks_url: str = ""
    roll_over_events: int = 20_000
    stream_days: int = 0
    model_secrets: tuple[str, ...] = ()
    max_runs: int = 0
    notices: str = ""
    provision_agents: bool = False
    metrics_secret: str = ""
    log: str = "INFO"


def read_cloud_settings(environment: Mapping[str, str]) -> CloudSettings:
    """Raises `InvalidInputError` naming the variable that is wrong. An empty variable counts as one that is not set."""
    given = {name: value.strip() for name, value in environment.items() if value.strip()}
    default = CloudSettings()
    auth = frozenset(word.strip() for word in given.get(AUTH, "keys").split(",") if word.strip())
    if not auth or not auth <= AUTH_MODES or ("none" in auth and len(auth) > 1):
        raise InvalidInputError(f"{AUTH} is {given.get(AUTH)!r}; it must be keys, jwt, both, or none alone")
    return CloudSettings(
        stage=given.get(STAGE, default.stage),
        sessions_table=given.get(SESSIONS_TABLE, ""),
        streams_table=given.get(STREAMS_TABLE, ""),
        control_table=given.get(CONTROL_TABLE, ""),
        bucket=given.get(BUCKET, ""),
        chunks=given.get(CHUNKS, ""),
        machine=given.get(MACHINE, ""),
        sockets=given.get(SOCKETS, ""),
        agents=tuple(name.strip() for name in given.get(AGENTS, "agents").split(",") if name.strip()),
        model=given.get(MODEL, ""),
        auth=auth,
        jwt_issuer=given.get(JWT_ISSUER, ""),
        jwt_audience=given.get(JWT_AUDIENCE, ""),
        jwks_url=given.get(JWKS_URL, ""),
        roll_over_events=_whole(ROLL_OVER_EVENTS, given, default.roll_over_events, least=50),
        stream_days=_whole(STREAM_DAYS, given, default.stream_days, least=0),
        model_secrets=tuple(arn.strip() for arn in given.get(MODEL_SECRETS, "").split(",") if arn.strip()),
        max_runs=_whole(MAX_RUNS, given, default.max_runs, least=0),
        notices=given.get(NOTICES, ""),
        provision_agents=given.get(PROVISION_AGENTS, "").lower() == "true",
        metrics_secret=given.get(METRICS_SECRET, ""),
        log=given.get(LOG, default.log).upper(),
    )


def _whole(name: str, given: Mapping[str, str], default: int, *, least: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not text.isdecimal() or int(text) < least:
        raise InvalidInputError(f"{name} is {text!r}; it must be a whole number, {least} or more")
    return int(text)
