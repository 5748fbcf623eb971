"""Results, failures and heartbeats of calls that end elsewhere (docs/protocol.md#calls-that-end-elsewhere).

Law: the token is the only credential. The first result is final: the same result again is acknowledged, another one is
refused. One transaction writes the result and claims the run that goes on. If guards judge results, a worker of that run
judges it before it is final.
"""

from __future__ import annotations

from typing import NamedTuple

from helix.core.agents import AnyAgent
from helix.core.call_results import MAX_RESULT_BYTES, parsed_content, result_content
from helix.core.delivery import Delivery
from helix.core.elsewhere import CallEndedError, CallEnding, CallToken, InvalidCallTokenError
from helix.core.entries import CallRow, parse_entry
from helix.core.errors import InvalidInputError, StaleStateError
from helix.core.guards import judges_result
from helix.core.json import check_json, check_text, text_size
from helix.core.row_keys import message_sort
from helix.core.session_row import SessionRow
from helix.core.verdicts import hash_of
from helix.engine.calls.elsewhere import to_judge, unended
from helix.engine.calls.runner import ResultError, checked_result
from helix.engine.claims.confirm import Answered, write_answer
from helix.engine.engine import Engine
from helix.engine.history import DELETING, session_key
from helix.engine.writing import TRIES, as_read, call_put, commit, exists, no_outcome_check
from helix.ports.state_store import Key, Update, When
from helix.services.claim_input import MAX_REASON_BYTES


class _Found(NamedTuple):
    session: SessionRow
    """The session of the call."""
    key: Key
    """The key of the call's row."""
    row: CallRow
    """The row of the call, which has the token."""


class _Result(NamedTuple):
    """A result as the call's row stores it."""

    content: str
    """The content of the result, as `CallRow.content`."""
    success: bool
    """Whether the other system reports success."""
    plain: bool
    """Whether `content` is a string as it was sent, as `CallRow.plain`."""


async def end_call(engine: Engine, text: str, ending: CallEnding, delivery: Delivery) -> Answered:
    """End the call that has this token.

    Raises `InvalidCallTokenError` if no call has it, `CallEndedError` if the call has ended with another result or its step
    is over, and `InvalidInputError` if the result is too large or does not fit the tool. Nothing changes then.
    """
    token = CallToken.parse(text)
    for _ in range(TRIES * TRIES):
        found = await _find(engine, token)
        agent = engine.agents(found.session.agent_type)
        active = engine.find_agent(agent, found.session.active_agent)
        content, plain = _content(active, found.row, ending)
        result = _Result(content, ending.error is None, plain)
        if found.row.state == "done" or found.row.content is not None:
            _check_same(found, result)
            return Answered(token.session_id, None)
        _check_open(found, token)
        judged = judges_result(active, found.row.tool_name)
        answered = await _write(engine, agent, found, result, judged, delivery)
        if answered is not None:
            return answered
    raise StaleStateError(f"session {token.session_id!r} keeps changing: send the result again")


async def prolong_call(engine: Engine, text: str) -> float | None:
    """Record a heartbeat of the call that has this token. Return when the wait ends without another one (Unix seconds),
    or None if no heartbeat is expected or the tool still runs. Raises as `end_call`; an ended call raises
    `CallEndedError`."""
    token = CallToken.parse(text)
    for _ in range(TRIES):
        found = await _find(engine, token)
        row = found.row
        if row.state == "done" or row.content is not None:
            raise _ended(found, "it has a result already")
        _check_open(found, token)
        if row.ask != "elsewhere" or row.later is None or row.later.heartbeat_s is None:
            return row.deadline if row.ask == "elsewhere" else None
        deadline = row.later.deadline(engine.clock.now())
        held = When(equal={**as_read(row).equal, "deadline": row.deadline})
        moved = Update(found.key, set={"deadline": deadline}, when=held)
        if await commit(engine, "prolong_call", [exists(found.session), moved], no_outcome_check):
            return deadline
    raise StaleStateError(f"call {row.call_id!r} keeps changing: send the heartbeat again")


