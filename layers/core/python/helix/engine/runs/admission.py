"""Admission: decides which runs work and which wait, and starts executions (docs/protocol.md#slots).

Law: a run holds a slot from before its execution starts until it has ended, unless no limit applies to it. A slot is
granted only while the run is running, and reclaimed only when the run has ended, however long it was silent. A
sub-agent works in the slot of an ancestor's run. It asks for a slot only if none of its ancestors is at work, so a tree
of agents cannot deadlock.

The claim is durable before anything is announced or started, and every step between the claim and the execution may be
repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from helix.core.agents import AnyAgent
from helix.core.errors import AgentNotFoundError, QueueFullError, RunNotFoundError, SessionNotFoundError, StoreError
from helix.core.resources import profile_digest
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.core.status import ClaimMode
from helix.engine.claims.missed import read_missed
from helix.engine.context import make_context
from helix.engine.engine import Engine, logger
from helix.engine.facts import CommitsMissed, RunAdmitted, RunBegan
from helix.engine.history import History, session_key
from helix.engine.observers import record, show
from helix.engine.writing import TRIES, held_by_run
from helix.ports.launcher import Launcher, Part
from helix.ports.state_store import Check, Damaged
from helix.services.open_runs import PARTITIONS, partition_name
from helix.services.paging import pages
from helix.services.row_slots import RowSlots
from helix.services.slot_rows import Admission, Candidate, counter_key, ticket_key

T = TypeVar("T")


class InLine(NamedTuple):
    """The place of a waiting run in the queue for a slot."""

    place: int
    """The position in its agent's queue. Position 1 is next."""
    expires_at: float
    """The time (Unix seconds) after which the run has waited too long."""
    reason: str | None = None
    """The reason why no run of the agent can start, if a budget stopped the agent. None: all slots are taken."""


GOING_ON: Final[frozenset[ClaimMode]] = frozenset({"continue", "with_confirmation", "takeover"})
"""The modes of claims that continue an admitted run. They are never refused because a queue is full."""
FREE = Admission("free")
COUNTED_AT_ONCE = 1_000


def candidate_of(run: RunRow) -> Candidate:
    return Candidate(run.agent_type, run.run_id, run.session_id, run.started_at, run.priority)


def default_limit(agent: AnyAgent) -> int | None:
    """Return the concurrency limit from the agent's definition, or None if it does not ask for resources."""
    found = agent.resources.get("max_instances")
    return found if isinstance(found, int) else None


async def check_room(engine: Engine, agent: AnyAgent, mode: ClaimMode, session_id: str | None) -> None:
    """Raise `QueueFullError` before a claim whose run could neither work nor wait. Nothing is written. If the session
    is already running, the claim itself refuses it."""
    if engine.slots is None or mode in GOING_ON:
        return
    counter = await engine.slots.full(agent.name, default=default_limit(agent))
    if counter is not None:
        session = await engine.history.session(session_id) if session_id is not None else None
        if session is None or session.status != "running":
            raise QueueFullError(agent.name, counter.queued, counter.max_queue or 0)


async def admit_run(engine: Engine, agent: AnyAgent, session: SessionRow, run: RunRow) -> Admission:
    """Return what the claimed run may do now. `waits` without a ticket: an ancestor's run waits for a slot, and begins
    this run once it works."""
    slots = engine.slots
    if slots is None:
        return FREE
    above = await at_work_above(engine, session)
    if above is not None:
        return FREE if await _works(engine, slots, above) else Admission("waits")
    alive = Check(session_key(session.session_id), held_by_run(run.run_id))
    bounded = session.parent is None and run.mode not in GOING_ON
    return await _insist(
        engine,
        lambda: slots.admit(candidate_of(run), default=default_limit(agent), alive=alive, bounded=bounded),
    )


async def release_run(engine: Engine, run: RunRow) -> list[Candidate]:
    """Release the slot or ticket of the ended run. Return the runs that got a slot, which the caller must begin."""
    slots = engine.slots
    if slots is None:
        return []
    return await _insist(engine, lambda: slots.release(candidate_of(run)))


async def leave_line(engine: Engine, run: RunRow) -> None:
    """Drop the ticket of a run whose execution its parent run has started."""
    if engine.slots is not None:
        await engine.slots.leave(candidate_of(run))


async def in_line(slots: RowSlots | None, history: History, session_id: str, run_id: str) -> InLine | None:
    """Return the place of the run, if it waits for a slot with a ticket of its own. Only the tickets ahead of it are
    read."""
    if slots is None:
        return None
    candidate = candidate_of(await history.run(session_id, run_id))
    if (ticket := await slots.waiting(candidate)) is None:
        return None
    place, own = 1, ticket_key(candidate)
    async for rows in pages(history.store, own.partition, end=own.sort):
        place += len(rows)
    (counter,) = await history.store.get([counter_key(candidate.agent_type)])
    return InLine(place, ticket.expires_at, waiting_reason((counter or {}).get("stopped_by")))


