"""What starts runs by itself, as `[tool.helix.triggers.NAME]` of the project's pyproject.toml declares it, and what an
event becomes for the agent.

Law: one trigger, one source. An event that a template does not fit is refused by name and shows none of its values.
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
FILTERS: Final = {"timezone": "schedule", "prefix": "bucket", "suffix": "bucket", "bus": "event"}
QUEUE: Final = r"^arn:[a-z-]+:sqs:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+$"
_PLAIN = "[A-Za-z0-9_.@+=-]+"
_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_PATH = re.compile(r"^[A-Za-z0-9_:-]+(\.[A-Za-z0-9_:-]+)*$")


def _template(text: str) -> str:
    for match in _FIELD.finditer(text):
        if match[0] not in ("{{", "}}") and not _PATH.match(match[1] or ""):
            raise ValueError(f"{match[0]!r} names no field of the event; write {{{{ and }}}} for braces")
    return text


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        raise ValueError(f"{name!r} is no time zone; there are names as Europe/Berlin") from None
    return name


Template: TypeAlias = Annotated[str, StringConstraints(min_length=1), AfterValidator(_template)]
Agent: TypeAlias = Annotated[str, StringConstraints(max_length=128)]


class Start(BaseModel):
    """What an event starts: the part of a trigger that the function knows.

    agent: who runs; HTTP: where the request names nobody.
    prompt: the message; `{detail.object.key}` is a field of the event. Without one the agent gets the event as JSON; an
    agent that is a function gets it as its parameters.
    session: the session's name, which may have fields too; without one each event has a session of its own.
    user: whose sessions they are; nobody's by default.
    queue: true for an SQS queue of the stage's own, or the ARN of one that is there.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    agent: Agent = ""
    prompt: Template | None = None
    session: Template | None = None
    user: Annotated[str, StringConstraints(pattern=rf"^{_PLAIN}(/{_PLAIN})?$", max_length=256)] | None = None
    queue: Literal[True] | Annotated[str, StringConstraints(pattern=QUEUE)] | None = None


class Trigger(Start):
    """schedule: `rate(1 hour)` or `cron(0 2 * * ? *)`, which is in UTC or in the `timezone`. bucket: its new objects, with
    `prefix` and `suffix`; it must send its events to EventBridge. event: a pattern of EventBridge, on the bus `bus`. http:
    POST /run and GET /sessions/ID. stages: where it is deployed; everywhere by default.
    """

    schedule: Annotated[str, StringConstraints(pattern=r"^(rate|cron)\([^()]+\)$")] | None = None
    timezone: Annotated[str, AfterValidator(_zone)] | None = None
    bucket: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")] | None = None
    prefix: str = ""
    suffix: str = ""
    event: dict[str, Any] | None = Field(default=None, min_length=1)
    bus: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_./-]+$", max_length=256)] = "default"
    http: Literal[True] | None = None
    stages: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        named = [source for source in SOURCES if getattr(self, source) is not None]
        if len(named) != 1:
            raise ValueError(f"a trigger has one of {', '.join(SOURCES)}; this one has {' and '.join(named) or 'none'}")
        for name, source in FILTERS.items():
            if name in self.model_fields_set and named != [source]:
                raise ValueError(f"{name} belongs to {source}")
        if self.timezone and not (self.schedule or "").startswith("cron("):
            raise ValueError("timezone belongs to cron: a rate has none")
        if self.http:
            if wrong := sorted({"prompt", "session", "user"} & self.model_fields_set):
                raise ValueError(f"{wrong[0]} does not belong to http: the request says it")
        elif not self.agent:
            raise ValueError("agent is missing: who runs?")
        return self


Triggers: TypeAlias = dict[Annotated[str, StringConstraints(pattern=NAME)], Trigger]
_STARTS: Final = TypeAdapter(dict[str, Start])


def dump_starts(triggers: Mapping[str, Trigger]) -> str:
    """What the function needs of them, as JSON."""
    fields = set(Start.model_fields)
    return dumps({name: each.model_dump(include=fields, exclude_defaults=True) for name, each in triggers.items()})


def read_starts(text: str) -> dict[str, Start]:
    """Of the JSON that `dump_starts` wrote."""
    return _STARTS.validate_json(text or "{}")


def filled(template: str, event: JsonObject) -> str:
    """The template with fields of the event: a text as it is, everything else as JSON. Raises `InvalidInputError`."""

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
