"""A stage of Helix: composes the constructs, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import CfnOutput, RemovalPolicy, Stack, Tags
from constructs import Construct

from helix.runtime import cloud_settings as variables
from infra.alarms import Alarms
from infra.config import ENDPOINT, Settings
from infra.executions import Executions
from infra.function import Kit
from infra.functions import Functions, Rights
from infra.keys import Keys
from infra.layers import Layers
from infra.names import Names
from infra.profile import Profile, ProfileFunctions, ProfileStack
from infra.schedules import Schedules
from infra.sockets import Sockets
from infra.storage import Storage
from infra.streaming import Streaming

METRICS_NAMESPACE = "POWERTOOLS_METRICS_NAMESPACE"


class HelixStack(Stack):
    def __init__(
        self, scope: Construct, construct_id: str, *, settings: Settings, profiles: Sequence[Profile], **options: object
    ) -> None:
        super().__init__(scope, construct_id, **options)
        names = Names(settings.stage)
        removal = RemovalPolicy.RETAIN if settings.retain else RemovalPolicy.DESTROY
        shared_profile, *own_profiles = profiles

        keys = Keys(self, "Keys", names=names, removal=removal)
        storage = Storage(self, "Storage", names=names, keys=keys, removal=removal)
        streaming = Streaming(self, "Streaming", settings=settings, names=names, keys=keys, removal=removal)
        sockets = Sockets(self, "Sockets", settings=settings, names=names, keys=keys)
        executions = Executions(self, names=names, profiles=[profile.name for profile in profiles])
        kit = Kit(
            settings=settings,
            names=names,
            keys=keys,
            layers=Layers(self, "Layers", settings=settings),
            environment=environment(settings, storage, streaming, executions, sockets),
        )
        rights = Rights(
            storage=storage,
            streaming=streaming,
            executions=executions,
            sockets=sockets,
            model_secrets=settings.model_secrets,
        )
        shared = Functions(self, "Functions", kit=kit, rights=rights).by_verb
        ProfileFunctions(self, "Profile", profile=shared_profile, kit=kit, grant=rights.grant, shared=shared)
        for profile in own_profiles:
            ProfileStack(self, f"Agent-{profile.name}", profile=profile, kit=kit, grant=rights.grant, shared=shared)
        streaming.feed(shared["project_stream"], storage=storage)
        sockets.serve(shared)
        schedules = Schedules(
            self,
            "Schedules",
            names=names,
            executions=executions,
            sweep=shared["sweep"],
            fail_run=shared["fail_run"],
        )
        alarms = Alarms(
            self,
            "Alarms",
            names=names,
            keys=keys,
            streaming=streaming,
            schedules=schedules,
            sweep=shared["sweep"],
            project_stream=shared["project_stream"],
        )
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
                "ChunkStream": (streaming.stream.stream_name, "Chunks on their way to the replay log"),
                "MachinePattern": (executions.pattern, "State machines, by profile"),
                "MachineArns": (",".join(executions.machines), "All of them"),
                "AlarmTopicArn": (alarms.topic.topic_arn, "Subscribe to be told"),
                "Region": (self.region, "Where all of it is"),
            }
        )

    def _output(self, values: Mapping[str, tuple[str, str]]) -> None:
        for name, (value, description) in values.items():
            CfnOutput(self, name, value=value, description=description)


def environment(
    settings: Settings, storage: Storage, streaming: Streaming, executions: Executions, sockets: Sockets
) -> dict[str, str]:
    """What every function is told; variables that would be empty are left out."""
    told = {
        variables.STAGE: settings.stage,
        variables.SESSIONS_TABLE: storage.tables["sessions"].table_name,
        variables.STREAMS_TABLE: storage.tables["streams"].table_name,
        variables.CONTROL_TABLE: storage.tables["control"].table_name,
        variables.BUCKET: storage.bucket.bucket_name,
        variables.CHUNKS: streaming.stream.stream_name,
        variables.MACHINE: executions.pattern,
        variables.SOCKETS: sockets.management_url,
        variables.AGENTS: settings.agents,
        variables.MODEL: settings.model,
        variables.AUTH: settings.auth,
        variables.JWT_ISSUER: settings.jwt_issuer,
        variables.JWT_AUDIENCE: settings.jwt_audience,
        variables.JWKS_URL: settings.jwks_url,
        variables.ROLL_OVER_EVENTS: str(settings.roll_over_events),
        variables.STREAM_DAYS: str(settings.stream_days),
        variables.LOG: settings.log_level,
        METRICS_NAMESPACE: "Helix",
        ENDPOINT: settings.endpoint if settings.for_sam else "",  # the offline cloud tells its workers itself
    }
    return {name: value for name, value in told.items() if value}
