"""A process dies at every write while messages arrive for its run: each message is in history once, and in order."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from tests.support.journal import Journal
from tests.support.usage_invariants import find_usage_problems
from tests.support_crash import CONFIG, LONG, LoggedModel, S, call, choose, executor, fresh, model, quiet, settle

from helix import Agent, LocalExecutor, MemoryStateStore, tool
from helix.core.conversation.conversation import Conversation
from helix.core.conversation.items import User
from helix.core.errors import AgentAlreadyRunningError, SessionNotFoundError
from helix.core.inbox import WhenRunning
from helix.core.messages import UserMessage
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager
from helix.testing.crash import CrashPoints, Point, crash_everywhere
from helix.testing.stream_invariants import read_all

SENT: list[tuple[str, WhenRunning]] = []
WORKERS: list[LocalExecutor] = []


@tool
async def tell() -> str:
    """Send the messages of the test to the run that calls this tool."""
    await send(WORKERS[-1])
    return "told"


@tool(require_approval=True)
async def ask() -> str:
    """Send the messages of the test, and need a person's word."""
    return "asked"


talker = Agent(name="talker", system_prompt="Talk.", tools=[tell, ask], llm_config=CONFIG)


@pytest.fixture(autouse=True)
def fresh_log() -> None:
    fresh()
    WORKERS.clear()


async def send(workers: LocalExecutor) -> None:
    """Send each message under a key of its own, as a client that repeats its requests does."""
    for text, how in SENT:
        await workers.execute(talker, text, session_id=S, when_running=how, key=f"key-{text}")


async def finish(workers: LocalExecutor) -> None:
    """Settle the session until nothing waits in it."""
    while True:
        with suppress(AgentAlreadyRunningError):  # the effects of a dead process started what waits
            assert await settle(workers, talker, S) == "completed"
        await quiet(workers)
        state = await workers.sessions.get(S)
        if state.status == "completed":
            assert state.inbox == []
            return


async def everywhere(
    scripted: LoggedModel, sent: list[tuple[str, WhenRunning]], act: Any, opening: Sequence[str] = ()
) -> None:
    """Crash `act` at every write, let a new worker finish, and check what the users said, and what a reader of the stream
    is shown. `opening`: the messages before those that are sent, if there is more than `begin`."""
    SENT[:] = sent

    async def acting(store: StateStore, streams: StreamManager, points: CrashPoints) -> None:
        WORKERS.append(executor(store, streams, scripted))
        await act(WORKERS[-1])

    async def recover(store: StateStore, streams: StreamManager, point: Point) -> None:
        journal = Journal()
        await journal.check(store, streams, S)
        workers = executor(store, streams, scripted, LONG)
        WORKERS.append(workers)
        await workers.execute(talker, "begin", session_id=S, key="key-begin", when_running="queue")
        await quiet(workers)
        await send(workers)
        await quiet(workers)
        await finish(workers)
        await journal.check(store, streams, S, at_rest=True)
        assert not await find_usage_problems(store, S)
        messages = (await workers.sessions.get_messages(S, limit=100)).messages
        said = [message.content for message in messages if isinstance(message, UserMessage)]
        assert said == [*(opening or ["begin"]), *(text for text, _ in sent)], (point, said)
        followed = Conversation(S)
        for record in await read_all(streams, S):
            followed.take(record)
        shown = [(user.text, user.queued_id) for user in followed.items if isinstance(user, User) and user.queued_id]
        waited = [(m.content, m.queued_id) for m in messages if isinstance(m, UserMessage) and m.queued_id]
        assert shown == waited, (point, shown, waited)

    covered = await crash_everywhere(MemoryStateStore, acting, recover, choose=choose)
    assert covered and not [point for point in covered if "heartbeat" in point[0]]
    print(f"\n{len(covered)} crash points")


async def test_a_message_that_steers_and_one_that_waits() -> None:
    scripted = model(talker=[{"tool_calls": [call("tell")]}, "one", "two", "three"])

    async def act(workers: LocalExecutor) -> None:
        await (await workers.execute(talker, "begin", session_id=S, key="key-begin")).result()
        await finish(workers)

    await everywhere(scripted, [("steer", "steer"), ("again", "steer"), ("queue", "queue")], act)


async def test_messages_to_a_paused_session() -> None:
    scripted = model(talker=[{"tool_calls": [call("ask")]}, "one", "two", "three"])

    async def act(workers: LocalExecutor) -> None:
        assert (
            await (await workers.execute(talker, "begin", session_id=S, key="key-begin")).result()
        ).status == "paused"
        await send(workers)
        await finish(workers)

    await everywhere(scripted, [("steer", "steer"), ("queue", "queue")], act)


async def test_a_message_that_interrupts() -> None:
    scripted = model(talker=[{"tool_calls": [call("tell")]}, "one", "two", "three"])

    async def act(workers: LocalExecutor) -> None:
        await (await workers.execute(talker, "begin", session_id=S, key="key-begin")).result()
        await quiet(workers)
        await finish(workers)

    await everywhere(scripted, [("now", "interrupt"), ("queue", "queue")], act)


async def test_a_withdrawal() -> None:
    """A message is withdrawn or delivered, and never both, wherever the process of the withdrawal dies."""
    SENT[:] = [("queue", "queue")]
    scripted = model(talker=[{"tool_calls": [call("ask")]}, "one", "two"])

    async def acting(store: StateStore, streams: StreamManager, points: CrashPoints) -> None:
        workers = executor(store, streams, scripted)
        await (await workers.execute(talker, "begin", session_id=S)).result()
        await send(workers)
        for message in (await workers.sessions.get(S)).inbox:
            assert await workers.withdraw(S, message.id) == "withdrawn"

    async def recover(store: StateStore, streams: StreamManager, point: Point) -> None:
        workers = executor(store, streams, scripted, LONG)
        try:
            left = (await workers.sessions.get(S)).inbox
        except SessionNotFoundError:
            return
        await finish(workers)
        messages = (await workers.sessions.get_messages(S, limit=100)).messages
        said = [message.content for message in messages if isinstance(message, UserMessage)]
        assert said == ["begin", *(message.content for message in left)]

    assert await crash_everywhere(MemoryStateStore, acting, recover, choose=choose)
