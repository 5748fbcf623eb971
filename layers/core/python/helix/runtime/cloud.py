"""The deployed application: ports on AWS, composed once per process.

Law: each object is created on first use. So a starting function pays only for the clients and modules that it uses, and its
role needs permissions only for those.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import traceback
from collections.abc import Coroutine, Mapping, MutableMapping
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

import botocore.session
from botocore.config import Config
from botocore.loaders import Loader

from helix.adapters.aws.clock import TableClock
from helix.adapters.aws.dynamodb import DynamoDBStateStore
from helix.adapters.aws.overflow import Overflow
from helix.adapters.system import SystemIds
from helix.core.context import secrets_of
from helix.core.errors import DefinitionError
from helix.ports.ids import Ids
from helix.runtime.cloud_settings import CloudSettings, read_cloud_settings
from helix.runtime.stage_logs import open_logs

if TYPE_CHECKING:
    from helix.adapters.aws.cloudwatch import CloudWatchMetrics
    from helix.adapters.aws.notifier import SnsNotifier
    from helix.adapters.aws.secrets import AwsSecrets, ModelKeys
    from helix.adapters.aws.set_aside import S3Aside
    from helix.core.agents import AnyAgent
    from helix.engine.engine import Engine
    from helix.ports.capacity import Capacity
    from helix.ports.function_logs import Logs
    from helix.ports.model import BaseAdapter
    from helix.ports.sockets import Sockets
    from helix.ports.streams import StreamManager
    from helix.ports.tracing import Tracer
    from helix.runtime.agent_models import Agents
    from helix.runtime.launching import StepFunctionsExecutor
    from helix.services.segments import SegmentStreams
    from helix.services.session_files import SessionFiles

T = TypeVar("T")
DECLARE = "declare it in [tool.helix.secrets] of pyproject.toml"
CHECK_AGENT = "helix-check"
"""The agent of `helix check --stage`, which every stage has. A project agent with this name replaces it."""
CONFIG = Config(
    connect_timeout=2, read_timeout=10, max_pool_connections=32, retries={"mode": "standard", "max_attempts": 3}
)
"""Client settings with short timeouts. If a call hangs, its caller retries it, because the caller knows whether a retry is
safe."""
ENDPOINTS = frozenset({"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"})
"""The variables that give S3 another address, such as the emulator's."""


def s3_config(environment: Mapping[str, str]) -> Config:
    """Return the settings of the S3 client.

    Without version 4, the signature of a client's upload would not cover its length. Without the other two settings,
    presigned URLs would name the global host instead of the bucket's regional one. The console's page admits only the
    latter, and S3 redirects requests to the former for some hours after a bucket was created. An emulator has no host for
    each bucket, so its requests name the bucket in the path.
    """
    style = "auto" if ENDPOINTS & environment.keys() else "virtual"
    s3 = {"us_east_1_regional_endpoint": "regional", "addressing_style": style}
    return CONFIG.merge(Config(signature_version="s3v4", s3=s3))


