"""A stage of Helix: composes the constructs, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import CfnOutput, RemovalPolicy, Stack, Tags
from constructs import Construct

from helix.infra.alarm_rules import Rule, agent_rules, stage_rules
from helix.infra.alarms import Alarms
from helix.infra.concurrency import division
from helix.infra.config import Settings
from helix.infra.dashboards import Dashboards
from helix.infra.endpoints import Endpoints
from helix.infra.environment import environment, own_environment
from helix.infra.executions import Executions
from helix.infra.function import Kit
from helix.infra.functions import Functions, Rights
from helix.infra.governing import Provisioning
from helix.infra.keys import Keys
from helix.infra.layers import Layers
from helix.infra.names import Names
from helix.infra.profile import Profile, ProfileFunctions, ProfileStack
from helix.infra.schedules import Schedules
from helix.infra.sockets import Sockets
from helix.infra.storage import Storage
from helix.infra.streaming import Streaming
from helix.infra.topics import Topics
from helix.infra.triggers import Triggers
from helix.runtime.cloud_settings import variable
from helix.runtime.project import HelixProject


class HelixStack(Stack):
    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        project: HelixProject,
        profiles: Sequence[Profile],
        **options: object,
    ) -> None:
        super().__init__(scope, construct_id, **options)
        names = Names(settings.stage)
        removal = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if settings.retain else RemovalPolicy.DESTROY
        shared_profile, *own_profiles = profiles

        keys = Keys(self, "Keys", names=names, removal=removal, own=settings.key == "own")
        followed = settings.streaming != "kinesis"
        storage = Storage(self, "Storage", names=names, keys=keys, removal=removal, followed=followed)
        streaming = Streaming(
            self, "Streaming", settings=settings, names=names, keys=keys, storage=storage, removal=removal
        )
        sockets = Sockets(self, "Sockets", settings=settings, names=names, keys=keys)
        topics = Topics(self, "Topics", settings=settings, names=names, keys=keys)
        endpoints = Endpoints(self, "Endpoints", settings=settings, names=names, keys=keys, endpoint=sockets.endpoint)
        triggers = Triggers(self, "Triggers", settings=settings, names=names)
        executions = Executions(self, names=names, profiles=[profile.name for profile in profiles])
        declared = [profile.name for profile in own_profiles if profile.declared]
        kit = Kit(
            settings=settings,
            project=project,
            names=names,
            keys=keys,
            layers=Layers(self, "Layers", settings=settings, project=project),
            environment={
                **environment(settings, storage, streaming, executions, sockets),
                **({variable("own_profiles"): ",".join(declared)} if declared else {}),
            },
            own=own_environment(settings, topics, endpoints, triggers),
            tools=shared_profile.tools,
        )
        rights = Rights(
            storage=storage,
            streaming=streaming,
            executions=executions,
            sockets=sockets,
            topics=topics,
            endpoints=endpoints,
            provisioning=Provisioning(self, names=names, wanted=settings.provision_agents and bool(own_profiles)),
            triggers=triggers,
            model_secrets=settings.model_secrets,
            bedrock="bedrock" in settings.model_packages,
        )
        shared = Functions(self, "Functions", kit=kit, rights=rights, more=triggers.verbs).by_verb
        ProfileFunctions(self, "Profile", profile=shared_profile, kit=kit, grant=rights.grant, shared=shared)
        rules: list[Rule] = []
        for profile in own_profiles:
            agent = profile.name
            own = ProfileStack(self, f"Agent-{agent}", profile=profile, kit=kit, grant=rights.grant, shared=shared)
            its_rules = [*agent_rules(names, settings, agent)]
            Alarms(own, "Alarms", names=names, topics=topics, rules=its_rules)
            rules += its_rules
        streaming.feed(shared["project_stream"])
        sockets.serve(shared)
        endpoints.serve(shared["health"])
        triggers.serve(shared, endpoints)
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
        own_rules = [*stage_rules(names, streaming), *triggers.rules()]
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
            self._output({"ChunkStream": (streaming.stream.stream_name, "Chunks on their way to the replay log")})
        self._output(triggers.outputs(endpoints))
        if endpoints.token is not None:
            self._output({"MetricsSecretArn": (endpoints.token_arn, "Its text is the bearer token for /metrics")})
        for name, value in {"helix:stage": settings.stage, **settings.tags}.items():
            Tags.of(self).add(name, value)
        self._output(
            {
                "Url": (sockets.url, "Where clients connect"),
                "ManagementUrl": (sockets.management_url, "Where functions post to connections"),
                "SessionsTable": (storage.tables["sessions"].table_name, "Sessions, runs, messages, checkpoints"),
                "StreamsTable": (storage.tables["streams"].table_name, "Replay log, connections"),
                "ControlTable": (storage.tables["control"].table_name, "Budgets, slots, API keys"),
                "BucketName": (storage.bucket.bucket_name, "What exceeds an item; what was set aside"),
                "StreamingMode": (settings.streaming, "How chunks get to the replay log"),
                "MachinePattern": (executions.pattern, "State machines, by profile"),
                "MachineArns": (",".join(executions.machines), "All of them"),
                "AlarmTopicArn": (topics.alarms.topic_arn, "Subscribe to be notified of alarms"),
                "NoticeTopicArn": (topics.notices.topic_arn, "Subscribe to be notified of budgets and limits"),
                "HealthUrl": (
                    f"{endpoints.url}/health",
                    "Whether the stage is well; /ready, /live and /metrics beside it",
                ),
                "Concurrency": (division(settings), "Of Lambda: how the stage divides it"),
                "Region": (self.region, "Where all of it is"),
            }
        )

    def _output(self, values: Mapping[str, tuple[str, str]]) -> None:
        for name, (value, description) in values.items():
            CfnOutput(self, name, value=value, description=description)
