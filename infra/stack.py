"""A Helix stage, as a construct for any stack and as a stack that contains only this construct.

Law: this module only composes other constructs. Names depend only on the stage, so each stage can exist once per account
and region.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aws_cdk import (
    CfnOutput,
    CliCredentialsStackSynthesizer,
    DefaultStackSynthesizer,
    Environment,
    RemovalPolicy,
    Stack,
    Tags,
)
from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from helix.core.resources import profile_digest
from helix.infra.agent_profiles import ends_calls_elsewhere, find_profiles, registered_agents
from helix.infra.alarm_rules import Alarms, Rule, agent_rules, chunk_rules, stage_rules
from helix.infra.concurrency import division
from helix.infra.config import Settings, SettingsError, settings_of
from helix.infra.console import Console
from helix.infra.dashboards import Dashboards
from helix.infra.endpoints import Endpoints
from helix.infra.environment import environment, own_environment
from helix.infra.executions import Executions
from helix.infra.function import FunctionInputs
from helix.infra.functions import Functions, Rights
from helix.infra.governing import Governing
from helix.infra.keys import Keys
from helix.infra.layers import Layers
from helix.infra.model_packages import with_model_packages
from helix.infra.nag import check
from helix.infra.names import Names
from helix.infra.network import Network
from helix.infra.profile import ProfileFunctions, ProfileStack
from helix.infra.schedules import Schedules
from helix.infra.sockets import Domain, Sockets
from helix.infra.stage_interface import Parts, StageInterface
from helix.infra.storage import Storage
from helix.infra.streaming import Streaming
from helix.infra.topics import Topics
from helix.infra.triggers import Triggers
from helix.runtime.cloud_settings import variable
from helix.runtime.project import HelixProject, find_project, read_project

FLAGS = {
    "@aws-cdk/aws-lambda:recognizeLayerVersion": True,  # a new layer creates a new version, so that `live` uses it
    "@aws-cdk/aws-lambda:recognizeVersionProps": True,
    "@aws-cdk/aws-iam:minimizePolicies": True,  # a role's policies are limited to 10,240 characters
    "@aws-cdk/aws-kms:reduceCrossAccountRegionPolicyScope": True,
    "aws:cdk:enable-path-metadata": True,
    "aws:cdk:enable-asset-metadata": True,  # `sam local` uses it to find code
}
"""The feature flags for the stage's constructs, regardless of the flags that the surrounding app sets for its own."""


