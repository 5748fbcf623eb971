"""People's answers to waiting calls (docs/protocol.md#claim-answer).

Law: the first answer wins, and a later one changes nothing. One transaction writes the answer and claims the run that
acts on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from helix.core.agents import AnyAgent
from helix.core.call_results import result_content
from helix.core.delivery import Delivery
from helix.core.entries import CallRow
from helix.core.errors import (
    AgentAlreadyRunningError,
    CallNotPendingError,
    CannotResumeError,
    InvalidInputError,
    StaleStateError,
)
from helix.core.guards import judges_result
from helix.core.handles import Confirmation
from helix.core.json import JsonObject, JsonValue, check_json, check_text, dumps, loads
from helix.core.messages import CallResponse, EditedArguments, ToolCallRequest
from helix.core.planning import refuse_call
from helix.core.prompt import UNKNOWN
from helix.core.questions import with_answers, with_defaults
from helix.core.session_row import SessionRow
from helix.engine.calls.children import call_place
from helix.engine.calls.elsewhere import to_judge
from helix.engine.claims.claim import Claimed, claim
from helix.engine.claims.liveness import DEAD
from helix.engine.engine import Engine
from helix.engine.writing import are_written, as_read, beside, call_put, commit
from helix.ports.state_store import Put, When
from helix.services.claim_input import ClaimInput, check_reason


@dataclass(frozen=True, slots=True)
class Expired:
    """The end of a call's wait, in place of an answer."""

    tool_call_id: str
    """The call that has waited."""
    deadline: float
    """The deadline that has passed. If the call waits for something else by now, nothing happens."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A recorded answer."""

    session_id: str
    """The session that contains the call. It may be a sub-agent's."""
    claimed: Claimed | None
    """The new run to start, if that session was paused. None: its current or next run finds the answer."""


async def answer(
    engine: Engine, agent: AnyAgent, session_id: str, confirmation: Confirmation | Expired, delivery: Delivery
) -> Answered:
    """Answer the call in this session or in a sub-agent below it.

    Raises `CallNotPendingError` if no such call is waiting, because it was already answered or its step is over.
    """
    if isinstance(confirmation, Confirmation):
        check_json(confirmation.data, "data")
        _check_arguments(confirmation)
        if confirmation.by is not None:
            check_text(confirmation.by, "by", 256)
        check_reason(confirmation.reason)
    session, own = await _find(engine, session_id, confirmation.tool_call_id)
    target = agent.find_agent(session.agent_type) or engine.agents(session.agent_type)
    while True:
        place = await call_place(engine, session, confirmation.tool_call_id)
        key, row = place if place is not None else (None, None)
        if key is None or row is None or row.state != "asked" or not _is_meant(row, confirmation):
            raise _not_pending(session_id, confirmation.tool_call_id)
        active = engine.find_agent(target, session.active_agent) if isinstance(confirmation, Confirmation) else target
        new = _responded(active, row, confirmation, engine.clock.now())
        # A heartbeat moves the deadline. The end of a wait must not overtake it.
        beat = {"deadline": row.deadline} if isinstance(confirmation, Expired) else {}
        put = call_put(key, new, When(equal={**as_read(row).equal, **beat}))
        if session.status == "completed" or session.aborted:
            raise _not_pending(session_id, confirmation.tool_call_id)
        answered = await write_answer(engine, target, session, put, delivery)
        if answered is not None:
            return answered
        session = await engine.history.existing(own)


async def write_answer(
    engine: Engine, agent: AnyAgent, session: SessionRow, put: Put, delivery: Delivery
) -> Answered | None:
    """Write the answered call, and claim the next run of a paused session. Otherwise the current run picks the answer up,
    or a resume or a retry finds it. None: the rows have changed."""
    if session.status == "paused":
        ask = ClaimInput("with_confirmation", extra=[put], version=session.version)
        try:
            return Answered(session.session_id, await claim(engine, agent, session.session_id, ask, delivery))
        except (AgentAlreadyRunningError, StaleStateError):
            return None
    if await commit(engine, "answer", [beside(session), put], partial(are_written, engine, [put])):
        return Answered(session.session_id, None)
    return None


async def wake_parents(engine: Engine, child: SessionRow, delivery: Delivery) -> list[Claimed]:
    """Claim the paused ancestors of a sub-agent that continues, nearest first. Their new runs wait for the sub-agent
    and stream it live. An ancestor that still waits for another answer stays paused; the child's end would also wake
    it."""
    woken = []
    while child.parent is not None:
        parent = await engine.history.session(child.parent.session_id)
        if parent is None or parent.status != "paused" or await engine.history.unanswered(parent):
            break
        agent = engine.agents(parent.agent_type)
        try:
            woken.append(await claim(engine, agent, parent.session_id, ClaimInput("continue"), delivery))
        except (AgentAlreadyRunningError, CannotResumeError):
            break  # the child's own report came first
        child = parent
    return woken


def _not_pending(session_id: str, call_id: str) -> CallNotPendingError:
    return CallNotPendingError(
        f"call {call_id!r} of session {session_id!r} does not wait for an answer: "
        "it was answered already, or its step has ended"
    )


