"""Numbers in a Redis script are compared and added as in Python, at any size, although Lua has only doubles."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.support.redis_server import RedisServer

import helix.adapters.redis.store as redis_store
from helix.adapters.redis import RedisStateStore
from helix.adapters.redis.scripts import TRANSACT, script
from helix.core.errors import ConditionFailedError, StoreError
from helix.ports.state_store import Check, Key, Put, Update, When, updated

KEY = Key("sessions", "p", "row")
NUMBERS: list[Any] = [
    *(0, 1, -1, 7, 10, 100, -100, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**64 + 1, 10**23, 10**40 + 1),
    *(0.0, -0.0, 0.1, 0.5, 1.0, 1.5, -1.5, 2.5, 1e-7, 1e-300, 1e16, 1e23, float(2**53), float(2**64), 1.2e300, 5e-324),
    *(True, False),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis"), appendonly="yes", appendfsync="always") as made:
        yield made


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[RedisStateStore]:
    server.ask("FLUSHALL")
    made = RedisStateStore(server.url, timeout_s=5)
    yield made
    await made.close()


async def holds(store: RedisStateStore, when: When) -> bool:
    try:
        await store.transact("ask", [Check(KEY, when)])
        return True
    except ConditionFailedError:
        return False


async def numbers_are_judged_as_python_judges_them(store: RedisStateStore) -> None:
    for stored in NUMBERS:
        await store.transact("put", [Put(KEY, {"n": stored})])
        assert await store.get([KEY]) == [{"n": stored}]
        for bound in NUMBERS:
            for when in (When(equal={"n": bound}), When(at_least={"n": bound}), When(below={"n": bound})):
                assert await holds(store, when) == when.holds({"n": stored}), f"{stored!r} {when}"


@pytest.mark.slow
async def test_conditions_on_numbers_are_exact(store: RedisStateStore) -> None:
    await numbers_are_judged_as_python_judges_them(store)


async def test_doubles_would_not_do(store: RedisStateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same script with Lua's own numbers fails, so the test can detect the defect."""
    head, tail = TRANSACT.text.split("local x, y = number(a), number(b)", 1)
    broken = head + "if tonumber(a) and tonumber(b) then return tonumber(a) - tonumber(b) end return nil\nend\n"
    broken += "local function unused(a, b) local x, y = number(a), number(b)" + tail
    monkeypatch.setattr(redis_store, "TRANSACT", script(broken))
    with pytest.raises(AssertionError):
        await numbers_are_judged_as_python_judges_them(store)


async def test_sums_are_exact(store: RedisStateStore) -> None:
    """Integers of any size and sign are added exactly, and fractions as Python adds them."""
    amounts = [n for n in NUMBERS if type(n) is int]
    for stored, amount in itertools.product([*NUMBERS, None], amounts):
        update = Update(KEY, add={"n": amount})
        await store.transact("add", [Put(KEY, {"n": stored})])
        await store.transact("add", [update])
        (found,) = await store.get([KEY])
        assert found == updated({"n": stored}, update) and found is not None
        assert type(found["n"]) is type(updated({"n": stored}, update)["n"]), f"{stored!r} + {amount}"


async def test_no_sum_with_a_text(store: RedisStateStore) -> None:
    """The failing addition leaves the whole transaction unwritten."""
    await store.transact("put", [Put(KEY, {"n": "text"})])
    other = Key("sessions", "p", "other")
    with pytest.raises(StoreError, match="cannot add 1"):
        await store.transact("add", [Put(other, {}), Update(KEY, add={"n": 1})])
    assert await store.get([KEY, other]) == [{"n": "text"}, None]


async def test_a_text_is_no_number(store: RedisStateStore) -> None:
    await store.transact("put", [Put(KEY, {"s": "7", "l": [7]})])
    for name in ("s", "l"):
        assert not await holds(store, When(equal={name: 7}))
        assert not await holds(store, When(at_least={name: 0})) and not await holds(store, When(below={name: 9}))