class Helix(StageInterface):
    """A Helix stage, for any stack. A stack can contain one stage.

    project: the folder of the pyproject.toml with `[tool.helix]`, or one of its subfolders. Default: the working directory.
    stage: part of every resource's name. Default: the context key `stage`, which `helix dev` and `helix deploy` set, else
        `dev`.
    settings: the keys that docs/guide/deploy.md lists. They override `[tool.helix.settings]`, and context overrides them.
    encryption_key: encrypts tables, bucket, stream, logs and topics, regardless of the setting `key`. The policy of an
        imported key must already admit CloudWatch and CloudWatch Logs (docs/guide/cdk.md). It is never deleted with the
        stage.
    permissions_boundary: the permissions boundary of every role of the stage.
    vpc, vpc_subnets, security_groups: the network of the functions that execute tools, instead of `[tool.helix.vpc]`.
        By default the subnets are the private ones with egress, and the group is one that the stage creates
        (`connections`).
    domain_name, certificate: the domain that clients connect to, `wss://DOMAIN_NAME`, besides API Gateway's own address.
        Pass both or neither. The certificate must be in this region. Ignored offline.

    Raises `SettingsError` for an invalid setting, `NoProjectError` and `ProjectError`, and `BuildError` if a layer cannot
    be built.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        project: Path | str = ".",
        stage: str | None = None,
        settings: Mapping[str, Any] | None = None,
        encryption_key: kms.IKey | None = None,
        permissions_boundary: iam.IManagedPolicy | None = None,
        vpc: ec2.IVpc | None = None,
        vpc_subnets: ec2.SubnetSelection | None = None,
        security_groups: Sequence[ec2.ISecurityGroup] | None = None,
        domain_name: str | None = None,
        certificate: acm.ICertificate | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        for flag, value in FLAGS.items():
            self.node.set_context(flag, value)
        found = read_project(find_project(Path(project)))
        known = settings_of(scope.node.get_all_context(), found, stage, settings or {})
        network = Network.of(self, vpc, vpc_subnets, security_groups) if vpc is not None else None
        self._compose(found, known, encryption_key, _domain(domain_name, certificate), network)
        if permissions_boundary is not None:
            iam.PermissionsBoundary.of(self).apply(permissions_boundary)
        check(self)

    def _compose(
        self,
        project: HelixProject,
        settings: Settings,
        encryption_key: kms.IKey | None,
        domain: Domain | None,
        network: Network | None,
    ) -> None:
        names = Names(settings.stage)
        removal = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if settings.retain else RemovalPolicy.DESTROY
        every_profile = [
            network.around(profile) if network else profile for profile in find_profiles(settings, project)
        ]
        shared_profile, *own_profiles = every_profile
        settings = with_model_packages(settings, registered_agents())

        own_key = settings.key == "own"
        keys = Keys(self, "Keys", names=names, removal=removal, own=own_key, given=encryption_key)
        storage = Storage(self, "Storage", settings=settings, names=names, keys=keys, removal=removal)
        streaming = Streaming(
            self, "Streaming", settings=settings, names=names, keys=keys, storage=storage, removal=removal
        )
        sockets = Sockets(self, "Sockets", settings=settings, names=names, keys=keys, domain=domain)
        topics = Topics(self, "Topics", settings=settings, names=names, keys=keys)
        endpoints = Endpoints(self, "Endpoints", settings=settings, names=names, keys=keys, endpoint=sockets.endpoint)
        ends_calls = ends_calls_elsewhere()
        triggers = Triggers(self, "Triggers", settings=settings, names=names, ends_calls=ends_calls)
        console = Console(self, "Console", settings=settings, names=names, keys=keys, sockets=sockets, storage=storage)
        storage.admit_pages([*console.page_origins(endpoints), *settings.page_origins])
        executions = Executions(self, names=names, profiles=[profile.name for profile in every_profile])
        declared = [profile_digest(profile.name) for profile in own_profiles if profile.declared]
        inputs = FunctionInputs(
            settings=settings,
            project=project,
            names=names,
            keys=keys,
            layers=Layers(self, "Layers", settings=settings, project=project),
            environment={
                **environment(settings, storage, streaming, executions, sockets),
                **({variable("own_profiles"): ",".join(declared)} if declared else {}),
                **({variable("calls_url"): f"{endpoints.url}/calls"} if ends_calls else {}),
            },
            own=own_environment(settings, topics, endpoints, triggers, console),
            tools=shared_profile.tools,
        )
        rights = Rights(
            names=names,
            storage=storage,
            streaming=streaming,
            executions=executions,
            sockets=sockets,
            topics=topics,
            endpoints=endpoints,
            governing=Governing(self, names=names, provisions=settings.provision_agents and bool(own_profiles)),
            triggers=triggers,
            model_secrets=settings.model_secrets,
            bedrock="bedrock" in settings.calling,
        )
        more = [*triggers.verbs, *console.verbs]
        shared = Functions(self, "Functions", inputs=inputs, rights=rights, more=more).by_verb
        default = ProfileFunctions(
            self, "Profile", profile=shared_profile, inputs=inputs, grant=rights.grant, shared=shared
        )
        profile_functions = {shared_profile.name: default.functions}
        rules: list[Rule] = []
        for profile in own_profiles:
            agent = profile.name
            own = ProfileStack(
                self, f"Agent-{agent}", profile=profile, inputs=inputs, grant=rights.grant, shared=shared
            )
            profile_functions[agent] = own.functions
            if profile.max_instances:
                its_rules = [*agent_rules(names, settings, agent, profile.max_instances)]
                Alarms(own, "Alarms", names=names, topics=topics, rules=its_rules)
                rules += its_rules
        self._parts = Parts(
            settings=settings,
            environment=inputs.environment,
            keys=keys,
            storage=storage,
            streaming=streaming,
            sockets=sockets,
            topics=topics,
            endpoints=endpoints,
            console=console,
            executions=executions,
            shared=shared,
            profiles=profile_functions,
            inline=frozenset(profile.name for profile in every_profile if profile.inline),
            network=network,
        )
        streaming.feed(shared["project_stream"])
        sockets.serve(shared)
        endpoints.serve(shared["health"])
        triggers.serve(shared, endpoints)
        console.serve(shared, endpoints)
        topics.wake(shared["govern"])
        Schedules(
            self,
            "Schedules",
            names=names,
            executions=executions,
            sweep=shared["sweep"],
            govern=shared["govern"],
            fail_run=shared["fail_run"],
        )
        own_rules: list[Rule] = []
        if settings.alarm_email:
            own_rules = [*stage_rules(names, streaming), *triggers.rules()]
        elif settings.streaming == "both":
            own_rules = [*chunk_rules(names, streaming)]
        Alarms(self, "Alarms", names=names, topics=topics, rules=own_rules)
        if settings.dashboards:
            every = [*own_rules, *rules]
            Dashboards(
                self,
                "Dashboards",
                names=names,
                rules=every,
                streaming=streaming,
                sockets=sockets,
                endpoints=endpoints,
            )
        if streaming.stream is not None:
            self._output(
                {
                    "ChunkStream": (
                        streaming.stream.stream_name,
                        "The stream of chunks to the replay log",
                    )
                }
            )
        self._output(triggers.outputs(endpoints))
        self._output(console.outputs())
        if endpoints.token is not None:
            self._output({"MetricsSecretArn": (endpoints.token_arn, "The secret with the bearer token for /metrics")})
        tag(self, settings)
        self._output(
            {
                "Url": (sockets.url, "The URL that clients connect to"),
                "ManagementUrl": (sockets.management_url, "The URL at which functions post to connections"),
                "SessionsTable": (storage.tables["sessions"].table_name, "Sessions, runs, messages, checkpoints"),
                "StreamsTable": (storage.tables["streams"].table_name, "Replay log, connections"),
                "ControlTable": (storage.tables["control"].table_name, "Budgets, slots, API keys"),
                "BucketName": (
                    storage.bucket.bucket_name,
                    "Files, data too large for an item, and records that were set aside",
                ),
                "FilesUrl": (storage.files_origin(sockets.endpoint), "The origin to which clients send files"),
                "StreamingMode": (settings.streaming, "The path of chunks to the replay log"),
                "MachinePattern": (executions.pattern, "State machines, by profile"),
                "MachineArns": (",".join(executions.machines), "The ARNs of all state machines"),
                "AlarmTopicArn": (topics.alarms.topic_arn, "Subscribe to be notified of alarms"),
                "NoticeTopicArn": (topics.notices.topic_arn, "Subscribe to be notified of budgets and limits"),
                "HealthUrl": (
                    f"{endpoints.url}/health",
                    "The health of the stage; /ready, /live and /metrics have the same base URL",
                ),
                "Concurrency": (division(settings), "The division of Lambda's concurrency in the stage"),
                "NextStep": (
                    next_step(settings),
                    "The steps after cdk deploy: create a first key, and check the stage",
                ),
                "Region": (Stack.of(self).region, "The region of the stage"),
            }
        )

    def _output(self, values: Mapping[str, tuple[str, str]]) -> None:
        for name, (value, description) in values.items():
            # The ids are the same as in a `HelixStack`, so that the commands for a stage find them.
            CfnOutput(self, name, value=value, description=description).override_logical_id(name)


class HelixStack(Stack):
    """A stack that contains a Helix stage. `helix` is the construct.

    options: the options of `aws_cdk.Stack`, besides those of `Helix`. Defaults: `stack_name` is helix-STAGE, `env` has
    the settings `account` and `region`, and `termination_protection` is on if the stage retains its data.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        project: Path | str = ".",
        stage: str | None = None,
        settings: Mapping[str, Any] | None = None,
        encryption_key: kms.IKey | None = None,
        permissions_boundary: iam.IManagedPolicy | None = None,
        vpc: ec2.IVpc | None = None,
        vpc_subnets: ec2.SubnetSelection | None = None,
        security_groups: Sequence[ec2.ISecurityGroup] | None = None,
        domain_name: str | None = None,
        certificate: acm.ICertificate | None = None,
        **options: Any,
    ) -> None:
        found = read_project(find_project(Path(project)))
        known = settings_of(scope.node.get_all_context(), found, stage, settings or {})
        offline = CliCredentialsStackSynthesizer if known.offline else DefaultStackSynthesizer
        defaults = {
            "stack_name": f"helix-{known.stage}",
            "description": f"Helix, stage {known.stage}: durable, streaming agents",
            # Offline, account and region are the emulator's, regardless of what the app's other stacks use.
            "env": None if known.offline else Environment(account=known.account, region=known.region),
            "synthesizer": offline(),  # the bootstrap roles have no permissions in the emulator
            "termination_protection": known.retain,
        }
        super().__init__(scope, construct_id, **{**defaults, **options})
        self.helix = Helix(
            self,
            IN_STACK,
            project=project,
            stage=stage,
            settings=settings,
            encryption_key=encryption_key,
            permissions_boundary=permissions_boundary,
            vpc=vpc,
            vpc_subnets=vpc_subnets,
            security_groups=security_groups,
            domain_name=domain_name,
            certificate=certificate,
        )
        tag(self, known)
        for name, value in tags_of(known).items():  # a feature flag makes the stack ignore tags of its resources
            self.add_stack_tag(name, value)


IN_STACK = "Default"
"""The id of the construct in the stack. CDK leaves it out of logical ids, so deployed resources keep those that they
had when they were directly in the stack."""


def next_step(settings: Settings) -> str:
    """Return the commands that a stage needs after `cdk deploy`, as a stack output that `cdk deploy` prints."""
    check = f"helix check --stage {settings.stage}"
    return f"helix keys create --stage {settings.stage} --user admin && {check}" if "keys" in settings.auth else check


def tags_of(settings: Settings) -> dict[str, str]:
    return {"helix:stage": settings.stage, **settings.tags}


def tag(scope: Construct, settings: Settings) -> None:
    for name, value in tags_of(settings).items():
        Tags.of(scope).add(name, value)


def _domain(name: str | None, certificate: acm.ICertificate | None) -> Domain | None:
    if (name is None) is not (certificate is None):
        raise SettingsError("domain_name and certificate belong together: give both, or neither")
    return Domain(name, certificate) if name is not None else None
