"""Connections and subscriptions as rows. They are the same on every store, also under concurrent changes."""

from __future__ import annotations

import asyncio

import pytest
from tests.support_run import World

from helix.core.errors import InvalidInputError, NotAuthenticatedError
from helix.gateway.connections import MAX_CONNECTION_S, MAX_SUBSCRIPTIONS, Connections, Subscriber
from helix.testing.clocks import ShiftedClock


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
def connections(world: World, clock: ShiftedClock) -> Connections:
    return Connections(world.executor().store, clock)


async def test_a_connection_is_opened_looked_up_renewed_and_closed(
    connections: Connections, clock: ShiftedClock
) -> None:
    until = clock.now() + 100
    await connections.open("c", "ada", until)
    found = await connections.get("c")
    assert found is not None and (found.principal, found.expires_at) == ("ada", until)
    await connections.subscribe("c", "s")
    await connections.renew("c", "ada", until + 50)
    assert await connections.subscribers("s") == [Subscriber("c", "ada", until + 50)]
    await connections.close("c")
    await connections.close("c")
    assert await connections.get("c") is None and await connections.subscribers("s") == []


async def test_only_its_own_principal_renews_a_connection(connections: Connections, clock: ShiftedClock) -> None:
    await connections.open("c", "ada", clock.now() + 100)
    for connection, principal in (("c", "bob"), ("c", None), ("d", "ada")):
        with pytest.raises(NotAuthenticatedError):
            await connections.renew(connection, principal, clock.now() + 200)


async def test_no_proof_outlives_the_longest_connection(connections: Connections, clock: ShiftedClock) -> None:
    await connections.open("c", "ada", float("inf"))
    found = await connections.get("c")
    assert found is not None and found.expires_at < clock.now() + MAX_CONNECTION_S + 1000


async def test_expired_connections_are_no_subscribers_and_cannot_become_one(
    connections: Connections, clock: ShiftedClock
) -> None:
    await connections.open("c", "ada", clock.now() + 10)
    await connections.subscribe("c", "s")
    clock.ahead_s = 11
    assert await connections.subscribers("s") == []
    for connection in ("c", "never"):
        with pytest.raises(NotAuthenticatedError):
            await connections.subscribe(connection, "t")
    await connections.renew("c", "ada", clock.now() + 10)
    assert [s.connection_id for s in await connections.subscribers("s")] == ["c"]


async def test_lagging_is_of_one_connection_on_one_stream_and_ends_with_subscribing(
    connections: Connections, clock: ShiftedClock
) -> None:
    for name in ("c", "d"):
        await connections.open(name, "ada", clock.now() + 10)
        await connections.subscribe(name, "s")
    await connections.mark_lagging("s", "c")
    await connections.mark_lagging("s", "gone")
    lagging = {s.connection_id: s.lagging for s in await connections.subscribers("s")}
    assert lagging == {"c": True, "d": False}
    await connections.subscribe("c", "s")
    assert not any(s.lagging for s in await connections.subscribers("s"))


async def test_a_connection_has_so_many_subscriptions_and_closing_removes_them_all(
    connections: Connections, clock: ShiftedClock
) -> None:
    await connections.open("c", "ada", clock.now() + 10)
    for number in range(MAX_SUBSCRIPTIONS):
        await connections.subscribe("c", f"s{number}")
    with pytest.raises(InvalidInputError, match=r"at most 32 subscriptions, and this one has 32: unsubscribe"):
        await connections.subscribe("c", "one more")
    await connections.subscribe("c", "s0")
    await connections.unsubscribe("c", "s1")
    await connections.subscribe("c", "one more")
    await connections.close("c")
    for number in range(MAX_SUBSCRIPTIONS):
        assert await connections.subscribers(f"s{number}") == []


async def test_a_stream_that_is_dropped_has_no_subscribers(connections: Connections, clock: ShiftedClock) -> None:
    for number in range(50):
        await connections.open(f"c{number}", "ada", clock.now() + 10)
        await connections.subscribe(f"c{number}", "s")
    await connections.subscribe("c0", "other")
    await connections.drop_stream("s")
    assert await connections.subscribers("s") == []
    assert len(await connections.subscribers("other")) == 1


async def test_nothing_subscribes_behind_a_close(connections: Connections, clock: ShiftedClock) -> None:
    for number in range(20):
        name = f"c{number}"
        await connections.open(name, "ada", clock.now() + 10)
        await asyncio.gather(
            connections.subscribe(name, "s"), connections.close(name), connections.renew(name, "ada", clock.now() + 20),
            return_exceptions=True,
        )  # fmt: skip
        assert await connections.subscribers("s") == []


async def test_every_row_says_when_it_is_to_be_forgotten(connections: Connections, clock: ShiftedClock) -> None:
    await connections.open("c", "ada", clock.now() + 10)
    await connections.subscribe("c", "s")
    rows = [row for partition in ("conn#c", "subs#s") for row in await connections._store.query("streams", partition)]
    assert len(rows) == 3
    assert all(type(row.value["ttl"]) is int and row.value["ttl"] > clock.now() + MAX_CONNECTION_S for row in rows)
