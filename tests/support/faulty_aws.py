"""One fault of AWS in a run with two tools and a sub-agent on the AWS adapters, over moto, executed by the deployed state
machine's definition. botocore's events inject the fault, at any one call."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random
from types import SimpleNamespace
from typing import Any, Literal

import botocore.session
from botocore.exceptions import ReadTimeoutError
from pydantic import BaseModel
from tests.support.aws_resources import BUCKET, CHUNKS, Pump, PumpedStreams, make_tables, moto, tables
from tests.support.delivery_stage import Json, Stage
from tests.support.memory_sockets import MemorySockets
from tests.support.state_machine import Machines, StateMachine
from tests.support_run import Text, a_tool, agent

from helix import create_sub_agent_tool
from helix.adapters.aws import dynamodb, kinesis
from helix.adapters.aws.dynamodb import DynamoDBStateStore
from helix.adapters.aws.overflow import Overflow
from helix.core.errors import StoreError
from helix.core.messages import AssistantMessage
from helix.core.steps import AnyStepResult, ParsedToolCall, TextStepResult, ToolCallsStepResult
from helix.gateway.connections import Connections
from helix.gateway.projector import Projector
from helix.ports.model import LLMGenerateInput
from helix.ports.sockets import Posted
from helix.services.segments import SegmentStreams
from helix.sessions.read import Sessions
from helix.testing.aws import LockedClient
from helix.testing.clocks import ShiftedClock
from helix.testing.invariants import find_problems, read_tree

Kind = Literal["throttled", "server error", "conflict", "lost answer", "partial batch", "gone socket", "socket error"]
KINDS: tuple[Kind, ...] = (
    *("throttled", "server error", "conflict", "lost answer", "partial batch"),
    *("gone socket", "socket error"),
)
LARGE = Random(1).randbytes(450_000).hex()
"""The length of the message. It exceeds a DynamoDB item, so that the run uses S3."""
SWEEPS, PATIENCE_S = 3, 2.0
Line = tuple[str, str, tuple[str, ...]]
SESSION, CONNECTION = "ses_faults", "connection1="
WRITES = ("PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems")
TRIES = {"dynamodb": dynamodb.TRIES, "kinesis": kinesis.TRIES}
ERRORS = {
    ("throttled", "dynamodb"): (400, "ThrottlingException"),
    ("throttled", "kinesis"): (400, "ProvisionedThroughputExceededException"),
    ("throttled", "s3"): (503, "SlowDown"),
    ("server error", "dynamodb"): (500, "InternalServerError"),
    ("server error", "kinesis"): (500, "InternalFailure"),
    ("server error", "s3"): (500, "InternalError"),
}


class Found(BaseModel):
    text: str


class Model:
    """A model whose answer depends only on its input, so that a repeated step has the same answer."""

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        results = sum(1 for message in request.messages if message.role == "tool")
        if request.callbacks is not None and request.callbacks.on_text_delta is not None:
            taken = request.callbacks.on_text_delta("The end." if results == 3 else "Then:")
            if taken is not None:
                await taken
        if any(tool.name == "__finish__" for tool in request.tools):
            return self._asks(("__finish__", {"text": "found"}))
        match results:
            case 0:
                return self._asks(("look", {"text": "here"}), ("fetch", {"text": "there"}))
            case 2:
                return self._asks(("subagent__child", {"message": "find it"}))
        return TextStepResult(content="The end.")

    def _asks(self, *calls: tuple[str, Json]) -> AnyStepResult:
        parsed = [ParsedToolCall(id=f"call_{name}", name=name, arguments=given) for name, given in calls]
        return ToolCallsStepResult(content="Then:", tool_calls=parsed)


@dataclass
class Fault:
    """A fault at call number `at` among the calls that this kind can hit. None means no fault. All attempts of that
    call fail, so that the delivery fails as well. A lost answer is lost once. `calls` are the possible calls as
    `service.operation`."""

    kind: Kind
    at: int | None = None
    calls: list[str] = field(default_factory=list)
    struck: bool = False
    _body: Any = None
    _left: int = 0
    _losing: bool = False

    def listen(self, session: Any) -> None:
        for service in ("dynamodb", "kinesis", "s3"):
            session.register(f"before-call.{service}", self._before)
            session.register(f"after-call.{service}", self._after)

    def strikes(self, name: str) -> bool:
        """Count this call, and return whether the fault strikes it."""
        self.calls.append(name)
        self.struck = self.struck or self.at == len(self.calls) - 1
        return self.at == len(self.calls) - 1

    def _before(self, model: Any, params: Any, **_: Any) -> Any:
        service, operation = model.service_model.service_id.hyphenize(), model.name
        body = (operation, params["url"], params["body"])
        if self._left and body == self._body:
            self._left -= 1
            return self._refusal(service, operation)
        if operation == "GetItem" and '"S": "x#' in str(params["body"]):
            return None  # a check for a stop, whose number depends on time
        possible = {"partial batch": False, "gone socket": False, "socket error": False}
        possible["conflict"] = service == "dynamodb" and operation in WRITES
        if not possible.get(self.kind, True) or not self.strikes(f"{service}.{operation}"):
            return None
        if self.kind == "lost answer":
            self._losing = True
            return None
        self._body, self._left = body, TRIES.get(service, 1) - 1 if operation in (*WRITES, "PutRecord") else 0
        return self._refusal(service, operation)

    def _refusal(self, service: str, operation: str) -> Any:
        status, code = ERRORS.get((self.kind, service), (400, "TransactionConflictException"))
        told: Json = {"Error": {"Code": code, "Message": self.kind}, "ResponseMetadata": {}}
        if self.kind == "conflict" and operation == "TransactWriteItems":
            told["Error"]["Code"] = "TransactionCanceledException"
            told["CancellationReasons"] = [{"Code": "TransactionConflict"}]
        return SimpleNamespace(status_code=status), told

    def _after(self, model: Any, parsed: Json, **_: Any) -> None:
        if self._losing:
            self._losing = False
            raise ReadTimeoutError(endpoint_url="https://aws.invalid")
        if self.kind == "partial batch" and model.name == "BatchGetItem" and self.strikes("dynamodb.BatchGetItem"):
            for table, items in parsed["Responses"].items():
                if items:
                    item = items.pop()
                    left = {"Keys": [{name: item[name] for name in ("pk", "sk")}], "ConsistentRead": True}
                    parsed.setdefault("UnprocessedKeys", {})[table] = left
                    return


class FaultySockets(MemorySockets):
    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self._fault = fault

    async def post(self, connection_id: str, data: bytes) -> Posted:
        if self._fault.kind in ("gone socket", "socket error") and self._fault.strikes("sockets.PostToConnection"):
            if self._fault.kind == "socket error":
                raise StoreError("the gateway answers 500")
            await self.drop(connection_id)
        return await super().post(connection_id, data)


class _Hurried(ShiftedClock):
    """A clock on which pauses before retries take no time."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


