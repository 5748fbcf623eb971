"""One pass over the batches: send what waits, collect answers, and begin the runs that can go on
(docs/protocol.md#batches).

Law: the rows decide, so any number of processes may make passes at the same time, and may die at any line. A pass
that finds nothing to do writes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from helix.core.batch_rows import Batch, BatchedCall, BatchQueue
from helix.core.config import LLMConfig
from helix.core.errors import AgentNotFoundError, HelixError, ModelError, StoreError
from helix.core.row_keys import stop_sort
from helix.core.session_row import SessionRow
from helix.core.usage import Usage
from helix.engine.batches.sending import Sender, gather
from helix.engine.engine import Engine, logger
from helix.engine.history import row_key, session_key
from helix.engine.money.usage import note_lost
from helix.engine.writing import commit, no_outcome_check
from helix.ports.batches import Batches
from helix.ports.model import LLMGenerateInput
from helix.services.batch_rows import UNSENT, call_deletes, call_key, read_calls, read_queues

AGAIN_S = 1.0
"""The time after which runs that could not begin are tried again, in seconds."""
AT_ONCE = 100
"""The number of calls whose sessions one read fetches."""

Begin = Callable[[SessionRow], Awaitable[bool]]
"""A function that continues the run of a session whose call has ended, or was stopped. It returns False if it has no
room for the run now."""


@dataclass(slots=True)
class _Pass:
    """One pass over a queue."""

    engine: Engine
    """The ports and settings."""
    name: str
    """The name of the queue."""
    queue: BatchQueue
    """The queue."""
    batches: Batches
    """The batches of the agent's adapter."""
    begin: Begin
    """A function that continues a run."""
    calls: dict[str, BatchedCall] = field(default_factory=dict)
    """The calls of the queue by id."""

    def reference(self, call: str) -> str:
        return f"{self.name}/{call}"


async def collect(engine: Engine, owner: str, begin: Begin) -> float | None:
    """Make one pass. Return the time of the next one (Unix seconds), or None if no call waits and no batch is open.
    `owner`: this worker."""
    queues, known = await read_queues(engine.store)
    times: list[float] = []
    for name, queue in queues.items():
        of_queue = {batch: row for (of, batch), row in known.items() if of == name}
        try:
            times += await _collect_queue(engine, name, queue, of_queue, (owner, begin))
        except (AgentNotFoundError, StoreError, ModelError) as error:
            logger.warning("the batches of agent %s: %s", queue.agent, error)
            times.append(engine.clock.now() + engine.settings.batch_poll_s)
        except Exception:  # an adapter's own error must not stop the other queues
            logger.exception("the batches of agent %s cannot be carried on", queue.agent)
            times.append(engine.clock.now() + engine.settings.batch_poll_s)
    return min(times, default=None)


async def _collect_queue(
    engine: Engine, name: str, queue: BatchQueue, known: dict[str, Batch], worker: tuple[str, Begin]
) -> list[float]:
    owner, begin = worker
    calls = {ident: call async for page in read_calls(engine.store, name) for ident, call in page}
    if not calls and not known:
        return []
    batches = engine.models(engine.agents(queue.agent)).batches
    if batches is None:
        raise ModelError(f"the adapter of agent {queue.agent!r} has no batches")
    this = _Pass(engine, name, queue, batches, begin, calls)
    times: list[float] = []
    sender = Sender(engine, name, queue.place, batches, owner, calls)
    others = {row.provider_id for row in known.values() if row.provider_id}
    for batch, row in known.items():
        times += await sender.advance(batch, row, others)
    times += await gather(sender)
    times += await _begin_ended(this)
    await _begin_stopped(this)
    return times


async def _begin_ended(this: _Pass) -> list[float]:
    """Begin the runs whose calls have ended, and drop the calls that no run waits for. Return the time of the next try,
    if some could not begin."""
    engine, again = this.engine, list[float]()
    idents = list(this.calls)
    for first in range(0, len(idents), AT_ONCE):
        page = idents[first : first + AT_ONCE]
        values = await engine.store.get([session_key(this.calls[ident].session_id) for ident in page])
        for ident, value in zip(page, values, strict=True):
            call = this.calls[ident]
            session = None if value is None else SessionRow.at(call.session_id, value)
            if session is None or not _waits(session, this.reference(ident)):
                await _drop(this, ident, session)
            elif call.ended and not await this.begin(session):
                again = [engine.clock.now() + AGAIN_S]
    return again


def _waits(session: SessionRow, reference: str) -> bool:
    """Return whether the session's run waits for this call."""
    claim = session.claim
    return session.status == "running" and claim is not None and claim.batch == reference


async def _drop(this: _Pass, ident: str, session: SessionRow | None) -> None:
    """Drop a call that no run waits for: its run was stopped, or its session deleted. A call that was sent is dropped only
    once it has ended, and its usage is recorded. The claim and the call were written together, so a call that is still
    there after its session was read has no answer in history."""
    engine, reference = this.engine, this.reference(ident)
    key = call_key(this.name, ident)
    (value,) = await engine.store.get([key])
    if value is None:
        return
    call = BatchedCall.read(key.partition, key.sort, value)
    if call.batch is not None and not call.ended:
        return
    if not call.ended and not await commit(engine, "drop_batched", call_deletes(reference, UNSENT), no_outcome_check):
        return  # it was sent just now
    if session is not None and session.created_at == call.created_at:
        model, usage = await _usage(this, call)
        changes = {"claim": call.claim, "head": call.head, "output_limit": call.output_limit}
        await note_lost(engine, session.model_copy(update=changes), model, usage)
    if call.ended:
        await commit(engine, "drop_batched", call_deletes(reference), no_outcome_check)


async def _usage(this: _Pass, call: BatchedCall) -> tuple[str, Usage]:
    """Return the model and the usage of a call. A call without an answer is not billed."""
    model = str(this.queue.place.get("model", ""))
    if call.answer is None:
        return model, Usage()
    request = LLMGenerateInput([], [], LLMConfig(model=model), call.session_id, this.queue.agent, batch=True)
    try:
        return model, (await this.batches.read(this.queue.place, request, call.answer)).usage
    except HelixError:
        logger.warning("the usage of a late answer of a batch cannot be read", exc_info=True)
        return model, Usage(unknown_calls=1)


async def _begin_stopped(this: _Pass) -> None:
    """Begin the runs that were asked to stop while their calls wait, so that they end."""
    engine = this.engine
    waiting = [(ident, call) for ident, call in this.calls.items() if not call.ended]
    for first in range(0, len(waiting), AT_ONCE):
        page = waiting[first : first + AT_ONCE]
        keys = [row_key(call.session_id, stop_sort(call.claim.run_id)) for _, call in page]
        stopped = [
            (ident, call)
            for (ident, call), value in zip(page, await engine.store.get(keys), strict=True)
            if value is not None and value.get("stop") is not None
        ]
        for ident, call in stopped:
            session = await engine.history.session(call.session_id)
            if session is not None and _waits(session, this.reference(ident)):
                await this.begin(session)
