"""The shards of a usage counter are one counter to its readers."""

from __future__ import annotations

from typing import Any

from helix import MemoryStateStore
from helix.core.usage import Usage
from helix.core.usage_parts import Share
from helix.ports.state_store import Key, Operation, Put
from helix.services.usage_counters import HOUR_SHARDS, SHARDS, Counters, read_counts, read_scopes, read_totals
from helix.testing.clocks import SetClock

NOW = 1_750_000_000.0
USED = [Share("m", "completion", Usage(prompt_tokens=7, calls=1))]
WHOSE: dict[str, Any] = {"agent": "a", "tenant": "t"}


def guard(session: str) -> list[Operation]:
    return [Put(Key("sessions", session, "r"), {"effects": "done"})]


async def rows(store: MemoryStateStore, start: str) -> int:
    return len(await store.query("control", "usage#agent:a", start=start, end=start + "$"))


async def test_processes_add_to_different_shards_and_readers_sum_them() -> None:
    store, clock = MemoryStateStore(), SetClock(NOW)
    processes = [Counters(store, clock, shards=SHARDS) for _ in range(200)]
    for hour in range(2):
        for n, process in enumerate(processes):
            assert await process.count("end", guard(f"s{n}"), USED, at=NOW + 3600 * hour, **WHOSE) is None
    assert await rows(store, "total") == SHARDS and await rows(store, "2025-06-15T15") == HOUR_SHARDS
    for scope in ("agent:a", "tenant:t"):
        (total,) = await read_totals(store, scope)
        assert (total.calls, total.input) == (400, 2800)
        assert [(count.hour, count.calls) for count in await read_counts(store, scope)] == [
            ("2025-06-15T15", 200),
            ("2025-06-15T16", 200),
        ]
    assert await read_scopes(store) == ["agent:a", "tenant:t"]


async def test_a_counter_of_an_older_version_is_the_first_shard() -> None:
    """It has one row, which keeps counting and is part of the sum."""
    store, clock = MemoryStateStore(), SetClock(NOW)
    await Counters(store, clock).count("old", guard("s"), USED, at=NOW - 3600, **WHOSE)
    assert [row.key.sort for row in await store.query("control", "usage#agent:a")] == ["total#m#completion"]
    for n in range(100):
        await Counters(store, clock, shards=SHARDS).count("new", guard(f"s{n}"), USED, at=NOW, **WHOSE)
    assert [(count.hour, count.calls) for count in await read_counts(store, "agent:a")] == [
        ("2025-06-15T14", 1),
        ("2025-06-15T15", 100),
    ]
    (total,) = await read_totals(store, "agent:a")
    assert total.calls == 101
