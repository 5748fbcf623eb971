"""Requests in parts, from clients that cannot send several frames. Each request is executed once, and no incomplete one
remains."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest
import websockets
from tests.support_gateway import ADA, BOB, Desk, desk_of, executor_of, served

from helix.core.frames import MAX_FRAME_BYTES, SUBPROTOCOL
from helix.core.json import dumps
from helix.core.protocol import MAX_REQUEST_BYTES
from helix.core.requests import MAX_REQUEST_PARTS
from helix.gateway.parts import MAX_OPEN_REQUESTS, PARTS_S

PIECE = 10_000
"""The characters of a part, as docs/guide/websocket.md advises. Any such part fits into a frame."""
LONG = '"\\é€x\n' * 13_000


@pytest.fixture
async def desk() -> Desk:
    made = desk_of(["Done."] * 9)
    await made.connect(ADA, ADA)
    return made


def parts_of(request: dict[str, Any], ident: str = "big") -> list[str]:
    text = dumps(request)
    pieces = [text[place : place + PIECE] for place in range(0, len(text), PIECE)]
    made = [a_part(index, len(pieces), piece, ident) for index, piece in enumerate(pieces)]
    assert all(len(part.encode()) <= MAX_FRAME_BYTES for part in made)
    return made


def a_part(index: Any, total: Any, data: Any = "x", ident: Any = "big", **more: Any) -> str:
    return dumps({"v": 1, "type": "part", "part": ident, "index": index, "total": total, "data": data, **more})


def a_run(text: str) -> dict[str, Any]:
    return {"v": 1, "action": "run", "id": "big", "agent": "helper", "message": text, "subscribe": False}


async def waiting(desk: Desk, connection: str = ADA) -> list[str]:
    rows = await desk.executor.store.query("streams", f"conn#{connection}")
    return [row.key.sort for row in rows if row.key.sort.startswith("part#")]


@pytest.mark.parametrize("seed", range(3))
async def test_parts_in_any_order_and_twice_are_one_request(desk: Desk, seed: int) -> None:
    text = LONG[:60_000]
    parts = parts_of(a_run(text))
    assert len(dumps(a_run(text)).encode()) > 119_000 and len(parts) > 8
    sent = [*parts, *parts[:-1]]
    random.Random(seed).shuffle(sent)
    await asyncio.gather(*(desk.gateway.handle(ADA, part) for part in sent))
    (answer,) = desk.mailbox.read(ADA)
    assert (answer["type"], answer["id"], answer["action"]) == ("reply", "big", "run")
    session = await desk.result(ADA, "get_session", session_id=answer["result"]["session_id"], messages=True)
    assert session["messages"][0]["content"] == text
    assert desk.counted.count(("run", "ok")) == 1


async def test_nothing_is_left_of_a_whole_request(desk: Desk) -> None:
    for part in parts_of({"v": 1, "action": "ping", "id": "p", "pad": "x" * 30_000}):
        await desk.say(ADA, part)
    assert await waiting(desk) == []


async def test_half_a_request_is_not_answered_and_goes_with_its_connection(desk: Desk) -> None:
    for part in parts_of(a_run("x" * 100_000))[1:]:
        assert await desk.say(ADA, part) == []
    assert len(await waiting(desk)) == 10
    await desk.gateway.disconnect(ADA)
    assert await desk.executor.store.query("streams", f"conn#{ADA}") == []


async def test_half_a_request_is_forgotten_after_a_minute(desk: Desk) -> None:
    first, second = parts_of(a_run("x" * 12_000))
    await desk.say(ADA, first)
    desk.clock.ahead_s += PARTS_S + 1
    assert await desk.say(ADA, second) == [], "a part from a minute ago does not complete it"
    assert await waiting(desk) == ["part#big#01"]
    (answer,) = await desk.say(ADA, first)
    assert answer["type"] == "reply"


@pytest.mark.parametrize(
    ("part", "field"),
    [
        (a_part(2, 2), "the request"),
        (a_part(-1, 2), "index"),
        (a_part(0, MAX_REQUEST_PARTS + 1), "total"),
        (a_part(True, 2), "index"),
        (a_part(0, 2, 7), "data"),
        (a_part(0, 2, ""), "data"),
        (a_part(0, 2, "x" * (MAX_FRAME_BYTES + 1)), "data"),
        (a_part(0, 2, "x", more=1), "more"),
        (a_part(0, 2, "x").replace('"x"', '"\\ud83d"'), "data"),
    ],
)
async def test_what_is_no_part_is_refused_under_its_requests_id(desk: Desk, part: str, field: str) -> None:
    (answer,) = await desk.say(ADA, part)
    assert (answer["type"], answer["error"]["code"]) == ("error", "invalid_message")
    assert answer["error"]["message"].startswith(field) and answer["id"] == "big"
    assert await waiting(desk) == []


@pytest.mark.parametrize("ident", ["a#b", "", "x" * 65, 7])
async def test_a_part_needs_an_id(desk: Desk, ident: Any) -> None:
    (answer,) = await desk.say(ADA, a_part(0, 2, ident=ident))
    assert answer["error"]["code"] == "invalid_message" and answer["id"] is None
    assert await waiting(desk) == []


async def test_a_connection_keeps_few_requests_in_parts(desk: Desk) -> None:
    for number in range(MAX_OPEN_REQUESTS):
        assert await desk.say(ADA, a_part(0, 2, ident=f"r{number}")) == []
    (answer,) = await desk.say(ADA, a_part(0, 2, ident="more"))
    assert (answer["id"], answer["error"]["code"]) == ("more", "invalid_input")
    assert len(await waiting(desk)) == MAX_OPEN_REQUESTS
    await desk.connect(BOB, BOB)
    assert await desk.say(BOB, a_part(0, 2, ident="more")) == [], "each connection has its own"


async def test_a_request_in_parts_is_no_longer_than_another(desk: Desk) -> None:
    """The part that exceeds the limit is refused, and the earlier parts are deleted."""
    answers = [await desk.say(ADA, a_part(index, 5, "x" * (MAX_REQUEST_BYTES // 4))) for index in range(5)]
    assert answers[:4] == [[]] * 4 and answers[4][0]["error"]["code"] == "invalid_input"
    assert await waiting(desk) == []


async def test_parts_that_do_not_agree_are_refused(desk: Desk) -> None:
    await desk.say(ADA, a_part(0, 2))
    (answer,) = await desk.say(ADA, a_part(1, 3))
    assert answer["error"]["code"] == "invalid_input" and await waiting(desk) == []


async def test_nothing_is_kept_for_a_connection_that_has_expired_or_is_gone(desk: Desk) -> None:
    await desk.connect(BOB, BOB, for_s=-1)
    for connection in (BOB, "nobody"):
        (answer,) = await desk.say(connection, a_part(0, 2))
        assert (answer["id"], answer["error"]["code"]) == ("big", "not_authenticated")
        assert await waiting(desk, connection) == []


async def test_a_browser_sends_a_long_request_in_parts() -> None:
    """Each part is one frame. The same request in one frame would end the connection."""
    executor, request = executor_of(["Done."]), a_run("x" * 100_000)
    async with served(executor) as (gateway, _):
        async with websockets.connect(gateway.url, subprotocols=[SUBPROTOCOL]) as browser:  # type: ignore[list-item]
            for part in parts_of(request):
                await browser.send(part)
            assert json.loads(await browser.recv())["type"] == "reply"
            with pytest.raises(websockets.ConnectionClosed):
                await browser.send(dumps(request))
                await browser.recv()
        assert browser.close_code == 1009
