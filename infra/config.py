"""The settings of a deployment: `[tool.helix.settings]` of pyproject.toml, and CDK context, which overrides it.

Context comes from `helix deploy -c auth=jwt ...`, or from cdk.json.

Law: an unknown key or an invalid value stops the synthesis with an error that names the key. Nothing is looked up: not the
account, the region, the clock, or git. Only offline=true uses AWS_ENDPOINT_URL; otherwise an emulator's address in it stops
the synthesis.
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
from helix.core.model_limits import parse_limits
from helix.core.spelling import did_you_mean
from helix.core.thresholds import Thresholds
from helix.core.triggers import Trigger, Triggers, dump_starts
from helix.core.user_budgets import parse_user_budgets
from helix.gateway.console_page import origin_of
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
"""The maximum size of the triggers' JSON. Lambda allows 4 KB for all environment variables of a function."""
NEW_TABLE_WRITES, NEW_TABLE_READS = 4_000, 12_000
"""The units per second that a new on-demand table can handle, which are also the minimum warm throughput:
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/warm-throughput-scenarios.html"""
_SEPARATORS = (":", "@")
"""The characters that mark CDK's own context keys. Helix's keys contain neither."""


class SettingsError(ValueError):
    """An invalid context value. The message names the key and the values that it may have."""


ModelPackage = Literal["litellm", "openai", "anthropic", "bedrock"]


