"""A launcher that stores executions as rows of any state store, for worker processes on one machine to claim.

    execution#<name>  execution    open or ended; `work` names its row in the index
    execution#<name>  token#...    a task token that was woken
    work              <time>#<name>    open executions, oldest first, each with its holder and lease
    work-ended        <time>#<name>    ended ones, until their runs are over

Law: one worker at a time holds an execution, under a lease. Every write of a worker to its execution is conditional on
this lease. The next holder learns which worker held it before (`Work.former`) and may have left claims in the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields

from helix.core.row_keys import SESSION, run_sort
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.ports.clock import Clock
from helix.ports.launcher import ExecutionState, Part, execution_name
from helix.ports.state_store import (
    ABSENT,
    Check,
    Delete,
    Key,
    Operation,
    Put,
    Row,
    StateStore,
    Update,
    Value,
    Watch,
    When,
)
from helix.services.committing import refused

OPEN = "work"
ENDED = "work-ended"
EXECUTION = "execution"
LEASE_S = 30.0
KEEP_S = 600.0
"""The time for which a run's execution is remembered after its end, so that a late duplicate start finds it."""
TTL_S = 86_400.0
"""The maximum time for which an ended execution is remembered, even if its run is not over."""
TRIMMED = 100


@dataclass(frozen=True, slots=True)
class Work:
    """An execution, as seen by its holder."""

    name: str
    """The name of the execution, which is derived from session, run and part."""
    sort: str
    """The sort key of its row in the index of open executions: its start time and its name."""
    part: Part
    """The part of the run that it executes."""
    agent_type: str
    """The agent of the session."""
    root: bool
    """Whether the run belongs to a root session rather than a sub-agent."""
    owner: str
    """The worker that holds the execution."""
    claims: int
    """The number of times that the execution has been claimed, including this time."""
    former: str | None
    """The worker that held the execution before. None for the first holder."""
    deaths: int
    """The number of holders that died while holding the execution, or because of it."""
    former_died: bool = False
    """Whether the former holder died while it held the execution. A silent holder whose lease expired counts as dead."""


@dataclass(frozen=True, slots=True)
class Signals:
    """The state of an execution that its holder checks."""

    open: bool
    """Whether the execution may continue. False once it has been stopped or has ended."""
    tokens: frozenset[str]
    """The tokens of the execution that were woken."""


