"""The invariants of docs/protocol.md#invariants that rows and streams can show, for property and crash tests.

Law: this module only reads. The checks hold at every moment, even during a run and after a crash. `at_rest` adds checks
that hold once no worker is active and the effects of ended runs are complete.
"""

from __future__ import annotations

from helix.core.entries import AssistantRow
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager
from helix.services.request_heads import read_head
from helix.sessions.session_checks import check_children, check_rows
from helix.sessions.session_rows import SessionRows, read_session_rows
from helix.testing.stream_invariants import check_stream


class InvariantViolation(AssertionError):
    """A broken invariant. `problems` contains lines of the form `property: what was found`."""

    def __init__(self, session_id: str, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n  ".join([f"session {session_id!r} breaks its invariants:", *problems]))


async def check_session(
    store: StateStore,
    streams: StreamManager,
    session_id: str,
    *,
    at_rest: bool = False,
    pruned: bool = False,
) -> None:
    """Raise `InvariantViolation` with all problems of the session, its sub-agents' sessions and its stream.

    at_rest: whether no worker is active on the session and all effects are complete. pruned: whether
    `Settings.keep_checkpoints` is set.
    """
    problems = await find_problems(store, streams, session_id, at_rest=at_rest, pruned=pruned)
    if problems:
        raise InvariantViolation(session_id, problems)


async def find_problems(
    store: StateStore,
    streams: StreamManager,
    session_id: str,
    *,
    at_rest: bool = False,
    pruned: bool = False,
) -> list[str]:
    """Return the problems that `check_session` would report."""
    tree = await read_tree(store, session_id)
    if tree[0].session is not None and tree[0].session.status == "deleting":
        tree = tree[:1]  # its sub-agents' rows are being deleted
    problems = [f"{rows.session_id}: {p}" for rows in tree for p in check_rows(rows, at_rest=at_rest, pruned=pruned)]
    problems += check_children(tree, at_rest=at_rest)
    for rows in tree:
        problems += await _missing_heads(store, rows)
    root = tree[0]
    if root.session is not None and root.session.parent is None and root.session.status != "deleting":
        problems += await check_stream(streams, root.session.stream_id, tree, at_rest=at_rest)
    return problems


async def _missing_heads(store: StateStore, rows: SessionRows) -> list[str]:
    """Return a problem for each request head that a row of the session names and that is not stored."""
    session = rows.session
    if session is None or session.status == "deleting":
        return []
    fields = ("head", "frontend_tools")
    named = {value[field]: sort for sort, value in rows.values.items() for field in fields if value.get(field)}
    missing = [ident for ident in named if await read_head(store, rows.session_id, ident) is None]
    return [
        f"{rows.session_id}: head_stored: row {named[ident]!r} names head {ident!r}, which is missing"
        for ident in missing
    ]


async def read_tree(store: StateStore, session_id: str) -> list[SessionRows]:
    """Read the session, then its sub-agents' sessions of every lineage. Parents come before children."""
    tree = [await read_session_rows(store, session_id)]
    for rows in tree:
        for entry in rows.entries.values():
            for ref in entry.children.values() if isinstance(entry, AssistantRow) else ():
                child = await read_session_rows(store, ref.session_id)
                if child.values:
                    tree.append(child)
    return tree
