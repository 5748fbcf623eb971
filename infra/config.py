"""What a deployment can choose: `[tool.helix.settings]` of pyproject.toml, and CDK context, which goes over it:
`helix deploy -c auth=jwt ...`, or cdk.json.

Law: a key that is not listed here, or a value that does not fit, stops the synthesis with an error that names the key.
Nothing is looked up: no account, no region, no clock, no git. Only offline=true reads AWS_ENDPOINT_URL.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from helix.core.errors import DefinitionError
from helix.core.spelling import did_you_mean
from helix.core.triggers import Trigger, Triggers, dump_starts
from helix.core.user_budgets import parse_user_budgets
from helix.gateway.console_page import origin_of
from helix.infra.thresholds import AlarmSettings
from helix.local.endpoint import emulator_problem, given_endpoint
from helix.runtime.models import check_model_name
from helix.runtime.project import HelixProject

Architecture = Literal["arm64", "x86_64"]

HOST_ARCHITECTURE: Architecture = "arm64" if platform.machine().lower() in ("arm64", "aarch64") else "x86_64"
EMULATOR = "http://127.0.0.1:4566"
HOST_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
DEFAULT_STAGE = "dev"
AUTH_MODES = ("keys", "jwt", "keys,jwt", "none")
PRODUCTION_STAGES = frozenset({"prod", "production"})
ORIGIN = re.compile(r"https://[a-z0-9.-]+(:\d+)?|http://(127\.0\.0\.1|localhost)(:\d+)?")
MAX_TRIGGER_BYTES = 2_000
"""Lambda allows 4 KB for all variables of a function."""
NEW_TABLE_WRITES, NEW_TABLE_READS = 4_000, 12_000
"""What a new on-demand table takes a second, and the least that warm throughput may be:
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/warm-throughput-scenarios.html"""
_SEPARATORS = (":", "@")
"""CDK's own context keys have one of these in their name; Helix's have none."""


class SettingsError(ValueError):
    """A context value is wrong. The message names the key and says what it may be."""


ModelPackage = Literal["litellm", "openai", "anthropic", "bedrock"]


class Settings(AlarmSettings):
    """Every key that context may hold, beside the alarms' (`helix.infra.thresholds`).

    stage: part of every resource's name, so stages live side by side in an account; no dash, which ends it there.
    offline: for the emulator on this machine: its interpreter and packages, no deps layer, no bootstrap roles.
    endpoint: where an emulator answers for AWS. Offline, the default of a template parameter, and AWS_ENDPOINT_URL by
        default; otherwise the template is for `sam local` and not for deploying: passed to the functions.
    architecture, python: of the functions; `host` is this machine's processor.
    agents: modules that register agents, separated by commas; by default those of `[tool.helix]`.
    model: "" lets each agent use its own; otherwise `demo` or a litellm name for all.
    model_packages: the packages that call models: `litellm`, `openai`, `anthropic`, `bedrock` (boto3, with the right to ask
        Bedrock), separated by commas. The deps layer has these and no other. Default: those that the agents' models need
        (`helix.infra.model_packages`).
    model_secrets: names or ARNs of Secrets Manager secrets that call_model may read.
    auth: which proofs of identity are accepted on $connect; `none` admits everybody. jwt_user_claim: the claim of a token
        that names its user.
    console: where the stage serves the console: `cloudfront` (with a private bucket), `http` (a function of the HTTP API),
        or `off`. The emulator has no CloudFront: offline, `cloudfront` is `http`.
    console_client_id: of the console at the issuer of `jwt_issuer`, as a public client; "" offers no sign-in there.
        console_scope: what it asks for. console_origins: where signing in leads beside the issuer's own origin.
    streaming: how chunks get from functions to the log and to clients: by Kinesis, or `direct`: functions append to the log
        themselves, and its table's stream reaches the sockets. `both` is between them: a stage that changes from one to the
        other has it for a while (docs/guide/deploy.md).
    key: what encrypts the stage at rest: `own`, a customer managed key, and a secret that holds the token for /metrics; or
        `aws`: keys of AWS, which cost nothing, and a token whose hash is a row. Default: `aws` with streaming=direct,
        otherwise `own`. `helix deploy` never takes the key from a stage that has one.
    enhanced_fan_out: a consumer of its own for project_stream (about $11 a shard and month): records are pushed within
        ~70 ms. Without it a shard is polled once a second, and text comes in bursts. Default: for what is deployed; an
        emulator has none.
    shards: of the chunk stream; 0 lets Kinesis choose, and charges for it.
    socket_messages: how many messages a second all clients together may send over the WebSocket API.
    warm_writes, warm_reads: units a second that the tables of sessions and streams take at once; 0 leaves what they take by
        themselves. DynamoDB charges once for what is above the table's present value, and refuses a lower one.
    snap_start: for call_model. provisioned_concurrency: of the default profile's call_model.
    provision_agents: give each agent with resources of its own as much provisioned concurrency as its min_instances, and as
        its limit from then on.
    dashboards: make two CloudWatch dashboards. An account has three for nothing; each further one costs $3 a month.
    detailed_metrics: let API Gateway record its metrics for each route too, at $0.30 a metric and month.
    roll_over_events: how long the history of an execution may get before the run goes on in the next one. The rest of
        the 25,000 events is for one step's calls and hours of retries (docs/adr/0025-runs-wait-for-a-free-lambda.md).
    steps_per_invocation: how many steps of a run one invocation of call_model takes at most; 0 is as many as fit.
    stream_days: how long streams can be replayed; 0 is for ever.
    session_days: how long after its last use a session that neither runs nor waits for people is deleted, with its
        sub-agents' sessions and its stream; 0 is never. keep_checkpoints: how many of a session's newest checkpoints stay,
        beside those with a name; 0 is all.
    run_days, child_hours: bounds of one execution, and of waiting for a sub-agent.
    api_log_role: set the account's role for API Gateway's logs, which replaces the one that it has. `helix deploy` does so
        where it has none.
    retain: keep tables, bucket, key and stream when the stack is deleted; by default in production only.
    concurrency: how many of Lambda's concurrent executions the stage may count on; `helix deploy` asks the account.
        It gives the small functions reserved concurrency, and `max_runs` its default (`infra/concurrency.py`). 0: unknown.
    max_runs: the most runs of the stage at a time, the others wait; 0 applies the agents' own limits only.
    otlp_endpoint: where traces are sent (OTLP over HTTP); "" sends none. otlp_headers: with them, `name=value` separated by
        commas; what is a secret does not belong into a template. trace_content: traces hold messages and answers too.
    tags: on every resource, `name=value` separated by commas, or a mapping.
    triggers: what starts runs by itself, by name (`[tool.helix.triggers]`, docs/guide/triggers.md).
    budgets: what each user may spend (`[tool.helix.budgets]`, docs/guide/budgets.md).
    deps: a folder to use as the deps layer instead of building it.
    """

    stage: str = Field(default="dev", pattern=r"^[a-z][a-z0-9]{0,15}$")
    offline: bool = False
    endpoint: str = Field(default="", pattern=r"^(https?://[^/]+)?$")
    account: str | None = Field(default=None, pattern=r"^\d{12}$")
    region: str | None = Field(default=None, pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")
    architecture: Literal["arm64", "x86_64", "host"] = "arm64"
    python: Literal["3.11", "3.12", "3.13", "3.14"] = "3.13"
    agents: str = Field(default="agents", pattern=r"^[A-Za-z_][\w.]*(,[A-Za-z_][\w.]*)*$")
    model: str = ""
    model_packages: tuple[ModelPackage, ...] | None = None
    model_secrets: tuple[str, ...] = ()
    auth: str = "keys"
    jwt_issuer: str = ""
    jwt_audience: str = ""
    jwks_url: str = ""
    jwt_user_claim: str = Field(default="sub", min_length=1)
    console: Literal["off", "cloudfront", "http"] = "off"
    console_client_id: str = ""
    console_scope: str = Field(default="openid", pattern=r"(^|.* )openid( .*|$)")
    console_origins: tuple[str, ...] = ()
    streaming: Literal["kinesis", "both", "direct"] = "kinesis"
    key: Literal["own", "aws"] = "own"
    enhanced_fan_out: bool = True
    shards: int = Field(default=1, ge=0, le=500)
    socket_messages: int = Field(default=500, ge=1, le=10_000)
    warm_writes: int = Field(default=0, ge=0, le=1_000_000)
    warm_reads: int = Field(default=0, ge=0, le=1_000_000)
    snap_start: bool = False
    provisioned_concurrency: int = Field(default=0, ge=0, le=1000)
    provision_agents: bool = False
    dashboards: bool = True
    detailed_metrics: bool = False
    log_retention_days: Literal[1, 3, 5, 7, 14, 30, 60, 90, 180, 365, 731, 1827] = 30
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    roll_over_events: int = Field(default=12_000, ge=50, le=12_000)
    steps_per_invocation: int = Field(default=0, ge=0, le=1000)
    stream_days: int = Field(default=30, ge=0, le=3650)
    session_days: int = Field(default=0, ge=0, le=36_500)
    keep_checkpoints: int = Field(default=0, ge=0, le=1_000_000)
    run_days: int = Field(default=30, ge=1, le=365)
    child_hours: int = Field(default=168, ge=1, le=8760)
    concurrency: int = Field(default=0, ge=0, le=1_000_000)
    max_runs: int | None = Field(default=None, ge=0, le=1_000_000)
    otlp_endpoint: str = Field(default="", pattern=r"^(https?://\S+)?$")
    otlp_headers: str = ""
    trace_content: bool = False
    api_log_role: bool = False
    retain: bool = False
    tags: dict[str, str] = Field(default_factory=dict)
    triggers: Triggers = Field(default_factory=dict)
    budgets: dict[str, Any] = Field(default_factory=dict)
    deps: str = ""

    @model_validator(mode="before")
    @classmethod
    def _defaults_that_follow(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Defaults that depend on other keys: offline means this machine, production keeps its data."""
        made = dict(given)
        made.setdefault("retain", made.get("stage") in PRODUCTION_STAGES)
        if str(made.get("offline", "")).lower() in ("true", "1", "yes", "on"):
            local = {"architecture": "host", "python": HOST_PYTHON, "model": "demo"}
            local["endpoint"] = given_endpoint() or EMULATOR
            made = {**local, "account": "000000000000", "region": "us-east-1"} | made
        made.setdefault("key", "aws" if made.get("streaming") == "direct" else "own")
        made.setdefault("enhanced_fan_out", not made.get("endpoint"))
        return made

    @field_validator("model")
    @classmethod
    def _a_model_of_a_known_provider(cls, name: str) -> str:
        try:
            check_model_name(name, {})
        except DefinitionError as error:
            raise ValueError(error.problem) from error
        return name

    @field_validator("model_secrets", "model_packages", "console_origins", mode="before")
    @classmethod
    def _words(cls, given: Any) -> Any:
        return tuple(word.strip() for word in given.split(",") if word.strip()) if isinstance(given, str) else given

    @field_validator("tags", mode="before")
    @classmethod
    def _pairs(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        pairs = [pair.partition("=") for pair in given.split(",") if pair.strip()]
        if wrong := [name for name, equals, value in pairs if not (name.strip() and equals and value.strip())]:
            raise ValueError(f"{wrong[0]!r} is not of the form name=value")
        return {name.strip(): value.strip() for name, _, value in pairs}

    @field_validator("log_retention_days", mode="before")
    @classmethod
    def _whole_days(cls, given: Any) -> Any:
        return int(given) if isinstance(given, str) and given.isdecimal() else given

    @field_validator("triggers", "budgets", mode="before")
    @classmethod
    def _a_table(cls, given: Any) -> Any:
        return json.loads(given) if isinstance(given, str) else given

    @field_validator("triggers")
    @classmethod
    def _one_http_api(cls, given: Triggers) -> Triggers:
        if len([name for name, trigger in given.items() if trigger.http]) > 1:
            raise ValueError("a stage has one HTTP API: declare http once")
        if (size := len(dump_starts(given).encode())) > MAX_TRIGGER_BYTES:
            raise ValueError(
                f"their texts take {size} bytes; a function has room for {MAX_TRIGGER_BYTES}: shorten prompts"
            )
        return given

    @field_validator("budgets")
    @classmethod
    def _limits_of_periods(cls, given: dict[str, Any]) -> dict[str, Any]:
        parse_user_budgets(given)
        return given

    @field_validator("auth")
    @classmethod
    def _a_mode_that_exists(cls, mode: str) -> str:
        if (mode := mode.replace(" ", "")) == "jwt,keys":
            mode = "keys,jwt"
        if mode not in AUTH_MODES:
            raise ValueError(f"must be one of {', '.join(map(repr, AUTH_MODES))}")
        return mode

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if "jwt" in self.auth:
            for key in ("jwt_issuer", "jwt_audience", "jwks_url"):
                if not getattr(self, key):
                    raise ValueError(f"{key}: is needed with auth={self.auth}")
            # Keys fetched over a plain connection could be anybody's; offline there is nobody else.
            if not self.jwks_url.startswith("https://") and not self.offline:
                raise ValueError("jwks_url: must start with https://")
        if (problem := self._sign_in_problem()) is not None:
            raise ValueError(problem)
        if self.model_packages == ():
            raise ValueError("model_packages: is empty; leave it out, or name at least one")
        if self.snap_start and (self.provisioned_concurrency or self.provision_agents):
            raise ValueError("snap_start: Lambda does not combine it with provisioned concurrency; choose one")
        if self.snap_start and self.python == "3.11":
            raise ValueError("snap_start: Lambda has it for Python 3.12 and later")
        for key, least in (("warm_writes", NEW_TABLE_WRITES), ("warm_reads", NEW_TABLE_READS)):
            if 0 < (units := getattr(self, key)) < least:
                raise ValueError(f"{key}: is {units}; a new table takes {least:,} by itself, so give more, or 0")
        if self.alarm_cost_critical < self.alarm_cost_warning:
            raise ValueError("alarm_cost_critical: is less than alarm_cost_warning")
        if self.alarm_latency_p99_ms < self.alarm_latency_p95_ms:
            raise ValueError("alarm_latency_p99_ms: is less than alarm_latency_p95_ms")
        if self.child_hours > self.run_days * 24:
            raise ValueError("child_hours: is more than run_days, so that no parent would wait so long")
        if self.offline and self.enhanced_fan_out:
            raise ValueError("enhanced_fan_out: the emulator has no stream consumers; leave it out with offline=true")
        return self

    def _sign_in_problem(self) -> str | None:
        """Of the console."""
        if self.console_client_id and "jwt" not in self.auth:
            return "console_client_id: belongs to auth=jwt or auth=keys,jwt"
        if self.console_client_id and not ORIGIN.fullmatch(origin_of(self.jwt_issuer)):
            return f"jwt_issuer: {self.jwt_issuer!r} must be an address, https://..., for the console to sign in there"
        if self.console != "off" and self.auth == "jwt" and not self.console_client_id:
            return "console_client_id: is needed with auth=jwt, because the console has no other way to sign in"
        if wrong := [origin for origin in self.console_origins if not ORIGIN.fullmatch(origin)]:
            return f"console_origins: {wrong[0]!r} is no origin of the form https://HOST"
        return None

    @property
    def calling(self) -> tuple[ModelPackage, ...]:
        """The packages that call models; where no agent was asked, those that call any."""
        return ("litellm",) if self.model_packages is None else self.model_packages

    @property
    def served_console(self) -> Literal["off", "cloudfront", "http"]:
        return "http" if self.console == "cloudfront" and self.offline else self.console

    @property
    def stage_triggers(self) -> dict[str, Trigger]:
        """Those that are deployed."""
        return {name: each for name, each in self.triggers.items() if not each.stages or self.stage in each.stages}

    @property
    def for_sam(self) -> bool:
        """Whether functions run in containers beside an emulator, and nothing is deployed."""
        return bool(self.endpoint) and not self.offline

    @property
    def target_architecture(self) -> Architecture:
        return HOST_ARCHITECTURE if self.architecture == "host" else self.architecture


def read_settings(context: Mapping[str, Any]) -> Settings:
    """The settings in CDK context; CDK's own keys are left alone. Raises `SettingsError` naming the first wrong key."""
    given = {key: value for key, value in context.items() if not any(mark in key for mark in _SEPARATORS)}
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        if first["loc"][:1] == ("triggers",):
            place = ".".join(str(part) for part in first["loc"] if part != "[key]")
            problem = first["msg"].removeprefix("Value error, ")
            if first["type"] == "extra_forbidden":
                problem = f"a trigger has no such key{did_you_mean(str(first['loc'][-1]), Trigger.model_fields)}"
            raise SettingsError(f"tool.helix.{place}: {problem}") from error
        if first["type"] == "extra_forbidden":
            key, known = str(first["loc"][0]), sorted(Settings.model_fields)
            listed = f"{', '.join(known)}{did_you_mean(key, known)}"
            raise SettingsError(f"context key {key!r} is unknown; there are {listed}") from error
        message = first["msg"].removeprefix("Value error, ")
        if not first["loc"]:
            key, _, problem = message.partition(": ")
            raise SettingsError(f"context key {key!r}: {problem}") from error
        name = str(first["loc"][0])
        raise SettingsError(f"context key {name!r} is {given.get(name)!r}: {message}") from error


def settings_of(
    context: Mapping[str, Any], project: HelixProject, stage: str | None, given: Mapping[str, Any]
) -> Settings:
    """Of a stage in any app: context goes over `given`, which goes over the project's. Context keys that Helix does not
    know are the app's own. Raises `SettingsError` also where AWS is an emulator, and the stage is not for one."""
    known = {key: value for key, value in {**project.context, **context}.items() if key in Settings.model_fields}
    name = stage or known.get("stage") or given.get("stage") or DEFAULT_STAGE
    settings = read_settings({**project.table_settings(name), **given, **known, "stage": name})
    if (problem := emulator_problem(offline=settings.offline or settings.for_sam)) is not None:
        raise SettingsError(problem)
    return settings


def pairs(words: Sequence[str]) -> dict[str, str]:
    """`KEY=VALUE` of the command line."""
    return {key: value for key, _, value in (word.partition("=") for word in words)}
