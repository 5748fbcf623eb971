"""The inbox of a running session: adding and withdrawing messages, and starting the next turn (docs/protocol.md#inbox).

Law: adding a message does not write the session's row, so it never conflicts with a claim. The write succeeds only while
the run is active, so the end of the run sees every message. The run's effects stay open until each message has started a
turn, or the next run has been notified of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from helix.core.agents import AnyAgent
from helix.core.claim_plan import lapsed
from helix.core.delivery import Delivery
from helix.core.entries import UserRow, message_of
from helix.core.errors import AgentAlreadyRunningError, InvalidInputError, SessionNotFoundError, StaleStateError
from helix.core.inbox import InboxRow, Withdrawn, check_room, in_order, next_id, next_turn
from helix.core.messages import UserMessage
from helix.core.request_heads import HeadRow
from helix.core.row_keys import inbox_sort, make_run_id, run_sort, stop_sort
from helix.core.session_row import SessionRow
from helix.engine.claims.claim import Claimed, claim
from helix.engine.context import RunContext, make_context
from helix.engine.engine import Engine
from helix.engine.facts import MessageWaits
from helix.engine.history import DELETING, History, row_key, session_key
from helix.engine.observers import show
from helix.engine.writing import (
    advance,
    are_written,
    as_claimed,
    commit,
    held_by_run,
    message_put,
    no_outcome_check,
    session_put,
)
from helix.ports.state_store import ABSENT, Check, Delete, Operation, Put, StateStore, Update, Value, When
from helix.services.claim_input import ClaimInput
from helix.services.request_keys import keyed_put, keyed_run

AT_ONCE = 60
"""The number of operations that a step's claim has room for, beside its own. Messages that do not fit wait for the next
step."""
GIVEN = When()
"""The condition that a row exists."""


@dataclass(frozen=True, slots=True)
class Left:
    """A message that was left in a session's inbox."""

    message: InboxRow
    """The message's row."""
    run_id: str
    """The run to follow: the current one, for a message that steers. Otherwise the message's own run."""
    claimed: Claimed | None = None
    """The run of an older waiting message, which was claimed with this one. None: no run was claimed."""


async def read_inbox(store: StateStore, session_id: str) -> list[InboxRow]:
    """Return the waiting messages in the order of their arrival."""
    rows = await store.query("sessions", session_id, start="i#", end="i$")
    return [InboxRow.at(session_id, row.key.sort, row.value) for row in rows]


async def leave_message(
    engine: Engine, agent: AnyAgent, session_id: str, ask: ClaimInput, delivery: Delivery
) -> Left | int:
    """Leave the message of `ask` in the inbox. If nothing keeps it waiting, return the version at which the session can be
    claimed for it instead; 0 if the session does not exist. A message that is left later changes the version. Raises
    `InboxFullError`. Raises `StaleStateError` if a request with the same key was stored first, or if the session changed
    and may no longer hold the message's files."""
    while True:
        session = await engine.history.session(session_id)
        if session is None:
            return 0
        if not _may_wait(session, ask, engine.clock.now()):
            return session.version
        await _check(engine, agent, session, ask)
        rows = await read_inbox(engine.store, session_id)
        if session.status not in ("running", "paused") and not rows:
            return session.version
        left = await _leave(engine, agent, session, ask, rows, delivery)
        if left is not None:
            return left
        if ask.key is not None and await keyed_run(engine.store, ask.key) is not None:
            raise StaleStateError(f"session {session_id!r} has the message of this request already")
        if ask.holds:  # a check of these may have failed
            raise StaleStateError(f"session {session_id!r} changed since it was read")


def _may_wait(session: SessionRow, ask: ClaimInput, now: float) -> bool:
    """Return whether the message may wait. A run whose worker died ends first. Between the end of a run and its effects,
    only the inbox itself says whether older messages wait."""
    if session.status == "running":
        return not lapsed(session, now)
    return session.status != DELETING and ask.when_running != "interrupt"


async def _leave(
    engine: Engine, agent: AnyAgent, session: SessionRow, ask: ClaimInput, rows: Sequence[InboxRow], delivery: Delivery
) -> Left | None:
    """Try once to leave the message. None: the session or its inbox changed since it was read."""
    session_id, message = session.session_id, _message(engine, session, rows, ask)
    check_room(session_id, rows, message)
    resting = session.status not in ("running", "paused")
    first = in_order(rows)[0] if resting else None
    followed = message.run_id
    if message.mode == "steer":
        followed = session.run_id if first is None else first.run_id
    put = Put(row_key(session_id, inbox_sort(message.id)), message.dump(), ABSENT)
    ops: list[Operation] = [put, *ask.holds]
    if ask.key is not None:
        ops.append(keyed_put(ask.key, session_id, followed, message.created_at, message.id))
    if first is not None:  # a person stopped the session: the oldest message goes first
        claimed = await _claim_turn(engine, agent, Turn(session, first, True, ops), delivery)
        return None if claimed is None else Left(message, followed, claimed)
    marks: list[Operation] | None
    if session.status == "running":
        marks = await _marks(engine, session, message.mode)
    else:
        marks = [session_put(advance(session, message.created_at, inbox=True), as_claimed(session))]
    if marks is None or not await commit(engine, "leave_message", [*marks, *ops], partial(_is_left, engine, put)):
        return None
    return Left(message, followed)


