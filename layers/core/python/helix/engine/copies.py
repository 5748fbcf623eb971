"""Branch, clone and delete: whole sessions, page by page, resumable after a crash.

Law: a copy becomes visible in its last transaction; a deletion hides the session in its first.
"""

from __future__ import annotations

from collections.abc import Sequence

from helix.core.claiming import lapsed
from helix.core.errors import (
    AgentAlreadyRunningError,
    CheckpointNotFoundError,
    ConditionFailedError,
    InvalidInputError,
    SessionExistsError,
)
from helix.core.json import JsonObject
from helix.core.rows import (
    AnyEntry,
    AssistantRow,
    CallRow,
    CheckpointRow,
    LineageRow,
    RunRow,
    SessionRow,
)
from helix.engine.claim_checks import check_session_id
from helix.engine.claims import index_key
from helix.engine.engine import Engine
from helix.engine.history import DELETING, session_key
from helix.engine.leftovers import clear_leftovers, marker_key
from helix.engine.money import return_draws
from helix.engine.open_runs import open_deletion_key, open_deletion_put
from helix.engine.usage_rows import close_effects
from helix.engine.writing import checkpoint, commit, entry_put
from helix.ports.state_store import ABSENT, Check, Delete, Operation, Put, When

PAGE = 50
COPY_DEADLINE_S = 60
"""After it another copy to the same target may begin; the slower one is refused at its next write."""


async def clone_session(
    engine: Engine,
    source_id: str,
    target_id: str,
    *,
    from_checkpoint_id: str | None = None,
    from_message_index: int | None = None,
    user_id: str | None = None,
) -> SessionRow:
    """Copy messages and custom state to a new session, `completed` and without runs.

    `from_message_index` copies the first N messages, N lowered to the nearest boundary that keeps calls and results
    together, with the state of the nearest checkpoint not beyond it. The source may be running: its latest checkpoint
    counts. Raises `SessionExistsError` if the target exists.
    """
    if from_checkpoint_id is not None and from_message_index is not None:
        raise InvalidInputError("give from_checkpoint_id or from_message_index, not both")
    check_session_id(target_id)
    source = await engine.history.existing(source_id)
    lineage = await engine.history.lineage(source_id, source.lineage)
    if from_message_index is not None:
        count = await _boundary(engine, source, lineage, from_message_index)
        point = await _nearest(engine, source, lineage, count)
    else:
        found = await engine.history.checkpoint(source_id, from_checkpoint_id or source.checkpoint)
        if found is None:
            raise CheckpointNotFoundError(f"session {source_id!r} has no checkpoint {from_checkpoint_id!r}")
        point = found
        lineage = await engine.history.lineage(source_id, point.lineage)
        count = point.count
    state = await engine.history.state_at(source_id, source.created_at, point.state_at)
    entries = await engine.history.entries(source_id, lineage, 0, count)
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
        step=point.step if point.count == count else sum(isinstance(e, AssistantRow) for e in entries),
        forked_from={"session_id": source_id, "checkpoint_id": point.id},
        user_id=user_id if user_id is not None else source.user_id,
        tags=source.tags,
        metadata=source.metadata,
        created_at=now,
        updated_at=now,
    )
    await _copy(engine, target, entries, state, now)
    return target


async def _copy(engine: Engine, target: SessionRow, entries: Sequence[AnyEntry], state: JsonObject, now: float) -> None:
    """Messages first, invisible; then the session, which shows them. A marker keeps two copies to one target apart."""
    owner = engine.ids.new("copy")
    marker = marker_key(target.session_id)
    await clear_leftovers(engine, target.session_id)
    absent = Check(session_key(target.session_id), ABSENT)
    mine = Check(marker, When(equal={"owner": owner}))
    taken = SessionExistsError(f"session {target.session_id!r} exists already, or is being copied: choose another id")
    try:
        value = {"owner": owner, "deadline": now + COPY_DEADLINE_S}
        await engine.store.transact("begin_copy", [absent, Put(marker, value, ABSENT)])
        for start in range(0, len(entries), PAGE):
            puts: list[Operation] = [absent, mine]
            for index, entry in enumerate(entries[start : start + PAGE], start):
                copied = entry.model_copy(update={"child": None}) if isinstance(entry, CallRow) else entry
                if isinstance(copied, AssistantRow):
                    copied = copied.model_copy(update={"children": {}})
                puts.append(entry_put(target.session_id, 0, index, copied))
            await engine.store.transact("copy_messages", puts)
        _, put = checkpoint(target, now, state=state)
        listed = Put(index_key(target), {"agent_type": target.agent_type, "created_at": now})
        show = Put(session_key(target.session_id), target.dump(), ABSENT)
        finish: list[Operation] = [show, Delete(marker, When(equal={"owner": owner})), put, listed]
        await engine.store.transact("finish_copy", finish)
    except ConditionFailedError:
        raise taken from None


