"""Health in the store: results by target and check, when `sweep` last ran, and whether people let work in.

Rows of `control`: `health#<target>` / `<check>` is a `HealthResult`, `health` / `<target>` lists the targets. The app as a
whole is the target `app`: `sweep` ({at}) and `ready` ({ready, reason, at}) are rows of its partition.

Law: a result is built on the one before it, whichever process wrote that: two probes at once are counted as two.
"""

from __future__ import annotations

from collections.abc import Callable

from helix.core.health import HealthResult
from helix.ports.clock import Clock
from helix.ports.state_store import ABSENT, Delete, Key, Operation, Put, StateStore, Value, When
from helix.services.committing import refused
from helix.sessions.sweep import BEAT, SWEEP

APP = "app"
READY = "ready"
_OWN = (SWEEP, READY)


def result_key(target: str, check: str) -> Key:
    return Key("control", f"health#{target}", check)


def target_key(target: str) -> Key:
    return Key("control", "health", target)


async def save(
    store: StateStore, target: str, check: str, decide: Callable[[HealthResult | None], HealthResult]
) -> tuple[HealthResult | None, HealthResult]:
    """Write what `decide` makes of the stored result. Answers both: before and after."""
    key = result_key(target, check)
    while True:
        (stored,) = await store.get([key])
        before = None if stored is None else HealthResult.model_validate(stored)
        after = decide(before)
        seen = ABSENT if stored is None else When(equal={"checked_at": stored.get("checked_at")})
        listed: list[Operation] = [Put(target_key(target), {"since": after.checked_at})] if before is None else []
        operations = [Put(key, after.model_dump(mode="json"), seen), *listed]
        if await refused(store, "health_result", operations) is None:
            return before, after


async def results(store: StateStore, target: str) -> list[HealthResult]:
    rows = await store.query("control", f"health#{target}")
    return [HealthResult.model_validate(row.value) for row in rows if row.key.sort not in _OWN]


async def targets(store: StateStore) -> list[str]:
    return [row.key.sort for row in await store.query("control", "health")]


async def forget(store: StateStore, target: str, check: str | None) -> None:
    """Remove a check's result, or all of a target's. A target without results is listed no more."""
    while True:
        (listed,) = await store.get([target_key(target)])  # first: a result that is new since then refuses what follows
        found = [result.check for result in await results(store, target)]
        gone = [name for name in found if check is None or name == check]
        operations: list[Operation] = [Delete(result_key(target, name)) for name in gone]
        if len(gone) == len(found) and listed is not None:
            operations.append(Delete(target_key(target), When(equal={"since": listed["since"]})))
        if not operations or await refused(store, "health_forget", operations) is None:
            return


async def set_ready(store: StateStore, clock: Clock, ready: bool, reason: str = "") -> None:
    """A person's word on whether the deployed app takes work; it outweighs what is derived only where it says no."""
    value = {"ready": ready, "reason": reason, "at": clock.now()}
    await store.transact("health_ready", [Put(result_key(APP, READY), value)])


async def app_rows(store: StateStore) -> tuple[Value | None, Value | None]:
    """The rows `sweep` and `ready`."""
    sweep, ready = await store.get([BEAT, result_key(APP, READY)])
    return sweep, ready
