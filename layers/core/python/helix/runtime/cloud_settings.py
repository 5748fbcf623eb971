"""Settings of a deployed function, read from its environment into one typed value.

Law: the fields of `CloudSettings` are the variables that infrastructure and code share, as `HELIX_<FIELD>`. The
environment is read once, when the process starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from typing import Any

from helix.core.errors import InvalidInputError

STAGE = "HELIX_STAGE"
AUTH_MODES = frozenset({"keys", "jwt", "none"})
LEAST = {"roll_over_events": 50}


@dataclass(frozen=True, slots=True)
class CloudSettings:
    """The settings of a deployed function. `infra/environment.py` writes them. Settings that a function does not use
    are empty.
    """

    stage: str = "dev"
    """The name of the stage. It is part of the names of the stage's functions and metrics."""
    sessions_table: str = ""
    """The DynamoDB table for sessions."""
    streams_table: str = ""
    """The DynamoDB table for streams (the log that clients replay), and for connections with their subscriptions."""
    control_table: str = ""
    """The DynamoDB table for everything else: budgets, slots, indexes, API keys."""
    bucket: str = ""
    """The S3 bucket for large fields, and for stream records that cannot be read. Empty: nothing is stored outside the
    tables."""
    chunks: str = ""
    """The Kinesis stream that writers append chunks to. Empty with `streaming=direct`."""
    streaming: str = "kinesis"
    """The path of chunks to the log: `kinesis`, `direct`, or `both` while a stage switches from one to the other."""
    machine: str = ""
    """The ARN of the state machines, with `{profile}` in place of a profile's name."""
    sockets: str = ""
    """The https URL of the WebSocket API's management API."""
    agents: tuple[str, ...] = ("agents",)
    """The modules that register agents when they are imported."""
    model: str = ""
    """The model of all agents: "demo", a litellm name, or `import:module:attribute`. The latter is an `LLMAdapter` or a
    function agent -> adapter. Empty: each agent's own model."""
    auth: frozenset[str] = frozenset({"keys"})
    """The accepted proofs of identity: `keys`, `jwt`, both, or `none` alone."""
    jwt_issuer: str = ""
    """The issuer (`iss`) that tokens must name."""
    jwt_audience: str = ""
    """The audience (`aud`) that tokens must name."""
    jwks_url: str = ""
    """The URL of the issuer's public keys."""
    jwt_user_claim: str = "sub"
    """The claim of a token that names its user."""
    roll_over_events: int = 12_000
    """The number of history events after which an execution hands over to the next one. The default leaves room below
    the 25,000 of Step Functions."""
    steps_per_invocation: int = 0
    """The limit on steps in one invocation. 0: as many as fit into its time."""
    stream_days: int = 0
    """The number of days for which streams can be replayed. 0: forever."""
    session_days: int = 0
    """The number of days after its last use when a session is deleted. 0: never."""
    keep_checkpoints: int = 0
    """The number of newest checkpoints that each session keeps. 0: all."""
    model_secrets: tuple[str, ...] = ()
    """Names or ARNs of Secrets Manager secrets, each a JSON object of variables such as OPENAI_API_KEY. They are set in
    the process's environment before its first model call."""
    max_runs: int = 0
    """The limit on concurrent runs in the stage. 0: only the agents' own limits apply."""
    notices: str = ""
    """The ARN of the topic that notifies people of budgets and decisions."""
    provision_agents: bool = False
    """Whether the functions of agents with their own resources are kept warm. Their number follows the agent's
    limit."""
    thresholds: str = ""
    """The values of `helix.core.thresholds` that differ from the defaults, as JSON. Empty: all are defaults."""
    metrics_secret: str = ""
    """The ARN of the secret whose text is the bearer token for /metrics. Empty: a row holds the token's hash."""
    secrets: tuple[str, ...] = ()
    """The secrets that tools may read, each as `NAME=PLACE` (`core.tool_settings.SecretPlace`)."""
    own_profiles: tuple[str, ...] = ()
    """Digests (`core.resources.profile_digest`) of the agents that have their own functions because of a table in
    `[tool.helix.agent]`."""
    triggers: str = ""
    """The triggers that start runs, as JSON (`helix.core.triggers.dump_starts`)."""
    dead_letters: str = ""
    """The URL of the queue for events that cannot start a run."""
    calls_url: str = ""
    """The https URL at which other systems report the results of calls. Empty if no tool lets them."""
    console: str = ""
    """The stage's settings for the console's page, as JSON."""
    budgets: str = ""
    """The budgets of each user, as JSON (the table `[tool.helix.budgets]`)."""
    limits: str = ""
    """The limits of models, as JSON (the table `[tool.helix.limits]`)."""


def variable(field: str) -> str:
    """Return the name of the environment variable for this field of `CloudSettings`."""
    return f"HELIX_{field.upper()}"


def read_cloud_settings(environment: Mapping[str, str]) -> CloudSettings:
    """Read the settings. An empty variable counts as unset. Raises `InvalidInputError`, which names the invalid
    variable."""
    found = {field: environment.get(variable(field.name), "").strip() for field in fields(CloudSettings)}
    return CloudSettings(**{field.name: _value(field, text) for field, text in found.items() if text})


def _value(field: Field[Any], text: str) -> Any:
    """Convert the text to the type of the field's default."""
    name, words = variable(field.name), [word.strip() for word in text.split(",") if word.strip()]
    match field.default:
        case bool():
            return text.lower() == "true"
        case int():
            least = LEAST.get(field.name, 0)
            if not text.isdecimal() or int(text) < least:
                raise InvalidInputError(f"{name} is {text!r}; it must be a whole number, {least} or more")
            return int(text)
        case tuple():
            return tuple(words)
        case frozenset():
            if not words or not AUTH_MODES.issuperset(words) or ("none" in words and len(set(words)) > 1):
                raise InvalidInputError(f"{name} is {text!r}; it must be keys, jwt, both, or none alone")
            return frozenset(words)
        case _:
            return text
