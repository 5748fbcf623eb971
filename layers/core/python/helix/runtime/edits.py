"""Edits of a conversation: a new text for an earlier user message, or a new answer to it.

Law: an edit rewinds to the position before the message and runs from there, in one claim. The removed messages stay in
their lineage, where their checkpoints can find them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from helix.core.agents import AnyAgent
from helix.core.errors import AgentAlreadyRunningError, CheckpointNotFoundError, InvalidInputError, RunNotFoundError
from helix.core.files import FilePart
from helix.core.frontend_tools import GivenTool
from helix.core.handles import AgentExecutionHandle
from helix.core.inbox import WhenRunning
from helix.core.initial import AgentInput
from helix.core.messages import AssistantMessage, UserMessage
from helix.core.rows import CheckpointRow
from helix.core.run_row import RunRow
from helix.core.run_settings import GivenSettings
from helix.core.session_row import SessionRow
from helix.engine.history import History
from helix.runtime.executor import Executor
from helix.services.claim_input import ClaimInput, Opening
from helix.services.file_inputs import ReadFile, read_input
from helix.services.request_keys import KeyedRun, keyed_run

Handle = AgentExecutionHandle[Any]


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A user message in the session's history."""

    message: UserMessage
    """The message as it is stored in history."""
    index: int
    """Its position in the session's current history, from 0."""
    newest: bool
    """Whether no other user message follows it."""
    run: RunRow | None
    """The run that came with it, or that it steered. None if the message was copied from another session."""

    @property
    def steered(self) -> bool:
        """Whether the message joined a run that had begun with another one."""
        return self.run is not None and self.index > self.run.start_count

    def is_same(self, text: str | None, files: Sequence[ReadFile]) -> bool:
        """Whether the message has that text and those files, as read from a caller's input."""
        places = file_places([file.part for file in files])
        return self.message.content == text and file_places(self.message.files) == places


def file_places(files: Sequence[FilePart]) -> list[tuple[str | None, int]]:
    """Return the hash or the URL of each file, and its position in the text. Messages with the same text are the same if
    these are equal."""
    return [(file.sha256 or file.url, file.after_text) for file in files]


async def find_message(history: History, session: SessionRow, message_id: str) -> FoundMessage | None:
    """Return the message with the client's id: the id that it was sent with, or `RUN/user` if it had none, or
    `QUEUED_ID/user` if it waited. None if the session does not contain it."""
    messages, newest = await history.messages(session), True
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if not isinstance(message, UserMessage):
            continue
        if message_id in (message.metadata.get("id"), f"{message.queued_id or message.run_id}/user"):
            return FoundMessage(message, index, newest, await _find_run(history, session.session_id, message.run_id))
        newest = False
    return None


async def _find_run(history: History, session_id: str, run_id: str | None) -> RunRow | None:
    try:
        return await history.run(session_id, run_id) if run_id else None
    except RunNotFoundError:
        return None


async def edit(
    executor: Executor,
    agent: AnyAgent,
    session_id: str,
    given: AgentInput,
    *,
    user_id: str | None,
    key: str,
    tools: Sequence[GivenTool] | None = None,
    settings: GivenSettings | None = None,
    when_running: WhenRunning = "refuse",
) -> Handle:
    """Run with a message that replaces the one with its `metadata["id"]`, even if that one waits. If the session has no
    such message, the new one becomes the next message, and `when_running` applies to it. If the newest message already
    has the same text, the current run answers it."""
    _, files = await read_input(agent, given)
    if await keyed_run(executor.store, key) is None:
        session = await executor.engine.history.existing(session_id)
        said = await find_message(executor.engine.history, session, str(given.metadata.get("id", "")))
        if said is not None and said.run is not None and said.newest and said.is_same(given.message, files):
            return await executor.get_handle(agent, session_id, session.run_id, user_id=user_id)
        if said is not None:
            own: dict[str, Any] = {"user_id": user_id, "key": key, "tools": tools, "settings": settings}
            return await rewind(executor, agent, session, said, given, files, **own)
        if (waiting := await find_waiting(executor, session_id, given, files)) is not None:
            handle = await executor.get_handle(agent, session_id, waiting.run_id, user_id=user_id)
            handle.queued_id = waiting.queued_id
            return handle
    try:
        return await executor.execute(
            agent,
            given,
            session_id=session_id,
            user_id=user_id,
            key=key,
            when_running=when_running,
            tools=tools,
            settings=settings,
        )
    except AgentAlreadyRunningError:
        if (run_id := await present_run(executor, session_id, given, files)) is None:
            raise
        return await executor.get_handle(agent, session_id, run_id, user_id=user_id)


