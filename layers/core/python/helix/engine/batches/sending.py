"""Puts calls into batches, sends them, and stores their outcomes (docs/protocol.md#batches).

Law: a call is marked with its batch before the batch is sent. A batch whose sending began is looked for at the provider
before it is sent again. A call leaves its batch only once the provider says that the batch has ended. So no call is in
two batches that the provider may execute.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from helix.core.batch_rows import Batch, BatchedCall
from helix.core.errors import ConditionFailedError, ModelError
from helix.core.json import JsonObject, text_of
from helix.core.rows import ErrorInfo
from helix.engine.claims.liveness import Claim, HeldClaim
from helix.engine.engine import Engine, logger
from helix.engine.writing import commit, no_outcome_check
from helix.ports.batches import MAX_BYTES, BatchAnswer, Batches
from helix.ports.state_store import ABSENT, HEARTBEAT, Check, Delete, Operation, Put, Update, When
from helix.services.batch_rows import UNSENT, batch_key, body_key, call_key, read_calls

AT_ONCE = 20
"""The number of calls that one transaction changes."""
MAX_WAIT_S = 900.0
"""The longest wait between two tries to send a batch, in seconds."""
EXPIRED = ErrorInfo(code="batch_expired", message="the provider's batch ended without an answer to this call")


@dataclass(slots=True)
class Sender:
    """A worker that looks after the batches of one queue."""

    engine: Engine
    """The ports and settings."""
    queue: str
    """The name of the queue."""
    place: JsonObject
    """The model, interface and address of its calls."""
    batches: Batches
    """The batches of the adapter."""
    owner: str
    """This worker."""
    calls: dict[str, BatchedCall]
    """The calls of the queue by id, as read. They are kept up to date."""

    def members(self, name: str) -> dict[str, BatchedCall]:
        """Return the calls in this batch that have not ended."""
        return {ident: call for ident, call in self.calls.items() if call.batch == name and not call.ended}

    async def advance(self, name: str, batch: Batch, others: Collection[str]) -> list[float]:
        """Carry the batch on as far as possible. Return the time of the next look, if there is one. `others`: the
        provider's ids of known batches."""
        now = self.engine.clock.now()
        if batch.look_at > now:
            return [batch.look_at]
        if batch.until is not None and batch.until > now and batch.owner != self.owner:
            return [batch.until]
        free = When(equal={"owner": batch.owner, "until": batch.until})
        lease = {"owner": self.owner, "until": now + self.engine.settings.claim_s}
        taken = Update(batch_key(self.queue, name), set=lease, when=free)
        if not await commit(self.engine, "hold_batch", [taken], no_outcome_check):
            return [now + self.engine.settings.batch_poll_s]
        if batch.owner is not None and batch.owner != self.owner:  # it may have marked more calls since they were read
            async for page in read_calls(self.engine.store, self.queue):
                self.calls.update(page)
        held = batch.model_copy(update=lease)
        async with HeldClaim(self.engine, self._claim(name, held)):
            try:
                if held.state == "sent":
                    return await self._look(name, held)
                return await self._send(name, held, others)
            except ModelError as error:
                logger.warning("the batch %s of queue %s: %s", name, self.queue, error)
                return await self._later(name, held, error.retry_after_s)

    def _claim(self, name: str, held: Batch) -> Claim:
        deadline = held.until or 0

        async def move(until: float) -> bool:
            nonlocal deadline
            own = Update(batch_key(self.queue, name), set={"until": until}, when=When(equal={"owner": self.owner}))
            try:
                await self.engine.store.transact(HEARTBEAT, [own])
            except ConditionFailedError:
                return False
            deadline = until
            return True

        return Claim(f"batch {name!r}", lambda: deadline, move)

    async def _update(self, name: str, batch: Batch, **changes: Any) -> Batch | None:
        """Change the row of the batch that this worker holds. None: another worker has it."""
        own = When(equal={"owner": self.owner, "attempts": batch.attempts or None})
        update = Update(batch_key(self.queue, name), set=changes, when=own)
        if not await commit(self.engine, "move_batch", [update], no_outcome_check):
            return None
        return batch.model_copy(update=changes)

    async def _later(self, name: str, batch: Batch, wait_s: float | None = None) -> list[float]:
        """Look at the batch again later. The waits after failures get longer."""
        wait = self.engine.settings.batch_poll_s
        if batch.state == "sending":
            wait = min(wait * 2 ** max(0, batch.attempts - 1), MAX_WAIT_S)
        at = self.engine.clock.now() + max(wait, wait_s or 0)
        await self._update(name, batch, look_at=at, owner=None, until=None)
        return [at]

    async def _send(self, name: str, batch: Batch, others: Collection[str]) -> list[float]:
        members = self.members(name)
        if not members:  # all were withdrawn, or none was put into it
            await commit(self.engine, "drop_batch", [Delete(batch_key(self.queue, name))], no_outcome_check)
            return []
        if batch.attempts:
            found = await self.batches.find(self.place, name, members, batch.begun_at, others)
            if found == "unknown":
                return await self._later(name, batch)
            if found is not None:
                return await self._sent(name, batch, found)
        begun = await self._update(name, batch, state="sending", attempts=batch.attempts + 1)
        if begun is None:
            return [self.engine.clock.now() + self.engine.settings.batch_poll_s]
        try:
            provider_id = await self.batches.send(self.place, name, await self._bodies(members))
        except ModelError as error:
            # A refusal of the first try is certain. Before a retry, or after an error that is not known, the provider may
            # have the batch.
            may_exist = bool(batch.attempts) or error.code == ModelError.code
            if error.retryable or (
                may_exist and await self.batches.find(self.place, name, members, begun.begun_at, others) is not None
            ):
                return await self._later(name, begun, error.retry_after_s)
            reason = ErrorInfo(code=error.code, message=text_of(error), recoverable=False)
            return await self._end(name, [BatchAnswer(ident, error=reason) for ident in members])
        return await self._sent(name, begun, provider_id)

    async def _sent(self, name: str, batch: Batch, provider_id: str) -> list[float]:
        at = self.engine.clock.now() + self.engine.settings.batch_poll_s
        changes = {"state": "sent", "provider_id": provider_id, "look_at": at, "owner": None, "until": None}
        await self._update(name, batch, **changes)
        return [at]

    async def _bodies(self, members: dict[str, BatchedCall]) -> list[tuple[str, JsonObject]]:
        found: list[tuple[str, JsonObject]] = []
        idents = list(members)
        for first in range(0, len(idents), AT_ONCE):
            page = idents[first : first + AT_ONCE]
            values = await self.engine.store.get([body_key(self.queue, ident) for ident in page])
            found += [(ident, value["body"]) for ident, value in zip(page, values, strict=True) if value is not None]
        return found

    async def _look(self, name: str, batch: Batch) -> list[float]:
        """Ask the provider for the progress. If the batch has ended, store the outcomes of its calls."""
        status = await self.batches.look(self.place, batch.provider_id)
        if not status.ended:
            return await self._later(name, batch)
        if status.error is not None:
            return await self._end(name, [BatchAnswer(ident, error=status.error) for ident in self.members(name)])
        page: list[BatchAnswer] = []
        async for answer in self.batches.answers(self.place, batch.provider_id):
            page.append(answer)
            if len(page) == AT_ONCE:
                await self._store(name, page)
                page = []
        await self._store(name, page)
        return await self._end(name, [BatchAnswer(ident, error=EXPIRED) for ident in self.members(name)])

    async def _end(self, name: str, outcomes: Sequence[BatchAnswer]) -> list[float]:
        """Store the outcomes of the calls that are left, and delete the batch."""
        for first in range(0, len(outcomes), AT_ONCE):
            await self._store(name, outcomes[first : first + AT_ONCE])
        await commit(self.engine, "drop_batch", [Delete(batch_key(self.queue, name))], no_outcome_check)
        return [self.engine.clock.now()] if any(not call.ended for call in self.calls.values()) else []

    async def _store(self, name: str, outcomes: Sequence[BatchAnswer]) -> None:
        """Store the outcomes of calls in this batch. An outcome that is stored already stands."""
        members = self.members(name)
        changes = {one.call: self._changes(members[one.call], one) for one in outcomes if one.call in members}
        if not changes:
            return
        if not await self._commit(name, changes):
            for ident, change in changes.items():
                await self._commit(name, {ident: change})

    async def _commit(self, name: str, changes: dict[str, dict[str, Any]]) -> bool:
        ops: list[Operation] = []
        for ident, change in changes.items():
            in_batch = When(equal={"batch": name, "ended": None})
            ops.append(Update(call_key(self.queue, ident), set=change, when=in_batch))
            if change.get("ended"):
                ops.append(Delete(body_key(self.queue, ident)))
        if not await commit(self.engine, "store_batched", ops, no_outcome_check):
            return False
        for ident, change in changes.items():
            self.calls[ident] = BatchedCall.model_validate({**self.calls[ident].dump(), **change})
        return True

    def _changes(self, call: BatchedCall, outcome: BatchAnswer) -> dict[str, Any]:
        """Return the changes to the call: its answer, a place in a next batch, or its failure."""
        if outcome.answer is not None:
            return {"answer": outcome.answer, "ended": True}
        error = outcome.error or EXPIRED
        if error.recoverable and call.tries > 1:
            return {"batch": None, "tries": call.tries - 1, "due_at": self.engine.clock.now()}
        return {"error": error.model_dump(mode="json", exclude_defaults=True), "ended": True}


