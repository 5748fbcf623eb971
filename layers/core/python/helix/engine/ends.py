"""Ends: effects, abort, interrupt, and runs whose process died (PROTOCOL 7).

Law: `finish_run` depends on the run row, not on who set it; repeating any part of it changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from helix.core.agents import AnyAgent
from helix.core.claiming import lapsed
from helix.core.errors import InvalidInputError
from helix.core.json import text_size
from helix.core.row_keys import stop_sort
from helix.core.rows import ErrorInfo, RunRow, SessionRow, StopRow
from helix.core.status import ENDS
from helix.engine.admission import release_run
from helix.engine.announcing import announce_end, announce_untold
from helix.engine.children import tell
from helix.engine.claims import CRASHED, Claimed, ClaimInput
from helix.engine.delivery import Delivery
from helix.engine.engine import Engine, logger
from helix.engine.history import row_key, session_key
from helix.engine.launching import begin_granted
from helix.engine.measuring import measure_end
from helix.engine.money import return_draws
from helix.engine.open_runs import open_run_key
from helix.engine.parts import part_of
from helix.engine.run_hooks import end_hook
from helix.engine.run_stream import RunStream
from helix.engine.spanning import tell_run
from helix.engine.tokens import wake_waiting
from helix.engine.untold import read_untold
from helix.engine.usage_rows import close_effects
from helix.engine.writing import advance, commit, end, session_put
from helix.ports.state_store import ABSENT, Check, Delete, Operation, Put, When

SWEPT_RUNS = 5
MAX_REASON_BYTES = 8_000
KEEPING = ("continue", "with_confirmation", "takeover")


async def finish_run(
    engine: Engine,
    agent: AnyAgent,
    session_id: str,
    run_id: str,
    delivery: Delivery,
    stream: RunStream | None = None,
) -> list[Claimed]:
    """The effects of an ended run, each at most once. Returns the runs that were claimed by telling a parent."""
    run = await engine.history.run(session_id, run_id)
    session = await engine.history.session(session_id)
    if run.status == "running" or run.effects == "done" or session is None:
        return []
    if run.error is not None and run.error.code == "aborted" and session.run_id == run_id:
        await _abort_children(engine, agent, session, run.reason, delivery)
    await return_draws(engine, session, run)
    claimed = await tell(engine, session, run, delivery)
    out = stream or RunStream(engine.streams, engine.clock, session, run_id, run.turn)
    if stream is None and session.run_id == run_id:  # its worker may have died before it told its last commit
        untold = await read_untold(engine, session_id, run.checkpoint or "")
        if untold is not None:
            # The stream may not know this turn yet: it begins with what was staged last, or the stream forgets that.
            out.put("run", mark="started", last=run.last)
            announce_untold(out, untold)
    announce_end(out, run)
    await out.close()
    await begin_granted(engine, await release_run(engine, run))  # before hooks: one may send the next message
    await end_hook(engine, agent, session, run)
    tell_run(engine, session, run)
    if session.run_id == run_id:
        await wake_waiting(engine, session_id)
    done: list[Operation] = [Delete(open_run_key(run_id))] if engine.launcher is not None else []
    if await close_effects(engine, session, run, done):
        measure_end(engine, session, run)
    return [claimed] if claimed is not None else []


async def _no() -> bool:
    return False


async def interrupt(engine: Engine, session_id: str, run_id: str | None, reason: str | None) -> bool:
    """Ask the run (default: the current one) to stop at the next point. False if it is not running; never hits the next."""
    session = await engine.history.existing(session_id)
    target = run_id or session.run_id
    return await put_stop(
        engine, session_id, StopRow(run_id=target, stop="interrupt", reason=reason, created_at=engine.clock.now())
    )


async def put_stop(engine: Engine, session_id: str, stop: StopRow) -> bool:
    """Record the stop, if its run is running. False: it is not."""
    if stop.reason is not None and (n := text_size(stop.reason)) > MAX_REASON_BYTES:
        raise InvalidInputError(f"reason has {n} bytes; the limit is {MAX_REASON_BYTES}")
    key = row_key(session_id, stop_sort(stop.run_id))
    running = Check(session_key(session_id), When(equal={"run_id": stop.run_id, "status": "running"}))
    value = {"kind": "stop", **stop.dump()}
    when = ABSENT if stop.stop == "interrupt" else None

    async def written() -> bool:
        (row,) = await engine.store.get([key])
        return row is not None

    if await commit(engine, f"stop_{stop.stop}", [running, Put(key, value, when)], written):
        return True
    session = await engine.history.existing(session_id)
    return session.run_id == stop.run_id and session.status == "running" and await written()


async def abort(
    engine: Engine,
    agent: AnyAgent,
    session_id: str,
    reason: str | None,
    delivery: Delivery,
    *,
    run_id: str | None = None,
) -> list[Claimed]:
    """Fail the running session for good, its sub-agents too. Idempotent; one that does not run stays as it is, and so
    does one that runs another run than `run_id`."""
    while True:
        session = await engine.history.existing(session_id)
        if session.status != "running" or (run_id is not None and session.run_id != run_id):
            return []
        now = engine.clock.now()
        stop = StopRow(run_id=session.run_id, stop="abort", reason=reason, created_at=now)
        if not await put_stop(engine, session_id, stop):
            continue
        new = advance(session, now, aborted=True, abort_reason=reason)
        error = ErrorInfo(code="aborted", message=reason or "aborted", recoverable=False)
        ended = end(new, "failed", now, error=error, reason=reason)
        seen = When(equal={"status": "running", "version": session.version, "run_id": session.run_id})
        if await commit(engine, "abort", [session_put(new, seen), ended], lambda: _aborted(engine, session_id)):
            break
    if engine.launcher is not None and session.parent is None:  # a sub-agent's ends by itself, at its next delivery
        run = await engine.history.run(session_id, session.run_id)
        await engine.launcher.stop(part_of(agent, run), reason or "aborted")
    return await finish_run(engine, agent, session_id, session.run_id, delivery)


async def _abort_children(
    engine: Engine, agent: AnyAgent, session: SessionRow, reason: str | None, delivery: Delivery
) -> None:
    """Sub-agents at work in the open step end with it. No more of them can start: their claims need a running parent."""
    rows = await engine.history.open_rows(session)
    for row in rows.calls if rows is not None else ():
        if row is not None and row.child is not None and row.state == "claimed":
            child_agent = agent.find_agent(row.child.agent_type) or engine.agents(row.child.agent_type)
            if await engine.history.session(row.child.session_id) is not None:
                await abort(engine, child_agent, row.child.session_id, reason, delivery)
                # it may have ended before, under a worker that died before its effects
                await sweep_session(engine, child_agent, row.child.session_id, delivery)


async def _aborted(engine: Engine, session_id: str) -> bool:
    session = await engine.history.session(session_id)
    return session is not None and session.aborted


async def fail_lapsed(engine: Engine, agent: AnyAgent, session_id: str, delivery: Delivery) -> bool:
    """Fail a run whose worker's lease has lapsed, so that the session can be claimed in any mode. False if it is alive."""
    session = await engine.history.existing(session_id)
    now = engine.clock.now()
    if not lapsed(session, now):
        return False
    new = advance(session, now)
    ended = end(new, "failed", now, error=CRASHED)
    seen = When(
        equal={"status": "running", "version": session.version, "run_id": session.run_id}, below={"lease_expires": now}
    )
    if not await commit(
        engine, "fail_run", [session_put(new, seen), ended], lambda: _crashed(engine, session_id, session.run_id)
    ):
        return False
    await finish_run(engine, agent, session_id, session.run_id, delivery)
    return True


