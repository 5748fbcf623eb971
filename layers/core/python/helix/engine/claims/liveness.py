"""The liveness of workers, and the cleanup after dead copies (docs/protocol.md#alive).

Law: a claim holds until its deadline. Its holder extends the deadline after a third of the claim's duration, with one
conditional update that does not bump the version. A holder that cannot extend it in time stops its work. Any worker
that sees an expired deadline may take over the work.

A supervisor that sees a worker die expires the worker's claims at once. An expired claim is treated like any other dead
attempt: its reservation counts as spent, and the outcome of its tool is unknown. Each expiry is one conditional write,
so a worker that turns out to be alive is refused at its next write.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from helix.core.entries import CallRow
from helix.core.errors import (
    AccessDeniedError,
    ConditionFailedError,
    SessionExistsError,
    StoreError,
    WorkInProgressError,
)
from helix.core.session_row import SessionRow
from helix.engine.context import RunContext
from helix.engine.engine import Engine, logger
from helix.engine.history import DELETING, call_key, row_key, session_key
from helix.engine.writing import advance, as_read, at_version, commit, no_outcome_check, session_put
from helix.ports.state_store import ABSENT, HEARTBEAT, Check, Delete, Key, Operation, Put, Update, Watch, When

RETRY_S = 1.0
RELEASE_S = 2.0
"""The number of seconds that a failing block waits for its claim to be released."""
DEAD = 0.0
"""The deadline of a claim that was released by its holder or expired by another process. No worker can act under it."""


class LostClaimError(StoreError):
    """Another worker holds the claim, or the session was deleted or aborted."""

    code = "lost_claim"

    def __init__(self, what: str) -> None:
        super().__init__(f"this worker no longer holds {what}")


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim that a worker holds, with the functions that read and move its deadline."""

    what: str
    """The name of the claimed work in logs and errors, such as `run 'run_1_...'`."""
    deadline: Callable[[], float]
    """A function that returns the claim's current deadline in Unix seconds, or infinity while nothing is held."""
    move: Callable[[float], Awaitable[bool]]
    """A function that sets the deadline (Unix seconds). A deadline in the past releases the claim. False: the claim is
    lost."""


