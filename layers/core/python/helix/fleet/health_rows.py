"""The stored health: results by target and check, the time of the last `sweep`, and an operator's decision about readiness.

Rows of `control`: `health#<target>` / `<check>` is a `HealthResult`, `health` / `<target>` lists the targets. The app as a
whole is the target `app`. Its partition contains the row `ready` ({ready, reason, at}), in addition to the rows of
`services.activity`.

Law: a result is computed from the previous one, regardless of the process that wrote it, so two concurrent probes count as
two.
"""

from __future__ import annotations

from collections.abc import Callable

from helix.core.health import HealthResult
from helix.ports.clock import Clock
from helix.ports.state_store import ABSENT, Delete, Key, Operation, Put, StateStore, Value, When
from helix.services.activity import ACTIVITY, SWEEP, Beats
from helix.services.committing import refused

APP = "app"
READY = "ready"
OWN = (ACTIVITY.sort, SWEEP.sort, READY)


def result_key(target: str, check: str) -> Key:
    return Key("control", f"health#{target}", check)


def target_key(target: str) -> Key:
    return Key("control", "health", target)


async def save(
    store: StateStore, target: str, check: str, decide: Callable[[HealthResult | None], HealthResult]
) -> tuple[HealthResult | None, HealthResult]:
    """Replace the stored result with the one that `decide` computes from it. Returns the results before and after."""
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
    return [HealthResult.model_validate(row.value) for row in rows if row.key.sort not in OWN]


async def targets(store: StateStore) -> list[str]:
    return [row.key.sort for row in await store.query("control", "health")]


async def forget(store: StateStore, target: str, check: str | None) -> None:
    """Delete a check's result, or all of a target's. A target without results is no longer listed."""
    while True:
        (listed,) = await store.get([target_key(target)])  # read first, so that a newer result makes the deletions fail
        found = [result.check for result in await results(store, target)]
        gone = [name for name in found if check is None or name == check]
        operations: list[Operation] = [Delete(result_key(target, name)) for name in gone]
        if len(gone) == len(found) and listed is not None:
            operations.append(Delete(target_key(target), When(equal={"since": listed["since"]})))
        if not operations or await refused(store, "health_forget", operations) is None:
            return


async def set_ready(store: StateStore, clock: Clock, ready: bool, reason: str = "") -> None:
    """Store an operator's decision on whether the deployed app is ready. It overrides the derived state only if it is
    False."""
    value = {"ready": ready, "reason": reason, "at": clock.now()}
    await store.transact("health_ready", [Put(result_key(APP, READY), value)])


async def app_rows(store: StateStore) -> tuple[Beats, Value | None]:
    """Return the times of the stage's last activity and last sweep, and the row `ready`."""
    activity, sweep, ready = await store.get([ACTIVITY, SWEEP, result_key(APP, READY)])
    return Beats.of(activity, sweep), ready
