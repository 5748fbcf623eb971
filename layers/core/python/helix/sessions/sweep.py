"""The sweep, which repairs runs that a crash or a lost event interrupted between their claim and their effects
(docs/protocol.md#sweep).

Law: the sweep only repairs open runs, which are in an index from their claim until their effects are done. The verbs
may do the same work before, after or at the same time. A run that waits in the queue, or whose session was written
recently, needs no check of its own: a few requests skip a whole page of such runs without asking the launcher. Each
sweep records when it ran and whether it found anything. This shows that the schedule still works, and whether the stage
is idle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence

from helix.core.delivery import Delivery, Position
from helix.core.errors import AgentNotFoundError, DamagedRowError, RunNotFoundError, StoreError
from helix.core.row_keys import stop_sort
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.engine.claims.timeouts import end_wait
from helix.engine.engine import Engine, logger
from helix.engine.history import DELETING, row_key, session_key
from helix.engine.runs.admission import launcher_of, part_of
from helix.engine.runs.ends import fail_run, finish_run
from helix.engine.runs.housekeeping import EXPIRY_PARTITIONS, fail_damaged
from helix.engine.runs.intake import begin_all, go_on, tidy, waiting_agents
from helix.engine.runs.parts import roll_over_silent
from helix.engine.verbs import end_late_child
from helix.engine.writing import commit, no_outcome_check
from helix.ports.state_store import Damaged, Delete, Row, Value
from helix.services.activity import note_sweep, read_beats
from helix.services.blob_rows import PARTITIONS as BLOB_PARTITIONS
from helix.services.open_runs import PARTITIONS, partition_name
from helix.services.paging import pages
from helix.services.slot_rows import Candidate, ticket_key
from helix.services.waits import read_waits
from helix.sessions.deletion import delete_session, expire_sessions


async def sweep(engine: Engine, delivery: Delivery) -> Counter[str]:
    """Check every open run once, or stop when the delivery's deadline is near. Return the count of each action.

    A run that cannot be checked now is logged and does not block the others. Unexpected errors are raised at the end.
    """
    done: Counter[str] = Counter()
    unexpected: list[Exception] = []
    line = await waiting_agents(engine)
    async for row, known in _open_rows(engine, line):
        if not delivery.may_act(engine.clock.now() + 5):
            done["left for the next sweep"] += 1
            break
        if not _is_sound(row):
            done["damaged"] += 1
            logger.error("sweep: the entry of run %s in the index of open runs cannot be read", row.key.sort)
            continue
        try:
            done[known or await _repair(engine, row, delivery)] += 1
        except (StoreError, AgentNotFoundError) as error:
            done["failed"] += 1
            logger.warning("sweep: run %s: %s", row.key.sort, error)
        except Exception as error:
            logger.exception("sweep: run %s: %s", row.key.sort, type(error).__name__)
            unexpected.append(error)
    try:  # even if time runs out: a queue that is too long for one sweep must still move
        done += await tidy(engine)
    except StoreError as error:
        done["failed"] += 1
        logger.warning("sweep: slots: %s", error)
    try:
        done["waits ended"] += await _end_waits(engine, delivery)
    except StoreError as error:
        done["failed"] += 1
        logger.warning("sweep: waits: %s", error)
    done = +(done + await _delete_due(engine, delivery))
    await note_sweep(engine.store, engine.clock.now(), bool(done or unexpected))
    if unexpected:
        raise unexpected[0]
    return done


async def _end_waits(engine: Engine, delivery: Delivery) -> int:
    """End the waits that are due, and start the runs that go on. Return the number of sessions."""
    ended = 0
    async for page in read_waits(engine.store, engine.clock.now()):
        for row in page:
            if not delivery.may_act(engine.clock.now() + 5):
                return ended
            try:
                await begin_all(engine, await end_wait(engine, row, delivery), delivery)
                ended += 1
            except (AgentNotFoundError, DamagedRowError) as error:
                logger.warning("sweep: the wait %s: %s", row.key.sort, error)
    return ended


async def _delete_due(engine: Engine, delivery: Delivery) -> Counter[str]:
    """Delete sessions that have expired and files that no session holds, in the partitions that have become due since
    the last sweep. Return the count of each."""
    done: Counter[str] = Counter()
    try:
        swept_at = (await read_beats(engine.store)).swept_at or 0
    except StoreError as error:
        logger.warning("sweep: the time of the last sweep cannot be read: %s", error)
        return Counter(failed=1)
    works = (("expired", _expire, EXPIRY_PARTITIONS), ("files deleted", _collect, BLOB_PARTITIONS))
    for action, work, count in works:
        try:
            for number in _due_partitions(swept_at, engine.clock.now(), count):
                done[action] += await work(engine, number, delivery)
        except StoreError as error:
            done["failed"] += 1
            logger.warning("sweep: %s: %s", action, error)
    return done


async def _expire(engine: Engine, number: int, delivery: Delivery) -> int:
    """Expire the sessions of a partition. Return the number of deleted sessions."""
    if engine.settings.session_ttl_s is None:
        return 0
    return (await expire_sessions(engine, number, delivery))[1]


async def _collect(engine: Engine, number: int, delivery: Delivery) -> int:
    """Delete the files of a partition that no session holds. Return the number of deleted files."""
    return 0 if engine.files is None else await engine.files.collector.collect_partition(number, delivery.deadline - 5)


def _due_partitions(swept_at: float, now: float, count: int) -> range:
    """Return the numbers of the partitions, out of `count`, that have become due since the last sweep. One becomes due
    per minute, so a sweep each minute reads one partition, and an hourly sweep reads all of them."""
    this, last = int(now // 60), int(swept_at // 60)
    return range(min(this, max(last + 1, this + 1 - count)), this + 1)


async def _open_rows(engine: Engine, line: Collection[str]) -> AsyncIterator[tuple[Row, str | None]]:
    """Yield the open runs, each with its state if that is already known. Each minute starts at a different partition,
    so that runs that one sweep has no time for come first in a later one."""
    first = int(engine.clock.now() // 60)
    for partition in range(first, first + PARTITIONS):
        async for rows in pages(engine.store, partition_name(partition % PARTITIONS)):
            before = engine.clock.now() - engine.settings.start_grace_s
            sound = [row for row in rows if _is_sound(row)]
            known = {row.key.sort: "young" for row in sound if row.value["started_at"] > before}
            known |= dict.fromkeys(await _keep_waiting(engine, sound, line) - known.keys(), "queued")
            known |= dict.fromkeys(await _move(engine, [row for row in sound if row.key.sort not in known]), "moves")
            for row in rows:
                yield row, known.get(row.key.sort)


async def _repair(engine: Engine, row: Row, delivery: Delivery) -> str:
    try:
        return await _repair_run(engine, row, delivery)
    except DamagedRowError as problem:
        return await _fail(engine, row, problem, delivery)


async def _repair_run(engine: Engine, row: Row, delivery: Delivery) -> str:
    session_id, run_id = row.value["session_id"], row.key.sort
    session = await engine.history.session(session_id)
    if session is not None and session.status == DELETING:
        await delete_session(engine, session_id)
        session = None
    try:
        run = None if session is None else await engine.history.run(session_id, run_id)
    except RunNotFoundError:
        run = None
    if session is None or run is None:
        await commit(engine, "drop_open_run", [Delete(row.key)], no_outcome_check)
        return "dropped"
    return await _reconcile(engine, session, run, row, delivery)


async def _fail(engine: Engine, row: Row, problem: DamagedRowError, delivery: Delivery) -> str:
    """End a run that has an unreadable row. A run that is no longer its session's current run has ended and does not
    need a sweep."""
    session_id, agent = row.value["session_id"], engine.agents(row.value["agent_type"])
    run_id = await fail_damaged(engine, agent.name, session_id, problem, row.key.sort)
    if run_id == row.key.sort:
        await begin_all(engine, await finish_run(engine, agent, session_id, run_id, delivery), delivery)
        return "failed run"
    if (session := await engine.history.session(session_id)) is None or session.run_id != row.key.sort:
        await commit(engine, "drop_open_run", [Delete(row.key)], no_outcome_check)
        return "dropped"
    raise problem


async def _keep_waiting(engine: Engine, rows: Sequence[Row], line: Collection[str]) -> set[str]:
    """Return the runs of a page that are still waiting, have not timed out, and were not asked to stop. `line` contains
    the agents with waiting runs."""
    now = engine.clock.now()
    candidates = [_candidate(row) for row in rows if row.value.get("agent_type") in line]
    tickets = await engine.store.get([ticket_key(run) for run in candidates]) if candidates else []
    waits = [ticket is not None and ticket["expires_at"] > now for ticket in tickets]
    runs = {run.run_id: run.session_id for run, keeps in zip(candidates, waits, strict=True) if keeps}
    stops = await engine.store.get([row_key(session_id, stop_sort(run_id)) for run_id, session_id in runs.items()])
    return {run_id for run_id, stop in zip(runs, stops, strict=True) if stop is None or stop.get("stop") is None}


def _candidate(row: Row) -> Candidate:
    """Return the queue candidate of an open run. Its index row has the claim time and priority, which identify the
    queue ticket."""
    value = row.value
    run = (value["agent_type"], row.key.sort, value["session_id"], value["started_at"])
    return Candidate(*run, priority=value.get("priority", 0))


async def _move(engine: Engine, rows: Sequence[Row]) -> set[str]:
    """Return the runs of a page that wrote their session recently, after their claim, which shows that they are being
    executed."""
    before = engine.clock.now() - engine.settings.start_grace_s
    try:
        sessions = await engine.store.get([session_key(row.value["session_id"]) for row in rows])
    except StoreError as error:
        logger.warning(
            "sweep: the sessions of a page of %d runs cannot be read together; checking the runs one by one: %s",
            len(rows),
            error,
        )
        return set()
    return {
        row.key.sort
        for row, session in zip(rows, sessions, strict=True)
        if session is not None and _moved(row, session, before)
    }


def _moved(row: Row, value: Value, before: float) -> bool:
    try:
        session = SessionRow.at(row.value["session_id"], value)
    except DamagedRowError:
        return False  # it gets a check of its own
    moved_at = max(before, row.value["started_at"])
    return (session.status, session.run_id) == ("running", row.key.sort) and session.updated_at > moved_at


def _is_sound(row: Row) -> bool:
    if isinstance(row.value, Damaged):
        return False
    return isinstance(row.value.get("started_at"), int | float) and isinstance(row.value.get("session_id"), str)


async def _reconcile(engine: Engine, session: SessionRow, run: RunRow, row: Row, delivery: Delivery) -> str:
    agent = engine.agents(run.agent_type)
    if run.status != "running" and run.effects == "done":
        await commit(engine, "drop_open_run", [Delete(row.key)], no_outcome_check)
        return "dropped"
    if run.status == "running" and session.lease_owner is not None:
        return "leased"
    part = part_of(engine, agent, run)
    state = await launcher_of(engine).state(part)
    if run.status != "running":
        ended_long_ago = (run.ended_at or 0) < engine.clock.now() - engine.settings.start_grace_s
        if state == "running" and not ended_long_ago:
            return "running"
        await begin_all(engine, await finish_run(engine, agent, session.session_id, run.run_id, delivery), delivery)
        return "finished"
    if await end_late_child(engine, agent, run, delivery):
        return "late"
    if state == "none":
        return await go_on(engine, agent, session, run, delivery)
    if state == "ended":
        logger.info("sweep: the execution of run %s has ended without it", run.run_id)
        claims = await fail_run(engine, agent, Position(session.session_id, run.run_id, part.part, 0), delivery)
        await begin_all(engine, claims, delivery)
        return "failed run"
    if engine.placement.replaces_silent_parts and await roll_over_silent(engine, agent, session, run):
        return "silent"
    return "running"