@dataclass(frozen=True)
class Outcome:
    """An outcome. `transcript` is (role, content, names of calls) of the session and its sub-agent's. `problems` are the
    findings of `helix.testing` about rows and stream. `deliveries` counts invocations of functions."""

    transcript: list[Line]
    problems: list[str]
    deliveries: int


async def play(fault: Fault) -> Outcome:
    with moto() as clients:
        make_tables(clients["dynamodb"])
        clients["kinesis"].create_stream(StreamName=CHUNKS, ShardCount=1)
        return await _play(fault, clients)


async def _play(fault: Fault, clients: Json) -> Outcome:
    session = botocore.session.get_session()
    made = {service: LockedClient(session.create_client(service)) for service in ("dynamodb", "kinesis", "s3")}
    struck = botocore.session.get_session()
    fault.listen(struck)
    faulty = {service: LockedClient(struck.create_client(service)) for service in made}

    def store(rows: Any, objects: Any) -> DynamoDBStateStore:
        return DynamoDBStateStore(rows, tables(), clock=_Hurried(), overflow=Overflow(objects, BUCKET), poll_s=0.02)

    rows, well = store(faulty["dynamodb"], faulty["s3"]), store(made["dynamodb"], made["s3"])
    clock, sockets = ShiftedClock(), FaultySockets(fault)
    overflow = Overflow(faulty["s3"], BUCKET)
    projector = Projector(SegmentStreams(rows), Connections(rows, clock), sockets, clock, fetch=overflow.read)
    streams = PumpedStreams(
        Pump(made["kinesis"], [projector]), faulty["kinesis"], SegmentStreams(rows), overflow=overflow
    )

    child = agent("child", output_schema=Found)
    look = a_tool("look", lambda given, ctx: f"seen {given.text}", input_schema=Text)
    fetch = a_tool("fetch", lambda given, ctx: f"got {given.text}", input_schema=Text, inline=True)
    parent = agent("parent", tools=[look, fetch, create_sub_agent_tool(child)])
    stage = Stage(Model(), parent, child, store=rows, streams=streams, clock=clock)

    async def invoke(verb: str, payload: Json) -> Json:
        return await stage.deliver(verb, payload, left_s=900)

    async def pause(error: str) -> None:
        clock.ahead_s += 1000  # until every claim has expired

    machines = Machines(StateMachine(invoke, pause=pause, tries=6))
    stage.engine.launcher = machines
    await Connections(well, clock).open(CONNECTION, "ada", clock.now() + 7200)
    await Connections(well, clock).subscribe(CONNECTION, SESSION)
    sockets.open(CONNECTION)

    at, fault.at = fault.at, None  # the client repeats its own call
    await stage.executor.execute(parent, LARGE, session_id=SESSION)
    fault.at, fault.calls = at, []
    calls: list[str] = []
    for _ in range(SWEEPS):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await machines.ended()
        calls, fault.at = calls or list(fault.calls), None
        clock.ahead_s += 1000  # the scheduled sweep finds what a crash left
        with contextlib.suppress(StoreError):
            await stage.deliver("sweep")
    fault.calls = calls
    problems = await find_problems(well, SegmentStreams(well), SESSION, at_rest=True)
    problems += [f"{e.name} is {e.status}" for e in machines.executions.values() if e.status != "SUCCEEDED"]
    transcript = [line for each in await read_tree(well, SESSION) for line in await _transcript(well, each.session_id)]
    return Outcome(transcript, problems, sum(len(e.invoked) for e in machines.executions.values()))


