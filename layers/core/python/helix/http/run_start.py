"""Starts the run that a message requests: the session's next run, or one that replaces an earlier message.

Law: a request that arrives twice starts only one run. A client assigns ids to its messages, not to its requests. So the
key of an edit is derived from the message, its text and files, and the run that it replaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from typing import Any

from helix.core.agents import AnyAgent
from helix.core.claim_plan import files_of
from helix.core.entries import UserRow
from helix.core.errors import AgentAlreadyRunningError, InvalidInputError, RunNotFoundError
from helix.core.inbox import WhenRunning
from helix.core.initial import AgentInput
from helix.core.json import JsonObject, JsonValue, dumps
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.engine.missing import StateMissingError
from helix.http.requests import Ask
from helix.http.turn_reader import is_at_work
from helix.http.turns import turn_of
from helix.runtime.edits import FoundMessage, Handle, file_places, find_message, find_waiting, present_run, rewind
from helix.runtime.executor import Executor
from helix.services.file_inputs import ReadContent, ReadFile
from helix.services.request_keys import KeyedRun, keyed_run

OLDER_STATES = 100
"""The maximum number of checkpoints by which a client's copy of the state may lag behind."""


async def start(
    executor: Executor, agent: AnyAgent, ask: Ask, user: str | None, session: SessionRow | None
) -> Handle | KeyedRun:
    """Return the run that answers. It has a `queued_id` if the message waits, or waited. `session` is the existing session,
    which belongs to the user."""
    await check_state(executor, session, ask.state)
    handle: Handle | KeyedRun | None = None
    if session is not None and ask.again:
        handle = await _start_again(executor, agent, ask, user, session)
    elif session is not None and ask.message_id is not None:
        handle = await _start_edited(executor, agent, ask, user, session)
    if handle is None:
        handle = await _start_next(executor, agent, ask, user, session)
    return handle


async def _start_next(
    executor: Executor, agent: AnyAgent, ask: Ask, user: str | None, session: SessionRow | None
) -> Handle | KeyedRun:
    if ask.message is None:
        raise InvalidInputError(
            "the newest message is the assistant's, and answers nothing: send a message of the user"
        )
    own = ask.key or ask.message_id
    key = None if own is None else request_key(agent, ask, user, key=own)
    rare = key is not None and ask.edits and not ask.once
    if rare and session is not None and await keyed_run(executor.store, str(key)) is not None:
        key = _edit_key(agent, ask, user, session.run_id)  # a rewind has since removed the message
    if session is not None and ask.message_id is not None and ask.edits:
        known = await find_waiting(executor, session.session_id, _input(ask), ask.files)
        if known is not None:
            return known
    when_running = await _when_running(executor, ask, session)
    execute = partial(
        executor.execute, agent, _given(ask), session_id=ask.session_id, user_id=user, key=key, tools=ask.tools
    )
    try:
        return await execute(when_running=when_running)
    except AgentAlreadyRunningError:
        if (
            ask.once
            and (run_id := await present_run(executor, str(ask.session_id), _input(ask), ask.files)) is not None
        ):
            return KeyedRun(str(ask.session_id), run_id)
        if ask.when_running is not None:
            raise
        return await execute(when_running="queue")


async def _when_running(executor: Executor, ask: Ask, session: SessionRow | None) -> WhenRunning:
    """Return how the message is delivered. By default it is queued. If the session waits for a person, the message closes
    the waiting calls, as a page expects, unless older messages wait."""
    if ask.when_running is not None:
        return ask.when_running
    if session is None or session.status != "paused" or session.inbox or await is_at_work(executor, session):
        return "queue"
    return "refuse"


async def _start_edited(
    executor: Executor, agent: AnyAgent, ask: Ask, user: str | None, session: SessionRow
) -> Handle | KeyedRun | None:
    """Replace a message that was sent earlier. Return None if the session does not contain the message."""
    own = request_key(agent, ask, user, key=ask.key or ask.message_id)
    known = await keyed_run(executor.store, own) if ask.once or not ask.edits else None
    if known is not None and (ask.once or await _has_same_message(executor, known, ask)):
        return known
    said = await find_message(executor.engine.history, session, str(ask.message_id))
    if said is None:
        return None
    if said.steered and said.is_same(ask.message, ask.files):
        return KeyedRun(session.session_id, str(said.message.run_id), said.message.queued_id)
    # An edit of an older message removed everything after it from the page, even with the same text. For the newest
    # message, the same text and files mean that the same request was repeated.
    if said.run is not None and said.is_same(ask.message, ask.files) and (said.newest or not ask.edits):
        run_id = (await turn_of(executor, session)).first.run_id if said.newest else said.run.run_id
        return KeyedRun(session.session_id, run_id)
    key = own if ask.once else _edit_key(agent, ask, user, said.run.run_id if said.run is not None else session.run_id)
    return await rewind(executor, agent, session, said, _input(ask), ask.files, user_id=user, key=key, tools=ask.tools)


def _edit_key(agent: AnyAgent, ask: Ask, user: str | None, replaced: str) -> str:
    files: dict[str, JsonValue] = {"files": [[*place] for place in _places(ask)]} if ask.files else {}
    return request_key(agent, ask, user, edit=ask.message_id, text=ask.message, run=replaced, **files)


