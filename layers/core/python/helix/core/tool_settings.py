"""Settings, secrets and rights that deployed tools need, as `[tool.helix]` of the project's pyproject.toml declares
them.

Law: each table is checked when it is read; an error names the key and says what it may be. A narrower table goes over a
wider one. From the widest to the narrowest: the project's, its stage's, the agent's, the agent's in that stage. Rights
add up.
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
"""The most bytes that variables and places of secrets take together. Lambda allows 4,096 bytes for all variables of a
function; Helix needs up to half of it."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]+")
_FORM = re.compile(r"(secretsmanager|ssm):([\w/+=.@-]{1,512})(#[^#,]+)?", re.ASCII)
_ARN = re.compile(
    r"(arn:[\w-]+:(secretsmanager|ssm):[\w-]+:\d{12}:(?:secret:[\w/+=.@-]+|parameter/[\w/.-]+))(#[^#,]+)?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class SecretPlace:
    """The place where a secret is stored."""

    service: Literal["secretsmanager", "ssm"]
    """The service that stores it: Secrets Manager, or Parameter Store of Systems Manager (`ssm`)."""
    id: str
    """The name or the whole ARN of the secret or parameter. A name belongs to the stage's account and region."""
    field: str = ""
    """The field of the stored JSON object that holds the secret. Empty means the whole text."""

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
        """Return the ARN for an IAM policy. Secrets Manager ends its ARNs with six random characters, so the pattern
        ends with six `?`."""
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
        raise ValueError(f"{name!r} is not the name of a variable: use letters, digits and '_', a letter first")
    if name.startswith(RESERVED):
        raise ValueError(f"{name!r} is reserved: no name may begin with {', '.join(RESERVED)}")
    return name


def _package(name: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name) is None:
        raise ValueError(f"{name!r} is not the name of a package; the lock has its version")
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
    """A statement of an IAM policy. Its effect is always `Allow`."""

    actions: tuple[Action, ...] = Field(min_length=1)
    """The allowed actions, such as `ses:SendEmail`. `*` and `?` are wildcards."""
    resources: tuple[str, ...] = Field(min_length=1)
    """The ARNs that the actions apply to."""
    conditions: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """The conditions of the statement, in IAM's form: operator -> key -> value. Empty means none."""


class Rights(_Table):
    """The rights of tools in the account. A name belongs to the stage's account and region; an ARN names a resource
    elsewhere."""

    read_buckets: tuple[Bucket, ...] = ()
    """S3 buckets whose objects tools may list and read."""
    write_buckets: tuple[Bucket, ...] = ()
    """S3 buckets whose objects tools may write and delete, but not read."""
    read_tables: tuple[Table, ...] = ()
    """DynamoDB tables that tools may read, their indexes included."""
    write_tables: tuple[Table, ...] = ()
    """DynamoDB tables whose items tools may write and delete, but not read."""
    send_queues: tuple[Queue, ...] = ()
    """SQS queues that tools may send messages to."""
    publish_topics: tuple[Topic, ...] = ()
    """SNS topics that tools may publish to."""
    invoke_functions: tuple[LambdaFunction, ...] = ()
    """Lambda functions that tools may invoke, with their versions and aliases."""
    use_keys: tuple[KeyArn, ...] = ()
    """ARNs of KMS keys that tools may decrypt and encrypt with. Resources that are encrypted with such a key need it
    too."""
    statements: tuple[Statement, ...] = ()
    """Statements for everything else."""

    def and_also(self, more: Rights) -> Rights:
        return Rights.model_validate({name: getattr(self, name) + getattr(more, name) for name in Rights.model_fields})


class Vpc(_Table):
    """The network of the functions that execute tools."""

    subnets: tuple[Annotated[str, Field(pattern=r"^subnet-[0-9a-f]+$")], ...] = Field(min_length=1, max_length=16)
    """The ids of the subnets. They need a route to AWS, through a NAT gateway or VPC endpoints."""
    security_groups: tuple[Annotated[str, Field(pattern=r"^sg-[0-9a-f]+$")], ...] = Field(min_length=1, max_length=5)
    """The ids of the security groups."""


class ToolSettings(_Table):
    """The settings of one table, or of several that were merged."""

    environment: dict[Variable, str] = Field(default_factory=dict)
    """Variables by name, for every function that imports the agents. Their values are in the template: no secrets."""
    secrets: dict[Variable, Place] = Field(default_factory=dict)
    """The places of secrets by the name with which `ctx.secret` reads them."""
    rights: Rights = Rights()
    """The rights of the functions that execute tools."""
    vpc: Vpc | None = None
    """The network of the functions that execute tools. None leaves them outside a VPC, or in that of a wider table."""
    memory_mb: int | None = Field(default=None, ge=256, le=10_240)
    """The memory of the function that executes tools, in MB. None leaves it as it is."""
    timeout_s: int | None = Field(default=None, ge=60, le=900)
    """The timeout of the function that executes tools, in seconds. None leaves it as it is."""
    image: tuple[Package, ...] | None = None
    """Packages of the lock that only the function that executes tools has; it becomes a container image. () means none.
    None leaves the choice to a wider table."""

    def under(self, narrower: ToolSettings) -> ToolSettings:
        """Return both tables merged. `narrower` wins, and rights add up."""
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
    """The settings of a stage, or of the project for all stages."""

    agent: dict[str, ToolSettings] = Field(default_factory=dict)
    """The settings of single agents by the agent's name. They go over those of the stage."""

    @classmethod
    def own(cls, table: Any) -> Any:
        """Return the keys of a table that are about tools. The same table has keys of the deployment too."""
        return {key: table[key] for key in table if key in cls.model_fields} if isinstance(table, Mapping) else table

    @classmethod
    def others(cls, table: Any) -> Any:
        return (
            {key: table[key] for key in table if key not in cls.model_fields} if isinstance(table, Mapping) else table
        )


class ProjectTools(StageSettings):
    """All of `[tool.helix]` that is about tools."""

    stages: dict[str, StageSettings] = Field(default_factory=dict)
    """The settings of single stages by the stage's name. All other keys of these tables belong to the deployment."""

    @classmethod
    def others(cls, table: Any) -> Any:
        """Return the table without the keys that are read here."""
        rest = super().others(table)
        if isinstance(stages := table.get("stages"), Mapping):
            rest["stages"] = {name: StageSettings.others(own) for name, own in stages.items()}
        return rest

    @classmethod
    def read(cls, section: Mapping[str, Any]) -> ProjectTools:
        """Read the settings from `[tool.helix]`, and ignore its other keys. Raises `InvalidInputError` that names the
        first wrong key."""
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
        """Return the names of the agents that have a table of their own in that stage."""
        return sorted({*self.agent, *(self.stages[stage].agent if stage in self.stages else ())})

    def places(self, stage: str) -> dict[SecretPlace, str]:
        """Return every place that holds a secret of the stage, with the secret's name."""
        tables = [self.of(stage), *(self.of(stage, agent) for agent in self.agents(stage))]
        return {place: name for tools in tables for name, place in tools.secrets.items()}

    def images(self, stage: str) -> frozenset[str]:
        """Return every package that is in a container image of the stage, and in no layer."""
        tables = [self.of(stage), *(self.of(stage, agent) for agent in self.agents(stage))]
        return frozenset(name for tools in tables for name in tools.image or ())

    def of(self, stage: str | None, agent: str | None = None) -> ToolSettings:
        """Return the settings for the tools of an agent, or of all agents without a table of their own. Raises
        `InvalidInputError` if the tables contradict each other or take too many bytes."""
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
    """Return the key as TOML spells it: `tool.helix.rights.read_buckets[0]`."""
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