async def _find(engine: Engine, session_id: str, call_id: str) -> tuple[SessionRow, str]:
    """Find the session whose open step contains the call: this one or a sub-agent's, depth first."""
    session = await engine.history.existing(session_id)
    stack = [session]
    while stack:
        current = stack.pop()
        rows = None if current.aborted else await engine.history.open_rows(current)
        for request, row in zip(rows.answer.tool_calls, rows.calls, strict=True) if rows is not None else ():
            if request.id == call_id and row is not None and row.state == "asked":  # unique only within its session
                return current, current.session_id
            if row is not None and row.child is not None and row.state != "done":
                child = await engine.history.session(row.child.session_id)
                if child is not None:
                    stack.append(child)
    raise _not_pending(session_id, call_id)


def _is_meant(row: CallRow, confirmation: Confirmation | Expired) -> bool:
    if isinstance(confirmation, Expired):
        return row.deadline == confirmation.deadline
    return confirmation.round in (None, row.claim)


def _responded(agent: AnyAgent, row: CallRow, confirmation: Confirmation | Expired, now: float) -> CallRow:
    """Return the call row with the response applied. It does not wait any more."""
    if isinstance(confirmation, Expired):
        if row.ask == "elsewhere" and (row.later is None or row.later.until is None or row.later.until > now):
            # A heartbeat is missing, so the outcome is unknown. The next run applies the tool's policy.
            return row.model_copy(update={"state": "claimed", "ask": None, "deadline": DEAD, "patches": []})
        new = _expired(row, now)
    else:
        new = _answered(row, confirmation, now)
        if row.ask == "client" and judges_result(agent, row.tool_name):
            new = to_judge(new)
        if confirmation.arguments is not None:
            new = _edited(agent, row, new, confirmation, now)
        if row.ask is not None and (row.ask != "question" or not confirmation.approved):
            given = CallResponse(kind=row.ask, approved=confirmation.approved, by=confirmation.by, at=now)
            new = new.model_copy(update={"responses": [*row.responses, given]})
    return new.model_copy(update={"deadline": None, "remind_at": []})


def _expired(row: CallRow, now: float) -> CallRow:
    if row.ask == "question" and row.on_timeout == "default":
        return row.model_copy(update={"state": "approved", "ask": None, "questions": with_defaults(row.questions, now)})
    has_begun = row.ask in ("unknown", "elsewhere")
    content = dumps(UNKNOWN) if has_begun else result_content("denied: no answer came in time", False)
    return row.ended(content, False, "policy", now, ask=None, patches=[], fatal=row.on_timeout == "fail")


def _answered(row: CallRow, confirmation: Confirmation, now: float) -> CallRow:
    """Return the call row with the answer applied, depending on what the call was waiting for."""
    if row.ask == "elsewhere":
        raise InvalidInputError(
            f"call {row.call_id!r} waits for another system, which ends it with its token: "
            "a person can stop the run, or send a message to go on without the result"
        )
    if row.ask == "client":
        if not confirmation.approved:  # the error message from the client, verbatim
            error = confirmation.reason or "denied: no reason given"
            return _done(row, result_content(error, False), False, now)
        return _reported(row, confirmation.data, now)
    if row.ask == "question" and confirmation.approved:
        answers = with_answers(row.call_id, row.questions, confirmation.data, by=confirmation.by, at=now)
        return row.model_copy(update={"state": "approved", "ask": None, "questions": answers})
    if confirmation.approved:
        data: JsonObject | None = None
        if confirmation.data is not None:
            if not isinstance(confirmation.data, dict):
                raise InvalidInputError(
                    "data of an approval must be a JSON object: the tool reads it as ctx.confirmation"
                )
            data = confirmation.data
        return row.model_copy(update={"state": "approved", "ask": None, "confirmation": data})
    if row.ask == "unknown":
        if confirmation.data is not None:
            return _reported(row, confirmation.data, now)
        return _done(row, dumps(UNKNOWN), False, now)
    return _done(row, result_content(f"denied: {confirmation.reason or 'no reason given'}", False), False, now)


def _check_arguments(confirmation: Confirmation) -> None:
    if confirmation.arguments is None:
        return
    if not isinstance(confirmation.arguments, dict):
        raise InvalidInputError("arguments must be a JSON object")
    if not confirmation.approved:
        raise InvalidInputError("arguments need an approval, but the call is denied: leave out one of the two")
    check_json(confirmation.arguments, "arguments")


def _edited(agent: AnyAgent, row: CallRow, approved: CallRow, confirmation: Confirmation, now: float) -> CallRow:
    """Return the approved row with arguments that replace the model's. Raises `InvalidInputError` if the tool does not
    accept them; the call then keeps waiting."""
    if row.ask != "approval":
        raise InvalidInputError(
            f"call {row.call_id!r} does not wait for approval (kind {row.ask!r}): its arguments cannot be changed"
        )
    given = confirmation.arguments or {}
    refused = refuse_call(ToolCallRequest(id=row.call_id, name=row.tool_name, arguments=given), agent.find_tool)
    if refused is not None:
        raise InvalidInputError(str(loads(refused.content)["error"]))
    edited = EditedArguments(arguments=given, by=confirmation.by, at=now)
    return approved.model_copy(update={"edited": edited})


def _reported(row: CallRow, data: JsonValue, now: float) -> CallRow:
    done = _done(row, result_content(data, True), True, now)
    return done.model_copy(update={"plain": isinstance(data, str)})


def _done(row: CallRow, content: str, success: bool, now: float) -> CallRow:
    return row.ended(content, success, "answer", now, ask=None)
