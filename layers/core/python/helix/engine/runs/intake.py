"""The path from a claim to an execution, a place in the queue, or a refusal (docs/protocol.md#claim-start).

Law: only a run that may work is started. A waiting run is in the index of open runs like any other, so the sweep
repairs it if a process dies between its claim and its end. A request to stop a waiting run ends it directly, because it
has no execution that could.
"""

from __future__ import annotations

from collections import Counter

from helix.core.agents import AnyAgent
from helix.core.delivery import Delivery
from helix.core.row_keys import run_sort
from helix.core.rows import ErrorInfo
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.engine.claims.claim import Claimed
from helix.engine.context import make_context
from helix.engine.engine import Engine, logger
from helix.engine.facts import MessagesAdded, RunBegan, RunClaimed, RunQueued
from helix.engine.history import row_key
from helix.engine.observers import record, show
from helix.engine.runs.admission import (
    admit_run,
    at_work_above,
    begin_again,
    begin_granted,
    candidate_of,
    launcher_of,
    leave_line,
    part_of,
    waiting_reason,
)
from helix.engine.runs.ends import finish_run
from helix.engine.steps.close import Ending, close_run, stop_run
from helix.engine.stops import read_stop
from helix.ports.state_store import Key
from helix.services import slot_rows
from helix.services.paging import pages
from helix.services.slot_rows import Admission, Candidate


async def begin(
    engine: Engine, agent: AnyAgent, claimed: Claimed, delivery: Delivery, *, attached: bool = False
) -> None:
    """Announce a run that was just claimed, and start its first execution once it may work. `attached`: the run is a
    sub-agent's, and its parent run begins it."""
    session, run = claimed.session, claimed.run
    context = make_context(engine, agent, session, run, delivery)
    show(context, RunClaimed(claimed))
    await context.stream.flush()
    admission = Admission("free") if attached else await admit_run(engine, agent, session, run)
    works = admission.state in ("free", "held")
    if works:
        await record(context, RunBegan(run))
    elif admission.waiting is not None:
        reason = waiting_reason(admission.stopped_by)
        show(context, RunQueued(admission.queued, admission.waiting.expires_at, reason))
    await record(context, MessagesAdded(claimed.plan.added, claimed.patches))
    await context.stream.close()
    if works:
        await launcher_of(engine).start(part_of(engine, agent, run))
    await _follow(engine, agent, session, run, admission, delivery)


async def begin_all(engine: Engine, claims: list[Claimed], delivery: Delivery) -> None:
    """Begin the runs of waiting parents that the end of a sub-agent has claimed."""
    for claimed in claims:
        await begin(engine, engine.agents(claimed.session.agent_type), claimed, delivery)


async def begin_attached(engine: Engine, agent: AnyAgent, session: SessionRow, run: RunRow) -> None:
    """Begin a run that its parent run waits for. Another worker may have claimed it, and it may wait for a slot of its
    own."""
    await leave_line(engine, run)
    await begin_again(engine, agent, session, run)


async def go_on(engine: Engine, agent: AnyAgent, session: SessionRow, run: RunRow, delivery: Delivery) -> str:
    """Finish what `begin` left incomplete, for a sweep that found a run without an execution. Return the action that
    was taken."""
    admission = await admit_run(engine, agent, session, run)
    if admission.state == "waits" and admission.waiting is None and await _parent_works(engine, session):
        admission = Admission("free")
    if admission.state in ("free", "held"):
        logger.info("sweep: run %s was claimed and never started", run.run_id)
        await begin_again(engine, agent, session, run)
    await _follow(engine, agent, session, run, admission, delivery)
    expired = admission.waiting is not None and admission.waiting.expires_at <= engine.clock.now()
    if expired and await _time_out(engine, agent, session, run, delivery):
        return "timed out"
    return {"free": "started", "held": "started", "waits": "queued", "full": "refused", "over": "over"}[admission.state]


async def stop_waiting(engine: Engine, session_id: str, run_id: str, delivery: Delivery) -> None:
    """End a waiting run after a stop record was put, because no execution will see the record. A worker that puts a
    ticket looks for the record afterwards, so one of the two always sees the other."""
    slots, session = engine.slots, await engine.history.session(session_id)
    if slots is None or session is None or session.run_id != run_id or session.status != "running":
        return
    agent = engine.agents(session.agent_type)
    run = await engine.history.run(session_id, run_id)
    stop = await read_stop(engine.store, session, run_id)
    if stop is None or not await slots.leave(candidate_of(run)):
        return  # it has a slot: its execution sees the record
    context = make_context(engine, agent, session, run, delivery)
    await stop_run(context, session, stop)
    await context.stream.close()
    await begin_all(engine, await finish_run(engine, agent, session_id, run_id, delivery), delivery)


