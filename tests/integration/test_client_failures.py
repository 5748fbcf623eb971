"""The client with failing sockets and missing answers. Streams arrive complete, and a waiting caller gets an error."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.support_gateway import (
    BRISK,
    PATIENCE_S,
    WORDS,
    DeafSockets,
    Fault,
    FaultySockets,
    executor_of,
    served,
    told,
)
from tests.support_run import Gate, a_tool, agent, call, calls, eventually, gated, text_of

from helix import ScriptedModel
from helix.client import ConnectionLostError, HelixClient
from helix.core.errors import (
    InvalidInputError,
)
from helix.gateway.loopback import LoopbackGateway, LoopbackSockets
from helix.ports.sockets import Posted

# --- sockets that fail --------------------------------------------------------------------------------------------------


def lossy(seed: int) -> Fault:
    """Lose, double and reorder frames of the stream."""
    dice = random.Random(seed)
    held: list[bytes] = []

    def fault(frame: bytes) -> list[bytes]:
        fate = dice.random()
        out: list[bytes] = []
        if fate < 0.25:
            return []
        if fate < 0.45:
            held.append(frame)
        elif fate < 0.65:
            out += [frame, frame]
        else:
            out.append(frame)
        if held and dice.random() < 0.5:
            out += [held.pop(), *held]
            held.clear()
        return out

    return fault


def lost_once(seen: set[bytes]) -> Fault:
    def fault(frame: bytes) -> list[bytes]:
        if frame in seen:
            return [frame]
        seen.add(frame)
        return []

    return fault


FAULTS: dict[str, Callable[[], Fault]] = {
    "nothing": lambda: lambda frame: [frame],
    "every frame twice": lambda: lambda frame: [frame, frame],
    "every frame is lost once": lambda: lost_once(set()),
    **{f"lossy {seed}": partial(lossy, seed) for seed in range(6)},
}


@pytest.mark.parametrize("fault", sorted(FAULTS))
@pytest.mark.parametrize("cuts", [(), (2, 5), (1, 1, 1, 1, 3, 3)])
async def test_the_stream_arrives_whole_and_once(fault: str, cuts: tuple[int, ...]) -> None:
    """Whatever the socket loses, doubles, reorders or cuts off, the reader receives the content of the log."""
    tool = a_tool("look", lambda args, ctx: "x" * 3000)
    executor = executor_of(
        ScriptedModel([calls(call("look"), content=WORDS), calls(call("look")), WORDS], delta_chars=6),
        agent("helper", tools=[tool]),
    )
    sockets = FaultySockets(cut_after=list(cuts))
    async with served(executor, sockets=sockets) as (_, client):
        sockets.fault = FAULTS[fault]()
        handle = await client.run("helper", "go")
        chunks = await told(await handle.stream())
        result = await handle.result(PATIENCE_S)
        near = await executor.get_handle(executor.agents.named("helper"), handle.session_id)
        assert chunks == await told(await near.stream())
        assert result.text == WORDS
        assert client.connections > min(len(cuts), 1)


async def test_large_messages_come_in_parts_and_whole_again_over_a_bad_socket() -> None:
    big = "große Dinge " * 7_000
    executor = executor_of([calls(call("look")), "Seen."], agent("helper", tools=[a_tool("look", lambda a, c: big)]))
    sockets = FaultySockets(lossy(3))
    async with served(executor, sockets=sockets) as (_, client):
        handle = await client.run("helper", "go")
        chunks = await told(await handle.stream())
        (end,) = [chunk for chunk in chunks if chunk.type == "tool_end"]
        assert end.result == big


async def test_a_long_request_is_sent_in_frames_that_the_gateway_takes() -> None:
    """Like API Gateway, the gateway closes a connection on a frame above 32 KB. Concurrent requests do not mix."""
    texts = ["é" * 60_000, "x" * 120_000, "short", "y" * 60_000]
    async with served(executor_of(["Done."] * len(texts))) as (_, client):
        handles = await asyncio.gather(*(client.run("helper", text) for text in texts))
        for handle, text in zip(handles, texts, strict=True):
            await handle.result()
            stored: dict[str, Any] = await client.get_messages(handle.session_id)
            assert stored["messages"][0]["content"] == text
        assert client._link.connections == 1


class SlowSocket:
    """A socket that is slow to send each frame of a message."""

    def __init__(self, sent: list[bytes]) -> None:
        self.sent = sent

    async def send(self, frames: list[bytes], text: bool) -> None:
        for frame in frames:
            await asyncio.sleep(0.02)
            self.sent.append(frame)


async def test_a_long_request_is_sent_to_its_end() -> None:
    """The caller that waits for its answer may give up meanwhile. Half a message would make the connection useless for
    other requests."""
    sent: list[bytes] = []
    async with served(executor_of([]), settings=replace(BRISK, request_s=0.03)) as (_, client):
        link: Any = client._link
        real, link._socket = link._socket, SlowSocket(sent)
        with pytest.raises(TimeoutError):
            await client.run("helper", "x" * 120_000)
        link._socket = real
        async with asyncio.timeout(PATIENCE_S):
            while len(b"".join(sent)) < 120_000:
                await asyncio.sleep(0.01)


async def test_a_slow_socket_is_marked_and_replays() -> None:
    class Slow(LoopbackSockets):
        """A connection that loses two of three frames of a stream."""

        times = 0

        async def post(self, connection_id: str, data: bytes) -> Posted:
            if b'"type":"messages"' in data:
                self.times += 1
                if self.times % 3:
                    return "slow"
            return await super().post(connection_id, data)

    executor = executor_of(ScriptedModel([WORDS], delta_chars=6))
    async with served(executor, sockets=Slow()) as (_, client):
        handle = await client.run("helper", "go")
        assert text_of(await told(await handle.stream())) == WORDS


async def test_a_connection_cut_before_the_answer_repeats_the_request_and_starts_one_run() -> None:
    executor = executor_of(["Hello.", "Hello twice."])
    async with served(executor, sockets=DeafSockets()) as (_, client):
        handle = await client.run("helper", "go")
        assert text_of(await told(await handle.stream())) == "Hello."
        assert client.connections == 2
        assert len((await executor.sessions.list_runs(handle.session_id)).runs) == 1
        assert len((await executor.sessions.list_sessions()).sessions) == 1


async def test_a_reader_that_does_not_read_loses_nothing() -> None:
    settings = replace(BRISK, buffer=8)
    executor = executor_of(ScriptedModel([WORDS], delta_chars=4))
    async with served(executor, settings=settings) as (_, client):
        handle = await client.run("helper", "go")
        assert (await handle.result(PATIENCE_S)).status == "completed"
        assert text_of(await told(await handle.stream())) == WORDS


async def test_a_connection_is_replaced_when_it_is_old_and_streams_go_on() -> None:
    gate = Gate()
    settings = replace(BRISK, max_age_s=0.05, heartbeat_s=0.02)
    executor = executor_of([calls(call("wait")), WORDS], agent("helper", tools=[a_tool("wait", _waiting(gate))]))
    async with served(executor, settings=settings) as (_, client):
        handle = await client.run("helper", "go")
        await gate.reached()

        async def older() -> bool:
            return client.connections >= 3

        await eventually(older)
        gate.open()
        assert text_of(await told(await handle.stream())) == WORDS


async def test_frames_that_make_no_sense_are_left_out() -> None:
    nonsense = [
        b"{",
        b"[]",
        b'{"type":"messages"}',
        b'{"type":"part"}',
        b'{"type":"news"}',
        b'{"type":"reply","id":"?"}',
    ]
    executor = executor_of(ScriptedModel([WORDS], delta_chars=20))
    async with served(executor, sockets=FaultySockets(lambda frame: [*nonsense, frame])) as (_, client):
        handle = await client.run("helper", "go")
        assert text_of(await told(await handle.stream())) == WORDS


async def test_a_request_that_the_gateway_refuses_to_take_is_sent_again() -> None:
    """API Gateway itself answers if a function was throttled. That answer is not part of this protocol, and has no request
    id."""

    class Throttled(FaultySockets):
        async def post(self, connection_id: str, data: bytes) -> Posted:
            if not self.posted:
                self.posted["x"] = 1
                data = b'{"message":"Internal server error","connectionId":"c","requestId":"r"}'
            return await super().post(connection_id, data)

    async with served(executor_of([]), sockets=Throttled()) as (_, client):
        assert await client.ping() > 0


async def test_an_answer_that_is_lost_on_a_living_connection_is_asked_for_again() -> None:
    class Forgetful(FaultySockets):
        """A connection that loses every first answer to a request."""

        def __init__(self) -> None:
            super().__init__()
            self.seen: set[str] = set()

        async def post(self, connection_id: str, data: bytes) -> Posted:
            ident = str(json.loads(data).get("id"))
            if b'"type":"reply"' in data and ident not in self.seen:
                self.seen.add(ident)
                return "sent"
            return await super().post(connection_id, data)

    settings = replace(BRISK, request_s=0.6)
    executor = executor_of(["Hello.", "Hello twice."])
    async with served(executor, sockets=Forgetful(), settings=settings) as (_, client):
        handle = await client.run("helper", "go")
        assert text_of(await told(await handle.stream())) == "Hello."
        assert client.connections == 1
        assert len((await executor.sessions.list_runs(handle.session_id)).runs) == 1


# --- patience -----------------------------------------------------------------------------------------------------------


async def test_a_request_without_an_answer_fails_in_time() -> None:
    class Mute(LoopbackSockets):
        async def post(self, connection_id: str, data: bytes) -> Posted:
            return "sent"

    settings = replace(BRISK, request_s=0.05)
    async with served(executor_of([]), sockets=Mute(), settings=settings) as (_, client):
        with pytest.raises(TimeoutError, match=r"ping: no answer within 0\.05 s"):
            await client.ping()


async def test_where_there_is_no_service_connecting_fails_in_time() -> None:
    settings = replace(BRISK, open_s=0.1)
    with pytest.raises(ConnectionLostError, match="cannot be reached"):
        async with HelixClient("ws://127.0.0.1:9", settings=settings):
            pass
    with pytest.raises(InvalidInputError, match="wss://"):
        async with HelixClient("https://example.com"):
            pass


async def test_when_the_service_stays_away_whoever_waits_hears_of_it() -> None:
    gate = Gate()
    settings = replace(BRISK, give_up_s=0.1, open_s=0.1)
    executor = executor_of([gated(gate, "never")])
    async with executor:
        server = LoopbackGateway(executor)
        await server.__aenter__()
        async with HelixClient(server.url, settings=settings) as client:
            handle = await client.run("helper", "go")
            reading = asyncio.ensure_future(told(await handle.stream()))
            waiting = asyncio.ensure_future(handle.result())
            await gate.reached()
            await server.__aexit__()
            for task in (reading, waiting):
                with pytest.raises(ConnectionLostError):
                    await task
            with pytest.raises(ConnectionLostError):
                await client.ping()


async def test_a_closed_client_says_so_to_whoever_waits() -> None:
    gate = Gate()
    async with served(executor_of([gated(gate, "never")])) as (_, client):
        handle = await client.run("helper", "go")
        reading = asyncio.ensure_future(told(await handle.stream()))
        await gate.reached()
        await client.close()
        await client.close()
        with pytest.raises(ConnectionLostError, match="closed"):
            await reading


def _waiting(gate: Gate) -> Any:
    async def wait(args: Any, ctx: Any) -> str:
        await gate.wait()
        return "waited"

    return wait
