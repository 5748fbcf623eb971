"""Contract of `ModelLimits` on the rows of any store (docs/adr/0093-turns-at-a-model-are-times.md)."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from helix.core.model_limits import MICROS_A_SECOND, Limit, ReportedLimit
from helix.ports.state_store import StateStore
from helix.services.model_limits import (
    AVOIDED_S,
    LEARNED_S,
    QUIET_S,
    VALID_S,
    CallLimits,
    ModelLimits,
    Taken,
    cell_key,
)
from helix.testing.clocks import SetClock

MODEL = "openai/gpt-5"
NOW = 1_800_000_000.0
SPACING = 60 / 48.5
"""The seconds between two turns of a model with 50 requests a minute, of which 97 % are granted."""
BURST = 2
"""The requests that such a model takes at once after a pause."""
FIFTY = {MODEL: Limit(requests=50)}
THOUSAND_TOKENS = {MODEL: Limit(tokens=100_000)}


def none() -> int:
    return 0


def seconds(turn: Taken) -> float:
    """Return the time of the turn in seconds after `NOW`."""
    return turn.at / MICROS_A_SECOND - NOW


class ModelLimitsContract:
    """Expects the fixture `store`, and `second`: another process's access to the same data, where that exists."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def clock(self) -> SetClock:
        return SetClock(NOW)

    async def test_a_model_without_a_limit_costs_no_write(self, store: StateStore, clock: SetClock) -> None:
        limits = ModelLimits(store, clock)
        call = CallLimits(limits, tokens=none, learns=True)
        for _ in range(3):
            assert await call.turn(MODEL) == 0
            await call.tried(MODEL, used=100, reported=ReportedLimit(Limit(500, 100_000), low=False))
        assert await store.get([cell_key(MODEL)]) == [None]

    async def test_each_caller_has_a_time_of_its_own(
        self, store: StateStore, second: StateStore, clock: SetClock
    ) -> None:
        """Callers of two processes that ask at once get times one after the other, and none gets another's."""
        both = [ModelLimits(store, clock, FIFTY), ModelLimits(second, clock, FIFTY)]
        turns = await asyncio.gather(*(both[n % 2].take(MODEL, none) for n in range(24)))
        times = sorted(map(seconds, turns))
        assert times[:BURST] == [0.0] * BURST
        gaps = [later - earlier for earlier, later in pairwise(times[BURST:])]
        assert all(abs(gap - SPACING) < 1e-3 for gap in gaps), gaps

    async def test_later_callers_are_served_later(self, store: StateStore, clock: SetClock) -> None:
        """A caller that comes later has a later time. A turn that is lost with its worker costs the model that turn."""
        limits = ModelLimits(store, clock, FIFTY)
        times = [seconds(await limits.take(MODEL, none)) for _ in range(BURST + 3)]
        assert times == sorted(times) and len(set(times)) == 4, "the burst at once, then one after the other"
        clock.advance(60)
        assert seconds(await limits.take(MODEL, none)) == 60

    async def test_high_limits_are_taken_at_the_same_time(
        self, store: StateStore, second: StateStore, clock: SetClock
    ) -> None:
        """The sum of turns never exceeds the limit, however many callers take turns at once."""
        limit = {MODEL: Limit(requests=6_000)}
        both = [ModelLimits(store, clock, limit), ModelLimits(second, clock, limit)]
        await asyncio.gather(*(both[n % 2].take(MODEL, none) for n in range(60)))
        (cell,) = await store.get([cell_key(MODEL)])
        assert cell is not None
        assert cell["requests_at"] == NOW * MICROS_A_SECOND + 60 * (60 * MICROS_A_SECOND * 100 // (6_000 * 97))

    async def test_tokens_are_reserved_and_corrected(self, store: StateStore, clock: SetClock) -> None:
        """A call takes the time of the tokens that it may use, and returns the time of those that it did not use."""
        limits = ModelLimits(store, clock, THOUSAND_TOKENS)
        half_a_minute = [seconds(await limits.take(MODEL, lambda: 48_500)) for _ in range(3)]
        assert half_a_minute == [0, 30, 60]
        await limits.correct(MODEL, lambda: 48_500, 0)
        assert seconds(await limits.take(MODEL, lambda: 48_500)) == 60
        before = await store.get([cell_key(MODEL)])
        await limits.correct(MODEL, lambda: 48_500, 48_000)
        assert await store.get([cell_key(MODEL)]) == before, "a small difference is not worth a write"

    async def test_a_long_wait_is_refused_without_a_turn(self, store: StateStore, clock: SetClock) -> None:
        limits = ModelLimits(store, clock, {MODEL: Limit(requests=1)})
        await limits.take(MODEL, none)
        before = await store.get([cell_key(MODEL)])
        assert seconds(await limits.take(MODEL, none, most_s=10)) > 60
        assert await store.get([cell_key(MODEL)]) == before

    async def test_a_pause_moves_all_turns_once(self, store: StateStore, second: StateStore, clock: SetClock) -> None:
        """After a refusal no turn is due before the provider answers again. Turns keep their order and distance."""
        limits, other = ModelLimits(store, clock, FIFTY), ModelLimits(second, clock, FIFTY)
        turns = [await limits.take(MODEL, none) for _ in range(BURST + 2)]
        await asyncio.gather(*(each.pause(MODEL, 20) for each in (limits, other, limits)))
        moved = [await other.moved(MODEL, turn) for turn in turns]
        assert [round(seconds(turn) - seconds(old), 3) for turn, old in zip(moved, turns, strict=True)] == [20] * 4
        assert seconds(await other.take(MODEL, none)) > max(map(seconds, moved))

    async def test_a_stored_turn_is_found_by_another_delivery(
        self, store: StateStore, second: StateStore, clock: SetClock
    ) -> None:
        limits, other = ModelLimits(store, clock, FIFTY), ModelLimits(second, clock, FIFTY)
        for _ in range(BURST + 1):
            turn = await limits.take(MODEL, none, call="run#1#1")
        await limits.keep(MODEL, "run#1#1", turn)
        before = await store.get([cell_key(MODEL)])
        assert await other.take(MODEL, none, call="run#1#1") == turn
        assert await store.get([cell_key(MODEL)]) == before, "it was taken again"
        assert seconds(await other.take(MODEL, none, call="run#1#2")) > seconds(turn)
        clock.advance(seconds(turn) + VALID_S + 1)
        assert seconds(await other.take(MODEL, none, call="run#1#1")) > seconds(turn) + VALID_S

    async def test_a_limit_is_learned_when_little_is_left(
        self, store: StateStore, second: StateStore, clock: SetClock
    ) -> None:
        """One process learns the limit, all take turns, and it is forgotten after some minutes."""
        limits, other = ModelLimits(store, clock), ModelLimits(second, clock)
        await limits.learn(MODEL, ReportedLimit(Limit(requests=50), low=True))
        times = [seconds(await each.take(MODEL, none)) for each in [limits, other] * 4]
        assert times[-1] > times[BURST] > 0
        clock.advance(LEARNED_S + 1)
        before = await store.get([cell_key(MODEL)])
        for _ in range(10):
            assert seconds(await other.take(MODEL, none)) == LEARNED_S + 1
        assert await store.get([cell_key(MODEL)]) == before

    async def test_a_declared_limit_overrides_a_reported_one(self, store: StateStore, clock: SetClock) -> None:
        limits = ModelLimits(store, clock, {MODEL: Limit(requests=6_000)})
        await limits.learn(MODEL, ReportedLimit(Limit(requests=1), low=True), refused=True)
        assert seconds([await limits.take(MODEL, none) for _ in range(10)][-1]) == 0

    async def test_a_refusal_is_seen_by_all(self, store: StateStore, second: StateStore, clock: SetClock) -> None:
        """A model without a known limit is paused too. Another process learns of it when its knowledge is old."""
        limits, other = ModelLimits(store, clock), ModelLimits(second, clock)
        await other.take(MODEL, none)
        await limits.pause(MODEL, 120)
        clock.advance(QUIET_S + 1)
        assert seconds(await other.take(MODEL, none)) == 120
        clock.advance(120)
        assert seconds(await other.take(MODEL, none)) == QUIET_S + 121

    async def test_a_failed_model_comes_last_for_a_while(
        self, store: StateStore, second: StateStore, clock: SetClock
    ) -> None:
        limits, other = ModelLimits(store, clock), ModelLimits(second, clock)
        await limits.avoid(["first"])
        for each in (limits, other):
            assert await each.order(["first", "second", "third"]) == ["second", "third", "first"]
        clock.advance(AVOIDED_S + 1)
        for each in (limits, other):
            assert await each.order(["first", "second", "third"]) == ["first", "second", "third"]
