"""Notes that a step's prompt was not read from the provider's cache, although the cache should have had it.

Law: the note is part of the staged answer, so it exists once, however often the step was tried. A row that cannot be read
costs the note, and never the answer.
"""

from __future__ import annotations

from dataclasses import replace

from helix.core.entries import AssistantRow
from helix.core.errors import HelixError
from helix.core.lost_caches import Asked, LostCache, find_reason, lost_tokens, may_be_lost
from helix.core.messages import AssistantMessage
from helix.core.request_heads import RequestHead
from helix.core.row_keys import message_sort
from helix.core.session_row import SessionRow
from helix.core.steps import AnyStepResult, ErrorStepResult
from helix.engine.context import RunContext
from helix.engine.engine import logger
from helix.engine.history import row_key
from helix.engine.steps.ask import ModelAnswer
from helix.services.request_heads import read_head


async def note_lost_cache(run: RunContext, session: SessionRow, answer: ModelAnswer) -> ModelAnswer:
    """Return the answer with the tokens that its call did not read from the cache, and the reason. `session`: the row with
    the claim of the step. Nothing is read from the store if the call read its prompt from the cache, or if the prompt is
    short."""
    result = answer.result
    if result is None or isinstance(result, ErrorStepResult) or result.cached or not may_be_lost(result.usage):
        return answer
    if result.server_blocks:  # its usage is the sum of several prompts
        return answer
    try:
        before = await _previous_answer(run, session)
        lost = 0 if before is None or before.server_blocks else lost_tokens(before.usage, result.usage)
        if before is None or not lost:
            return answer
        reason = await _reason(run, session, before, result)
    except HelixError:
        logger.warning("run %s: no row says whether its prompt cache was lost", run.run_id, exc_info=True)
        return answer
    usage = result.usage.model_copy(update={"lost_tokens": lost})
    return replace(answer, result=result.model_copy(update={"usage": usage}), lost_cache=reason)


async def _previous_answer(run: RunContext, session: SessionRow) -> AssistantRow | None:
    """Return the last answer in history that a model gave completely. None if there is none."""
    history = run.engine.history
    for message in reversed(await history.messages(session)):
        if not isinstance(message, AssistantMessage) or message.metadata.get("cached"):
            continue
        _, lineage, index = message.id.split("_")
        key = row_key(session.session_id, message_sort(int(lineage), int(index)))
        (value,) = await history.store.get([key])
        row = None if value is None else AssistantRow.read(key.partition, key.sort, value)
        if row is None or not row.is_cut:
            return row
    return None


async def _reason(run: RunContext, session: SessionRow, before: AssistantRow, result: AnyStepResult) -> LostCache:
    old = await _read_head(run, before.head)
    new = old if before.head == session.head else await _read_head(run, session.head)
    return find_reason(
        Asked(before.model, old, before.view, before.without_reasoning, before.created_at),
        Asked(result.model, new, session.context.view, result.without_reasoning, session.updated_at),
    )


async def _read_head(run: RunContext, ident: str) -> RequestHead | None:
    return await read_head(run.engine.store, run.session_id, ident) if ident else None