def waiting_reason(stopped_by: str | None) -> str | None:
    return None if stopped_by is None else f"stopped by {stopped_by}"


async def gauges(engine: Engine) -> dict[str | None, dict[str, float]]:
    """Return QueueDepth, RunsActive and, if there is a limit, ConcurrencyLimit by agent type, with the values for all
    agents under None. Runs of agents without a limit are counted from the index of open runs, which includes
    sub-agents."""
    counters = await engine.slots.counters() if engine.slots is not None else {}
    found: dict[str | None, dict[str, float]] = {None: {"QueueDepth": 0, "RunsActive": 0}}
    for number in range(PARTITIONS):
        async for rows in pages(engine.store, partition_name(number), limit=COUNTED_AT_ONCE):
            for row in rows:
                name = None if isinstance(row.value, Damaged) else row.value.get("agent_type")
                if isinstance(name, str):  # one damaged row must not hide the others
                    found.setdefault(name, {"QueueDepth": 0, "RunsActive": 0})["RunsActive"] += 1
    for name, counter in counters.items():
        own_ = found.setdefault(name, {"QueueDepth": 0, "RunsActive": 0})
        if counter.bound is not None:
            own_ |= {"ConcurrencyLimit": counter.bound}
        if name is not None:
            own_["QueueDepth"] = counter.queued
            if counter.bound is not None:
                own_["RunsActive"] = counter.running
    each = [values for name, values in found.items() if name is not None]
    for what in ("QueueDepth", "RunsActive"):
        found[None][what] = sum(values[what] for values in each)
    return found


async def at_work_above(engine: Engine, session: SessionRow) -> SessionRow | None:
    """Return the topmost ancestor of this session, if all sessions between the two are running."""
    top = None
    while session.parent is not None:
        above = await engine.history.session(session.parent.session_id)
        if above is None or above.status != "running":
            break
        top = session = above
    return top


async def _works(engine: Engine, slots: RowSlots, session: SessionRow) -> bool:
    """Return whether the session's run has a slot, or needs none."""
    counters = await slots.counters()
    limited = [
        c for c in (counters.get(session.agent_type), counters.get(None)) if c is not None and c.bound is not None
    ]
    return not limited or await slots.holds(candidate_of(await engine.history.run(session.session_id, session.run_id)))


async def _insist(engine: Engine, verb: Callable[[], Awaitable[T]]) -> T:
    """Repeat the verb until the store responds. All verbs may be repeated. If only the response was lost, a repeat
    finds what was written."""
    for attempt in range(TRIES - 1):
        try:
            return await verb()
        except StoreError:
            await engine.clock.sleep(0.05 * 2**attempt)
    return await verb()


def launcher_of(engine: Engine) -> Launcher:
    assert engine.launcher is not None, "this engine executes runs in its own process"
    return engine.launcher


def part_of(engine: Engine, agent: AnyAgent, run: RunRow) -> Part:
    """Return the current execution of the run of a session of `agent`."""
    with suppress(AgentNotFoundError):  # it was removed: any functions can end the run
        agent = engine.find_agent(agent, run.part_agent)
    return Part(profile_of(engine, agent), run.session_id, run.run_id, run.part, run.part_step or run.first_step)


def profile_of(engine: Engine, agent: AnyAgent) -> str:
    """Return the name of the resource profile whose functions execute the agent."""
    own = engine.settings.own_profiles
    return agent.name if own and profile_digest(agent.name) in own else agent.profile


async def begin_again(engine: Engine, agent: AnyAgent, session: SessionRow, run: RunRow) -> None:
    """Start a claimed run that may not have been announced or started. The stream drops records that it already has."""
    context = make_context(engine, agent, session, run)
    missed = await read_missed(engine, session.session_id, session.checkpoint)
    show(context, CommitsMissed(missed, begins=True, last=session.last))
    await record(context, RunBegan(run))
    await context.stream.close()
    await launcher_of(engine).start(part_of(engine, agent, run))


async def begin_granted(engine: Engine, granted: Sequence[Candidate]) -> None:
    """Start the runs that waited and now have a slot, in order. A run that cannot be started here is left to a sweep.
    If a run has ended, its own end passes on the slot."""
    for heir in granted:
        try:
            session = await engine.history.session(heir.session_id)
            if session is None or session.run_id != heir.run_id or session.status != "running":
                continue
            run = await engine.history.run(heir.session_id, heir.run_id)
            agent = engine.agents(heir.agent_type)
            show(make_context(engine, agent, session, run), RunAdmitted(run, heir.order))
            await begin_again(engine, agent, session, run)
        except (StoreError, AgentNotFoundError, RunNotFoundError, SessionNotFoundError) as error:
            logger.warning("run %s has a slot but was not started, so the next sweep starts it: %s", heir.run_id, error)
