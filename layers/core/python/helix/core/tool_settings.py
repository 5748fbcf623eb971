"""The settings, secrets and IAM permissions of deployed tools, as declared in `[tool.helix]` of the project's
pyproject.toml.

Law: each table is validated when it is read; an error names the key and the allowed values. A narrower table overrides
a wider one, in this order: project, stage, agent, agent in a stage. Rights are combined instead.
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
"""The maximum total size of variables and secret locations in bytes. Lambda allows 4,096 bytes for all variables of a
function, and Helix itself needs up to half of that."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]+")
_FORM = re.compile(r"(secretsmanager|ssm):([\w/+=.@-]{1,512})(#[^#,]+)?", re.ASCII)
_ARN = re.compile(
    r"(arn:[\w-]+:(secretsmanager|ssm):[\w-]+:\d{12}:(?:secret:[\w/+=.@-]+|parameter/[\w/.-]+))(#[^#,]+)?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class SecretPlace:
    """The location of a stored secret."""

    service: Literal["secretsmanager", "ssm"]
    """The service that stores it: Secrets Manager, or Parameter Store of Systems Manager (`ssm`)."""
    id: str
    """The name or full ARN of the secret or parameter. A name refers to the stage's account and region."""
    field: str = ""
    """The field of the stored JSON object that contains the secret. Empty means the whole value."""

    @classmethod
    def parse(cls, text: str) -> Self:
        if (found := _ARN.fullmatch(text)) is not None:
            arn, service, field = found.groups()
        elif (found := _FORM.fullmatch(text)) is not None:
            service, arn, field = found.groups()
        else:
            forms = (
                "'secretsmanager:NAME', 'ssm:/NAME', or an ARN of either; each may end with '#FIELD' of a JSON object"
            )
            raise ValueError(f"{text!r} does not name a secret; write {forms}")
        return cls("ssm" if service == "ssm" else "secretsmanager", arn, (field or "")[1:])

    def __str__(self) -> str:
        place = self.id if self.id.startswith("arn:") else f"{self.service}:{self.id}"
        return f"{place}#{self.field}" if self.field else place

    def resource(self, partition: str, region: str, account: str) -> str:
        """Return the ARN for an IAM policy. Secrets Manager appends six random characters to its ARNs, so the pattern
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
        raise ValueError(f"{name!r} is not a variable name: use letters, digits and '_', and begin with a letter")
    if name.startswith(RESERVED):
        raise ValueError(f"{name!r} is reserved: no name may begin with {', '.join(RESERVED)}")
    return name


def _package(name: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name) is None:
        raise ValueError(f"{name!r} is not a package name; leave out the version, which the lock file sets")
    return re.sub(r"[-_.]+", "-", name).lower()


Variable = Annotated[str, AfterValidator(_variable)]
Package = Annotated[str, AfterValidator(_package)]
Place = Annotated[SecretPlace, BeforeValidator(_place)]


def _bucket(name: str) -> str:
    if re.fullmatch(r"(arn:[\w-]+:s3:::)?[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", name) is None:
        raise ValueError(f"{name!r} is not the name or ARN of a bucket")
    return name


def _named(service: str, what: str, pattern: str) -> AfterValidator:
    def check(name: str) -> str:
        if re.fullmatch(rf"arn:[\w-]+:{service}:[\w-]+:\d{{12}}:\S+|{pattern}", name) is None:
            raise ValueError(f"{name!r} is not the name or ARN of a {what}")
        return name

    return AfterValidator(check)


Bucket = Annotated[str, AfterValidator(_bucket)]
Table = Annotated[str, _named("dynamodb", "table", r"[\w.-]{3,255}")]
Queue = Annotated[str, _named("sqs", "queue", r"[\w-]{1,80}(\.fifo)?")]
Topic = Annotated[str, _named("sns", "topic", r"[\w-]{1,256}(\.fifo)?")]
LambdaFunction = Annotated[str, _named("lambda", "function", r"[\w-]{1,64}")]
KeyArn = Annotated[str, _named("kms", "key: give its ARN, not an alias", r"(?!)")]
Action = Annotated[str, Field(pattern=r"^[a-z0-9-]+:[A-Za-z*?]+$")]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Statement(_Table):
    """A statement of an IAM policy. Its effect is always `Allow`."""

    actions: tuple[Action, ...] = Field(min_length=1)
    """The allowed actions, such as `ses:SendEmail`. `*` and `?` are wildcards."""
    resources: tuple[str, ...] = Field(min_length=1)
    """The ARNs of the resources that the actions apply to."""
    conditions: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """The conditions of the statement in IAM format: operator -> key -> value. Empty means none."""


class Rights(_Table):
    """The permissions of tools. A name refers to a resource in the stage's account and region; an ARN can refer to one
    elsewhere."""

    read_buckets: tuple[Bucket, ...] = ()
    """S3 buckets whose objects tools may list and read."""
    write_buckets: tuple[Bucket, ...] = ()
    """S3 buckets whose objects tools may write and delete, but not read."""
    read_tables: tuple[Table, ...] = ()
    """DynamoDB tables that tools may read, including their indexes."""
    write_tables: tuple[Table, ...] = ()
    """DynamoDB tables whose items tools may write and delete, but not read."""
    send_queues: tuple[Queue, ...] = ()
    """SQS queues that tools may send messages to."""
    publish_topics: tuple[Topic, ...] = ()
    """SNS topics that tools may publish to."""
    invoke_functions: tuple[LambdaFunction, ...] = ()
    """Lambda functions that tools may invoke, including their versions and aliases."""
    use_keys: tuple[KeyArn, ...] = ()
    """ARNs of KMS keys that tools may use to encrypt and decrypt. Access to a resource encrypted with such a key also
    requires this."""
    statements: tuple[Statement, ...] = ()
    """IAM statements for everything else."""

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
    """Environment variables for every function that imports the agents. Their values are visible in the template, so
    they must not be secrets."""
    secrets: dict[Variable, Place] = Field(default_factory=dict)
    """The locations of secrets, by the name that is passed to `ctx.secret`."""
    rights: Rights = Rights()
    """The permissions of the functions that execute tools."""
    vpc: Vpc | None = None
    """The network of the functions that execute tools. None uses the VPC of a wider table, or no VPC."""
    memory_mb: int | None = Field(default=None, ge=256, le=10_240)
    """The memory of the function that executes tools, in MB. None keeps the value of a wider table, or the default."""
    timeout_s: int | None = Field(default=None, ge=60, le=900)
    """The timeout of the function that executes tools, in seconds. None keeps the value of a wider table, or the
    default."""
    image: tuple[Package, ...] | None = None
    """Locked packages that are installed only in the function that executes tools, which becomes a container image. ()
    means none. None uses the value of a wider table."""

    def merge_narrower(self, narrower: ToolSettings) -> ToolSettings:
        """Merge both tables. `narrower` wins, and rights are combined."""
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
    """The settings of individual agents, by agent name. They override those of the stage."""

    @classmethod
    def own(cls, table: Any) -> Any:
        """Return the keys of a table that concern tools. The same table also has deployment keys."""
        return {key: table[key] for key in table if key in cls.model_fields} if isinstance(table, Mapping) else table

    @classmethod
    def others(cls, table: Any) -> Any:
        return (
            {key: table[key] for key in table if key not in cls.model_fields} if isinstance(table, Mapping) else table
        )


class ProjectTools(StageSettings):
    """All tool settings in `[tool.helix]`."""

    stages: dict[str, StageSettings] = Field(default_factory=dict)
    """The settings of individual stages, by stage name. All other keys of these tables belong to the deployment."""

    @classmethod
    def others(cls, table: Any) -> Any:
        """Return the table without the keys that this class reads."""
        rest = super().others(table)
        if isinstance(stages := table.get("stages"), Mapping):
            rest["stages"] = {name: StageSettings.others(own) for name, own in stages.items()}
        return rest

    @classmethod
    def read(cls, section: Mapping[str, Any]) -> ProjectTools:
        """Read the settings from `[tool.helix]`, ignoring all other keys. Raises `InvalidInputError`, which names the
        first invalid key."""
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
        """Return the names of the agents with their own table in that stage."""
        return sorted({*self.agent, *(self.stages[stage].agent if stage in self.stages else ())})

    def places(self, stage: str) -> dict[SecretPlace, str]:
        """Return the location of every secret of the stage, with the secret's name."""
        tables = [self.of(stage), *(self.of(stage, agent) for agent in self.agents(stage))]
        return {place: name for tools in tables for name, place in tools.secrets.items()}

    def images(self, stage: str) -> frozenset[str]:
        """Return all packages that are in a container image of the stage rather than in a layer."""
        tables = [self.of(stage), *(self.of(stage, agent) for agent in self.agents(stage))]
        return frozenset(name for tools in tables for name in tools.image or ())

    def of(self, stage: str | None, agent: str | None = None) -> ToolSettings:
        """Return the settings for the tools of an agent, or of all agents without their own table. Raises
        `InvalidInputError` if the tables contradict each other or are too large."""
        own = self.stages.get(stage, StageSettings()) if stage is not None else StageSettings()
        merged = ToolSettings().merge_narrower(self).merge_narrower(own)
        if agent is not None:
            merged = merged.merge_narrower(self.agent.get(agent, ToolSettings())).merge_narrower(
                own.agent.get(agent, ToolSettings())
            )
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
    """Return the key in TOML notation: `tool.helix.rights.read_buckets[0]`."""
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
            return f"must be a string in quotes, not {first['input']!r}"
        case "missing":
            return "is missing"
        case _:
            return str(first["msg"]).removeprefix("Value error, ")