async def set_limit(engine: Engine, agent_type: str | None, limit: int | None) -> None:
    """Set the limit of an agent, or of the account (`agent_type` None), and begin the runs that no longer need to wait.
    A limit of None restores the limit from the agent's definition; 0 admits no runs. Lowering the limit ends no
    runs."""
    assert engine.slots is not None, "this engine admits every run"
    await engine.slots.set_limit(agent_type, limit)
    await begin_granted(engine, await engine.slots.grant())


async def tidy(engine: Engine) -> Counter[str]:
    """Release leftover slots and tickets of runs whose session was deleted, or that another runtime finished. Give free
    slots to waiting runs. Return the numbers of released slots, released tickets and granted slots."""
    done: Counter[str] = Counter()
    if engine.slots is None:
        return done
    for name, counter in (await engine.slots.counters()).items():
        if name is None:
            continue
        counted = {slot_rows.slots(name): counter.running, slot_rows.tickets(name): counter.queued}
        for partition in [partition for partition, number in counted.items() if number]:
            async for rows in pages(engine.store, partition):
                known = [slot_rows.candidate(row.value) for row in rows]
                for run, value in zip(known, await engine.store.get([_run_key(run) for run in known]), strict=True):
                    if value is None or (value["status"] != "running" and value.get("effects") == "done"):
                        done["released"] += 1
                        await begin_granted(engine, await engine.slots.release(run))
    granted = await engine.slots.grant()
    await begin_granted(engine, granted)
    done["granted"] += len(granted)
    return +done


async def waiting_agents(engine: Engine) -> frozenset[str]:
    """Return the agents for which runs wait."""
    counters = await engine.slots.counters() if engine.slots is not None else {}
    return frozenset(name for name, counter in counters.items() if name is not None and counter.queued)


# --- inside -----------------------------------------------------------------------------------------------------------


async def _follow(
    engine: Engine, agent: AnyAgent, session: SessionRow, run: RunRow, admission: Admission, delivery: Delivery
) -> None:
    """Begin the runs to which the admission gave slots, and end this run if it may not wait or was stopped."""
    await begin_granted(engine, admission.granted)
    if admission.state == "waits":
        await stop_waiting(engine, session.session_id, run.run_id, delivery)
    elif admission.state == "full":
        message = f"agent {run.agent_type!r} is busy, and {admission.queued} runs wait for a slot: retry later"
        await _fail(engine, agent, session, run, ErrorInfo(code="queue_full", message=message), delivery)


async def _time_out(engine: Engine, agent: AnyAgent, session: SessionRow, run: RunRow, delivery: Delivery) -> bool:
    """End a run that waited too long, unless it has just been granted a slot or is already working."""
    assert engine.slots is not None
    if not await engine.slots.leave(candidate_of(run)):
        return False
    waited = engine.clock.now() - run.started_at
    message = (
        f"it waited {waited:.0f} s for a slot of agent {run.agent_type!r}, which is as long as it may: retry later"
    )
    return await _fail(engine, agent, session, run, ErrorInfo(code="queue_timeout", message=message), delivery)


async def _fail(
    engine: Engine, agent: AnyAgent, session: SessionRow, run: RunRow, error: ErrorInfo, delivery: Delivery
) -> bool:
    """Fail a run that has no execution. False if the session was written after it was read, which means that the run
    does have an execution."""
    context = make_context(engine, agent, session, run, delivery)
    ended = await close_run(context, session, Ending("failed", error=error))
    await context.stream.close()
    if ended is not None:
        claims = await finish_run(engine, agent, session.session_id, run.run_id, delivery)
        await begin_all(engine, claims, delivery)
    return ended is not None


async def _parent_works(engine: Engine, session: SessionRow) -> bool:
    """Return whether the topmost running ancestor has a running execution. Its slot does not show this, because a run
    that was started before there was a limit has no slot."""
    session = await at_work_above(engine, session) or session
    run = await engine.history.run(session.session_id, session.run_id)
    return await launcher_of(engine).state(part_of(engine, engine.agents(session.agent_type), run)) == "running"


def _run_key(run: Candidate) -> Key:
    return row_key(run.session_id, run_sort(run.run_id))