async def fail_run(
    engine: Engine, agent: AnyAgent, session_id: str, run_id: str, part: int, delivery: Delivery, *, cause: str = ""
) -> list[Claimed]:
    """An execution of the run has ended, and the run may not have. An old part's end never fails the run that its next
    part executes: that one is started, which is harmless if it was. Returns the runs claimed by telling a parent."""
    while True:
        run = await engine.history.run(session_id, run_id)
        if run.part > part and run.status == "running":
            assert engine.launcher is not None
            await engine.launcher.start(part_of(agent, run))
            return []
        session = await engine.history.session(session_id)
        if session is None or session.run_id != run_id or session.status != "running":
            return await finish_run(engine, agent, session_id, run_id, delivery)
        now = engine.clock.now()
        new = advance(session, now)
        error = CRASHED.model_copy(update={"message": f"{CRASHED.message}: {cause}"}) if cause else CRASHED
        ended = end(new, "failed", now, error=error)
        ended = replace(ended, when=When(equal={"part": run.part if run.part > 1 else None}))
        seen = When(equal={"status": "running", "version": session.version, "run_id": run_id})
        if await commit(
            engine, "fail_run", [session_put(new, seen), ended], lambda: _crashed(engine, session_id, run_id)
        ):
            return await finish_run(engine, agent, session_id, run_id, delivery)


async def _crashed(engine: Engine, session_id: str, run_id: str) -> bool:
    run = await engine.history.run(session_id, run_id)
    return run.status == "failed"


async def sweep_session(
    engine: Engine, agent: AnyAgent, session_id: str, delivery: Delivery, *, limit: int | None = SWEPT_RUNS
) -> list[Claimed]:
    """Complete the effects of ended runs whose finisher died (PROTOCOL 8; in process: whoever opens the session). `limit`
    is how many of the newest runs are looked at; None means all, which finds what several dead processes left."""
    claimed: list[Claimed] = []
    rows = await engine.store.query("sessions", session_id, start="r#", end="r$", limit=limit, reverse=True)
    for row in rows:
        run = RunRow.model_validate(row.value)
        if run.status != "running" and run.effects == "open":
            logger.info("completing the effects of run %s", run.run_id)
            claimed.extend(await finish_run(engine, agent, session_id, run.run_id, delivery))
        elif run.status != "running" and (known := await engine.history.session(session_id)) is not None:
            await return_draws(engine, known, run)  # a zombie may have drawn after the effects
    session = await engine.history.session(session_id)
    open_rows = (
        await engine.history.open_rows(session) if session is not None and session.status != "deleting" else None
    )
    for call in open_rows.calls if open_rows is not None else ():
        if call is not None and call.child is not None and call.by == "child":  # it told, and may not have come further
            child_agent = agent.find_agent(call.child.agent_type) or engine.agents(call.child.agent_type)
            claimed.extend(await sweep_session(engine, child_agent, call.child.session_id, delivery))
    return claimed


async def leave_children(engine: Engine, agent: AnyAgent, session_id: str, ask: ClaimInput, delivery: Delivery) -> None:
    """Before a claim that leaves the open step behind: sub-agents that still run in it are aborted, since nobody will
    ever ask for their result. The session itself must not be running."""
    session = await engine.history.session(session_id)
    kept = ask.mode in KEEPING or (ask.mode == "retry" and not ask.message)
    if session is not None and session.status in ENDS and not kept:
        await _abort_children(engine, agent, session, "its parent went on without it", delivery)
