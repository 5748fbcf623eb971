"""The messages of a turn, read from the log until no more can arrive without a new request.

Law: a reader waits only while something is running. If the process of a run died, the reader takes over the run once
its claim has expired.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Set
from contextlib import aclosing

from helix.core.conversation.changes import CONTINUES
from helix.core.errors import AgentAlreadyRunningError, CannotResumeError, StreamNotFoundError
from helix.core.session_row import SessionRow
from helix.core.status import OVER
from helix.core.wire import StreamMessage
from helix.http.turns import Turn
from helix.runtime.executor import Executor
from helix.stream.discarded import discarded_text
from helix.stream.reader import read_with_idle


async def read_turn(
    executor: Executor, turn: Turn, idle_s: float, left_out: Set[int] = frozenset()
) -> AsyncIterator[StreamMessage | None]:
    """Yield the turn's messages from the beginning of its first run to its end, with those of sub-agents interleaved.
    Yield None whenever `idle_s` seconds pass without a message. With `turn.goes_on`, the turn ends when its run is
    over, or when it pauses while no sub-agent is running. left_out: the sequences of messages that the reader does not
    receive."""
    session_id, stream_id, begun = turn.session.session_id, turn.session.stream_id, False
    clock = executor.engine.clock
    silent, since = False, clock.now()
    end, ended, newest = None, dict[str, int](), None
    messages = read_with_idle(
        executor.streams, stream_id, from_sequence=turn.first.start_sequence, follow=True, idle_s=idle_s
    )
    async with aclosing(messages):
        try:
            async for message in messages:
                idle, newest = message is None and newest is None, message
                if message is None:  # the wait ended, perhaps because a message has arrived
                    if clock.now() - since >= 0.9 * idle_s:  # timers and clocks differ slightly
                        if silent and end is None and not await _is_at_work(executor, session_id):
                            return  # the log lacks the run's end, because its worker died first
                        await take_over(executor, session_id)
                        silent, since = True, clock.now()
                        yield None
                elif end is not None and _is_of_another(message, end):
                    return
                else:
                    # The log may have lagged behind the rows when the run was claimed.
                    begun = begun or (message.session_id == session_id and message.turn >= turn.first.turn)
                    silent, since = False, clock.now()
                    if (begun or message.run_id == "") and message.sequence not in left_out:
                        yield message
                    if message.kind != "chunk":
                        ended[message.session_id] = message.turn
                    if message.session_id == session_id and message.run_id:
                        end = message if turn.is_end(message) and message.turn >= turn.run.turn else None
                if end is not None and (end.kind != "paused" or not turn.goes_on):
                    return
                if end is not None and (idle or newest) and not await _has_more(executor, end, newest, ended):
                    return
        except StreamNotFoundError:
            return  # it was deleted during the read


async def replayed_text(executor: Executor, turn: Turn) -> Set[int]:
    """Return the sequences of the turn's text messages that have already been discarded."""
    log, after = list[StreamMessage](), turn.first.start_sequence
    while page := await executor.streams.read(turn.session.stream_id, after):
        log += page
        after = page[-1].sequence
    return discarded_text(log, turn.session.session_id)


def _is_of_another(message: StreamMessage, end: StreamMessage) -> bool:
    """Whether the message begins the session's next page message, rather than a run that continues this one."""
    if message.session_id != end.session_id or message.run_id in ("", end.run_id):
        return False
    chunk = message.chunk or {}
    return not (chunk.get("type") == "run_resumed" and chunk.get("mode") in CONTINUES)


async def _has_more(
    executor: Executor, end: StreamMessage, newest: StreamMessage | None, ended: Mapping[str, int]
) -> bool:
    """Whether more messages follow the pause `end`. `newest` is the last message that was read. `ended` maps each
    session to the turn of its last end."""
    if newest is not None:
        if newest.kind == "chunk" and newest.session_id != end.session_id:
            return True  # from a sub-agent, whose end will follow
        info = await executor.streams.info(end.stream_id)
        if info is not None and newest.sequence < info.latest_sequence:
            return True
    session = await executor.engine.history.session(end.session_id)
    if session is None:
        return False
    children = await _children(executor, session)
    behind = any(
        child.turn > ended.get(child.session_id, child.turn) for child in children
    )  # the rows are ahead of the log
    return behind or session.turn > end.turn or session.status == "running" or any(map(_may_continue, children))


async def is_at_work(executor: Executor, session: SessionRow) -> bool:
    """Whether the session is running, or will run without a request because it is waiting for a sub-agent that is
    running or has just ended."""
    return session.status == "running" or any(map(_may_continue, await _children(executor, session)))


async def _is_at_work(executor: Executor, session_id: str) -> bool:
    session = await executor.engine.history.session(session_id)
    return session is not None and await is_at_work(executor, session)


def _may_continue(child: SessionRow) -> bool:
    return child.status == "running" or child.status in OVER


async def _children(executor: Executor, session: SessionRow) -> list[SessionRow]:
    """Return the sub-agents that a paused session is waiting for, and all of their sub-agents."""
    found: list[SessionRow] = []
    rows = [session]
    while rows:
        row = rows.pop()
        waiting = row.pending if row.status == "paused" else []
        ids = [one.child_session_id for one in waiting if one.child_session_id is not None]
        children = [await executor.engine.history.session(child_id) for child_id in ids]
        rows += [child for child in children if child is not None]
        found += [child for child in children if child is not None]
    return found


async def take_over(executor: Executor, session_id: str) -> None:
    """Continue the runs of the session and its sub-agents whose processes died."""
    session = await executor.engine.history.session(session_id)
    if session is None:
        return
    children = await _children(executor, session)
    lapsed = [row for row in (session, *children) if row.status == "running"]
    unreported = [row.parent.session_id for row in children if row.status in OVER and row.parent is not None]
    for row_id in [*(row.session_id for row in lapsed), *unreported]:
        row = await executor.engine.history.existing(row_id)
        if (await executor.can_resume(row_id)).can_resume:
            try:
                await executor.resume(executor.agents.named(row.agent_type), row_id)
            except (AgentAlreadyRunningError, CannotResumeError):
                continue  # another reader has resumed it