class Application:
    """The objects that the handlers of one process share. `run` executes a coroutine on the process's one event loop."""

    def __init__(self, settings: CloudSettings, environment: MutableMapping[str, str]) -> None:
        self.settings = settings
        self.environment = environment
        self.clock = TableClock()
        self.ids: Ids = SystemIds()
        self._clients: dict[str, Any] = {}
        self._session = botocore.session.get_session()
        self._session.register_component("data_loader", _SERVICES)
        self.clock.follow(self._session)

    def client(self, service: str, *, endpoint: str | None = None, config: Config = CONFIG) -> Any:
        """Return the botocore client of that service. It is created on first use."""
        if service not in self._clients:
            config = s3_config(self.environment) if service == "s3" and config is CONFIG else config
            self._clients[service] = self._session.create_client(service, endpoint_url=endpoint, config=config)
        return self._clients[service]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def flush(self, timeout_s: float) -> None:
        """Send the recorded traces before the platform can freeze the process."""
        if "tracer" in self.__dict__:
            self.tracer.flush(timeout_s)

    def close(self) -> None:
        """End the event loop, which closes the dependencies of tools, the tracer and the connections."""
        self._runner.close()
        if "tracer" in self.__dict__:
            self.tracer.close()
        for client in self._clients.values():
            client.close()

    @cached_property
    def _runner(self) -> asyncio.Runner:
        return asyncio.Runner()

    @cached_property
    def store(self) -> DynamoDBStateStore:
        s = self.settings
        tables = {"sessions": s.sessions_table, "streams": s.streams_table, "control": s.control_table}
        return DynamoDBStateStore(
            self.client("dynamodb"),
            tables,  # type: ignore[arg-type]
            clock=self.clock,
            overflow=self.overflow,
        )

    @cached_property
    def overflow(self) -> Overflow | None:
        return Overflow(_Lazy(self, "s3"), self.settings.bucket) if self.settings.bucket else None

    @cached_property
    def files(self) -> SessionFiles | None:
        """The files of sessions, in the stage's bucket. None if there is no bucket."""
        from helix.adapters.aws.blobs import S3Blobs
        from helix.services.session_files import SessionFiles

        if not self.settings.bucket:
            return None
        blobs = S3Blobs(_Lazy(self, "s3"), self.settings.bucket, clock=self.clock)
        return SessionFiles(self.store, blobs, self.clock, self.ids)

    @cached_property
    def log(self) -> SegmentStreams:
        """The log itself, to which the projector appends and from which all readers read."""
        from helix.adapters.aws.direct import DirectStreams
        from helix.services.segments import SegmentStreams

        days, direct = self.settings.stream_days, self.settings.streaming == "direct"
        kind = DirectStreams if direct else SegmentStreams
        return kind(self.store, clock=self.clock, ttl_s=days * 86_400 if days else None)

    @cached_property
    def streams(self) -> StreamManager:
        """The stream that writers append to: the log, or Kinesis in front of it."""
        if self.settings.streaming == "direct":
            return self.log
        from helix.adapters.aws.direct import AwaitedStreams
        from helix.adapters.aws.kinesis import KinesisStreams

        client = self.client("kinesis")
        kind = AwaitedStreams if self.settings.streaming == "both" else KinesisStreams
        return kind(client, self.settings.chunks, self.log, self.clock, overflow=self.overflow)

    @cached_property
    def sockets(self) -> Sockets:
        from helix.adapters.aws.sockets import ApiGatewaySockets, sockets_config

        client = self.client("apigatewaymanagementapi", endpoint=self.settings.sockets, config=sockets_config())
        return ApiGatewaySockets(client)

    @cached_property
    def aside(self) -> S3Aside | None:
        """The store for unreadable records, where a person can inspect them. None if there is no bucket."""
        from helix.adapters.aws.set_aside import S3Aside

        return S3Aside(lambda: self.client("s3"), self.settings.bucket) if self.settings.bucket else None

    @property
    def capacity(self) -> Capacity:
        """The controller of warm functions, if the stage has any."""
        from helix.adapters.aws.capacity import ProvisionedConcurrency
        from helix.ports.capacity import NoCapacity

        warm = self.settings.provision_agents
        return ProvisionedConcurrency(_Lazy(self, "lambda"), self.settings.stage) if warm else NoCapacity()

    @property
    def cloudwatch(self) -> CloudWatchMetrics:
        from helix.adapters.aws.cloudwatch import CloudWatchMetrics

        return CloudWatchMetrics(_Lazy(self, "cloudwatch"), self.settings.stage, self.clock)

    @property
    def logs(self) -> Logs:
        """The logs of the stage's functions."""
        return open_logs(_Lazy(self, "logs"), self.settings.stage, self.clock)

    @property
    def notifier(self) -> SnsNotifier:
        from helix.adapters.aws.notifier import SnsNotifier

        return SnsNotifier(_Lazy(self, "sns"), self.settings.notices)

    @cached_property
    def agents(self) -> Agents:
        """The deployed agents. Importing their modules registers them."""
        from helix.core.registry import default_registry
        from helix.runtime.agent_models import Agents
        from helix.runtime.models import named_models

        for module in self.settings.agents:
            _import(module)
        if not default_registry.has(CHECK_AGENT):
            default_registry.register_factory(CHECK_AGENT, lambda context: _checks().check_agent())
        return Agents(None, named_models(self.settings.model))

    def _model_of(self, agent: AnyAgent) -> BaseAdapter:
        if agent.name == CHECK_AGENT and agent is _checks().check_agent():
            model: BaseAdapter = _checks().check_model()
            return model
        if not self.settings.model_secrets:
            return self.agents.model_of(agent)
        from helix.adapters.aws.secrets import RotatedKeys

        if not self._model_keys.known:  # before a model is created, because the model may need its key
            self._model_keys.refresh()
        return RotatedKeys(self.agents.model_of(agent), partial(self._model_keys.refresh, at_once=True))

    @cached_property
    def _model_keys(self) -> ModelKeys:
        from helix.adapters.aws.secrets import ModelKeys

        return ModelKeys(self.settings.model_secrets, self.client, self.clock, self.environment)

    async def start_sweep(self) -> None:
        """Start the stage's sweep asynchronously. Raises `StoreError`."""
        from helix.adapters.aws.calls import call

        request = {"FunctionName": f"helix-{self.settings.stage}-sweep:live", "InvocationType": "Event"}
        await call(_Lazy(self, "lambda"), "invoke", "starting the sweep", **request)

    def refresh_secrets(self) -> None:
        """Read the secrets of tools again, and the models' keys if they were read before, unless they are fresh. This
        blocks, so callers do it before they start the work. Raises `SecretNotFoundError`, `StoreError`."""
        if self.settings.secrets:
            self._tool_secrets.refresh()
        if self.settings.model_secrets and self._model_keys.known:
            self._model_keys.refresh()

    @cached_property
    def _tool_secrets(self) -> AwsSecrets:
        from helix.adapters.aws.secrets import AwsSecrets
        from helix.core.tool_settings import SecretPlace

        named = [pair.partition("=") for pair in self.settings.secrets]
        places = {name: SecretPlace.parse(place) for name, _, place in named}
        return AwsSecrets(places, self.client, self.clock)

    @cached_property
    def engine(self) -> Engine:
        from helix.adapters.aws.emf import EmfMetrics
        from helix.adapters.aws.launcher import StepFunctionsLauncher
        from helix.adapters.models.catalog import LitellmCatalog
        from helix.core.model_limits import parse_limits
        from helix.core.user_budgets import parse_user_budgets
        from helix.engine.engine import Engine, Settings
        from helix.engine.placement import IN_FUNCTIONS
        from helix.services.budget_shards import SHARDS
        from helix.services.hook_manager import HookManager
        from helix.services.row_budgets import RowBudgets
        from helix.services.row_cache import RowCache
        from helix.services.row_slots import RowSlots

        declared = json.loads(self.settings.budgets) if self.settings.budgets else {}
        return Engine(
            store=self.store,
            streams=self.streams,
            clock=self.clock,
            ids=self.ids,
            models=self._model_of,
            agents=self.agents.named,
            hooks=HookManager(None),
            budgets=RowBudgets(self.store, shards=SHARDS, user_budgets=parse_user_budgets(declared)),
            placement=IN_FUNCTIONS,
            launcher=StepFunctionsLauncher(_Lazy(self, "stepfunctions"), self.settings.machine),
            slots=RowSlots(self.store, account_limit=self.settings.max_runs or None),
            settings=Settings(
                roll_over_events=self.settings.roll_over_events,
                keep_checkpoints=self.settings.keep_checkpoints or None,
                session_ttl_s=self.settings.session_days * 86_400.0 or None,
                steps_per_invocation=self.settings.steps_per_invocation or None,
                own_profiles=frozenset(self.settings.own_profiles),
                calls_url=self.settings.calls_url,
            ),
            metrics=EmfMetrics(self.settings.stage, self.clock),
            tracer=self.tracer,
            catalog=LitellmCatalog(),
            files=self.files,
            cache=RowCache(self.store, clock=self.clock),
            declared_limits=parse_limits(json.loads(self.settings.limits)) if self.settings.limits else {},
            secrets=self._tool_secrets.text if self.settings.secrets else secrets_of({}, DECLARE),
        )

    @cached_property
    def tracer(self) -> Tracer:
        from helix.runtime.tracing import open_tracer

        return open_tracer(self.environment, service=f"helix-{self.settings.stage}")

    @cached_property
    def executor(self) -> StepFunctionsExecutor:
        from helix.runtime.launching import StepFunctionsExecutor

        return StepFunctionsExecutor(self.engine, self.agents)


