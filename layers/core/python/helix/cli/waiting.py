"""Waiting for a session whose process may have died.

Law: a run is taken from a worker only after its lease has lapsed. Any sign of life before that (the lease moves, a step
commits, the stream grows) refuses the command at once: two workers never compete, and nobody waits for a living one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from helix.core.errors import AgentAlreadyRunningError
from helix.engine.sessions import SessionState
from helix.fleet.rows import read_entry
from helix.ports.clock import Clock
from helix.runtime.executor import Executor

POLL_S = 0.1


async def until_free(executor: Executor, session_id: str, clock: Clock, say: Callable[[str], None]) -> None:
    """Return once no worker has the session (there may be no such session). Raises `AgentAlreadyRunningError`.

    The wait is announced when a living worker would have renewed its lease: a refusal stays a single line.
    """
    state = await executor.sessions.load(session_id)
    if state is None or state.status != "running" or not state.lease_expires:
        return  # without a lease it is executed by a fleet, whose runs never go to waste: the claim says that it runs
    seen, began, said = await _signs(executor, state), clock.now(), False
    patience_s = executor.engine.settings.lease_s / 3 + 0.5
    while state.lease_expires >= clock.now():
        if not said and clock.now() - began >= patience_s:
            said = True
            left = max(1, round(state.lease_expires - clock.now()))
            say(
                f"session {session_id!r} is running, but its process is silent: waiting {left} s for its lease to lapse"
            )
        await asyncio.sleep(POLL_S)
        state = await executor.sessions.load(session_id)
        if state is None or await _signs(executor, state) != seen:
            raise AgentAlreadyRunningError(session_id, state.current_run_id if state is not None else None)
    waited = f" (waited {clock.now() - began:.0f} s for its lease)" if clock.now() - began >= POLL_S else ""
    say(f"the process that ran session {session_id!r} is gone{waited}: going on in its place")


async def unserved(executor: Executor, agent_id: str, clock: Clock) -> str | None:
    """Why a run that a fleet is to execute stands still, if nobody serves its agent."""
    entry = await read_entry(executor.store, agent_id)
    if entry is not None and entry.supervised(clock.now()):
        return None
    return f"nobody serves {agent_id!r} from this store now; its runs wait for `helix fleet serve`, on this store"


async def _signs(executor: Executor, state: SessionState) -> tuple[float, int, int]:
    info = await executor.streams.info(state.stream_id)
    return state.lease_expires, state.version, info.latest_sequence if info is not None else 0
