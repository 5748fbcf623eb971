"""What the commands do on a stage: each starts or joins a run, shows it to its end, and returns its handle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from helix.cli.questions import open_questions
from helix.cli.refusal import RefusedError
from helix.cli.stage import Handle, Stage
from helix.core.errors import AgentAlreadyRunningError, CannotResumeError
from helix.engine.answers import Confirmation
from helix.runtime.handle import RetryMode

Act = Callable[[Stage], Awaitable[Handle]]


def run(message: str, session_id: str | None) -> Act:
    """A new session, or the next message of one; one whose process died is waited for."""

    async def act(stage: Stage) -> Handle:
        if session_id is not None:
            await stage.until_free(session_id)
        handle = await stage.executor.execute(stage.agent, message, session_id=session_id)
        await stage.watch(handle)
        return handle

    return act


def resume(session_id: str, message: str | None, checkpoint_id: str | None) -> Act:
    async def act(stage: Stage) -> Handle:
        await stage.until_free(session_id)
        try:
            handle = await stage.executor.resume(stage.agent, session_id, message=message, checkpoint_id=checkpoint_id)
        except CannotResumeError as error:
            if error.reason != "pending_confirmation":
                raise
            questions = await open_questions(stage.executor, session_id)
            calls = ", ".join(f"{q.call_id} ({q.tool_name})" for q in questions)
            raise RefusedError(
                f"session {session_id!r} waits for an answer to {calls}: --approve CALL, --deny CALL, or --message"
            ) from None
        await stage.watch(handle)
        return handle

    return act


def retry(session_id: str, message: str | None, from_start: bool) -> Act:
    async def act(stage: Stage) -> Handle:
        await stage.until_free(session_id)
        mode: RetryMode = "from_start" if from_start else "from_checkpoint"
        handle = await stage.executor.retry(stage.agent, session_id, mode=mode, message=message)
        await stage.watch(handle)
        return handle

    return act


def answer(session_id: str, confirmations: Sequence[Confirmation]) -> Act:
    """One answer after the other, each followed to where its run ends."""

    async def act(stage: Stage) -> Handle:
        for confirmation in confirmations:
            await _answer(stage, session_id, confirmation)
        return await stage.executor.get_handle(stage.agent, session_id)

    return act


async def _answer(stage: Stage, session_id: str, confirmation: Confirmation) -> None:
    """The answered call may be a sub-agent's: then its run goes on first, and its parents' runs follow."""
    executor = stage.executor
    root = await executor.sessions.get(session_id)
    info = await executor.streams.info(root.stream_id)
    after = info.latest_sequence if info is not None else 0
    runs = await _runs_waiting(stage, session_id)
    answered = await executor.answer(stage.agent, session_id, confirmation)
    if answered.claimed is None:
        await _join(stage, session_id)
        return
    current = answered.session_id
    while True:
        state = await executor.sessions.get(current)
        if state.current_run_id == runs.get(current):
            return  # it waits for something else still
        member = stage.agent.find_agent(state.agent_type) or stage.agent
        after = await stage.watch(await executor.get_handle(member, current), after=after, root=session_id)
        if current == session_id or state.parent_session_id is None:
            return
        current = state.parent_session_id


async def _join(stage: Stage, session_id: str) -> None:
    """The answer is recorded, and starts nothing by itself: a living run picks it up; a dead or stopped one is resumed."""
    try:
        await stage.until_free(session_id)
    except AgentAlreadyRunningError:
        handle = await stage.executor.get_handle(stage.agent, session_id)
    else:
        handle = await stage.executor.resume(stage.agent, session_id)
    await stage.watch(handle)


async def _runs_waiting(stage: Stage, session_id: str) -> dict[str, str]:
    """Run ids of the session and of the sub-agents it waits for."""
    state = await stage.executor.sessions.get(session_id)
    runs = {session_id: state.current_run_id}
    for pending in state.pending:
        if pending.child_session_id is not None:
            runs |= await _runs_waiting(stage, pending.child_session_id)
    return runs
