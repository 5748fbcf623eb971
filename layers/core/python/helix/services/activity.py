"""Two rows that show whether a deployed stage is idle.

Both are rows of `control`, in the partition `health#app`:

- `activity` has `at`, the time when the last run began, and `since`, the time when the stage last became active.
- `sweep` has `at`, the time of the last sweep, and `found_at`, the time when a sweep last found open work.

Law: a process writes `activity` before it claims a run. If that write is lost, the hourly sweep finds the run.
"""

from __future__ import annotations

from dataclasses import dataclass

from helix._log import get_logger
from helix.core.errors import StoreError
from helix.ports.clock import Clock
from helix.ports.state_store import Key, Put, StateStore, Update, Value, When
from helix.services.committing import refused

ACTIVITY, SWEEP = (Key("control", "health#app", name) for name in ("activity", "sweep"))
NOTE_S = 60.0
"""The minimum time between two writes of `activity` by one process."""
REST_S = 7_200.0
"""The time without work after which a stage is idle: limits, alarms and health have settled."""
LOOK_S = 3_600.0
"""The time between two sweeps of an idle stage."""
logger = get_logger("helix")


async def note_activity(store: StateStore, now: float) -> None:
    """Record that the stage is working now. Raises `StoreError`."""
    at_work = Update(ACTIVITY, set={"at": now}, when=When(at_least={"at": now - REST_S}))
    if await refused(store, "note_activity", [at_work]) is not None:
        await store.transact("note_activity", [Put(ACTIVITY, {"at": now, "since": now})])


class Activity:
    """The writer of `activity` for this process."""

    def __init__(self, store: StateStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._noted_at = float("-inf")

    async def note(self) -> None:
        """Record that the stage is working, unless this process has just done so. A failure is only logged, and the
        work continues."""
        now = self._clock.now()
        if now < self._noted_at + NOTE_S:
            return
        try:
            await note_activity(self._store, now)
        except StoreError as error:
            logger.warning("the stage's activity could not be recorded: %s", error)
        else:
            self._noted_at = now


@dataclass(frozen=True, slots=True)
class Beats:
    """The contents of both rows. Times are in Unix seconds."""

    swept_at: float | None = None
    """The time of the last sweep. None before the first sweep."""
    found_at: float = 0.0
    """The time when a sweep last found open work. 0 if none ever did."""
    worked_at: float = 0.0
    """The time when a run last began, accurate to a minute. 0 if no run ever did."""
    since: float = 0.0
    """The time when the stage last became active. 0 if it never was."""

    @classmethod
    def of(cls, activity: Value | None, sweep: Value | None) -> Beats:
        worked_at, since = (activity["at"], activity["since"]) if activity else (0.0, 0.0)
        if sweep is None:
            return cls(None, 0.0, worked_at, since)
        # The sweep of an older version did not record whether it had found anything.
        return cls(sweep["at"], sweep["found_at" if "found_at" in sweep else "at"], worked_at, since)

    def due_at(self, now: float) -> float:
        """Return the time of the next sweep. On an idle stage it is `LOOK_S` after the last sweep; otherwise it is in
        the past, so the sweep starts now."""
        if self.swept_at is None:
            return self.since or now
        rests = max(self.found_at, self.worked_at) < min(self.swept_at, now - REST_S)
        return self.swept_at + LOOK_S if rests else max(self.swept_at, self.since)


async def read_beats(store: StateStore) -> Beats:
    return Beats.of(*await store.get([ACTIVITY, SWEEP]))


async def note_sweep(store: StateStore, now: float, found: bool) -> None:
    """Record that a sweep ran. A failure is only logged, because the results of the sweep are already stored. A sweep
    that found nothing keeps the time at which another one did."""
    news = {"at": now, **({"found_at": now} if found else {})}
    again = Update(SWEEP, set=news, when=When(at_least={"found_at": 0}))
    try:
        if await refused(store, "note_sweep", [again]) is not None:  # no sweep has recorded `found_at` yet
            await store.transact("note_sweep", [Put(SWEEP, {"found_at": 0.0, **news})])
    except StoreError as error:
        logger.warning("the sweep's heartbeat could not be written: %s", error)