class Settings(Thresholds):
    """The settings of a deployment: every key that CDK context may contain.

    The other keys that begin with `alarm_` are in `helix.core.thresholds`. A tuple may be given as comma-separated words.
    """

    alarm_email: str = Field(default="", pattern=r"^([^@\s,]+@[^@\s,]+\.[^@\s,]+)?$")
    """The address that receives alarms and notices. The recipient confirms the subscription in an email from AWS. "": the
    stage does not have its own alarms."""

    stage: str = Field(default="dev", pattern=r"^[a-z][a-z0-9]{0,15}$")
    """The name of the stage. It is part of every resource's name, so several stages can exist in one account. It cannot
    contain a dash, because in those names a dash marks its end."""
    offline: bool = False
    """Whether the stage is for the emulator on this machine. It then uses this machine's interpreter and packages, and
    has no deps layer and no bootstrap roles."""
    endpoint: str = Field(default="", pattern=r"^(https?://[^/]+)?$")
    """The URL of an emulator that stands in for AWS. "" means AWS itself. Offline, this is the default value of a template
    parameter; if it is not set, AWS_ENDPOINT_URL is used, or else `EMULATOR`. Without `offline` the template is for `sam
    local`, not for deployment, and the functions receive the URL as a variable."""
    account: str | None = Field(default=None, pattern=r"^\d{12}$")
    """The id of the AWS account to deploy to. None leaves the choice to the credentials."""
    region: str | None = Field(default=None, pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")
    """The AWS region to deploy to. None leaves the choice to the credentials."""
    architecture: Literal["arm64", "x86_64", "host"] = "arm64"
    """The processor architecture of the functions. `host` is this machine's; it is the default offline."""
    python: Literal["3.11", "3.12", "3.13", "3.14"] = "3.13"
    """The Python version of the functions. Offline the default is this machine's."""
    agents: str = Field(default="agents", pattern=r"^[A-Za-z_][\w.]*(,[A-Za-z_][\w.]*)*$")
    """The modules that register agents, separated by commas. The default is those in `[tool.helix]`."""
    model: str = ""
    """The model of all agents: `demo` or a litellm name. "" lets each agent use its own. Offline the default is
    `demo`."""
    model_packages: tuple[ModelPackage, ...] | None = None
    """The packages that call models: `litellm`, `openai`, `anthropic` and `bedrock` (boto3, with permission to call
    Bedrock). The deps layer contains only these. None chooses those that the agents' models need
    (`helix.infra.model_packages`)."""
    model_secrets: tuple[str, ...] = ()
    """Names or ARNs of the Secrets Manager secrets that `call_model` may read."""
    auth: str = "keys"
    """The credentials that $connect accepts: `keys`, `jwt`, `keys,jwt`, or `none`, which admits every client."""
    jwt_issuer: str = ""
    """The issuer (`iss`) that tokens must name. Required with `jwt` in `auth`."""
    jwt_audience: str = ""
    """The audience (`aud`) that tokens must name. Required with `jwt` in `auth`."""
    jwks_url: str = ""
    """The URL of the issuer's public keys. Required with `jwt` in `auth`. It must use https, except offline."""
    jwt_user_claim: str = Field(default="sub", min_length=1)
    """The claim of a token that names its user."""
    console: Literal["off", "cloudfront", "http"] = "off"
    """The server of the stage's console: `cloudfront` (with a private bucket), `http` (a function of the HTTP API), or
    `off`. The emulator has no CloudFront, so `cloudfront` means `http` offline."""
    console_client_id: str = ""
    """The id of the console at the issuer `jwt_issuer`, where it is registered as a public client. "" offers no sign-in
    there."""
    console_scope: str = Field(default="openid", pattern=r"(^|.* )openid( .*|$)")
    """The OAuth scopes that the console asks for when a user signs in, separated by spaces. `openid` must be among
    them."""
    console_origins: tuple[str, ...] = ()
    """The origins that the console may connect to for the sign-in, besides the issuer's own."""
    page_origins: tuple[str, ...] = ()
    """The origins of web pages, besides the console's, whose scripts may upload and download files. Other clients need no
    entry."""
    streaming: Literal["kinesis", "both", "direct"] = "kinesis"
    """The path of chunks from functions to the log and to clients. `kinesis` goes through Kinesis. With `direct`, functions
    append to the log themselves, and the DynamoDB stream of its table feeds the sockets. `both` is the intermediate state
    for a stage that changes from one to the other (docs/guide/deploy.md)."""
    key: Literal["own", "aws"] = "own"
    """The key that encrypts the stage at rest. `own`: a customer managed key, and a secret that holds the token for
    /metrics. `aws`: AWS's own keys, which are free, and a token whose hash is stored in a row. The default is `aws` with
    `streaming=direct`, otherwise `own`. `helix deploy` never removes the key of a stage that has one."""
    enhanced_fan_out: bool = True
    """Whether `project_stream` has its own Kinesis enhanced fan-out consumer (about $11 per shard per month), to which
    records are pushed within ~70 ms. Without it each shard is polled once per second, and text arrives in bursts. The
    default is true, and false for an emulator, which has no consumers."""
    shards: int = Field(default=1, ge=0, le=500)
    """The number of shards of the chunk stream. With 0, Kinesis scales on demand, at on-demand prices."""
    socket_messages: int = Field(default=500, ge=1, le=10_000)
    """The number of messages per second that all clients together may send over the WebSocket API."""
    warm_writes: int = Field(default=0, ge=0, le=1_000_000)
    """The write units per second that the tables of sessions and streams can handle immediately (warm throughput). 0 keeps
    DynamoDB's default. DynamoDB charges once for an increase above the table's current value, and refuses a lower value."""
    warm_reads: int = Field(default=0, ge=0, le=1_000_000)
    """The read units per second that the tables of sessions and streams can handle immediately. 0 and the price work as for
    `warm_writes`."""
    snap_start: bool = False
    """Whether `call_model` uses SnapStart, for shorter cold starts. Lambda does not support it together with provisioned
    concurrency."""
    provisioned_concurrency: int = Field(default=0, ge=0, le=1000)
    """The provisioned concurrency of the default profile's `call_model`. 0 keeps none warm."""
    provision_agents: bool = False
    """Whether each agent with its own resources gets provisioned concurrency: `min_instances` at first, and its limit once
    `govern` changes that."""
    dashboards: bool = True
    """Whether the stage has two CloudWatch dashboards. Three per account are free; each additional one costs $3 per
    month."""
    detailed_metrics: bool = False
    """Whether API Gateway also records metrics for each route, at $0.30 per metric per month."""
    log_retention_days: Literal[1, 3, 5, 7, 14, 30, 60, 90, 180, 365, 731, 1827] = 30
    """The number of days for which CloudWatch keeps logs. It must be one of the periods that CloudWatch offers."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """The minimum level of the functions' log lines."""
    roll_over_events: int = Field(default=12_000, ge=50, le=12_000)
    """The number of events in an execution's history after which the run continues in a new execution. The rest of the
    25,000 events is for the calls of one step and hours of retries (docs/adr/0025-runs-wait-for-a-free-lambda.md)."""
    steps_per_invocation: int = Field(default=0, ge=0, le=1000)
    """The maximum number of a run's steps in one invocation of `call_model`. 0: as many as fit into its time limit."""
    stream_days: int = Field(default=30, ge=0, le=3650)
    """The number of days for which streams can be replayed. 0: forever."""
    session_days: int = Field(default=0, ge=0, le=36_500)
    """The number of days from a session's last use until it is deleted, together with its sub-agents' sessions and its
    stream. A session that is running or waiting for a person is not deleted. 0: never."""
    keep_checkpoints: int = Field(default=0, ge=0, le=1_000_000)
    """The number of newest checkpoints that each session keeps, in addition to named ones. 0: all."""
    run_days: int = Field(default=30, ge=1, le=365)
    """The maximum duration of one execution, in days."""
    child_hours: int = Field(default=168, ge=1, le=8760)
    """The maximum wait for one sub-agent, in hours. It cannot exceed `run_days`."""
    concurrency: int = Field(default=0, ge=0, le=1_000_000)
    """The Lambda concurrency that is available to the stage; `helix deploy` reads it from the account. It determines the
    reserved concurrency of the small functions and the default of `max_runs` (`infra/concurrency.py`). 0: unknown."""
    max_runs: int | None = Field(default=None, ge=0, le=1_000_000)
    """The limit on concurrent runs in the stage. Further runs wait. With 0, only the agents' own limits apply. None
    computes it from `concurrency`."""
    otlp_endpoint: str = Field(default="", pattern=r"^(https?://\S+)?$")
    """The URL to which functions send traces (OTLP over HTTP). "" sends none."""
    otlp_headers: str = ""
    """The headers of requests to `otlp_endpoint`: `name=value`, separated by commas. They are visible in the template, so
    they must not contain secrets."""
    trace_content: bool = False
    """Whether traces also contain messages and answers."""
    api_log_role: bool = False
    """Whether the stack sets the account's role for API Gateway's logs, which replaces the current one. `helix deploy` sets
    this to true if the account does not have such a role."""
    retain: bool = False
    """Whether the tables, bucket, key and stream are retained when the stack is deleted. The default is true in production
    (`PRODUCTION_STAGES`) only."""
    tags: dict[str, str] = Field(default_factory=dict)
    """The tags of every resource, as a mapping, or as `name=value` separated by commas."""
    triggers: Triggers = Field(default_factory=dict)
    """The triggers that start runs, by name (`[tool.helix.triggers]`, docs/guide/triggers.md)."""
    budgets: dict[str, Any] = Field(default_factory=dict)
    """The budgets of each user (`[tool.helix.budgets]`, docs/guide/budgets.md)."""
    limits: dict[str, Any] = Field(default_factory=dict)
    """The limits of models (`[tool.helix.limits]`, docs/guide/limits.md)."""
    deps: str = ""
    """The folder to use as the deps layer. "" builds the layer."""

    @model_validator(mode="before")
    @classmethod
    def _set_dependent_defaults(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Set the defaults that depend on other keys. Offline stages use this machine's platform. Production stages retain
        their data."""
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
    def _check_model(cls, name: str) -> str:
        try:
            check_model_name(name, {})
        except DefinitionError as error:
            raise ValueError(error.problem) from error
        return name

    @field_validator("model_secrets", "model_packages", "console_origins", "page_origins", mode="before")
    @classmethod
    def _split_words(cls, given: Any) -> Any:
        return tuple(word.strip() for word in given.split(",") if word.strip()) if isinstance(given, str) else given

    @field_validator("tags", mode="before")
    @classmethod
    def _parse_pairs(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        pairs = [pair.partition("=") for pair in given.split(",") if pair.strip()]
        if wrong := [name for name, equals, value in pairs if not (name.strip() and equals and value.strip())]:
            raise ValueError(f"{wrong[0]!r} is not of the form name=value")
        return {name.strip(): value.strip() for name, _, value in pairs}

    @field_validator("log_retention_days", mode="before")
    @classmethod
    def _parse_days(cls, given: Any) -> Any:
        return int(given) if isinstance(given, str) and given.isdecimal() else given

    @field_validator("triggers", "budgets", "limits", mode="before")
    @classmethod
    def _parse_table(cls, given: Any) -> Any:
        return json.loads(given) if isinstance(given, str) else given

    @field_validator("triggers")
    @classmethod
    def _check_triggers(cls, given: Triggers) -> Triggers:
        if len([name for name, trigger in given.items() if trigger.http]) > 1:
            raise ValueError("a stage has one HTTP API: declare http once")
        if (size := len(dump_starts(given).encode())) > MAX_TRIGGER_BYTES:
            raise ValueError(
                f"their texts take {size} bytes; a function has room for {MAX_TRIGGER_BYTES}: shorten prompts"
            )
        return given

    @field_validator("budgets")
    @classmethod
    def _check_budgets(cls, given: dict[str, Any]) -> dict[str, Any]:
        parse_user_budgets(given)
        return given

    @field_validator("limits")
    @classmethod
    def _check_limits(cls, given: dict[str, Any]) -> dict[str, Any]:
        parse_limits(given)
        return given

    @field_validator("auth")
    @classmethod
    def _check_auth(cls, mode: str) -> str:
        if (mode := mode.replace(" ", "")) == "jwt,keys":
            mode = "keys,jwt"
        if mode not in AUTH_MODES:
            raise ValueError(f"must be one of {', '.join(map(repr, AUTH_MODES))}")
        return mode

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if "jwt" in self.auth:
            for key in ("jwt_issuer", "jwt_audience", "jwks_url"):
                if not getattr(self, key):
                    raise ValueError(f"{key}: is needed with auth={self.auth}")
            # An attacker could replace keys that are fetched over an unencrypted connection. Offline there is no network.
            if not self.jwks_url.startswith("https://") and not self.offline:
                raise ValueError("jwks_url: must start with https://")
        if (problem := self._page_problem()) is not None:
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

    def _page_problem(self) -> str | None:
        """Return the problem with the settings of the console's sign-in and of web pages, or None."""
        if self.console_client_id and "jwt" not in self.auth:
            return "console_client_id: belongs to auth=jwt or auth=keys,jwt"
        if self.console_client_id and not ORIGIN.fullmatch(origin_of(self.jwt_issuer)):
            return f"jwt_issuer: {self.jwt_issuer!r} must be an address, https://..., for the console to sign in there"
        if self.console != "off" and self.auth == "jwt" and not self.console_client_id:
            return "console_client_id: is needed with auth=jwt, because the console has no other way to sign in"
        for key in ("console_origins", "page_origins"):
            if wrong := [origin for origin in getattr(self, key) if not ORIGIN.fullmatch(origin)]:
                return f"{key}: {wrong[0]!r} is not an origin of the form https://HOST"
        return None

    @property
    def calling(self) -> tuple[ModelPackage, ...]:
        """Return the packages that call models. If they are not chosen yet, return litellm, which can call any model."""
        return ("litellm",) if self.model_packages is None else self.model_packages

    @property
    def served_console(self) -> Literal["off", "cloudfront", "http"]:
        return "http" if self.console == "cloudfront" and self.offline else self.console

    @property
    def stage_triggers(self) -> dict[str, Trigger]:
        """Return the triggers that are deployed in this stage."""
        return {name: each for name, each in self.triggers.items() if not each.stages or self.stage in each.stages}

    @property
    def for_sam(self) -> bool:
        """Return whether the stage is for `sam local`: functions run in containers next to an emulator, and nothing is
        deployed."""
        return bool(self.endpoint) and not self.offline

    @property
    def target_architecture(self) -> Architecture:
        return HOST_ARCHITECTURE if self.architecture == "host" else self.architecture


def read_settings(context: Mapping[str, Any]) -> Settings:
    """Read the settings from CDK context, without CDK's own keys. Raises `SettingsError`, which names the first invalid
    key."""
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
    """Read the settings of a stage in any app. Context overrides `given`, which overrides the project's table. Context
    keys that Helix does not know belong to the app and are ignored.

    Raises `SettingsError` for an invalid key, and if the AWS endpoint is an emulator but the stage is not for one.
    """
    known = {key: value for key, value in {**project.context, **context}.items() if key in Settings.model_fields}
    name = stage or known.get("stage") or given.get("stage") or DEFAULT_STAGE
    settings = read_settings({**project.table_settings(name), **given, **known, "stage": name})
    if (problem := emulator_problem(offline=settings.offline or settings.for_sam)) is not None:
        raise SettingsError(problem)
    return settings


def pairs(words: Sequence[str]) -> dict[str, str]:
    """Parse `KEY=VALUE` words of the command line."""
    return {key: value for key, _, value in (word.partition("=") for word in words)}