async def find_waiting(
    executor: Executor, session_id: str, given: AgentInput, files: Sequence[ReadFile]
) -> KeyedRun | None:
    """Return the run of the waiting message with the `metadata["id"]` of this one. A message with other contents is
    withdrawn, because this one replaces it. Raises `AgentAlreadyRunningError` if it was delivered in the meantime."""
    for waiting in await executor.sessions.get_inbox(session_id):
        if waiting.metadata.get("id") != given.metadata.get("id"):
            continue
        if waiting.content == given.message and file_places(waiting.files) == file_places([f.part for f in files]):
            return KeyedRun(session_id, waiting.run_id, waiting.id)
        if await executor.withdraw(session_id, waiting.id) == "delivered":
            raise AgentAlreadyRunningError(session_id, (await executor.sessions.get(session_id)).current_run_id)
    return None


async def present_run(executor: Executor, session_id: str, given: AgentInput, files: Sequence[ReadFile]) -> str | None:
    """Return the run that came with that message and its `files`, if that run is the session's newest. A request under
    another key may have started it."""
    session = await executor.engine.history.existing(session_id)
    said = await find_message(executor.engine.history, session, str(given.metadata.get("id", "")))
    if said is None or said.run is None or not said.newest or not said.is_same(given.message, files):
        return None
    return said.run.run_id


async def rewind(
    executor: Executor,
    agent: AnyAgent,
    session: SessionRow,
    to: FoundMessage | RunRow,
    given: AgentInput | None,
    files: Sequence[ReadFile] = (),
    *,
    user_id: str | None,
    key: str,
    tools: Sequence[GivenTool] | None = None,
    settings: GivenSettings | None = None,
) -> Handle:
    """Go back to the position before the message, or to the start of the run, and run from there. `given` is the run's
    message with its `files`; None runs without one. A repeated request with the same key returns the run that the first
    one started.

    Raises `AgentAlreadyRunningError`, `CheckpointNotFoundError` if the custom state at that position is no longer stored,
    and `InvalidInputError` for a message that steered a run."""
    if isinstance(to, FoundMessage) and to.steered:
        raise InvalidInputError(
            f"message {to.message.id!r} steered run {to.message.run_id!r}, and cannot be replaced: edit the message that "
            "began the run, or send a new one"
        )
    ask = ClaimInput(
        "from_checkpoint",
        given.message if given is not None else None,
        (given.state or None) if given is not None else None,
        metadata=given.metadata if given is not None else {},
        opening=Opening(user_id=user_id),
        key=key,
        point=await _find_checkpoint(executor.engine.history, session, to),
        tools=executor.agents.declare(agent, tools, settings),
    )
    return await executor.start_run(agent, session.session_id, ask, files)


async def _find_checkpoint(history: History, session: SessionRow, to: FoundMessage | RunRow) -> CheckpointRow:
    run = to.run if isinstance(to, FoundMessage) else to
    if run is not None:
        lineage, count, step, state_at = run.start_lineage, run.start_count, run.start_step, run.start_state_at
        shown, active = run.start_view, run.start_agent
    else:
        assert isinstance(to, FoundMessage)
        before = (await history.messages(session))[: to.index]
        handed = [message.metadata.get("handoff") for message in before if isinstance(message, AssistantMessage)]
        active = next((str(name) for name in reversed(handed) if name), "")
        steps = [message.step or 0 for message in before if isinstance(message, AssistantMessage)]
        lineage, count, step, state_at = session.lineage, to.index, max(steps, default=0), session.state_at
        view = await history.view(session)
        shown = session.context.view if view is not None and max(view.hidden, view.cleared) <= count else 0
    point = await history.checkpoint(session.session_id, state_at) if state_at else None
    if state_at and point is None:
        raise CheckpointNotFoundError(
            f"session {session.session_id!r}: the state before that message is not stored any more: send a new message"
        )
    if run is None and point is not None and point.state:
        raise CheckpointNotFoundError(
            f"session {session.session_id!r}: the message was copied from another session, which has the state before it: "
            "edit it there, or send a new message"
        )
    return CheckpointRow(
        id="",
        run_id="",
        turn=0,
        lineage=lineage,
        count=count,
        step=step,
        status="completed",
        state_at=state_at,
        view=shown,
        active_agent=active,
    )
