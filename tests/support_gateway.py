"""The gateway in tests: a desk without sockets, and a real server whose frames can be lost, doubled and shuffled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from tests.support_run import QUICK, agent

from helix import LocalExecutor, MemoryStateStore, ScriptedModel
from helix.adapters.system import SystemIds
from helix.client import ClientSettings, HelixClient
from helix.core.agents import AnyAgent
from helix.core.frames import MAX_FRAME_BYTES, Joiner
from helix.core.json import dumps
from helix.core.registry import AgentRegistry
from helix.core.replies import protocol_json_schema
from helix.gateway.authoriser import ApiKeys, Authoriser, Principal
from helix.gateway.backend import Backend
from helix.gateway.gateway import Gateway
from helix.gateway.loopback import LoopbackGateway, LoopbackSockets
from helix.ports.sockets import Posted
from helix.runtime.executor import Executor
from helix.testing.clocks import ShiftedClock

PATIENCE_S = 10.0
HOUR = 3600.0
BRISK = ClientSettings(
    request_s=5, open_s=2, give_up_s=5, backoff_s=0.01, backoff_max_s=0.05, reorder_s=0.01, quiet_s=0.2
)


def executor_of(script: Any, *agents: AnyAgent, **options: Any) -> LocalExecutor:
    """Return an executor on memory, unless `store` is given. `agents` are those that clients may name, by default one
    called `helper`."""
    registry = AgentRegistry()
    for one in agents or (agent("helper"),):
        registry.register(one)
    model = script if hasattr(script, "generate_step") else ScriptedModel(script)
    options.setdefault("settings", QUICK)
    store = options.pop("store", None) or MemoryStateStore()
    return LocalExecutor(store, model=model, registry=registry, **options)


@lru_cache
def _schema(group: str, name: str) -> Draft202012Validator:
    schema = protocol_json_schema()
    part = schema["properties"][group]["properties"][name]
    return Draft202012Validator({**part, "$defs": schema["$defs"]})


def check_frame(frame: dict[str, Any]) -> None:
    """Check that a message of the service fits the protocol's schema."""
    _schema("frames", frame["type"]).validate(frame)
    if frame["type"] == "reply":
        _schema("replies", frame["action"]).validate(frame["result"])


class Mailbox:
    """An implementation of `Sockets` that stores what was posted, by connection. `fates` decides the result of posts to a
    connection."""

    def __init__(self) -> None:
        self.frames: dict[str, list[bytes]] = {}
        self.fates: dict[str, Iterator[Posted]] = {}

    async def post(self, connection_id: str, data: bytes) -> Posted:
        assert len(data) <= MAX_FRAME_BYTES
        fate: Posted = next(self.fates.get(connection_id, iter(())), "sent")
        if fate == "sent":
            self.frames.setdefault(connection_id, []).append(data)
        return fate

    async def drop(self, connection_id: str) -> None:
        self.frames.pop(connection_id, None)

    def read(self, connection_id: str) -> list[dict[str, Any]]:
        """Return the complete messages that arrived since the last call."""
        joiner, told = Joiner(), []
        for frame in self.frames.pop(connection_id, []):
            value = json.loads(frame)
            if value["type"] == "part":
                text = joiner.add(value)
                value = json.loads(text) if text is not None else None
            if value is not None:
                told.append(value)
        return told


class Desk:
    """A gateway without a server. Connections are names, and answers are read from a mailbox."""

    def __init__(self, executor: Executor, *, anonymous: bool = False, authoriser: Authoriser | None = None) -> None:
        self.clock = ShiftedClock()
        self.executor, self.mailbox = executor, Mailbox()
        self.keys = ApiKeys(executor.store, self.clock)
        authoriser = authoriser or Authoriser(self.clock, keys=None if anonymous else self.keys, anonymous=anonymous)
        backend = Backend(executor, self.mailbox, authoriser, clock=self.clock)
        self.connections = backend.connections
        self.counted: list[tuple[str, str]] = []
        self.gateway = Gateway(backend, count=lambda action, code: self.counted.append((action, code)))
        self._asked = 0

    async def connect(self, connection_id: str, principal: str | None, for_s: float = HOUR) -> None:
        await self.gateway.connect(connection_id, principal, self.clock.now() + for_s)

    async def say(self, connection_id: str, body: str | bytes) -> list[dict[str, Any]]:
        await self.gateway.handle(connection_id, body)
        return self.mailbox.read(connection_id)

    async def ask(self, connection_id: str, action: str, /, **fields: Any) -> dict[str, Any]:
        """Send a request, and return its one answer, a reply or an error."""
        self._asked += 1
        request = {"v": 1, "action": action, "id": f"q{self._asked}", **fields}
        told = await self.say(connection_id, dumps(request))
        (answer,) = [frame for frame in told if frame["type"] in ("reply", "error")]
        assert (answer["v"], answer["id"], answer["action"]) == (1, request["id"], action)
        for frame in told:
            check_frame(frame)
        return answer

    async def result(self, connection_id: str, action: str, /, **fields: Any) -> dict[str, Any]:
        answer = await self.ask(connection_id, action, **fields)
        assert answer["type"] == "reply", answer
        result: dict[str, Any] = answer["result"]
        return result

    async def error(self, connection_id: str, action: str, /, **fields: Any) -> dict[str, Any]:
        answer = await self.ask(connection_id, action, **fields)
        assert answer["type"] == "error", answer
        error: dict[str, Any] = answer["error"]
        return error

    async def ended(self, session_id: str) -> dict[str, Any]:
        """Wait for the end of the session's current run."""
        state = await self.executor.sessions.get(session_id)
        known = self.executor.agents.named(state.agent_type)
        handle = await self.executor.get_handle(known, session_id)
        return (await handle.result(PATIENCE_S)).model_dump(mode="json")