async def _has_same_message(executor: Executor, known: KeyedRun, ask: Ask) -> bool:
    try:
        run = await executor.engine.history.run(known.session_id, known.run_id)
    except RunNotFoundError:  # it has since been deleted
        return False
    return (run.input or {}).get("message") == ask.message and file_places(files_of(run.input)) == _places(ask)


def _places(ask: Ask) -> list[tuple[str | None, int]]:
    return file_places([file.part for file in ask.files])


async def _start_again(
    executor: Executor, agent: AnyAgent, ask: Ask, user: str | None, session: SessionRow
) -> Handle | KeyedRun | None:
    """Answer the message again, or replace the page's message `ask.target`. Return None if the session does not contain
    the message."""
    history, session_id = executor.engine.history, session.session_id
    own = request_key(agent, ask, user, again=ask.target or session.run_id, message=ask.message_id)
    if ask.target is not None:
        if (known := await keyed_run(executor.store, own)) is not None:
            return known
    elif session.status == "running":  # an earlier copy of this request may have started it
        before = (await history.run(session_id, session.run_id)).previous_run_id
        first = request_key(agent, ask, user, again=before, message=ask.message_id)
        known = await keyed_run(executor.store, first)
        if known is not None and known.run_id == session.run_id:
            return known
    to: FoundMessage | RunRow | None = None
    if ask.message_id is not None:
        to = await find_message(history, session, ask.message_id)
    given = _input(ask) if ask.message is not None else None
    files: Sequence[ReadFile] = ask.files
    if to is None:
        to, given = await _find_shown_run(executor, session, ask, given)
        files = files if given is None or ask.message is not None else [ReadFile(part) for part in given.files]
    if to is None:
        return None
    files = files if given is not None else ()
    return await rewind(executor, agent, session, to, given, files, user_id=user, key=own, tools=ask.tools)


async def _find_shown_run(
    executor: Executor, session: SessionRow, ask: Ask, given: AgentInput | None
) -> tuple[RunRow | None, AgentInput | None]:
    """Return the first run of the page's message `ask.target`, and its user message, if it came with one."""
    target = ask.target or (session.run_id if ask.message_id is None else None)
    try:
        first = (await turn_of(executor, session, target)).first if target else None
    except RunNotFoundError:
        return None, given
    if first is None or (first.input or {}).get("message") is None:
        return first, None
    history, place = executor.engine.history, first.start_count
    lineage = await history.lineage(first.session_id, first.start_lineage)
    (row,) = await history.entries(first.session_id, lineage, place, place + 1)
    if given is None and isinstance(row, UserRow):
        given = AgentInput(message=row.content, files=row.files, metadata=row.metadata)
    return first, given


def _input(ask: Ask) -> AgentInput:
    """Return the message of the request. Its files have no bytes here."""
    named: JsonObject = {"id": ask.message_id} if ask.message_id is not None else {}
    return AgentInput(message=str(ask.message), files=[file.part for file in ask.files], metadata=named)


def _given(ask: Ask) -> Any:
    """Return the input for `Executor.execute`, with the bytes of the files."""
    if ask.files:
        return {"message": ReadContent(str(ask.message), ask.files), "metadata": _input(ask).metadata}
    return _input(ask) if ask.message_id is not None else ask.message


def request_key(agent: AnyAgent, ask: Ask, user: str | None, **named: JsonValue) -> str:
    """Return the key of a request. It includes the user, because names that a client chose are unique only for its
    user."""
    about: JsonObject = {"agent": agent.name, "user": user, "session": ask.session_id, **named}
    return f"http:{sha256(dumps(about).encode()).hexdigest()}"


# --- the client's copy of the state -----------------------------------------------------------------------------------


async def check_state(executor: Executor, session: SessionRow | None, state: JsonObject | None) -> None:
    """Refuse a state that the session never had. A client sends back the state that it received, and cannot set it."""
    if state is None:
        return
    refused = InvalidInputError("state is not that of the thread: a client cannot set it; leave it as it was received")
    if session is None:
        raise refused
    history, seen = executor.engine.history, set[str]()
    if same_json(await history.state(session), state):
        return
    for point in (await executor.sessions.list_checkpoints(session.session_id, limit=OLDER_STATES)).items:
        if point.state_at in seen:
            continue
        seen.add(point.state_at)
        try:
            if same_json(await history.state_at(session.session_id, session.created_at, point.state_at), state):
                return
        except StateMissingError:  # retention has since deleted it
            continue
    raise refused


def same_json(ours: JsonValue, theirs: JsonValue) -> bool:
    """Whether a client that uses JavaScript numbers and received `ours` would send back `theirs`."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same_json(value, theirs[name]) for name, value in ours.items())
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same_json, ours, theirs))
    if _is_number(ours) and _is_number(theirs):
        try:
            return float(ours) == float(theirs)  # type: ignore[arg-type]
        except OverflowError:
            return ours == theirs
    return type(ours) is type(theirs) and ours == theirs


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