class HeldClaim:
    """`async with HeldClaim(engine, claim):` keeps the claim while the block runs. When the claim is lost, the block is
    cancelled and `LostClaimError` is raised, or `AccessDeniedError` if this worker may not renew it. When the block
    fails, the claim is released at once."""

    def __init__(self, engine: Engine, claim: Claim) -> None:
        self._engine, self._claim = engine, claim
        self._lost = False
        self._denied: AccessDeniedError | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        main = asyncio.current_task()
        assert main is not None
        self._main, self._cancels = main, main.cancelling()
        self._loop = asyncio.get_running_loop()
        # Most blocks end before their claim needs to be renewed, and a timer is cheaper than a task.
        self._timer = self._loop.call_later(_until_due(self._engine, self._claim), self._begin)

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._renew())

    async def _renew(self) -> None:
        """Renew the claim while the block runs. Cancel the block once the claim is lost."""
        try:
            while await _renewed(self._engine, self._claim):
                pass
        except AccessDeniedError as error:
            self._denied = error
        except Exception:
            logger.exception("the claim of %s cannot be renewed", self._claim.what)
        self._lost = True
        self._main.cancel()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._end()
        try:
            if self._lost and isinstance(error, asyncio.CancelledError):
                self._raise_lost()
            elif not self._lost and isinstance(error, asyncio.CancelledError | Exception):
                await release(self._engine, self._claim)
        finally:
            await self._ended()

    def _end(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _raise_lost(self) -> None:
        """Raise the error that replaces the cancellation that ended the block, unless the task was also cancelled for
        another reason."""
        self._lost = False
        logger.warning("this worker no longer holds %s; stopping", self._claim.what)
        if self._main.uncancel() > self._cancels:  # cancelled by another claim of this task, or by its caller
            return
        raise self._denied or LostClaimError(self._claim.what) from None

    async def _ended(self) -> None:
        try:
            if self._task is not None:
                await asyncio.wait({self._task})
        except asyncio.CancelledError:
            if not self._lost or self._main.cancelling() > self._cancels + 1:  # by the caller, not by `_renew`
                raise
        finally:
            if self._lost:  # the block ended on its own just as it was cancelled
                self._main.uncancel()


async def release(engine: Engine, claim: Claim) -> None:
    """Move the deadline into the past, so that no worker waits for it. Never raises, except on cancellation."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(RELEASE_S):
            await asyncio.shield(claim.move(engine.clock.now() - 1))


def _until_due(engine: Engine, claim: Claim) -> float:
    """Return the number of seconds until the claim is checked again. 0: move its deadline now."""
    length, ahead = engine.settings.claim_s, claim.deadline() - engine.clock.now()
    if length + engine.settings.skew_s < ahead < float("inf"):
        return 0.0  # the clock was set back: other workers would wait too long for a dead holder
    return max(0.0, min(ahead - length * 2 / 3, length / 3))


async def _renewed(engine: Engine, claim: Claim) -> bool:
    """Wait until it is time to renew the claim, and move its deadline. False: it is lost. Raises `AccessDeniedError` if
    it is lost because the worker may not move it."""
    settings, clock = engine.settings, engine.clock
    if wait := _until_due(engine, claim):
        await asyncio.sleep(wait)
        return True

    def left() -> float:
        return claim.deadline() - settings.margin_s - clock.now()

    try:
        # A holder must not keep working while the store is unresponsive. A holder that was suspended past its deadline
        # tries once, and continues if no other worker has taken its claim.
        async with asyncio.timeout(left() if left() > 0 else RETRY_S):
            return await claim.move(clock.now() + settings.claim_s)
    except (StoreError, TimeoutError) as error:
        logger.warning("the claim of %s could not be renewed; trying again: %s", claim.what, error or "no answer")
        await asyncio.sleep(max(0.0, min(RETRY_S, left())))
        if left() <= 0 and isinstance(error, AccessDeniedError):
            raise
        return left() > 0


async def confirm(engine: Engine, claim: Claim) -> None:
    """Return if the worker still holds the claim, according to its own clock. After its deadline, for example because the
    process paused, try once to renew it. Raises `LostClaimError`, or `StoreError` if the store does not respond."""
    while engine.clock.now() >= claim.deadline() - engine.settings.margin_s:
        if not await claim.move(engine.clock.now() + engine.settings.claim_s):
            raise LostClaimError(claim.what)


def run_claim(run: RunContext) -> Claim:
    """Return the worker's claim in the session's row: its claim on the step that it is buying and, if runs are claimed,
    on the run."""
    return Claim(f"run {run.run_id!r}", lambda: _deadline(run), lambda until: _move_session(run, until))


def _deadline(run: RunContext) -> float:
    session = run.session
    if session.run_id != run.run_id or session.status != "running":
        return float("inf")
    if run.engine.placement.claims_runs:
        return session.lease_expires
    claim = session.claim
    buying = claim is not None and run.owns(session) and claim.step == session.step + 1 and session.open is None
    return claim.deadline if claim is not None and buying else float("inf")


async def _move_session(run: RunContext, until: float) -> bool:
    engine = run.engine
    while True:
        session = run.session
        changes: dict[str, object] = {}
        if engine.placement.claims_runs:
            changes["lease_expires"] = until
        moved = None
        if session.claim is not None and run.owns(session):
            if not engine.placement.claims_runs and not run.may_ask():
                return False  # a takeover checks the version, not this deadline, so a dead attempt must stay dead
            # A released claim gets the deadline DEAD. The sweep treats any other past deadline as a sign of a silent
            # worker.
            moved = session.claim.model_copy(update={"deadline": until if until > run.now() else DEAD})
            changes["claim"] = moved.model_dump(mode="json", exclude_defaults=True)
        if not changes or session.run_id != run.run_id or session.status != "running":
            return True
        moved_to = Update(session_key(session.session_id), set=changes, when=at_version(session))
        try:
            await engine.store.transact(HEARTBEAT, [moved_to])
        except ConditionFailedError:
            if await _taken(run, session):
                return False
            continue
        if engine.placement.claims_runs:
            session.lease_expires = until
        if moved is not None:
            session.claim = moved
        return True


async def _taken(run: RunContext, session: SessionRow) -> bool:
    """Return whether another worker has taken the claim, after a heartbeat on this row was refused. If not,
    `run.session` now has the other writer's changes."""
    async with run.writing:  # this worker's own transaction may have been first, and has updated `run.session`
        if run.session is not session:
            return False
    now = await run.engine.history.session(session.session_id)
    if run.session is not session:
        return False
    if now is None or now.run_id != run.run_id or now.aborted:
        return True
    if now.status == "running" and not _still_ours(run, session, now):
        return True
    run.session = now
    return False


def _still_ours(run: RunContext, before: SessionRow, now: SessionRow) -> bool:
    if run.engine.placement.claims_runs:
        return now.lease_owner == run.delivery.owner
    return run.owns(now) or not run.owns(before)


def call_claim(run: RunContext, key: Key, row: CallRow) -> Claim:
    """Return the claim on one tool call."""
    deadline = row.deadline or 0.0

    async def move(until: float) -> bool:
        nonlocal deadline
        changes = {"deadline": until} | ({"released": True} if until < run.now() else {})
        try:
            await run.engine.store.transact(HEARTBEAT, [Update(key, set=changes, when=as_read(row))])
        except ConditionFailedError:
            return False
        deadline = until
        return True

    return Claim(f"call {row.call_id!r} of session {run.session_id!r}", lambda: deadline, move)


async def wait_for(engine: Engine, held: WorkInProgressError, changes: Watch | None = None) -> None:
    """Wait until the holder's deadline or a change, but for a second at most, because the holder may finish sooner."""
    left = max(0.05, min(1.0, held.until - engine.clock.now() + 0.01))
    if changes is None:
        await engine.clock.sleep(left)
        return
    waits = {asyncio.ensure_future(engine.clock.sleep(left)), asyncio.ensure_future(changes.changed(left))}
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)