async def _boundary(engine: Engine, source: SessionRow, lineage: LineageRow, wanted: int) -> int:
    """The largest count up to `wanted` that does not part a call from its result."""
    if wanted < 0:
        raise InvalidInputError(f"from_message_index is {wanted}; it must be 0 or more")
    count = min(wanted, source.count)
    if count < source.count:
        entries = await engine.history.entries(source.session_id, lineage, 0, count + 1)
        while count > 0 and isinstance(entries[count], CallRow):
            count -= 1
    return count


async def _nearest(engine: Engine, source: SessionRow, lineage: LineageRow, count: int) -> CheckpointRow:
    """The newest checkpoint of this history with at most `count` messages; the first one if none is that early."""
    reach = {**dict(lineage.chain), lineage.lineage: source.count}
    end: str | None = "c$"
    oldest: CheckpointRow | None = None
    while True:
        rows = await engine.store.query("sessions", source.session_id, start="c#", end=end, limit=PAGE, reverse=True)
        for row in rows:
            oldest = CheckpointRow.model_validate(row.value)
            if oldest.count <= min(count, reach.get(oldest.lineage, -1)):
                return oldest
        if len(rows) < PAGE:
            assert oldest is not None
            return oldest
        end = rows[-1].key.sort


async def delete_session(engine: Engine, session_id: str) -> bool:
    """Delete the session, its sub-agents' sessions and its stream. False if there was none. Refused while it runs.

    Repeat it after a crash: it goes on where it stopped.
    """
    while True:
        session = await engine.history.session(session_id)
        if session is None:
            return False
        now = engine.clock.now()
        if session.status == "running" and not lapsed(session, now):
            raise AgentAlreadyRunningError(session_id, session.run_id)
        if session.status == DELETING:
            break
        hidden = session.model_copy(update={"status": DELETING, "version": session.version + 1})
        below = {"lease_expires": now} if session.status == "running" else {}
        seen = When(equal={"version": session.version, "run_id": session.run_id, "status": session.status}, below=below)
        begin: list[Operation] = [Put(session_key(session_id), hidden.dump(), seen)]
        if engine.launcher is not None:  # a sweep completes what a crash leaves
            begin.append(open_deletion_put(session, now))
        if await commit(engine, "begin_delete", begin, lambda: _hidden(engine, session_id)):
            break
    await _return_draws(engine, session)
    await _delete_rows(engine, session_id)
    if session.parent is None:
        await engine.streams.delete(session.stream_id)
        await engine.budgets.forget(f"session:{session_id}")
    last: list[Operation] = [Delete(session_key(session_id)), Delete(index_key(session))]
    if engine.launcher is not None:
        last.append(Delete(open_deletion_key(session_id)))
    await engine.store.transact("finish_delete", last)
    return True


async def _hidden(engine: Engine, session_id: str) -> bool:
    session = await engine.history.session(session_id)
    return session is None or session.status == DELETING


async def _return_draws(engine: Engine, session: SessionRow) -> None:
    """What runs without their effects hold of a budget is known from their rows only: return it before these go."""
    rows = await engine.store.query("sessions", session.session_id, start="r#", end="r$")
    for run in (RunRow.model_validate(row.value) for row in rows):
        if run.run_id == session.run_id and run.status == "running":
            told = {"usage": session.run_usage, "parts": session.run_parts}
            run = run.model_copy(update={"blocks": session.blocks, "claim": session.claim, **told})
        if run.effects == "open":
            await return_draws(engine, session, run)
            await close_effects(engine, session, run, [])  # the rows that it would be counted from are going


async def _delete_rows(engine: Engine, session_id: str) -> None:
    """Everything but the session row, sub-agents first: their ids are only here."""
    while True:
        rows = await engine.store.query("sessions", session_id, limit=PAGE + 1)
        rows = [row for row in rows if row.key != session_key(session_id)]
        if not rows:
            return
        for row in rows:
            children = {ref["session_id"] for ref in row.value.get("children", {}).values()}
            for child_id in sorted(children):
                await _delete_child(engine, child_id)
        await engine.store.transact("delete_rows", [Delete(row.key) for row in rows])


async def _delete_child(engine: Engine, child_id: str) -> None:
    child = await engine.history.session(child_id)
    if child is not None:
        await _return_draws(engine, child)
    await _delete_rows(engine, child_id)
    if child is not None:
        await engine.store.transact("finish_delete", [Delete(session_key(child_id))])