Fault = Callable[[bytes], list[bytes]]


class FaultySockets(LoopbackSockets):
    """Sockets with faults. Each frame passes through `fault`, which returns the frames to send instead. Replies pass
    unchanged unless `all_frames`. `after(n)` cuts the connection after its n-th frame."""

    def __init__(self, fault: Fault = lambda frame: [frame], *, cut_after: list[int] | None = None) -> None:
        super().__init__()
        self.fault = fault
        self.cut_after = cut_after or []
        self.posted: dict[str, int] = {}

    async def post(self, connection_id: str, data: bytes) -> Posted:
        harmed = self.fault(data) if b'"type":"messages"' in data or b'"type":"part"' in data else [data]
        for frame in harmed:
            if (posted := await super().post(connection_id, frame)) != "sent":
                return posted
        count = self.posted[connection_id] = self.posted.get(connection_id, 0) + 1
        if self.cut_after and count >= self.cut_after[0]:
            self.cut_after.pop(0)
            await self.cut(connection_id)
        return "sent"

    async def cut(self, connection_id: str) -> None:
        """Cut the connection as a network does, without a closing handshake."""
        connection = self.open.get(connection_id)
        if connection is not None:
            connection.transport.abort()

    async def cut_all(self) -> None:
        for connection_id in list(self.open):
            await self.cut(connection_id)


class DeafSockets(FaultySockets):
    """Sockets whose first reply never arrives, because the connection is cut instead."""

    async def post(self, connection_id: str, data: bytes) -> Posted:
        if b'"type":"reply"' in data and not self.posted:
            self.posted["x"] = 1
            await self.cut(connection_id)
            return "gone"
        return await super().post(connection_id, data)


@asynccontextmanager
async def served(
    executor: LocalExecutor, *, sockets: LoopbackSockets | None = None, settings: ClientSettings = BRISK, **options: Any
) -> AsyncIterator[tuple[LoopbackGateway, HelixClient]]:
    """Start a server for `executor`, and a client of it."""
    token = options.pop("token", None)
    async with executor, LoopbackGateway(executor, sockets=sockets, **options) as gateway:
        async with asyncio.timeout(60), HelixClient(gateway.url, token, settings=settings) as client:
            yield gateway, client


async def key_for(executor: LocalExecutor, user: str, **options: Any) -> str:
    keys = ApiKeys(executor.store, executor.engine.clock)
    return await keys.create(SystemIds(), Principal(user), **options)


def keyed(executor: LocalExecutor) -> Authoriser:
    clock = executor.engine.clock
    return Authoriser(clock, keys=ApiKeys(executor.store, clock))


WORDS = "It was the best of times, it was the worst of times, it was the age of wisdom. " * 4
PATIENCE_S = 20.0


async def told(chunks: Any) -> list[Any]:
    async with asyncio.timeout(PATIENCE_S):
        return [chunk async for chunk in chunks]


ADA, BOB = "ada", "bob"


def desk_of(script: Any, *agents: Any, **options: Any) -> Desk:
    return Desk(executor_of(script, *agents, **options))


async def started(desk: Desk, connection: str = "ada", **fields: Any) -> dict[str, Any]:
    """Play a run of the helper to its end."""
    place = await desk.result(connection, "run", **{"agent": "helper", "message": "hi", **fields})
    await desk.ended(place["session_id"])
    return place
