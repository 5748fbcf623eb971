"""Commands that change sessions without running an agent: interrupt, branch, clone, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from helix.adapters.system import SystemClock
from helix.cli.playing import require_store
from helix.cli.refusal import COMPLETED, RefusedError
from helix.core.errors import SessionNotFoundError
from helix.runtime.local import LocalExecutor


def interrupt(db: str, session_id: str, reason: str | None) -> int:
    async def act(executor: LocalExecutor) -> str:
        state = await executor.sessions.get(session_id)
        if state.status != "running":
            raise RefusedError(f"session {session_id!r} does not run: it is {state.status}")
        if state.lease_expires and state.lease_expires < SystemClock().now():  # 0: a fleet executes it
            raise RefusedError(f"session {session_id!r} does not run: its process is gone; resume it")
        if not await executor.interrupt(session_id, reason, run_id=state.current_run_id):
            raise RefusedError(f"session {session_id!r} does not run any more")
        return f"asked session {session_id} to stop; it does so at its next point"

    return _do(db, session_id, act)


def branch(db: str, session_id: str, checkpoint_id: str | None, target: str | None) -> int:
    async def act(executor: LocalExecutor) -> str:
        return (await executor.branch(session_id, checkpoint_id, session_id=target)).session_id

    return _do(db, session_id, act)


def clone(db: str, source: str, target: str, checkpoint_id: str | None, messages: int | None) -> int:
    async def act(executor: LocalExecutor) -> str:
        copied = await executor.clone_session(
            source, target, from_checkpoint_id=checkpoint_id, from_message_index=messages
        )
        return copied.session_id

    return _do(db, source, act)


def delete(db: str, session_id: str) -> int:
    async def act(executor: LocalExecutor) -> str:
        if not await executor.delete(session_id):
            raise SessionNotFoundError(session_id)
        return f"deleted session {session_id}"

    return _do(db, session_id, act)


def _do(db: str, session_id: str, act: Callable[[LocalExecutor], Awaitable[str]]) -> int:
    require_store(db, session_id)

    async def main() -> str:
        async with LocalExecutor(db) as executor:
            return await act(executor)

    print(asyncio.run(main()))
    return COMPLETED
