"""Triggers that start runs automatically, as declared in `[tool.helix.triggers.NAME]` of the project's pyproject.toml,
and the agent's input from an event.

Law: each trigger has exactly one source. If an event lacks a field of a template, the error names the missing field but
shows none of the event's values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self, TypeAlias
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, model_validator

from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject, dumps

NAME: Final = r"^[a-z][a-z0-9-]{0,31}$"
SOURCES: Final = ("schedule", "queue", "bucket", "event", "http")
FILTERS: Final = {"timezone": "schedule", "prefix": "bucket", "suffix": "bucket", "attach": "bucket", "bus": "event"}
QUEUE: Final = r"^arn:[a-z-]+:sqs:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+$"
_PLAIN = "[A-Za-z0-9_.@+=-]+"
_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_PATH = re.compile(r"^[A-Za-z0-9_:-]+(\.[A-Za-z0-9_:-]+)*$")


def _template(text: str) -> str:
    for match in _FIELD.finditer(text):
        if match[0] not in ("{{", "}}") and not _PATH.match(match[1] or ""):
            raise ValueError(f"{match[0]!r} does not name a field of the event; write {{{{ and }}}} for braces")
    return text


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        raise ValueError(f"{name!r} is not a time zone; use a name such as Europe/Berlin") from None
    return name


Template: TypeAlias = Annotated[str, StringConstraints(min_length=1), AfterValidator(_template)]
Agent: TypeAlias = Annotated[str, StringConstraints(max_length=128)]


class Start(BaseModel):
    """The settings that the function needs to start a run from an event."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    agent: Agent = ""
    """The name of the agent to run. For HTTP it is the default for requests that do not name an agent, and may be
    empty."""
    prompt: Template | None = None
    """The message template, where `{detail.object.key}` inserts a field of the event. Without a prompt, the agent gets
    the event as JSON, and a function agent gets it as parameters."""
    session: Template | None = None
    """The template of the session's name, which may also insert fields of the event. Without it, each event gets its
    own session."""
    user: Annotated[str, StringConstraints(pattern=rf"^{_PLAIN}(/{_PLAIN})?$", max_length=256)] | None = None
    """The user who owns the sessions. Without it, they have no owner, and only operators can see them."""
    queue: Literal[True] | Annotated[str, StringConstraints(pattern=QUEUE)] | None = None
    """True for an SQS queue that the stage creates, or the ARN of an existing queue. None for other sources."""
    calls: bool = False
    """Whether the event ends or prolongs a call that ends elsewhere, instead of starting a run. Its `detail`, or the
    message of a queue, has the fields of the request `report_call`."""
    attach: bool = False
    """Whether the new object is attached to the message as a file. Its source must be `bucket`."""


class Trigger(Start):
    """A trigger as declared in the project. Exactly one of `schedule`, `queue`, `bucket`, `event` and `http` is set."""

    schedule: Annotated[str, StringConstraints(pattern=r"^(rate|cron)\([^()]+\)$")] | None = None
    """`rate(1 hour)` or `cron(0 2 * * ? *)`. Times are in UTC unless `timezone` is set."""
    timezone: Annotated[str, AfterValidator(_zone)] | None = None
    """The IANA name of the time zone of a `cron` schedule, such as `Europe/Berlin`. None means UTC."""
    bucket: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")] | None = None
    """The S3 bucket whose new objects start runs. It must send its events to EventBridge."""
    prefix: str = ""
    """The required prefix of the object keys. Empty means any."""
    suffix: str = ""
    """The required suffix of the object keys. Empty means any."""
    event: dict[str, Any] | None = Field(default=None, min_length=1)
    """The EventBridge event pattern to match."""
    bus: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_./-]+$", max_length=256)] = "default"
    """The event bus of `event`, by name or ARN."""
    http: Literal[True] | None = None
    """True for the routes `POST /run` and `GET /sessions/ID`. The request supplies the prompt, the session and the
    user."""
    stages: list[str] = Field(default_factory=list)
    """The stages in which the trigger is deployed. Empty means all."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        named = [source for source in SOURCES if getattr(self, source) is not None]
        if len(named) != 1:
            raise ValueError(f"a trigger has one of {', '.join(SOURCES)}; this one has {' and '.join(named) or 'none'}")
        for name, source in FILTERS.items():
            if name in self.model_fields_set and named != [source]:
                raise ValueError(f"{name} belongs to {source}")
        if self.timezone and not (self.schedule or "").startswith("cron("):
            raise ValueError("timezone applies to cron only, not to rate")
        if self.calls:
            if named not in (["event"], ["queue"]):
                raise ValueError("calls belongs to event and queue")
            if wrong := sorted({"agent", "prompt", "session", "user"} & self.model_fields_set):
                raise ValueError(f"{wrong[0]} does not belong to calls: the token names the call")
        elif self.http:
            if wrong := sorted({"prompt", "session", "user"} & self.model_fields_set):
                raise ValueError(f"{wrong[0]} does not belong to http: the request sets it")
        elif not self.agent:
            raise ValueError("agent is missing: name the agent to run")
        return self


Triggers: TypeAlias = dict[Annotated[str, StringConstraints(pattern=NAME)], Trigger]
_STARTS: Final = TypeAdapter(dict[str, Start])


def dump_starts(triggers: Mapping[str, Trigger]) -> str:
    """Serialize the `Start` settings of the triggers as JSON."""
    fields = set(Start.model_fields)
    return dumps({name: each.model_dump(include=fields, exclude_defaults=True) for name, each in triggers.items()})


def read_starts(text: str) -> dict[str, Start]:
    """Read the JSON that `dump_starts` wrote."""
    return _STARTS.validate_json(text or "{}")


def filled(template: str, event: JsonObject) -> str:
    """Fill the template with fields of the event: strings verbatim, other values as JSON. Raises `InvalidInputError` if
    the event lacks a field."""

    def value(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        found: Any = event
        for part in match[1].split("."):
            if not isinstance(found, dict) or part not in found:
                raise InvalidInputError(f"the event has no field {match[1]!r}")
            found = found[part]
        return found if isinstance(found, str) else dumps(found)

    return _FIELD.sub(value, template)
