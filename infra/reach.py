"""What an app around a stage may use of it: addresses, resources, and rights for its own functions.

Law: a right that is given here is on the stage's resources and on no others. What the app gives to the stage's tools is in
policies outside of the stage's own constructs, which it alone answers for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jsii
from aws_cdk import Aspects, IAspect
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from constructs import Construct, IConstruct

from helix.core.resources import DEFAULT_PROFILE
from helix.infra.config import Settings, SettingsError
from helix.infra.console import Console
from helix.infra.endpoints import Endpoints
from helix.infra.executions import Executions
from helix.infra.function import Function
from helix.infra.functions import COUNT, LOOK
from helix.infra.keys import Keys
from helix.infra.network import Network
from helix.infra.sockets import Sockets
from helix.infra.storage import CHECK, DELETE, GET, GET_SEVERAL, PUT, QUERY, UPDATE, Storage, TableName
from helix.infra.streaming import Streaming
from helix.infra.topics import Topics

Functions = Mapping[str, Function]
"""By verb."""


@dataclass(frozen=True, slots=True)
class Parts:
    """shared: the functions that the stage has once. profiles: `call_model` and `call_tool` of each resource profile.
    inline: the profiles whose `call_model` executes tools too."""

    settings: Settings
    environment: Mapping[str, str]
    keys: Keys
    storage: Storage
    streaming: Streaming
    sockets: Sockets
    topics: Topics
    endpoints: Endpoints
    console: Console
    executions: Executions
    shared: Functions
    profiles: Mapping[str, Functions]
    inline: frozenset[str]
    network: Network | None


class Reach(Construct):
    _parts: Parts

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self._outside = scope

    # --- what there is ---------------------------------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """As they were resolved: from `[tool.helix]`, the argument `settings`, and context."""
        return self._parts.settings

    @property
    def url(self) -> str:
        """Where clients connect: `wss://...`; offline, `ws://...`."""
        return self._parts.sockets.url

    @property
    def domain_target(self) -> tuple[str, str]:
        """Domain name and hosted zone's id of API Gateway, which an alias record for `domain_name` points to. Raises
        `SettingsError` where the stage has no domain of its own."""
        domain = self._parts.sockets.domain
        if domain is None:
            raise SettingsError("domain_target: the stage has no domain; give domain_name and certificate")
        return domain.regional_domain_name, domain.regional_hosted_zone_id

    @property
    def health_url(self) -> str:
        """`https://.../health`; /ready, /live and /metrics are beside it."""
        return f"{self._parts.endpoints.url}/health"

    @property
    def console_url(self) -> str | None:
        """`https://.../index.html`, where the stage serves the console. None without the setting `console`."""
        return self._parts.console.url

    @property
    def tables(self) -> Mapping[TableName, dynamodb.Table]:
        """By name: `sessions`, `streams`, `control`."""
        return self._parts.storage.tables

    @property
    def bucket(self) -> s3.Bucket:
        """Holds what exceeds an item of DynamoDB."""
        return self._parts.storage.bucket

    @property
    def encryption_key(self) -> kms.IKey | None:
        """What encrypts the stage at rest. None: keys of AWS do."""
        return self._parts.keys.key

    @property
    def alarm_topic(self) -> sns.Topic:
        """CloudWatch publishes the stage's alarms to it."""
        return self._parts.topics.alarms

    @property
    def notice_topic(self) -> sns.Topic:
        """Helix publishes budgets that run out and limits that change to it."""
        return self._parts.topics.notices

    @property
    def connections(self) -> ec2.Connections:
        """Of the functions that execute tools: `database.connections.allow_default_port_from(helix.connections)`. Raises
        `SettingsError` without `vpc`."""
        if self._parts.network is None:
            raise SettingsError("connections: the functions that execute tools are in no network; give vpc")
        return ec2.Connections(security_groups=list(self._parts.network.groups))

    @property
    def functions(self) -> Mapping[str, lambda_.IFunction]:
        """The alias `live` of each function, by verb. `call_model` and `call_tool` are those of agents without resources of
        their own."""
        every = {**self._parts.shared, **self._parts.profiles[DEFAULT_PROFILE]}
        return {verb: function.live for verb, function in every.items()}

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables with which a function of the app's own finds the stage:
        `helix.runtime.cloud.application().executor` starts runs there. It needs `grant_run`."""
        return dict(self._parts.environment)

    def tool_role(self, agent: str | None = None) -> iam.IRole:
        """The role of the function that executes tools, for grants: `bucket.grant_read(helix.tool_role())`. Inline tools,
        which another function executes, get the same rights.

        agent: one that has functions of its own, because it asks for resources or has a table in `[tool.helix.agent]`.
        Default: all others. Raises `SettingsError` for another name.
        """
        profiles = self._parts.profiles
        if (name := agent or DEFAULT_PROFILE) not in profiles:
            known = ", ".join(repr(each) for each in profiles if each != DEFAULT_PROFILE) or "none"
            raise SettingsError(f"tool_role: agent {name!r} has no functions of its own; these have: {known}")
        place = f"{self.node.id}-ToolRole-{name}"
        if (made := self._outside.node.try_find_child(place)) is not None:
            return made
        roles = {verb: function.role for verb, function in profiles[name].items()}
        role: iam.IRole = iam.Role.from_role_name(self._outside, place, roles["call_tool"].role_name)
        if name in self._parts.inline:
            Aspects.of(role).add(_AlsoTo(roles["call_model"]))
        return role

    # --- rights of the app's own functions -------------------------------------------------------------------------------

    def grant_run(self, grantee: iam.IGrantable) -> None:
        """Start, resume, retry, interrupt and abort runs of any session, and read them."""
        parts = self._parts
        parts.storage.grant_rows(grantee, "sessions", GET, GET_SEVERAL, QUERY, PUT, UPDATE, DELETE, CHECK)
        parts.storage.grant_rows(grantee, "control", *COUNT, CHECK)
        parts.storage.grant_rows(grantee, "streams", *LOOK)
        parts.storage.grant_overflow(grantee)
        parts.streaming.grant_append(grantee)
        parts.executions.grant_start(grantee)
        parts.executions.grant_wake(grantee)
        parts.executions.grant_stop(grantee)

    def grant_read_sessions(self, grantee: iam.IGrantable) -> None:
        """Read messages, runs, checkpoints and state of any session."""
        self._parts.storage.grant_rows(grantee, "sessions", GET, GET_SEVERAL, QUERY)
        self._parts.storage.grant_overflow_read(grantee)

    def grant_read_streams(self, grantee: iam.IGrantable) -> None:
        """Read the stream of any session: replay it, and follow it by polling."""
        self._parts.storage.grant_rows(grantee, "streams", *LOOK)
        self._parts.storage.grant_overflow_read(grantee)


@jsii.implements(IAspect)
class _AlsoTo:
    """Attaches the policies under its scope to one more role."""

    def __init__(self, role: iam.Role) -> None:
        self._role = role

    def visit(self, node: IConstruct) -> None:
        if isinstance(node, iam.Policy):
            node.attach_to_role(self._role)
