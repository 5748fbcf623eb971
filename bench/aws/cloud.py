"""The deployed functions on moto, with a separate memory for each verb, as in separate processes.

Law: handlers are imported from functions/, events come from executing infra/definition.py, and settings come from the
environment; only AWS is simulated.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib.util
import io
import itertools
import json
import os
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import boto3
from moto import mock_aws
from moto.dynamodb.models.table import Table

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.aws_resources import BUCKET, CHUNKS, make_tables, tables  # noqa: E402
from tests.support.memory_sockets import MemorySockets  # noqa: E402
from tests.support.state_machine import Execution, StateMachine  # noqa: E402

from aws.wire import Wire  # noqa: E402
from helix.adapters.system import SystemClock  # noqa: E402
from helix.runtime import cloud_settings, lambdas  # noqa: E402
from helix.runtime.cloud import Application, application  # noqa: E402

ACCOUNT = "123456789012"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "HELIX_STAGE": "bench",
    "HELIX_SESSIONS_TABLE": tables()["sessions"],
    "HELIX_STREAMS_TABLE": tables()["streams"],
    "HELIX_CONTROL_TABLE": tables()["control"],
    "HELIX_BUCKET": BUCKET,
    "HELIX_CHUNKS": CHUNKS,
    "HELIX_MACHINE": f"arn:aws:states:us-east-1:{ACCOUNT}:stateMachine:helix-bench-{{profile}}",
    "HELIX_SOCKETS": "https://sockets.invalid/bench",
    "HELIX_ROLL_OVER_EVENTS": "1000000",  # one execution, regardless of the number of steps
}
BEGUN = SystemClock().now()
CONTEXT = SimpleNamespace(aws_request_id="bench", get_remaining_time_in_millis=lambda: 900_000)
MACHINE = {"Comment": "recorded, not executed", "StartAt": "X", "States": {"X": {"Type": "Succeed"}}}


class Cloud:
    """`processes`: the application of each verb, and of the `caller`. `invocations`: their purpose and the bytes
    printed. `stretch`: the factor by which time is slowed, because moto is slower than AWS."""

    def __init__(self, stretch: float) -> None:
        self._stretch = stretch
        self.kinesis, self.dynamodb = boto3.client("kinesis"), boto3.client("dynamodb")
        self.wire = Wire(lambda table, key: self.dynamodb.get_item(TableName=table, Key=key)["Item"])
        self.processes: dict[str, Application] = {}
        self.handlers: dict[str, Any] = {}
        self.sockets = _Sockets(self)
        self.invocations: list[tuple[tuple[Any, ...], int]] = []
        self.posts: list[tuple[tuple[Any, ...], int]] = []
        self._ended: list[Application] = []
        self._iterator: str | None = None
        self._positions = itertools.count(49590338271490256608559692538361571095921575989136588898)

    # --- processes ------------------------------------------------------------------------------------------------

    def process(self, name: str) -> Application:
        if name not in self.processes:
            app = Application(cloud_settings.read_cloud_settings(os.environ), os.environ)
            self.wire.listen(app._session)
            # moto is not a database: one call at a time.
            app._runner.get_loop().set_default_executor(ThreadPoolExecutor(1))
            app.clock = _Clock(self._stretch)
            app.__dict__["sockets"] = self.sockets
            self.processes[name] = app
        return self.processes[name]

    def restart(self, name: str) -> None:
        """Make the next invocation find a new process."""
        self._ended.append(self.processes.pop(name))

    def invoke(self, verb: str, event: Any, *where: Any) -> Any:
        if verb not in self.handlers:
            self.handlers[verb] = _handler(verb)
        app, real = self.process(verb), lambdas.application
        lambdas.application = lambda: app  # type: ignore[assignment]
        printed = io.StringIO()
        try:
            with self.wire.at(*where), contextlib.redirect_stdout(printed):
                return self.handlers[verb](event, CONTEXT)
        finally:
            lambdas.application = real
            self.invocations.append((where, len(printed.getvalue())))

    def caller(self, work: Any, *where: Any) -> Any:
        """Run `work(executor)` in the process that clients talk to."""
        app = self.process("caller")
        with self.wire.at(*where):
            return app.run(work(app.executor))

    # --- executions -----------------------------------------------------------------------------------------------

    def play(self, part: dict[str, Any], *, before: Any = None) -> Execution:
        """Execute one run to its end. `before(verb, event)` is called before each delivery."""

        async def invoke(verb: str, event: Any) -> Any:
            step = event["call"]["step"] if "call" in event else event.get("step", 0)
            # Handlers have their own event loops, so they run in a thread without one.
            if before is not None:
                await asyncio.to_thread(before, verb, event)
            answer = await asyncio.to_thread(self.invoke, verb, event, verb, step)
            await asyncio.to_thread(self.project, step)
            return answer

        async def play() -> Execution:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
            execution = Execution(part["run_id"], {"part": 1, "step": 1, "events": 0, **part})
            await StateMachine(invoke).play(execution)
            assert execution.status == "SUCCEEDED", execution.invoked[-1]
            return execution

        return asyncio.run(play())

    def project(self, step: int) -> None:
        """Deliver every record in its own invocation, the most expensive case of streaming."""
        if self._iterator is None:
            shard = self.kinesis.describe_stream(StreamName=CHUNKS)["StreamDescription"]["Shards"][0]["ShardId"]
            place = {"StreamName": CHUNKS, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
            self._iterator = self.kinesis.get_shard_iterator(**place)["ShardIterator"]
        answer = self.kinesis.get_records(ShardIterator=self._iterator)
        self._iterator = answer["NextShardIterator"]
        for record in answer["Records"]:
            body = {
                "kinesisSchemaVersion": "1.0",
                "partitionKey": record["PartitionKey"],
                "sequenceNumber": str(next(self._positions)),
                "data": base64.b64encode(record["Data"]).decode(),
                "approximateArrivalTimestamp": 0.0,
            }
            self.invoke("project_stream", {"Records": [{"kinesis": body}]}, "project_stream", step)

    def watch(self, stream_id: str) -> None:
        """Connect one client from now on."""
        from helix.gateway.connections import Connections

        app = self.process("caller")

        async def work() -> None:
            connections = Connections(app.store, app.clock)
            await connections.open("client", "ada", app.clock.now() + 7200)
            await connections.subscribe("client", stream_id)

        app.run(work())


class _Clock(SystemClock):
    """A clock that is slower than real time: a delivery keeps its claim for as long as moto takes."""

    def __init__(self, stretch: float) -> None:
        self._stretch = stretch

    def now(self) -> float:
        return BEGUN + (super().now() - BEGUN) / self._stretch

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds * self._stretch)


class _Sockets(MemorySockets):
    """A client that accepts everything and counts the messages sent to it."""

    def __init__(self, cloud: Cloud) -> None:
        super().__init__()
        self._cloud = cloud

    async def post(self, connection_id: str, data: bytes) -> Any:
        self._cloud.posts.append((self._cloud.wire._where, len(data)))
        return "sent"


def _handler(verb: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"function_{verb}", ROOT / "functions" / verb / "handler.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.handler


@contextlib.contextmanager
def cloud(agents: str, *, stretch: float = 20.0) -> Iterator[Cloud]:
    """`agents`: the module with the agents, and their model as MODEL."""
    told = {**ENVIRONMENT, "HELIX_AGENTS": agents, "HELIX_MODEL": f"import:{agents}:MODEL"}
    # Before each transaction moto copies whole tables and keeps the copies forever: gigabytes after 1,000 steps. It needs
    # them only for rejected transactions, which do not occur here.
    kept = patch.object(Table, "__deepcopy__", lambda table, memo: table, create=True)
    with patch.dict(os.environ, told), kept, mock_aws():
        made = Cloud(stretch)
        make_tables(made.dynamodb)
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        made.kinesis.create_stream(StreamName=CHUNKS, ShardCount=1)
        role = f"arn:aws:iam::{ACCOUNT}:role/bench"
        boto3.client("stepfunctions").create_state_machine(
            name="helix-bench-default", definition=json.dumps(MACHINE), roleArn=role
        )
        yield made
        assert not made.wire.refused, made.wire.refused
        for app in [*made.processes.values(), *made._ended]:
            app.close()
        application.cache_clear()


def text(size: int, seed: int = 1) -> str:
    """Return random text of 64 letters, which packing shortens by only a quarter."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return "".join(random.Random(seed).choices(letters, k=size))