def _import(module: str) -> None:
    """Import a module of agents. Raises `DefinitionError`, which names the file and the line."""
    try:
        importlib.import_module(module)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        broken = isinstance(error, SyntaxError) and error.filename
        place = f"{error.filename}:{error.lineno}" if broken else f"{frame.filename}:{frame.lineno}"  # type: ignore[attr-defined]
        problem = f"it cannot be imported: {type(error).__name__}: {error} ({place})"
        raise DefinitionError("the agents", f"module {module!r}", problem) from error


def _checks() -> Any:
    return importlib.import_module("helix.runtime.check_agent")


class _Services(Loader):  # type: ignore[misc]
    """A loader that knows the services in use. botocore's own loader searches the folders of all its 400 services,
    twice, to check that the requested one exists."""

    def list_available_services(self, type_name: str) -> list[str]:
        used = ["apigatewaymanagementapi", "cloudwatch", "dynamodb", "kinesis", "lambda", "logs", "s3"]
        return [*used, "secretsmanager", "sns", "sqs", "ssm", "stepfunctions"]


_SERVICES = _Services()
"""Shared by all sessions, because it caches what it has read."""


def read_service_descriptions() -> None:
    """Read botocore's descriptions of the services that a run calls. Processes that are forked later do not read them."""
    for service in ("dynamodb", "s3", "kinesis", "stepfunctions"):
        for kind in ("service-2", "endpoint-rule-set-1"):
            _SERVICES.load_service_model(service, kind, api_version=None)
    for name in ("endpoints", "partitions", "sdk-default-configuration", "_retry"):
        _SERVICES.load_data(name)


class _Lazy:
    """A client that is created at its first call. Most processes never read a row that is larger than an item, and few
    start an execution."""

    def __init__(self, application: Application, service: str) -> None:
        self._application, self._service = application, service

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._application.client(self._service), verb)


@lru_cache(maxsize=1)
def application() -> Application:
    """Return this process's application, created from its environment."""
    return Application(read_cloud_settings(os.environ), os.environ)