class WorkQueue:
    """An implementation of `Launcher`. The other verbs are for workers and their supervisors. `lease_s` is the time
    after which a silent worker loses an execution."""

    def __init__(self, store: StateStore, clock: Clock, *, lease_s: float = LEASE_S) -> None:
        self.store, self.clock, self.lease_s = store, clock, lease_s

    # --- the launcher ---------------------------------------------------------------------------------------------

    async def start(self, part: Part) -> None:
        (value,) = await self.store.get([Key("sessions", part.session_id, SESSION)])
        if value is None:
            return  # the session was deleted in the meantime
        session = SessionRow.at(part.session_id, value)
        name, now = execution_name(part), self.clock.now()
        sort = f"{now:017.6f}#{name}"
        work = {"name": name, **asdict(part), "agent_type": session.agent_type, "root": session.parent is None}
        work |= {
            "owner": None,
            "former": None,
            "expires": 0,
            "claims": 0,
            "deaths": 0,
            "not_before": 0,
            "created_at": now,
        }
        first = Put(_execution(name), {"state": "open", "work": sort}, ABSENT)
        await self._commit("start_execution", [first, Put(Key("control", OPEN, sort), work)])

    async def state(self, part: Part) -> ExecutionState:
        (value,) = await self.store.get([_execution(execution_name(part))])
        return "none" if value is None else "running" if value["state"] == "open" else "ended"

    async def stop(self, part: Part, reason: str) -> None:
        name = execution_name(part)
        (value,) = await self.store.get([_execution(name)])
        if value is not None and value["state"] == "open":
            # If a worker ends the execution first, this write is refused, but the execution has still ended.
            await self._end(name, value["work"], part.session_id, part.run_id, reason, when=None)

    async def wake(self, token: str) -> None:
        name = token.rpartition("#")[0]
        waits = Check(_execution(name), When(equal={"state": "open"}))
        await self._commit("wake_execution", [waits, Put(Key("control", _partition(name), f"token#{token}"), {})])

    # --- for workers ----------------------------------------------------------------------------------------------

    @contextmanager
    def watch(self) -> Iterator[Watch]:
        """Watch for executions that are waiting for a worker."""
        with self.store.watch("control", OPEN) as watch:
            yield watch

    async def open_work(self) -> list[Row]:
        """Return all open executions, oldest first."""
        return await self.store.query("control", OPEN)

    def free(self, value: Value) -> bool:
        """Return whether no worker holds the execution, and it is not postponed."""
        now = self.clock.now()
        held = value["owner"] is not None and value["expires"] >= now
        return not held and bool(value["not_before"] <= now)

    async def claim(self, worker: str, wanted: Callable[[Value], bool]) -> Work | None:
        """Claim the oldest execution that is `wanted` and that no worker holds. A worker whose lease has expired does
        not hold it."""
        for row in await self.open_work():
            if self.free(row.value) and wanted(row.value):
                work = await self._claim(worker, row)
                if work is not None:
                    return work
        return None

    async def next_free(self) -> float | None:
        """Return the earliest time (Unix seconds) at which an execution that is now held or postponed can be claimed,
        if nothing else happens."""
        now, times = self.clock.now(), []
        for row in await self.open_work():
            until = row.value["expires"] if row.value["owner"] is not None else row.value["not_before"]
            times += [until] if until > now else []
        return min(times, default=None)

    async def renew(self, work: Work) -> bool:
        """Renew the lease, for `lease_s` from now. False if another worker holds the execution, or if it has ended."""
        expires = self.clock.now() + self.lease_s
        return await self._commit("renew_execution", [Update(_index(work), set={"expires": expires}, when=_held(work))])

    async def finish(self, work: Work) -> bool:
        """End the execution. False if another worker held it, or if it had ended."""
        part = work.part
        return await self._end(work.name, work.sort, part.session_id, part.run_id, None, when=_held(work))

    async def give_back(self, work: Work, *, not_before: float = 0) -> bool:
        """Return the execution to the queue, to be claimed at `not_before` (Unix seconds) or later. This worker must
        have stopped all work on it."""
        changes = {"owner": None, "expires": 0, "former": work.owner, "not_before": not_before}
        return await self._commit("give_back_execution", [Update(_index(work), set=changes, when=_held(work))])

    async def excuse(self, work: Work) -> bool:
        """Decrement the count of deaths, because the death of the former holder is counted elsewhere."""
        return await self._commit("excuse_execution", [Update(_index(work), add={"deaths": -1}, when=_held(work))])

    @contextmanager
    def signals_of(self, work: Work) -> Iterator[Watch]:
        """Watch for changes of the result of `signals`."""
        with self.store.watch("control", _partition(work.name)) as watch:
            yield watch

    async def signals(self, work: Work) -> Signals:
        rows = await self.store.query("control", _partition(work.name))
        values = {row.key.sort: row.value for row in rows}
        tokens = frozenset(sort.removeprefix("token#") for sort in values if sort.startswith("token#"))
        return Signals(values.get(EXECUTION, {}).get("state") == "open", tokens)

    async def forget_tokens(self, work: Work, tokens: Sequence[str]) -> None:
        """Delete tokens that the run no longer waits for, so that later reads of the signals are shorter."""
        gone = [Delete(Key("control", _partition(work.name), f"token#{token}")) for token in tokens]
        for first in range(0, len(gone), TRIMMED):
            await self._commit("forget_tokens", [*gone[first : first + TRIMMED]])

    # --- for supervisors of workers -------------------------------------------------------------------------------

    async def release_dead_worker(self, worker: str, *, died: bool, handed_over: bool = False) -> list[str]:
        """Immediately release the executions that an ended worker held, and return their names.

        `died`: the worker ended unexpectedly, so each of its executions counts one more death, once. That includes
        executions that it gave back while it was being stopped, unless it `handed_over` its work properly.
        """
        names = []
        for row in await self.open_work():
            value = row.value
            held = value["owner"] == worker
            gave_back = died and not handed_over and value["owner"] is None and value["former"] == worker
            reported = died and value.get("mourned") == worker  # an earlier call has already counted this death
            if not held and (not gave_back or reported):
                continue
            changes = {"owner": None, "expires": 0, "former": worker} | ({"mourned": worker} if died else {})
            seen = When(equal={name: value.get(name) for name in ("owner", "claims", "mourned")})
            counted = {"deaths": 1} if died and not reported else {}
            if await self._commit("release_execution", [Update(row.key, set=changes, add=counted, when=seen)]) and held:
                names.append(value["name"])
        return names

    async def trim(self, page: int = TRIMMED) -> int:
        """Forget executions that ended a while ago and whose runs are over, `page` at a time. Return their number."""
        now, forgotten, start = self.clock.now(), 0, ""
        while rows := await self.store.query("control", ENDED, start=start, end=f"{now - KEEP_S:017.6f}", limit=page):
            for row in rows:
                if row.value["ttl"] <= now or await self._over(row.value["session_id"], row.value["run_id"]):
                    await self._forget(row)
                    forgotten += 1
            start = rows[-1].key.sort + "\x00"
        return forgotten

    async def _forget(self, row: Row) -> None:
        """Delete the rows of an execution. Its row in the index is deleted last, because a repeat uses it to find the
        other rows."""
        rows = await self.store.query("control", _partition(row.value["name"]))
        gone: list[Operation] = [Delete(key) for key in [*(r.key for r in rows), row.key]]
        for first in range(0, len(gone), TRIMMED):
            await self.store.transact("forget_execution", gone[first : first + TRIMMED])

    # --- inside ---------------------------------------------------------------------------------------------------

    async def _claim(self, worker: str, row: Row) -> Work | None:
        value, now = row.value, self.clock.now()
        lapsed = value["owner"] is not None  # its holder is silent and counts as dead
        former = value["owner"] if lapsed else value["former"]
        deaths = value["deaths"] + (1 if lapsed else 0)
        seen = When(equal={"claims": value["claims"], "expires": value["expires"], "deaths": value["deaths"]})
        changes = {"owner": worker, "expires": now + self.lease_s, "former": former, "deaths": deaths}
        if not await self._commit("claim_execution", [Update(row.key, set=changes, add={"claims": 1}, when=seen)]):
            return None
        part = Part(**{field.name: value[field.name] for field in fields(Part)})
        agent_type, root, claims = value["agent_type"], value["root"], value["claims"] + 1
        died = lapsed or (former is not None and value.get("mourned") == former)
        return Work(value["name"], row.key.sort, part, agent_type, root, worker, claims, former, deaths, died)

    async def _end(
        self, name: str, sort: str, session_id: str, run_id: str, reason: str | None, *, when: When | None
    ) -> bool:
        now = self.clock.now()
        ended = {"state": "ended", "reason": reason, "ended_at": now, "ttl": int(now + TTL_S)}
        known = {"name": name, "session_id": session_id, "run_id": run_id, "ttl": int(now + TTL_S)}
        ops: list[Operation] = [
            Update(_execution(name), set=ended, when=When(equal={"state": "open"})),
            Delete(Key("control", OPEN, sort), when),
            Put(Key("control", ENDED, f"{now:017.6f}#{name}"), known),
        ]
        return await self._commit("end_execution", ops)

    async def _over(self, session_id: str, run_id: str) -> bool:
        (value,) = await self.store.get([Key("sessions", session_id, run_sort(run_id))])
        if value is None:
            return True
        run = RunRow.at(session_id, run_sort(run_id), value)
        return run.status != "running" and run.effects == "done"

    async def _commit(self, name: str, operations: list[Operation]) -> bool:
        return await refused(self.store, name, operations) is None


def _partition(name: str) -> str:
    return f"execution#{name}"


def _execution(name: str) -> Key:
    return Key("control", _partition(name), EXECUTION)


def _index(work: Work) -> Key:
    return Key("control", OPEN, work.sort)


def _held(work: Work) -> When:
    return When(equal={"owner": work.owner, "claims": work.claims})
