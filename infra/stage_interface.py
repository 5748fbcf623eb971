"""The public interface of a stage for the surrounding CDK app: URLs, resources, and grants for the app's own functions.

Law: the permissions granted here cover only the stage's resources. Permissions that the app grants to the stage's tools are
in policies outside the stage's constructs, and the app is responsible for them.
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
"""Functions by verb."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a composed stage."""

    settings: Settings
    """The resolved settings of the stage."""
    environment: Mapping[str, str]
    """The environment variables of every function in the stage."""
    keys: Keys
    """The key that encrypts the stage at rest, or none with `key=aws`."""
    storage: Storage
    """The tables and the bucket."""
    streaming: Streaming
    """The path of chunks to `project_stream`."""
    sockets: Sockets
    """The WebSocket API."""
    topics: Topics
    """The topics for alarms and notices."""
    endpoints: Endpoints
    """The HTTP API."""
    console: Console
    """The console; without a URL if the stage does not serve it."""
    executions: Executions
    """The state machines, and grants on their executions."""
    shared: Functions
    """The functions that exist once per stage, by verb."""
    profiles: Mapping[str, Functions]
    """`call_model` and `call_tool` of each resource profile, by the profile's name."""
    inline: frozenset[str]
    """The names of the profiles whose `call_model` also executes tools."""
    network: Network | None
    """The network that the app provides for the functions that execute tools. None: the app does not provide one."""


class StageInterface(Construct):
    _parts: Parts

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self._outside = scope

    # --- resources -------------------------------------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """Return the settings as resolved from `[tool.helix]`, the argument `settings`, and context."""
        return self._parts.settings

    @property
    def url(self) -> str:
        """Return the URL that clients connect to: `wss://...`, or `ws://...` offline."""
        return self._parts.sockets.url

    @property
    def domain_target(self) -> tuple[str, str]:
        """Return the domain name and the hosted zone id of API Gateway. An alias record for `domain_name` points to
        them. Raises `SettingsError` if the stage does not have its own domain."""
        domain = self._parts.sockets.domain
        if domain is None:
            raise SettingsError("domain_target: the stage has no domain; give domain_name and certificate")
        return domain.regional_domain_name, domain.regional_hosted_zone_id

    @property
    def health_url(self) -> str:
        """Return `https://.../health`. The paths /ready, /live and /metrics are next to it."""
        return f"{self._parts.endpoints.url}/health"

    @property
    def console_url(self) -> str | None:
        """Return the URL of the console, `https://.../index.html`. None without the setting `console`."""
        return self._parts.console.url

    @property
    def tables(self) -> Mapping[TableName, dynamodb.Table]:
        """Return the tables by name: `sessions`, `streams`, `control`."""
        return self._parts.storage.tables

    @property
    def bucket(self) -> s3.Bucket:
        """Return the bucket for files, and for data that is too large for a DynamoDB item."""
        return self._parts.storage.bucket

    @property
    def encryption_key(self) -> kms.IKey | None:
        """Return the key that encrypts the stage at rest. None: keys that AWS owns or manages are used."""
        return self._parts.keys.key

    @property
    def alarm_topic(self) -> sns.Topic:
        """Return the topic to which CloudWatch publishes the stage's alarms."""
        return self._parts.topics.alarms

    @property
    def notice_topic(self) -> sns.Topic:
        """Return the topic to which Helix publishes notices about exhausted budgets and changed limits."""
        return self._parts.topics.notices

    @property
    def connections(self) -> ec2.Connections:
        """Return the network connections of the functions that execute tools, for
        `database.connections.allow_default_port_from(helix.connections)`. Raises `SettingsError` without `vpc`."""
        if self._parts.network is None:
            raise SettingsError("connections: the functions that execute tools are not in a network; give vpc")
        return ec2.Connections(security_groups=list(self._parts.network.groups))

    @property
    def functions(self) -> Mapping[str, lambda_.IFunction]:
        """Return the alias `live` of each function, by verb. `call_model` and `call_tool` are those of agents that do not
        have their own resources."""
        every = {**self._parts.shared, **self._parts.profiles[DEFAULT_PROFILE]}
        return {verb: function.live for verb, function in every.items()}

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the environment variables that let a function of the app find the stage. There,
        `helix.runtime.cloud.application().executor` starts runs, for which the function needs `grant_run`."""
        return dict(self._parts.environment)

    def tool_role(self, agent: str | None = None) -> iam.IRole:
        """Return the role of the function that executes tools, for grants: `bucket.grant_read(helix.tool_role())`.
        Inline tools get the same permissions, although another function executes them.

        agent: an agent that has its own functions, because it requests resources or has a table in `[tool.helix.agent]`. By
        default the role is the one that all other agents share. Raises `SettingsError` for another name.
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

    # --- permissions of the app's own functions
    # -------------------------------------------------------------------------------

    def grant_run(self, grantee: iam.IGrantable) -> None:
        """Let `grantee` start, resume, retry, interrupt and abort runs of any session, and read them. Messages may contain
        files."""
        parts = self._parts
        parts.storage.grant_rows(grantee, "sessions", GET, GET_SEVERAL, QUERY, PUT, UPDATE, DELETE, CHECK)
        parts.storage.grant_rows(grantee, "control", *COUNT, CHECK)
        parts.storage.grant_rows(grantee, "streams", *LOOK)
        parts.storage.grant_overflow(grantee)
        parts.storage.grant_files(grantee, "Get", "Put")
        parts.streaming.grant_append(grantee)
        parts.executions.grant_start(grantee)
        parts.executions.grant_wake(grantee)
        parts.executions.grant_stop(grantee)

    def grant_read_sessions(self, grantee: iam.IGrantable) -> None:
        """Let `grantee` read messages with their files, runs, checkpoints and state of any session."""
        self._parts.storage.grant_rows(grantee, "sessions", GET, GET_SEVERAL, QUERY)
        self._parts.storage.grant_overflow_read(grantee)
        self._parts.storage.grant_files(grantee, "Get")

    def grant_read_streams(self, grantee: iam.IGrantable) -> None:
        """Let `grantee` read the stream of any session: replay it, and follow it by polling."""
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