async def _find(engine: Engine, token: CallToken) -> _Found:
    """Read the call that has this token. Raises `InvalidCallTokenError`."""
    key = Key("sessions", token.session_id, message_sort(token.lineage, token.index))
    session_value, value = await engine.store.get([session_key(token.session_id), key])
    if session_value is None or value is None or session_value.get("status") == DELETING:
        raise InvalidCallTokenError
    row = parse_entry(key.partition, key.sort, value)
    if not isinstance(row, CallRow) or row.later is None or not row.later.knows(token):
        raise InvalidCallTokenError
    return _Found(SessionRow.at(token.session_id, session_value), key, row)


def _content(agent: AnyAgent, row: CallRow, ending: CallEnding) -> tuple[str, bool]:
    """Return the content of the result, and whether it is plain text. Raises `InvalidInputError`."""
    if ending.error is not None:
        check_text(ending.error, "error", MAX_REASON_BYTES)
        return result_content(ending.error, False), False
    check_json(ending.value, "the result", limit=None)
    tool = agent.find_tool(row.tool_name)
    try:
        checked = None if tool is None else checked_result(agent, tool, ending.value)
    except ResultError as error:
        raise InvalidInputError(str(error)) from None
    size = text_size(ending.value if isinstance(ending.value, str) else result_content(ending.value, True))
    if size > MAX_RESULT_BYTES:  # a tool's result would be truncated, but this sender can shorten it
        raise InvalidInputError(f"the result of a call may have {MAX_RESULT_BYTES} bytes: store it, and send its place")
    return checked or (result_content(ending.value, True), isinstance(ending.value, str))


def _check_same(found: _Found, result: _Result) -> None:
    """Raise `CallEndedError` if the call got another result. The first verdict has the hash of the result as it came. A
    refused result is a failure, so its row does not tell whether a success or a failure was sent."""
    row = found.row
    by_token = row.by == "answer" or row.state != "done"
    if row.verdicts:
        sent = result.content if result.plain else parsed_content(result.content)
        refused = any(verdict.refuses for verdict in row.verdicts)
        is_same = hash_of(sent) == row.verdicts[0].hash and (refused or bool(row.success) == result.success)
    else:
        is_same = (row.content, bool(row.success)) == (result.content, result.success)
    if not by_token or not is_same:
        raise _ended(found, "it has another result")


def _check_open(found: _Found, token: CallToken) -> None:
    """Raise `CallEndedError` if the call's step is over: the session was rewound, aborted or has completed."""
    session = found.session
    open_step = None if session.lineage != token.lineage else session.open
    inside = open_step is not None and open_step.base < token.index <= open_step.base + open_step.calls
    if not inside or session.aborted or session.status == "completed":
        raise _ended(found, "its step is over")


def _ended(found: _Found, why: str) -> CallEndedError:
    return CallEndedError(f"call {found.row.call_id!r} of session {found.session.session_id!r} has ended: {why}")


async def _write(
    engine: Engine, agent: AnyAgent, found: _Found, result: _Result, judged: bool, delivery: Delivery
) -> Answered | None:
    """Write the result. While the tool runs, its worker adds what the tool changed. `judged`: guards must judge the result
    before it is final. None: the rows have changed."""
    session, key, row = found
    now = engine.clock.now()
    if row.state == "claimed":
        marks = {"deaths": 0} if judged else {"ended_at": now}
        early = Update(key, set={**result._asdict(), **marks}, when=unended(row))
        if await commit(engine, "end_call_early", [exists(session), early], no_outcome_check):
            return Answered(session.session_id, None)
        return None
    patches = row.patches if result.success else []
    changes = {"plain": result.plain, "ask": None, "deadline": None, "patches": patches}
    done = row.ended(result.content, result.success, "answer", now, **changes)
    put = call_put(key, to_judge(done) if judged else done, as_read(row))
    return await write_answer(engine, agent, session, put, delivery)