async def _is_left(engine: Engine, put: Put) -> bool:
    """Return whether the message was left. A run may have taken it before the sender knew."""
    session_id, message_id = put.key.partition, put.key.sort[2:]
    if await are_written(engine, [put]):
        return True
    return await find_delivered(engine.history, session_id, message_id) is not None


async def _check(engine: Engine, agent: AnyAgent, session: SessionRow, ask: ClaimInput) -> None:
    if ask.opening.user_id is not None and not await engine.history.belongs(session, ask.opening.user_id):
        raise SessionNotFoundError(session.session_id)
    if session.agent_type != agent.name:
        raise InvalidInputError(
            f"session {session.session_id!r} belongs to agent {session.agent_type!r}, not {agent.name!r}"
        )
    if session.parent is not None and ask.when_running != "steer":
        raise InvalidInputError(
            f"session {session.session_id!r} is a sub-agent's, and ends with its call: steer it, or send the message to "
            f"its root, {session.stream_id!r}"
        )
    if ask.run_id is not None and ask.run_id == session.run_id:
        raise AgentAlreadyRunningError(session.session_id, session.run_id)


def _message(engine: Engine, session: SessionRow, rows: Sequence[InboxRow], ask: ClaimInput) -> InboxRow:
    assert ask.when_running != "refuse" and ask.message is not None
    now = engine.clock.now()
    turn = session.turn + 1 + len(rows) + (session.status == "paused")  # the answer takes one
    return InboxRow(
        id=next_id(rows, now, engine.ids.new("msg")),
        mode=ask.when_running,
        run_id=ask.run_id or make_run_id(turn, engine.ids.new("run")),
        content=ask.message,
        files=ask.files,
        metadata=ask.metadata,
        tools=ask.tools.text if ask.tools is not None else "",
        priority=ask.priority,
        created_at=now,
    )


async def _marks(engine: Engine, session: SessionRow, mode: str) -> list[Operation] | None:
    """Return the operations that notify the active run of a waiting message. None: the run has ended."""
    run_key = row_key(session.session_id, run_sort(session.run_id))
    stop_key = row_key(session.session_id, stop_sort(session.run_id))
    run, stop = await engine.store.get([run_key, stop_key])
    if run is None or run.get("status") != "running":
        return None
    arrived = run.get("arrived")
    counted = Update(run_key, set={"arrived": (arrived or 0) + 1}, when=When(equal={"arrived": arrived}))
    working = Check(session_key(session.session_id), held_by_run(session.run_id))
    fields: Value = {}
    if mode == "steer":
        fields = {"steer": (stop or {}).get("steer", 0) + 1}
    elif mode == "interrupt" and (stop is None or stop.get("stop") is None):
        fields = {"stop": "interrupt", "reason": "a new message", "created_at": engine.clock.now()}
    if not fields:
        return [working, counted]
    if stop is None:
        row = {"kind": "stop", "run_id": session.run_id, **fields}
        return [working, counted, Put(stop_key, row, ABSENT)]
    as_read = {"steer": stop.get("steer"), "stop": stop.get("stop")}
    return [working, counted, Update(stop_key, set=fields, when=When(equal=as_read))]


async def withdraw(engine: Engine, session_id: str, message_id: str) -> Withdrawn:
    """Take the message back, unless it was delivered. A message in an older lineage counts as `not_found`."""
    await engine.history.existing(session_id)
    key = row_key(session_id, inbox_sort(message_id))

    async def taken() -> bool:
        return await find_delivered(engine.history, session_id, message_id) is None

    if await commit(engine, "withdraw_message", [Delete(key, GIVEN)], taken):
        return "withdrawn"
    return "delivered" if await find_delivered(engine.history, session_id, message_id) else "not_found"


