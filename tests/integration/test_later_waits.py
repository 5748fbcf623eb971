"""Calls that end elsewhere: how long they wait, and who can end the wait."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.support_later import rests, shipping, shop
from tests.support_run import World, eventually, history, play, results

from helix import CallEndedError, Confirmation, InvalidCallTokenError
from helix.adapters.system import SystemClock
from helix.core.delivery import Delivery
from helix.core.elsewhere import MAX_TOKENS, CallToken
from helix.core.errors import InvalidInputError
from helix.engine.claims.timeouts import end_wait
from helix.ports.state_store import Update
from helix.services.waits import read_waits
from helix.testing.invariants import check_session

SOON_S = 1.0


async def test_a_person_cannot_answer_in_the_place_of_the_system(world: World) -> None:
    tokens: list[str] = []
    who, executor = shop(tokens), world.executor(shipping())
    handle, result, _ = await play(executor, who)
    for approved in (True, False):
        given = Confirmation(result.pending[0].call_id, approved=approved, data={"forged": True})
        with pytest.raises(InvalidInputError, match="token"):
            await executor.resume(who, handle.session_id, confirmation=given)
    assert (await executor.sessions.get(handle.session_id)).status == "paused"


@pytest.mark.parametrize("policy", ["deny", "fail"])
async def test_a_wait_that_is_too_long_ends(world: World, policy: str) -> None:
    tokens: list[str] = []
    executor = world.executor(shipping())
    wait = {"timeout_s": SOON_S, "on_timeout": policy, "heartbeat_s": 60}
    handle, result, _ = await play(executor, shop(tokens, wait=wait))
    assert result.pending[0].expires_at is not None
    state = await rests(executor, handle.session_id)
    assert (state.status, state.custom_state) == ("completed" if policy == "deny" else "failed", {"sent": []})
    assert '"status":"unknown"' in results(await history(executor, handle.session_id))[0]
    with pytest.raises(CallEndedError):
        await executor.complete_call(tokens[0], "shipped")
    assert [page async for page in read_waits(executor.store)] == []


async def test_heartbeats_prolong_the_wait(world: World) -> None:
    tokens: list[str] = []
    executor = world.executor(shipping())
    handle, result, _ = await play(executor, shop(tokens, wait={"heartbeat_s": SOON_S}, on_unknown="skip"))
    deadline = result.pending[0].expires_at
    assert deadline is not None
    for _ in range(6):
        await asyncio.sleep(SOON_S / 3)
        moved = await executor.prolong_call(tokens[0])
        assert moved is not None and moved > deadline
        deadline = moved
    assert (await executor.sessions.get(handle.session_id)).status == "paused"
    await rests(executor, handle.session_id)
    assert '"status":"unknown"' in results(await history(executor, handle.session_id))[0]


async def test_a_missing_heartbeat_runs_the_tool_again_and_both_tokens_work(world: World) -> None:
    tokens: list[str] = []
    executor = world.executor(shipping())
    handle, _, _ = await play(executor, shop(tokens, wait={"heartbeat_s": SOON_S}))
    await eventually(lambda: asyncio.sleep(0, len(tokens) == 2))
    await rests(executor, handle.session_id, "paused")
    assert len(set(tokens)) == 2
    await executor.complete_call(tokens[0], "shipped")
    state = await rests(executor, handle.session_id)
    assert state.custom_state == {"sent": ["A7"]}
    await executor.complete_call(tokens[1], "shipped")
    with pytest.raises(CallEndedError):
        await executor.complete_call(tokens[1], "twice")


async def test_a_missing_heartbeat_may_ask_a_person_and_the_result_may_still_come(world: World) -> None:
    tokens: list[str] = []
    executor = world.executor(shipping())
    handle, _, _ = await play(executor, shop(tokens, wait={"heartbeat_s": SOON_S}, on_unknown="ask"))

    async def asks() -> bool:
        state = await executor.sessions.get(handle.session_id)
        return [each.kind for each in state.pending] == ["unknown"]

    await eventually(asks)
    await executor.complete_call(tokens[0], "shipped")
    await rests(executor, handle.session_id)
    assert results(await history(executor, handle.session_id)) == ["shipped"]


class Tomorrow(SystemClock):
    def now(self) -> float:
        return super().now() + 86_400


async def test_a_session_is_sound_between_a_missing_heartbeat_and_the_next_execution(world: World) -> None:
    executor = world.executor(shipping())
    handle, _, _ = await play(executor, shop([], wait={"heartbeat_s": 3_600}))
    (entry,) = [row async for page in read_waits(executor.store) for row in page]
    late = replace(executor.engine, clock=Tomorrow())
    (claimed,) = await end_wait(late, entry, Delivery("worker that dies", late.clock.now() + 60))
    assert claimed.session.session_id == handle.session_id
    await check_session(executor.store, executor.engine.streams, handle.session_id)


async def test_a_call_keeps_its_newest_tokens(quick_world: World) -> None:
    tokens: list[str] = []
    executor = quick_world.executor(shipping())
    handle, _, _ = await play(executor, shop(tokens, wait={"heartbeat_s": SOON_S}))
    rows = await executor.store.query("sessions", handle.session_id)
    (key,) = [row.key for row in rows if "later" in row.value]
    full = {"later": {"hashes": [f"{n:064}" for n in range(MAX_TOKENS)], "heartbeat_s": SOON_S}}
    await executor.store.transact("fill", [Update(key, set=full)])
    await eventually(lambda: asyncio.sleep(0, len(tokens) == 2))
    await rests(executor, handle.session_id, "paused")
    (value,) = await executor.store.get([key])
    wanted = [*(f"{n:064}" for n in range(1, MAX_TOKENS)), CallToken.parse(tokens[1]).secret_hash]
    assert value is not None and value["later"]["hashes"] == wanted
    with pytest.raises(InvalidCallTokenError):
        await executor.complete_call(tokens[0], "shipped")
    await executor.complete_call(tokens[1], "shipped")
