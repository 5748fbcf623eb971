"""Fills in what pending calls do not store: the arguments from the answer's row, the questions and
reminders from the call's row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from helix.core.entries import AssistantRow, CallRow, parse_entry
from helix.core.questions import open_questions
from helix.core.row_keys import message_sort
from helix.core.rows import Pending
from helix.ports.state_store import Key, StateStore

Place = tuple[int, int, list[Pending]]
"""A lineage, the index of the answer in it, and calls of that answer."""


async def fill_pending(store: StateStore, session_id: str, places: Sequence[Place]) -> list[list[Pending]]:
    """Return the calls of each place with their arguments and open questions. A question that has been answered since is
    left out."""
    if not any(pending for *_, pending in places):
        return [pending for *_, pending in places]
    keys = [Key("sessions", session_id, message_sort(lineage, index)) for lineage, index, _ in places]
    found: list[list[Pending]] = []
    for key, value, (lineage, index, pending) in zip(keys, await store.get(keys), places, strict=True):
        answer = None if value is None else parse_entry(session_id, key.sort, value)
        calls = answer.tool_calls if isinstance(answer, AssistantRow) else []
        given = {call.id: call.arguments for call in calls}
        filled = [p if p.edited else p.model_copy(update={"arguments": given.get(p.call_id, {})}) for p in pending]
        sorts = {call.id: message_sort(lineage, index + 1 + place) for place, call in enumerate(calls)}
        found.append(await _with_questions(store, session_id, filled, sorts))
    return found


async def _with_questions(
    store: StateStore, session_id: str, pending: list[Pending], sorts: dict[str, str]
) -> list[Pending]:
    """Return the calls with what changes while they wait: the open questions, and the reminders."""
    read = [p for p in pending if p.call_id in sorts and (p.kind == "question" or p.remind_at is not None)]
    if not read:
        return pending
    keys = [Key("sessions", session_id, sorts[waits.call_id]) for waits in read]
    found: dict[str, dict[str, Any]] = {}
    for key, value, waits in zip(keys, await store.get(keys), read, strict=True):
        row = None if value is None else parse_entry(session_id, key.sort, value)
        if not isinstance(row, CallRow) or row.ask != waits.kind or waits.round not in (0, row.claim):
            continue
        found[waits.call_id] = {"remind_at": row.remind_at[0] if row.remind_at else None, "reminded": row.reminded}
        if row.ask == "question":
            found[waits.call_id]["questions"] = open_questions(row.questions)
    return [p.model_copy(update=found.get(p.call_id, {})) for p in pending]
