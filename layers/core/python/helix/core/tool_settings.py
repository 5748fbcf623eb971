"""What tools need where they are deployed, as `[tool.helix]` of the project's pyproject.toml declares it.

Law: each table is checked when it is read; an error names the key and says what it may be. A narrower table goes over a
wider one: the project's, its stage's, the agent's, the agent's in that stage. Rights add up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from helix.core.errors import InvalidInputError
from helix.core.spelling import did_you_mean

WHERE = "pyproject.toml"
RESERVED = ("AWS_", "HELIX_", "LAMBDA_", "POWERTOOLS_", "OTEL_")
MAX_ENVIRONMENT_BYTES = 2048
"""Lambda allows 4,096 bytes for all variables of a function; Helix needs up to half of it."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]+")
_FORM = re.compile(r"(secretsmanager|ssm):([\w/+=.@-]{1,512})(#[^#,]+)?", re.ASCII)
_ARN = re.compile(
    r"(arn:[\w-]+:(secretsmanager|ssm):[\w-]+:\d{12}:(?:secret:[\w/+=.@-]+|parameter/[\w/.-]+))(#[^#,]+)?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class SecretPlace:
    """Where a secret is stored. `id`: its name or ARN. `field`: of the JSON object that it holds; "": all of its text."""

    service: Literal["secretsmanager", "ssm"]
    id: str
    field: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        if (found := _ARN.fullmatch(text)) is not None:
            arn, service, field = found.groups()
        elif (found := _FORM.fullmatch(text)) is not None:
            service, arn, field = found.groups()
        else:
            forms = "'secretsmanager:NAME', 'ssm:/NAME', an ARN of either; each may end with '#FIELD' of a JSON object"
            raise ValueError(f"{text!r} names no secret; there are {forms}")
        return cls("ssm" if service == "ssm" else "secretsmanager", arn, (field or "")[1:])

    def __str__(self) -> str:
        place = self.id if self.id.startswith("arn:") else f"{self.service}:{self.id}"
        return f"{place}#{self.field}" if self.field else place

    def resource(self, partition: str, region: str, account: str) -> str:
        """What a policy names it by. Secrets Manager ends an ARN with six random characters."""
        if self.id.startswith("arn:"):
            return self.id
        place = f"arn:{partition}:{self.service}:{region}:{account}"
        return (
            f"{place}:secret:{self.id}-??????"
            if self.service == "secretsmanager"
            else f"{place}:parameter/{self.id.lstrip('/')}"
        )

    @property
    def action(self) -> str:
        return "secretsmanager:GetSecretValue" if self.service == "secretsmanager" else "ssm:GetParameter"


def _place(given: Any) -> Any:
    return SecretPlace.parse(given) if isinstance(given, str) else given


def _variable(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no name of a variable: use letters, digits and '_', a letter first")
    if name.startswith(RESERVED):
        raise ValueError(f"{name!r} is reserved: no name may begin with {', '.join(RESERVED)}")
    return name


def _package(name: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name) is None:
        raise ValueError(f"{name!r} is no name of a package; its version is in the lock")
    return re.sub(r"[-_.]+", "-", name).lower()


Variable = Annotated[str, AfterValidator(_variable)]
Package = Annotated[str, AfterValidator(_package)]
Place = Annotated[SecretPlace, BeforeValidator(_place)]


def _bucket(name: str) -> str:
    if re.fullmatch(r"(arn:[\w-]+:s3:::)?[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", name) is None:
        raise ValueError(f"{name!r} is no name or ARN of a bucket")
    return name


def _named(service: str, what: str, pattern: str) -> AfterValidator:
    def check(name: str) -> str:
        if re.fullmatch(rf"arn:[\w-]+:{service}:[\w-]+:\d{{12}}:\S+|{pattern}", name) is None:
            raise ValueError(f"{name!r} is no name or ARN of a {what}")
        return name

    return AfterValidator(check)


Bucket = Annotated[str, AfterValidator(_bucket)]
Table = Annotated[str, _named("dynamodb", "table", r"[\w.-]{3,255}")]
Queue = Annotated[str, _named("sqs", "queue", r"[\w-]{1,80}(\.fifo)?")]
Topic = Annotated[str, _named("sns", "topic", r"[\w-]{1,256}(\.fifo)?")]
LambdaFunction = Annotated[str, _named("lambda", "function", r"[\w-]{1,64}")]
KeyArn = Annotated[str, _named("kms", "key: give its ARN, no alias", r"(?!)")]
Action = Annotated[str, Field(pattern=r"^[a-z0-9-]+:[A-Za-z*?]+$")]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Statement(_Table):
    """Of an IAM policy, always `Allow`."""

    actions: tuple[Action, ...] = Field(min_length=1)
    resources: tuple[str, ...] = Field(min_length=1)
    conditions: dict[str, dict[str, Any]] = Field(default_factory=dict)


class Rights(_Table):
    """What tools may do in the account. Names are of this account and region; an ARN names what is elsewhere."""

    read_buckets: tuple[Bucket, ...] = ()
    write_buckets: tuple[Bucket, ...] = ()
    read_tables: tuple[Table, ...] = ()
    write_tables: tuple[Table, ...] = ()
    send_queues: tuple[Queue, ...] = ()
    publish_topics: tuple[Topic, ...] = ()
    invoke_functions: tuple[LambdaFunction, ...] = ()
    use_keys: tuple[KeyArn, ...] = ()
    statements: tuple[Statement, ...] = ()

    def and_also(self, more: Rights) -> Rights:
        return Rights.model_validate({name: getattr(self, name) + getattr(more, name) for name in Rights.model_fields})


class Vpc(_Table):
    """The network of the functions that execute tools."""

    subnets: tuple[Annotated[str, Field(pattern=r"^subnet-[0-9a-f]+$")], ...] = Field(min_length=1, max_length=16)
    security_groups: tuple[Annotated[str, Field(pattern=r"^sg-[0-9a-f]+$")], ...] = Field(min_length=1, max_length=5)


class ToolSettings(_Table):
    """What one table says, or several together. memory_mb and timeout_s: of the function that executes tools; None leaves
    them as they are. image: packages of the lock that only that function has: it is a container image then. () is none."""

    environment: dict[Variable, str] = Field(default_factory=dict)
    secrets: dict[Variable, Place] = Field(default_factory=dict)
    rights: Rights = Rights()
    vpc: Vpc | None = None
    memory_mb: int | None = Field(default=None, ge=256, le=10_240)
    timeout_s: int | None = Field(default=None, ge=60, le=900)
    image: tuple[Package, ...] | None = None

    def under(self, narrower: ToolSettings) -> ToolSettings:
        """Both, where `narrower` goes first."""
        return ToolSettings.model_construct(
            environment={**self.environment, **narrower.environment},
            secrets={**self.secrets, **narrower.secrets},
            rights=self.rights.and_also(narrower.rights),
            vpc=narrower.vpc or self.vpc,
            memory_mb=narrower.memory_mb or self.memory_mb,
            timeout_s=narrower.timeout_s or self.timeout_s,
            image=self.image if narrower.image is None else narrower.image,
        )


class StageSettings(ToolSettings):
    """`agent`: by the agent's name."""

    agent: dict[str, ToolSettings] = Field(default_factory=dict)

    @classmethod
    def own(cls, table: Any) -> Any:
        """The keys of a table that are about tools: it has those of the deployment too."""
        return {key: table[key] for key in table if key in cls.model_fields} if isinstance(table, Mapping) else table

    @classmethod
    def others(cls, table: Any) -> Any:
        return (
            {key: table[key] for key in table if key not in cls.model_fields} if isinstance(table, Mapping) else table
        )


class ProjectTools(StageSettings):
    """All of `[tool.helix]` that is about tools. `stages`: by the stage's name; what else is in their tables is of the
    deployment."""

    stages: dict[str, StageSettings] = Field(default_factory=dict)

    @classmethod
    def others(cls, table: Any) -> Any:
        """The table without what is read here."""
        rest = super().others(table)
        if isinstance(stages := table.get("stages"), Mapping):
            rest["stages"] = {name: StageSettings.others(own) for name, own in stages.items()}
        return rest

    @classmethod
    def read(cls, section: Mapping[str, Any]) -> ProjectTools:
        """From `[tool.helix]`, whose other keys are left alone. Raises `InvalidInputError` that names the first wrong
        key."""
        try:
            own = cls.own(section)
            if isinstance(stages := own.get("stages"), Mapping):
                own["stages"] = {name: StageSettings.own(table) for name, table in stages.items()}
            project = cls.model_validate(own)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise InvalidInputError(f"{WHERE}: {_spelled(first['loc'])}: {_problem(first)}") from None
        for stage in (None, *project.stages):
            for agent in (None, *project.agents(stage)):
                project.of(stage, agent)
        return project

    def agents(self, stage: str | None) -> list[str]:
        """Those with tables of their own in that stage."""
        return sorted({*self.agent, *(self.stages[stage].agent if stage in self.stages else ())})

    def places(self, stage: str) -> dict[SecretPlace, str]:
        """Every place that holds a secret of the stage, and the secret's name."""
        tables = [self.of(stage), *(self.of(stage, agent) for agent in self.agents(stage))]
        return {place: name for tools in tables for name, place in tools.secrets.items()}

    def images(self, stage: str) -> frozenset[str]:
        """Every package that is in a container image of the stage, and in no layer."""
        tables = [self.of(stage), *(self.of(stage, agent) for agent in self.agents(stage))]
        return frozenset(name for tools in tables for name in tools.image or ())

    def of(self, stage: str | None, agent: str | None = None) -> ToolSettings:
        """What holds for the tools of an agent, or of all that have no table of their own. Raises `InvalidInputError` where
        the tables do not fit together."""
        own = self.stages.get(stage, StageSettings()) if stage is not None else StageSettings()
        merged = ToolSettings().under(self).under(own)
        if agent is not None:
            merged = merged.under(self.agent.get(agent, ToolSettings())).under(own.agent.get(agent, ToolSettings()))
        who = "" if agent is None else f", agent {agent!r}"
        if both := sorted(merged.environment.keys() & merged.secrets.keys()):
            raise InvalidInputError(f"{WHERE}: tool.helix{who}: {both[0]!r} is both in environment and in secrets")
        size = sum(len(name) + len(value.encode()) for name, value in merged.environment.items())
        size += sum(len(name) + len(str(place)) + 2 for name, place in merged.secrets.items())
        if size > MAX_ENVIRONMENT_BYTES:
            problem = f"take {size} bytes together; Lambda has room for {MAX_ENVIRONMENT_BYTES} beside Helix's own"
            raise InvalidInputError(f"{WHERE}: tool.helix{who}: environment and the places of secrets {problem}")
        return merged


def _spelled(place: tuple[int | str, ...]) -> str:
    """As TOML spells it: `tool.helix.rights.read_buckets[0]`."""
    names = [part for part in place if part != "[key]"]
    return "tool.helix" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in names)


def _problem(first: Any) -> str:
    match first["type"]:
        case "extra_forbidden":
            known = [name for table in (StageSettings, Rights, Statement, Vpc) for name in table.model_fields]
            return (
                f"there is no such setting; see docs/guide/tool-settings.md{did_you_mean(str(first['loc'][-1]), known)}"
            )
        case "string_type" | "dataclass_type":
            return f"must be a text in quotes, not {first['input']!r}"
        case "missing":
            return "is missing"
        case _:
            return str(first["msg"]).removeprefix("Value error, ")