async def _transcript(store: DynamoDBStateStore, session_id: str) -> list[Line]:
    found: list[Line] = []
    for message in await Sessions(store).load_conversation_messages(session_id):
        names = tuple(c.name for c in message.tool_calls) if isinstance(message, AssistantMessage) else ()
        found.append((message.role, str(message.content), names))
    return found


Cell = tuple[Kind, str]
"""A kind of fault, and the operation that it strikes."""


@cache
def undisturbed() -> list[Line]:
    """Return the transcript of a run without faults."""
    return asyncio.run(play(Fault("partial batch"))).transcript


def matrix(kinds: Sequence[Kind], every: int = 1) -> tuple[dict[Cell, int], list[str]]:
    """Play a run for each call that each kind can strike, or for one in several of them. Return the number of faults by
    cell, and the problems. A run makes a call more or less than the one before if chunks are batched by time."""
    expected = undisturbed()
    struck: Counter[Cell] = Counter()
    wrong: list[str] = []
    for kind in kinds:
        counted = Fault(kind)
        asyncio.run(play(counted))
        for at in range(len(counted.calls) % every // 2, len(counted.calls), every):
            fault = Fault(kind, at)
            outcome = asyncio.run(play(fault))
            if not fault.struck:
                continue
            struck[kind, fault.calls[at]] += 1
            if outcome.transcript != expected:
                wrong.append(f"{kind} at call {at}, {fault.calls[at]}: another transcript")
            wrong += [f"{kind} at call {at}, {fault.calls[at]}: {problem}" for problem in outcome.problems]
    return dict(struck), wrong
