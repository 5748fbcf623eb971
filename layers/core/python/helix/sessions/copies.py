"""Branches and clones sessions: copies a whole session page by page, and can resume after a crash.

Law: a copy becomes visible only with its last transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from helix.core.entries import AnyEntry, AssistantRow, CallRow, UserRow, active_agent
from helix.core.errors import (
    CheckpointNotFoundError,
    ConditionFailedError,
    InvalidInputError,
    SessionExistsError,
)
from helix.core.json import JsonObject
from helix.core.row_keys import checkpoint_sort, checkpoint_version
from helix.core.rows import CheckpointRow, LineageRow
from helix.core.session_row import SessionRow
from helix.core.view_row import ContextMark, ViewRow
from helix.engine.claims.liveness import clear_leftovers, marker_key
from helix.engine.engine import Engine
from helix.engine.history import DELETING, session_key
from helix.engine.runs.housekeeping import expiry_puts
from helix.engine.writing import checkpoint, entry_put, view_put
from helix.ports.state_store import ABSENT, Check, Delete, Operation, Put, When
from helix.services.claim_input import check_session_id
from helix.services.request_heads import head_put, session_heads
from helix.services.session_index import listed_put, with_tools

PAGE = 50
COPY_DEADLINE_S = 60
"""The number of seconds after which another copy to the same target may start. The slower copy is then refused at its
next write."""


async def clone_session(
    engine: Engine,
    source_id: str,
    target_id: str,
    *,
    from_checkpoint_id: str | None = None,
    from_message_index: int | None = None,
    user_id: str | None = None,
) -> SessionRow:
    """Copy messages and custom state to a new session, which has the status `completed` and no runs.

    `from_message_index` copies the first N messages. N is lowered to the nearest boundary that keeps calls and results
    together, and the state is taken from the latest checkpoint at or before it. If the source is itself a copy, that
    checkpoint may belong to an earlier session: `forked_from` names the session of the checkpoint.

    If the source is running, its latest checkpoint is used. Raises `SessionExistsError` if the target exists, and
    `CheckpointNotFoundError` if the checkpoint was deleted.
    """
    if from_checkpoint_id is not None and from_message_index is not None:
        raise InvalidInputError("give from_checkpoint_id or from_message_index, not both")
    check_session_id(target_id)
    source = await engine.history.existing(source_id)
    lineage = await engine.history.lineage(source_id, source.lineage)
    if from_message_index is not None:
        count = await _boundary(engine, source, lineage, from_message_index)
        origin, near = await _nearest(engine, source, lineage, count)
        point, state = await engine.history.point(origin, near.id)
    else:
        origin = source
        point, state = await _point(engine, source, from_checkpoint_id)
        lineage = await engine.history.lineage(source_id, point.lineage)
        count = point.count
    entries = await engine.history.entries(source_id, lineage, 0, count)
    called = [call.name for entry in entries if isinstance(entry, AssistantRow) for call in entry.tool_calls]
    now = engine.clock.now()
    target = SessionRow(
        session_id=target_id,
        agent_type=source.agent_type,
        stream_id=target_id,
        status="completed",
        version=1,
        run_id="",
        turn=0,
        count=count,
        context=ContextMark(view=1 if point.view else 0),
        frontend_tools=point.frontend_tools,
        active_agent=active_agent(entries),
        step=point.step if point.count == count else sum(isinstance(e, AssistantRow) for e in entries),
        forked_from={"session_id": origin.session_id, "checkpoint_id": point.id},
        origin=source.origin_id,
        user_id=user_id if user_id is not None else source.user_id,
        tags=source.tags,
        tools=with_tools([], called),
        metadata=source.metadata,
        title=source.title,
        created_at=now,
        updated_at=now,
    )
    view = await engine.history.view(origin, point.view)
    files = [file for entry in entries if isinstance(entry, UserRow | CallRow) for file in entry.files]
    hashes = {file.sha256 for file in files if file.sha256 is not None}
    if hashes and engine.files is not None:
        await engine.files.holders.share(source_id, target_id, hashes)
    named = [entry.head for entry in entries if isinstance(entry, AssistantRow) and entry.head]
    named += [point.frontend_tools] if point.frontend_tools else []
    heads = [head_put(target_id, row) for row in await session_heads(engine.store, source_id, named)]
    await _copy(engine, target, entries, (state, view, heads), now)
    return target


async def _point(engine: Engine, source: SessionRow, checkpoint_id: str | None) -> tuple[CheckpointRow, JsonObject]:
    """Return the checkpoint (by default the latest one) with its state. If the session advances in the meantime, read
    its new latest checkpoint."""
    while True:
        try:
            return await engine.history.point(source, checkpoint_id or source.checkpoint)
        except CheckpointNotFoundError:
            again = await engine.history.existing(source.session_id)
            if checkpoint_id is not None or again.version == source.version:
                raise
            source = again


async def _copy(
    engine: Engine,
    target: SessionRow,
    entries: Sequence[AnyEntry],
    beside: tuple[JsonObject, ViewRow | None, Sequence[Put]],
    now: float,
) -> None:
    """Write the messages first, while they are invisible, then the session row, which makes them visible. A marker row
    prevents two copies to the same target. `beside`: the custom state, the view, and the rows of request heads."""
    state, view, heads = beside
    owner = engine.ids.new("copy")
    marker = marker_key(target.session_id)
    await clear_leftovers(engine, target.session_id)
    absent = Check(session_key(target.session_id), ABSENT)
    owned = Check(marker, When(equal={"owner": owner}))
    taken = SessionExistsError(f"session {target.session_id!r} exists already, or is being copied: choose another id")
    try:
        value = {"owner": owner, "deadline": now + COPY_DEADLINE_S}
        await engine.store.transact("begin_copy", [absent, Put(marker, value, ABSENT)])
        puts = [*heads, *(entry_put(target.session_id, 0, n, _alone(entry)) for n, entry in enumerate(entries))]
        for start in range(0, len(puts), PAGE):
            await engine.store.transact("copy_messages", [absent, owned, *puts[start : start + PAGE]])
        _, put = checkpoint(target, now, state=state)
        listed = listed_put(target, _first_message(entries))
        show = Put(session_key(target.session_id), target.dump(), ABSENT)
        finish: list[Operation] = [show, Delete(marker, When(equal={"owner": owner})), put, listed]
        finish += expiry_puts(engine, target, now)
        if view is not None:
            finish.append(view_put(target, view))
        await engine.store.transact("finish_copy", finish)
    except ConditionFailedError:
        raise taken from None


def _first_message(entries: Sequence[AnyEntry]) -> str:
    return entries[0].content if entries and isinstance(entries[0], UserRow) else ""


def _alone(entry: AnyEntry) -> AnyEntry:
    """Return the message without its sub-agents, which stay with the original session."""
    match entry:
        case CallRow():
            return entry.model_copy(update={"child": None})
        case AssistantRow():
            return entry.model_copy(update={"children": {}})
    return entry


async def _boundary(engine: Engine, source: SessionRow, lineage: LineageRow, wanted: int) -> int:
    """Return the largest count, up to `wanted`, that does not separate a call from its result."""
    if wanted < 0:
        raise InvalidInputError(f"from_message_index is {wanted}; it must be 0 or more")
    count = min(wanted, source.count)
    if count < source.count:
        entries = await engine.history.entries(source.session_id, lineage, 0, count + 1)
        while count > 0 and isinstance(entries[count], CallRow):
            count -= 1
    return count


async def _nearest(
    engine: Engine, source: SessionRow, lineage: LineageRow, count: int
) -> tuple[SessionRow, CheckpointRow]:
    """Return the newest checkpoint of this history with at most `count` messages, and its session. If there is no such
    checkpoint, return the first one.

    A copy starts with a single checkpoint of everything that was copied, so older checkpoints are looked up in its
    source session. Raises `CheckpointNotFoundError` if those were deleted.
    """
    reach, end = {**dict(lineage.chain), lineage.lineage: source.count}, "c$"
    while True:
        oldest: CheckpointRow | None = None
        async for oldest in _checkpoints(engine, source.session_id, end):
            if oldest.count <= min(count, reach.get(oldest.lineage, -1)):
                return source, oldest
        is_first = oldest is not None and checkpoint_version(source.session_id, oldest.id) == 1
        if oldest is not None and is_first and source.forked_from is None:
            return source, oldest
        origin = await _origin(engine, source) if is_first else None
        if origin is None:
            raise CheckpointNotFoundError(
                f"session {source.session_id!r} keeps no checkpoint with {count} messages or fewer: "
                "copy more messages, or from one of its checkpoints"
            )
        source, point = origin
        row = await engine.history.lineage(source.session_id, point.lineage)
        reach = {**dict(row.chain), row.lineage: point.count}
        end = checkpoint_sort(checkpoint_version(source.session_id, point.id) + 1)


async def _checkpoints(engine: Engine, session_id: str, end: str) -> AsyncIterator[CheckpointRow]:
    """Yield the session's checkpoints, newest first."""
    while rows := await engine.store.query("sessions", session_id, start="c#", end=end, limit=PAGE, reverse=True):
        for row in rows:
            yield CheckpointRow.at(row.key.partition, row.key.sort, row.value)
        end = rows[-1].key.sort


async def _origin(engine: Engine, copy: SessionRow) -> tuple[SessionRow, CheckpointRow] | None:
    """Return the session that the copy was made from, and its checkpoint there. None if one of them was deleted."""
    match copy.forked_from:
        case {"session_id": str(session_id), "checkpoint_id": str(checkpoint_id)}:
            session = await engine.history.session(session_id)
            if session is None or session.status == DELETING:
                return None
            point = await engine.history.checkpoint(session_id, checkpoint_id)
            return None if point is None else (session, point)
    return None