async def show_waiting(
    engine: Engine, agent: AnyAgent, session_id: str, message_id: str, message: InboxRow | None
) -> None:
    """Record on the stream that the message waits, or (without `message`) that it was withdrawn. Readers of a run see it;
    between runs, the session itself shows what waits."""
    session = await engine.history.session(session_id)
    if session is not None and session.status == "running":
        context = make_context(engine, agent, session)
        show(context, MessageWaits(message_id, message))
        await context.stream.close()


async def find_delivered(history: History, session_id: str, message_id: str) -> UserMessage | None:
    """Return the message that waited under this id, if it is in history."""
    messages = await history.messages(await history.existing(session_id))
    users = (message for message in reversed(messages) if isinstance(message, UserMessage))
    return next((message for message in users if message.queued_id == message_id), None)


# --- delivery -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arrived:
    """The messages that a step's claim adds to history."""

    entries: list[UserRow] = field(default_factory=list)
    """The rows of the messages, in order."""
    messages: list[UserMessage] = field(default_factory=list)
    """The same messages as the model is shown them."""
    operations: list[Operation] = field(default_factory=list)
    """The operations that move the messages."""


async def take_messages(run: RunContext, new: SessionRow, stop: Value | None, room: int = AT_ONCE) -> Arrived:
    """Return the messages that steer the run, and advance `new` past them. `stop`: the run's stop row as read. Nothing is
    read unless that row or the session's row says that a message waits."""
    steer, arrived = (stop or {}).get("steer", 0), Arrived()
    if not steer and not new.inbox:
        return arrived
    rows = [row for row in await read_inbox(run.engine.store, new.session_id) if row.mode == "steer"]
    for row in rows[: max(0, room // 2)]:
        entry = UserRow(
            content=row.content,
            files=row.files,
            run_id=run.run_id,
            created_at=run.now(),
            metadata=row.metadata,
            queued=row.id,
        )
        message = message_of(entry, new.lineage, new.count)
        assert isinstance(message, UserMessage)
        arrived.entries.append(entry)
        arrived.messages.append(message)
        moved = Delete(row_key(new.session_id, inbox_sort(row.id)), GIVEN)
        arrived.operations.extend([moved, message_put(new, new.count, entry)])
        new.count += 1
    if len(arrived.entries) < len(rows):
        return arrived
    new.inbox = False
    if steer:
        key = row_key(new.session_id, stop_sort(run.run_id))
        arrived.operations.append(Update(key, set={"steer": 0}, when=When(equal={"steer": steer})))
    return arrived


# --- the end of a run -------------------------------------------------------------------------------------------------


async def start_waiting(engine: Engine, agent: AnyAgent, session_id: str, delivery: Delivery) -> Claimed | None:
    """Claim the turn of the next waiting message, after a run of the session has ended. If messages
    remain, the session's row says so, or the run that is active by now is notified."""
    while True:
        rows = await read_inbox(engine.store, session_id)
        session = await engine.history.session(session_id)
        if not rows or session is None or session.status == DELETING:
            return None
        if session.status == "running":
            steers = any(row.mode == "steer" for row in rows)
            marks = await _marks(engine, session, "steer" if steers else "queue")
            if marks is not None and await commit(engine, "mark_waiting", marks, no_outcome_check):
                return None
        elif (message := next_turn(session, rows)) is not None:
            turn = Turn(session, message, len(rows) > 1)
            if (claimed := await _claim_turn(engine, agent, turn, delivery)) is not None:
                return claimed
        elif session.inbox:
            return None
        else:
            new = advance(session, engine.clock.now(), inbox=True)
            if await commit(engine, "mark_waiting", [session_put(new, as_claimed(session))], no_outcome_check):
                return None


@dataclass(frozen=True, slots=True)
class Turn:
    """The turn of a waiting message."""

    session: SessionRow
    """The session as read."""
    message: InboxRow
    """The message that starts the run."""
    more: bool
    """Whether other messages keep waiting."""
    operations: list[Operation] = field(default_factory=list)
    """Further operations of the claim's transaction."""


async def _claim_turn(engine: Engine, agent: AnyAgent, turn: Turn, delivery: Delivery) -> Claimed | None:
    """Claim the session for a waiting message. None: the session or its inbox changed since it was read."""
    session, message = turn.session, turn.message
    key = row_key(session.session_id, inbox_sort(message.id))
    ask = ClaimInput(
        "execute",
        message.content,
        files=message.files,
        metadata=message.metadata,
        run_id=message.run_id,
        priority=message.priority,
        tools=HeadRow(text=message.tools) if message.tools else None,
        queued=message.id,
        inbox=turn.more,
        extra=[Delete(key, GIVEN), *turn.operations],
        version=session.version,
    )
    try:
        return await claim(engine, agent, session.session_id, ask, delivery)
    except (AgentAlreadyRunningError, StaleStateError):
        return None
