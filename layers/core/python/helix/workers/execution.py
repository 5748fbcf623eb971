"""Plays one execution in a worker. It reproduces the states and retries of the deployed state machine in this process.

    deliver_model ─> sub-agents in parallel: deliver_child, then its token ─> deliver_model ... ─> deliver_end
    any final failure ─> deliver_failure

Law: an execution knows only its position, and the rows determine what to do next. Playing may therefore end between any two
deliveries, and another worker may start it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

from helix.core.delivery import Delivery, Position
from helix.core.errors import (
    AgentNotFoundError,
    RunNotFoundError,
    SessionNotFoundError,
    StoreError,
    WorkInProgressError,
)
from helix.engine.calls.execute import Call
from helix.engine.claims.liveness import delivery_owner, died_in_call, expire_claims
from helix.engine.engine import Engine, logger
from helix.engine.stops import read_stop
from helix.engine.verbs import (
    CALL_EVENTS,
    MODEL_EVENTS,
    deliver_child,
    deliver_end,
    deliver_failure,
    deliver_model,
)
from helix.ports.state_store import Value
from helix.services.work_queue import Signals, Work, WorkQueue
from helix.workers.tasks import first_of

T = TypeVar("T")
Played = Literal["ended", "left"]
Deliver = Callable[[Delivery], Awaitable[T]]

STORE_TRIES = 6
WAITS_S = (0.2, 10.0)
"""The first and the longest pause, in seconds, before retrying a delivery that found another one in progress. A change to
the session ends the pause early."""
GIVEN_UP_S = 20 * 60.0
MAX_DEATHS = 3
"""The number of workers that may die while they hold an execution. After that it is not played again: its run fails, and
can be retried. Deaths during a call are counted by the call (`helix.engine.calls.tool.MAX_DEATHS`)."""


class LeftError(Exception):
    """The worker is leaving at a point where another worker can continue."""


class Execution:
    """Plays one execution that this worker holds. `leave()` ends it at the next delivery. Cancelling the task of `play`
    ends it immediately. Tokens arrive through `receive_signals`."""

    def __init__(self, engine: Engine, queue: WorkQueue, work: Work) -> None:
        self.work = work
        self._engine, self._queue = engine, queue
        self._leaving = asyncio.Event()
        self._tokens: dict[str, asyncio.Future[None]] = {}

    def leave(self) -> None:
        self._leaving.set()

    def receive_signals(self, signals: Signals) -> None:
        for token in signals.tokens & self._tokens.keys():
            if not (woken := self._tokens[token]).done():
                woken.set_result(None)

    async def play(self) -> Played:
        """Play to the end of the execution, or to a point where another worker can continue. Raises `StoreError` if not
        even its failure could be recorded. If so, the caller should try again later."""
        engine, part = self._engine, self.work.part
        try:
            deaths = self.work.deaths
            if self.work.former is not None:
                former, died = self.work.former, self.work.former_died
                await expire_claims(engine, part.session_id, former, died=died)
                if died and await died_in_call(engine, part.session_id, former) and await self._queue.excuse(self.work):
                    deaths -= 1
            if deaths >= MAX_DEATHS:
                return await self._fail(f"{deaths} workers died while they executed it")
            position: Position | None = await self._first_position()
            while position is not None:
                position = await self._advance(position)
            return "ended"
        except LeftError:
            return "left"
        except Exception as error:
            logger.exception("run %s: its execution failed", part.run_id)
            return await self._fail(type(error).__name__)

    # --- states ---------------------------------------------------------------------------------------------------

    async def _first_position(self) -> Position:
        """Return the position to start from: the first step of the part, or the step that its last holder reached."""
        part = self.work.part
        session = await self._engine.history.session(part.session_id)
        step = part.step
        if session is not None and session.run_id == part.run_id:
            step = max(step, session.step + 1)
        events = (step - part.step) * (MODEL_EVENTS + CALL_EVENTS)
        return Position(part.session_id, part.run_id, part.part, step, events)

    async def _advance(self, at: Position) -> Position | None:
        """Continue the run, then start its sub-agents and wait for them. Return None if this execution has nothing left to
        do."""
        move = await self._deliver(lambda d: deliver_model(self._engine, at, d, self._leaving.is_set))
        if move.kind == "gone":
            return None
        if move.kind == "over":
            await self._deliver(lambda d: deliver_end(self._engine, at.session_id, at.run_id, d))
            return None
        if move.calls:
            step = replace(at, step=move.step - 1)
            found = await asyncio.gather(*(self._run_child(step, call) for call in move.calls), return_exceptions=True)
            failed = [error for error in found if isinstance(error, BaseException)]
            if failed:
                raise next((error for error in failed if not isinstance(error, LeftError)), failed[0])
            await self._delete_tokens([token for token in found if isinstance(token, str)])
        return replace(at, step=move.step, events=move.events)

    async def _run_child(self, at: Position, call: Call) -> str:
        """Deliver a sub-agent's call and wait for the sub-agent to end. Return the token that it waited for."""
        engine = self._engine
        token = f"{self.work.name}#{engine.ids.new('token')}"
        woken = self._tokens[token] = asyncio.get_running_loop().create_future()
        try:
            await self._deliver(lambda delivery: deliver_child(engine, at, call.call_id, token, delivery))
            await self._wait_unless_leaving(woken)
        finally:
            del self._tokens[token]
        return token

    async def _delete_tokens(self, tokens: Sequence[str]) -> None:
        """Delete the tokens. Otherwise each wake-up of a long run would read the tokens of all its sub-agents so far."""
        try:
            await self._queue.forget_tokens(self.work, tokens)
        except StoreError:
            logger.warning(
                "run %s: its used tokens could not be deleted; they stay until the run ends",
                self.work.part.run_id,
                exc_info=True,
            )

    async def _fail(self, cause: str) -> Played:
        part = self.work.part
        at = Position(part.session_id, part.run_id, part.part, part.step)
        await self._deliver(lambda d: deliver_failure(self._engine, at, cause, d), last=True)
        return "ended"

    # --- deliveries -----------------------------------------------------------------------------------------------

    async def _deliver(self, verb: Deliver[T], *, last: bool = False) -> T:
        """Make one delivery. As in the deployed state machine, it is repeated while another delivery is in progress, and
        while the store fails. With `last`, even a leaving worker makes the delivery."""
        now, tries, pause = self._engine.clock.now(), 0, WAITS_S[0]
        given_up = now + GIVEN_UP_S
        while True:
            if self._leaving.is_set() and not last:
                raise LeftError
            with self._engine.store.watch("sessions", self.work.part.session_id) as changes:
                try:
                    return await verb(self._delivery())
                except WorkInProgressError as error:
                    if self._engine.clock.now() > given_up:
                        raise
                    logger.info("run %s waits: %s", self.work.part.run_id, error)
                except (SessionNotFoundError, RunNotFoundError):
                    raise
                except StoreError:
                    tries += 1
                    if tries >= STORE_TRIES:
                        raise
                    logger.warning("run %s: the store failed; trying again", self.work.part.run_id, exc_info=True)
                await self._wait_unless_leaving(changes.changed(pause), unless=last)
                pause = min(2 * pause, WAITS_S[1])

    def _delivery(self) -> Delivery:
        return Delivery(delivery_owner(self.work.owner, self._engine.ids.new("d")))

    async def _wait_unless_leaving(self, what: Awaitable[object], *, unless: bool = False) -> None:
        """Wait for `what`, but only until this worker leaves. No work is in progress while it waits, so leaving loses
        nothing."""
        if unless:
            await what
            return
        waiting = asyncio.ensure_future(what)
        try:
            await first_of(waiting, self._leaving.wait())
            if not waiting.done():
                raise LeftError
        finally:
            waiting.cancel()


async def end_stopped(engine: Engine, queue: WorkQueue, worker_id: str) -> int:
    """Play every execution that no worker holds and that was asked to stop. Return their number. Their stop is already
    recorded, so no model is called and no tool is started."""
    to_stop = set()
    for row in await queue.open_work():
        if queue.free(row.value) and await _is_to_stop(engine, row.value):
            to_stop.add(row.value["name"])
    ended = 0
    while to_stop and (work := await queue.claim(worker_id, lambda value: value["name"] in to_stop)) is not None:
        to_stop.discard(work.name)
        if await Execution(engine, queue, work).play() == "ended":
            await queue.finish(work)
            ended += 1
    return ended


async def _is_to_stop(engine: Engine, value: Value) -> bool:
    session = await engine.history.session(value["session_id"])
    if session is None or session.run_id != value["run_id"]:
        return False
    try:
        engine.agents(value["agent_type"])
    except AgentNotFoundError:
        return False
    return session.status != "running" or await read_stop(engine.store, session, value["run_id"]) is not None