def delivery_owner(worker: str, fresh: str) -> str:
    """Return the owner of one delivery by that worker. `worker` must not contain `/`."""
    return f"{worker}/{fresh}"


async def expire_claims(engine: Engine, session_id: str, worker: str, *, died: bool = True) -> int:
    """Expire the claims on the step and the calls that the worker's deliveries hold in the session, and return how
    many. A repeat finds none. `died`: False if the worker was stopped on purpose, which does not count as a death of
    its calls."""
    mark, expired = delivery_owner(worker, ""), 0
    session = await engine.history.session(session_id)
    while session is not None and session.status != DELETING and _holds(session, mark):
        if await _expire_step(engine, session):
            logger.info("step %d of session %s: its worker %s is dead", session.step + 1, session_id, worker)
            expired += 1
        session = await engine.history.session(session_id)
    if session is None or session.status == DELETING or session.open is None:
        return expired
    rows = await engine.history.open_rows(session)
    for place, row in enumerate(rows.calls if rows is not None else ()):
        if row is None or row.state != "claimed" or not (row.owner or "").startswith(mark):
            continue
        if row.deadline != DEAD and await _expire_call(engine, session, place, row, died):
            logger.info("call %s of session %s: its worker %s is dead", row.call_id, session_id, worker)
            expired += 1
    return expired


def _holds(session: SessionRow, mark: str) -> bool:
    held = session.claim
    return (
        session.status == "running"
        and held is not None
        and held.attempt_id.startswith(mark)
        and held.run_id == session.run_id
        and held.deadline != DEAD
    )


async def _expire_step(engine: Engine, session: SessionRow) -> bool:
    assert session.claim is not None
    expired = session.claim.model_copy(update={"deadline": DEAD})
    new = advance(session, engine.clock.now(), claim=expired)
    return await commit(engine, "expire_step", [session_put(new, at_version(session))], no_outcome_check)


async def died_in_call(engine: Engine, session_id: str, worker: str) -> bool:
    """Return whether the dead worker held a call of the open step, or waited for a running sub-agent. Such a call
    counts the death itself, and so does the sub-agent."""
    mark, session = delivery_owner(worker, ""), await engine.history.session(session_id)
    if session is None or session.status != "running" or session.open is None:
        return False
    for row in await engine.history.open_calls(session):
        if row.state != "claimed":
            continue
        if row.child is None and (row.owner or "").startswith(mark):
            return True
        child = None if row.child is None else await engine.history.session(row.child.session_id)
        if child is not None and child.status == "running":
            return True
    return False


async def _expire_call(engine: Engine, session: SessionRow, place: int, row: CallRow, died: bool) -> bool:
    key = call_key(session, place)
    changes = {"deadline": DEAD, "released": not died}  # a worker that exceeded its limits may have released it
    return await commit(engine, "expire_call", [Update(key, set=changes, when=as_read(row))], no_outcome_check)


LEFTOVERS_PAGE = 50
CLEARING_S = 60


def marker_key(session_id: str) -> Key:
    """Return the key of the row that marks a copy in progress, with its owner and deadline."""
    return row_key(session_id, "copying")


async def clear_leftovers(engine: Engine, session_id: str) -> None:
    """Remove the rows that a dead copy left behind. Raises `SessionExistsError` while another copy is in progress."""
    marker = marker_key(session_id)
    (held,) = await engine.store.get([marker])
    if held is None:
        return
    now = engine.clock.now()
    taken = SessionExistsError(f"session {session_id!r} is being copied: choose another id, or wait for it")
    if held["deadline"] >= now:
        raise taken
    owner = engine.ids.new("clear")
    absent, owned = Check(session_key(session_id), ABSENT), When(equal={"owner": owner})
    value = {"owner": owner, "deadline": now + CLEARING_S}
    try:
        await engine.store.transact("begin_clear", [absent, Put(marker, value, When(equal={"owner": held["owner"]}))])
        while rows := await engine.store.query("sessions", session_id, start="m#", end="m$", limit=LEFTOVERS_PAGE):
            pages: list[Operation] = [absent, Check(marker, owned), *(Delete(row.key) for row in rows)]
            await engine.store.transact("clear_messages", pages)
        await engine.store.transact("finish_clear", [absent, Delete(marker, owned)])
    except ConditionFailedError:
        raise taken from None