async def gather(sender: Sender) -> list[float]:
    """Put the waiting calls into a new batch and send it, if the oldest has waited long enough or there are many. Return
    the time of the next look, if there is one."""
    engine, settings = sender.engine, sender.engine.settings
    waiting = {ident: call for ident, call in sender.calls.items() if call.batch is None and not call.ended}
    if not waiting:
        return []
    now, due = engine.clock.now(), min(call.due_at for call in waiting.values()) + settings.batch_gather_s
    if due > now and len(waiting) < settings.batch_calls:
        return [due]
    name, chosen, size = engine.ids.new("batch"), list[str](), 0
    for ident, call in sorted(waiting.items(), key=lambda item: item[1].due_at):
        size += call.size
        if chosen and (size > MAX_BYTES or len(chosen) == settings.batch_calls):
            break
        chosen.append(ident)
    batch = Batch(begun_at=now, owner=sender.owner, until=now + settings.claim_s)
    row = Put(batch_key(sender.queue, name), batch.dump(), ABSENT)
    if not await commit(engine, "gather_batch", [row], no_outcome_check):
        return [now]
    for first in range(0, len(chosen), AT_ONCE):
        page = chosen[first : first + AT_ONCE]
        if not await _mark(sender, name, page):
            for ident in page:
                await _mark(sender, name, [ident])
    times = await sender.advance(name, batch, ())
    return times + ([now] if len(chosen) < len(waiting) else [])


async def _mark(sender: Sender, name: str, idents: Sequence[str]) -> bool:
    """Put the calls into the batch, unless one of them was withdrawn or is in another batch, or another worker has taken
    the batch over meanwhile."""
    held = Check(batch_key(sender.queue, name), When(equal={"owner": sender.owner, "attempts": None}))
    marks = [Update(call_key(sender.queue, ident), set={"batch": name}, when=UNSENT) for ident in idents]
    if not await commit(sender.engine, "mark_batched", [held, *marks], no_outcome_check):
        return False
    for ident in idents:
        sender.calls[ident] = sender.calls[ident].model_copy(update={"batch": name})
    return True
