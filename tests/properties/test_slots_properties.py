"""Random schedules of admissions, ends, limits and deaths (see `slots_machine`), and a proof that the machine finds
defects."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.properties.protocol_world import GatedStore
from tests.properties.slots_machine import SlotsMachine

from helix.ports.state_store import Check, Delete, Operation, Update
from helix.services import slot_changes, slot_shards
from helix.services.row_slots import RowSlots
from helix.services.slot_rows import Admission, Candidate

EXAMPLES = int(os.environ.get("HELIX_EXAMPLES") or 0)


@pytest.fixture
def shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use two or three shards where there would be one."""
    monkeypatch.setattr(slot_shards, "SLOTS_EACH", 1)
    monkeypatch.setattr(slot_shards, "LENT_AT_ONCE", 2)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_slots_hold_whatever_happens() -> None:
    hold(EXAMPLES or 12)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_slots_in_shards_hold_whatever_happens(shards: None) -> None:
    hold(EXAMPLES or 12)


def hold(examples: int) -> None:
    profile = settings(
        max_examples=examples,
        stateful_step_count=30,
        deadline=None,
        derandomize=not EXAMPLES,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    run_state_machine_as_test(SlotsMachine, settings=profile)


def test_slots_hold_in_a_crowd() -> None:
    for seed in range(EXAMPLES or 50):
        walk(seed)


def test_slots_in_shards_hold_in_a_crowd(shards: None) -> None:
    for seed in range(EXAMPLES or 50):
        walk(seed)


# --- defects that the checks must find --------------------------------------------------------------------------------


def walk(seed: int, machine: type[SlotsMachine] = SlotsMachine) -> None:
    """Play a few crowds, as the seed decides."""
    rng, made = Random(seed), machine()
    try:
        for _ in range(3):
            acts = [rng.randrange(6) for _ in range(rng.choice([2, 3]))]
            order = [(rng.randrange(4), rng.randint(1, 6)) for _ in range(8)]
            made.crowd(waiting=rng.randrange(2), acts=acts, order=order)
    finally:
        made.teardown()


def search(machine: type[SlotsMachine] = SlotsMachine) -> None:
    for seed in range(1000):
        walk(seed, machine)


class Unlooking(RowSlots):
    """Slots that write a ticket without checking whether the run may start."""

    async def _in_line(self, run: Candidate) -> Admission:
        return Admission("waits", await self.waiting(run))


class Silent(RowSlots):
    """Slots that look for no waiting run when a slot is released."""

    async def release(self, run: Candidate) -> list[Candidate]:
        self._looking = False
        return await super().release(run)

    async def _grant(self, agent_type: str | None, giver: str = "") -> list[Candidate]:
        return await super()._grant(agent_type, giver) if getattr(self, "_looking", True) else []


def without(name: str, hit: Callable[[Operation], bool]) -> Callable[..., Any]:
    """Remove the conditions of the matching operations from transactions of that name. A Check is left out."""

    def rewrite(told: str, operations: Sequence[Operation]) -> Sequence[Operation]:
        if told != name:
            return operations
        kept = [o for o in operations if not (isinstance(o, Check) and hit(o))]
        return [replace(o, when=None) if not isinstance(o, Check) and hit(o) else o for o in kept]

    return rewrite


REWRITES = {
    "slots beyond the limit": without("take_slot", lambda o: isinstance(o, Update) and o.key.sort != "account"),
    "grants beyond the limit": without("grant_slot", lambda o: isinstance(o, Update)),
    "slots for the dead": without("take_slot", lambda o: isinstance(o, Check) and o.key.table == "sessions"),
    "tickets for the dead": without("take_ticket", lambda o: isinstance(o, Check) and o.key.table == "sessions"),
    "a ticket beside a slot": without("take_ticket", lambda o: isinstance(o, Check) and o.key.table == "control"),
    "a slot that is given back twice": without("release_slot", lambda o: isinstance(o, Delete)),
    "a ticket that is granted twice": without("grant_slot", lambda o: isinstance(o, Delete)),
}


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", REWRITES)
def test_a_condition_that_is_left_out_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = GatedStore.transact

    async def transact(self: GatedStore, told: str, operations: Sequence[Operation]) -> None:
        await inner(self, told, REWRITES[name](told, operations))

    monkeypatch.setattr(GatedStore, "transact", transact)
    with pytest.raises(AssertionError):
        search()


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", [Unlooking, Silent])
def test_a_wake_up_that_is_lost_is_found(kind: type[RowSlots]) -> None:
    class Machine(SlotsMachine):
        def slots(self, store: Any) -> RowSlots:
            return kind(store, max_queue=4)

    with pytest.raises(AssertionError, match="no_lost_wakeup"):
        search(Machine)


@pytest.mark.timeout(0)
def test_a_line_that_is_passed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Newcomers check only the limit, and may start although others wait."""

    def room(known: Any, agent_type: str) -> bool:
        return bool(known[agent_type].has_room and known[None].has_room)

    monkeypatch.setattr(slot_changes, "open_to", room)
    inner = GatedStore.transact

    def blind(o: Operation) -> Operation:
        if not isinstance(o, Update) or o.when is None:
            return o
        return replace(o, when=replace(o.when, equal={k: v for k, v in o.when.equal.items() if k != "queued"}))

    async def transact(self: GatedStore, told: str, operations: Sequence[Operation]) -> None:
        await inner(self, told, [blind(o) for o in operations] if told == "take_slot" else operations)

    monkeypatch.setattr(GatedStore, "transact", transact)
    with pytest.raises(AssertionError, match="passed"):
        search()
