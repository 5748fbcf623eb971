"""The actions behind the commands. Each starts or joins a run, follows it to its end, and returns its handle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from helix.cli.output import RefusedError
from helix.cli.run.follow import Follower, Handle, open_questions
from helix.cli.view.base import Question
from helix.core.elsewhere import CallEnding
from helix.core.errors import AgentAlreadyRunningError, CannotResumeError
from helix.core.files import Content
from helix.core.handles import Confirmation, RetryMode
from helix.core.inbox import WhenRunning

Action = Callable[[Follower], Awaitable[Handle]]


def _when_free(session_id: str | None, start: Action) -> Action:
    """Return an action that waits until no process owns the session, then starts a run and follows it. If the owner died,
    the action waits until its lease expires."""

    async def action(follower: Follower) -> Handle:
        if session_id is not None:
            await follower.wait_until_free(session_id)
        handle = await start(follower)
        await follower.follow(handle)
        return handle

    return action


def _now(start: Action) -> Action:
    async def action(follower: Follower) -> Handle:
        handle = await start(follower)
        await follower.follow(handle)
        return handle

    return action


def run(message: Content, session_id: str | None, when_running: WhenRunning | None = None) -> Action:
    """Return an action that sends a message to a session, or to a new one. Without `when_running`, it first waits until no
    process owns the session."""
    if when_running is not None:
        return _now(lambda f: f.executor.execute(f.agent, message, session_id=session_id, when_running=when_running))
    return _when_free(session_id, lambda f: f.executor.execute(f.agent, message, session_id=session_id))


def retry(session_id: str, message: str | None, from_start: bool) -> Action:
    mode: RetryMode = "from_start" if from_start else "from_checkpoint"
    return _when_free(session_id, lambda f: f.executor.retry(f.agent, session_id, mode=mode, message=message))


def resume(session_id: str, message: str | None, checkpoint_id: str | None) -> Action:
    async def start(follower: Follower) -> Handle:
        executor, agent = follower.executor, follower.agent
        try:
            return await executor.resume(agent, session_id, message=message, checkpoint_id=checkpoint_id)
        except CannotResumeError as error:
            if error.reason != "pending_confirmation":
                raise
            raise unanswered_error(session_id, await open_questions(executor.sessions.load, session_id)) from None

    return _when_free(session_id, start)


def unanswered_error(session_id: str, questions: Sequence[Question]) -> RefusedError:
    calls = ", ".join(f"{q.call_id} ({q.tool_name})" for q in questions)
    return RefusedError(
        f"session {session_id!r} waits for an answer to {calls}: --approve CALL, --deny CALL, or --message"
    )


def answer(session_id: str, confirmations: Sequence[Confirmation]) -> Action:
    """Return an action that submits the answers one by one and follows each to the end of its run."""

    async def action(follower: Follower) -> Handle:
        for confirmation in confirmations:
            await _answer(follower, session_id, confirmation)
        return await follower.executor.get_handle(follower.agent, session_id)

    return action


async def _answer(follower: Follower, session_id: str, confirmation: Confirmation) -> None:
    """Submit an answer and follow the run. If the call belongs to a sub-agent, the sub-agent's run continues first, then
    its parents' runs."""
    executor, agent = follower.executor, follower.agent
    root = await executor.sessions.get(session_id)
    info = await executor.streams.info(root.stream_id)
    after = info.latest_sequence if info is not None else 0
    runs = await _runs_waiting(follower, session_id)
    answered = await executor.answer(agent, session_id, confirmation)
    if answered.claimed is None:
        await _join(follower, session_id)
        return
    current = answered.session_id
    while True:
        state = await executor.sessions.get(current)
        if state.current_run_id == runs.get(current):
            return  # it is still waiting for another answer
        member = agent.find_agent(state.agent_type) or agent
        after = await follower.follow(await executor.get_handle(member, current), after=after, root=session_id)
        if current == session_id or state.parent_session_id is None:
            return
        current = state.parent_session_id


async def _join(follower: Follower, session_id: str) -> None:
    """Follow the run after an answer that did not start one. A live run picks up the answer. If its process died or the run
    was stopped, resume it."""
    try:
        await follower.wait_until_free(session_id)
    except AgentAlreadyRunningError:
        handle = await follower.executor.get_handle(follower.agent, session_id)
    else:
        handle = await follower.executor.resume(follower.agent, session_id)
    await follower.follow(handle)


async def _runs_waiting(follower: Follower, session_id: str) -> dict[str, str]:
    """Return the current run ids of the session and of the sub-agents that it is waiting for, by session."""
    state = await follower.executor.sessions.get(session_id)
    runs = {session_id: state.current_run_id}
    for pending in state.pending:
        if pending.child_session_id is not None:
            runs |= await _runs_waiting(follower, pending.child_session_id)
    return runs


def end_call(token: str, ending: CallEnding, session_id: str) -> Action:
    """Return an action that ends a call elsewhere, and follows the run of its root session."""

    async def start(follower: Follower) -> Handle:
        follower.executor.agents.know(follower.agent)
        if ending.error is not None:
            await follower.executor.fail_call(token, ending.error)
        else:
            await follower.executor.complete_call(token, ending.value)
        return await follower.executor.get_handle(follower.agent, session_id)

    return _now(start)
