"""Settings of a deployed function: what its environment says, as one typed value.

Law: the fields of `CloudSettings` are the variables that infrastructure and code share, as `HELIX_<FIELD>`; the environment
is read once, when the process starts.
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
    """Where a function finds what it works with. What a function has no use for is empty.

    machine: ARN of the state machines, with `{profile}` in place of a profile's name. sockets: https URL of the WebSocket
    API's management side. agents: modules that register agents when they are imported. model: "demo"; a litellm name;
    `import:module:attribute` for an `LLMAdapter` or a function agent -> adapter; empty for each agent's own.
    auth: which proofs of identity are accepted. roll_over_events: after this number of events an execution hands
    over to the next. steps_per_invocation: how many steps one invocation takes at most; 0: as many as fit.
    stream_days: how long streams can be replayed; 0 is for ever. session_days: how long after its last use a session is
    deleted; 0 is never. keep_checkpoints: how many of its newest checkpoints stay; 0 is all.
    streaming: how chunks get to the log: `kinesis`, `direct`, or `both` while a stage changes from one to the other.
    model_secrets: names or ARNs of Secrets Manager secrets, each a JSON object of variables such as OPENAI_API_KEY: the
    process's environment has them before its first model call.
    max_runs: the most runs of the stage at a time; 0 applies the agents' own limits only. notices: ARN of the
    topic that notifies people of budgets and decisions. provision_agents: functions of agents with resources are kept warm,
    as many as their limit. thresholds: of `helix.core.thresholds`, as JSON: those that differ from the defaults.
    metrics_secret: ARN of the secret whose text is the bearer token for /metrics; empty: its hash is a row.
    secrets: what tools may read, each `NAME=PLACE` (`core.tool_settings.SecretPlace`). own_profiles: digests
    (`core.resources.profile_digest`) of the agents that have functions of their own by a table in `[tool.helix.agent]`.
    triggers: what starts runs by itself, as JSON (`helix.core.triggers.dump_starts`). dead_letters: URL of the queue for
    events that cannot. jwt_user_claim: the claim of a token that names its user. console: what the console's page knows of
    the stage, as JSON. budgets: of each user, as JSON: the table `[tool.helix.budgets]`.
    """

    stage: str = "dev"
    sessions_table: str = ""
    streams_table: str = ""
    control_table: str = ""
    bucket: str = ""
    chunks: str = ""
    streaming: str = "kinesis"
    machine: str = ""
    sockets: str = ""
    agents: tuple[str, ...] = ("agents",)
    model: str = ""
    auth: frozenset[str] = frozenset({"keys"})
    jwt_issuer: str = ""
    jwt_audience: str = ""
    jwks_url: str = ""
    jwt_user_claim: str = "sub"
    roll_over_events: int = 12_000
    steps_per_invocation: int = 0
    stream_days: int = 0
    session_days: int = 0
    keep_checkpoints: int = 0
    model_secrets: tuple[str, ...] = ()
    max_runs: int = 0
    notices: str = ""
    provision_agents: bool = False
    thresholds: str = ""
    metrics_secret: str = ""
    secrets: tuple[str, ...] = ()
    own_profiles: tuple[str, ...] = ()
    triggers: str = ""
    dead_letters: str = ""
    console: str = ""
    budgets: str = ""


def variable(field: str) -> str:
    """The variable that has this field of `CloudSettings`."""
    return f"HELIX_{field.upper()}"


def read_cloud_settings(environment: Mapping[str, str]) -> CloudSettings:
    """Raises `InvalidInputError` naming the variable that is wrong. An empty variable counts as one that is not set."""
    found = {field: environment.get(variable(field.name), "").strip() for field in fields(CloudSettings)}
    return CloudSettings(**{field.name: _value(field, text) for field, text in found.items() if text})


def _value(field: Field[Any], text: str) -> Any:
    """The text as a value of the default's type."""
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
