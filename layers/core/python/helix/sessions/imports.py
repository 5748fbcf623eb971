"""Imports an export under the original ids (`helix.sessions.exports`).

Law: an import becomes visible only with its last transaction, and never writes to an existing session. The bytes of its
files are stored before its rows, and held just before the last transaction, because `collect` releases the files of a
session that does not exist within an hour. After a crash, the same import starts over, and `collect` deletes the files
that no session holds. The usage of an imported session is not counted again, because it was billed and reported where
the session ran.
"""

from __future__ import annotations

from typing import Any, Final

from helix.core.errors import ConditionFailedError, InvalidFileError, SessionExistsError
from helix.core.files import FilePart
from helix.core.row_keys import SESSION
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.engine.claims.claim_rows import user_key
from helix.engine.claims.liveness import marker_key
from helix.engine.history import session_key
from helix.ports.clock import Clock
from helix.ports.ids import Ids
from helix.ports.state_store import ABSENT, Check, Delete, Put, Row, StateStore, Table, Update, When
from helix.services.blob_releases import is_hold, release_blob
from helix.services.blob_rows import blob_owner
from helix.services.session_files import SessionFiles
from helix.services.session_index import listed_put
from helix.sessions.export_files import named_files
from helix.sessions.exports import Export

PAGE: Final = 25
DEADLINE_S: Final = 60.0
"""The number of seconds without a write after which another import of the same session may start."""


async def import_session(
    store: StateStore,
    export: Export,
    clock: Clock,
    ids: Ids,
    *,
    user_id: str | None = None,
    files: SessionFiles | None = None,
) -> None:
    """Write the session and everything that belongs to it under the original ids.

    user_id: the new owner, by default the exported owner. files: the place for the files of the export, such as
    `executor.engine.files`. The files of the export are read here, one at a time.

    Raises `SessionExistsError`. Raises `InvalidFileError` if the export has files and there is no place for them, and
    `InvalidInputError` for a damaged file; then the session was not created.
    """
    if export.files is not None and files is None:
        raise InvalidFileError(
            f"the export of session {export.session_id!r} has files, and there is no place for them: give `files`, or "
            "read the export with with_files=False"
        )
    root = export.session_id
    work = _Import(store, clock, root, ids.new("import"))
    session, shown, written = _puts(export, user_id)
    try:
        await work.acquire()
        for partition in sorted({row.key.partition for row in export.rows if row.key.table == "sessions"}):
            await work.clear("sessions", partition)
        await work.clear("streams", root)
        owner = blob_owner(session.user_id, root)
        stored = [] if files is None else await work.store_files(export, files, owner)
        for start in range(0, len(written), PAGE):
            await store.transact("import_rows", [work.alive(), *written[start : start + PAGE]])
        if files is not None:
            await work.hold_files(export, files, owner, stored)
        listed = [listed_put(session, None)]
        listed += [Put(user_key(session.user_id), {})] if session.user_id else []
        await store.transact("finish_import", [*shown, Delete(work.marker, work.owned), *listed])
    except ConditionFailedError:
        raise SessionExistsError(
            f"session {root!r} exists here, or is being created: delete it, or import it elsewhere"
        ) from None


def _puts(export: Export, user_id: str | None) -> tuple[SessionRow, list[Put], list[Put]]:
    """Return the row of the root session, the operations that make the sessions visible, and those before."""
    shown: list[Put] = []
    written: list[Put] = []
    for row in export.rows:
        value = _here(row, user_id)
        if row.key.table == "sessions" and row.key.sort == SESSION:
            shown.append(Put(row.key, value, ABSENT))
        else:
            written.append(Put(row.key, value))
    root = next(put.value for put in shown if put.key == session_key(export.session_id))
    return SessionRow.at(export.session_id, root), shown, written


class _Import:
    """One attempt to import a session. While it works, its marker row reserves the session's id."""

    def __init__(self, store: StateStore, clock: Clock, root: str, owner: str) -> None:
        self._store, self._clock, self._root, self._owner = store, clock, root, owner
        self.marker, self.owned = marker_key(root), When(equal={"owner": owner})

    def alive(self) -> Update:
        """Return the condition that the marker still belongs to this import. It also extends the deadline."""
        return Update(self.marker, set={"deadline": self._clock.now() + DEADLINE_S}, when=self.owned)

    async def acquire(self) -> None:
        """Write the marker, or replace that of a dead import. Raises `SessionExistsError`."""
        (held,) = await self._store.get([self.marker])
        if held is not None and held["deadline"] >= self._clock.now():
            raise SessionExistsError(
                f"session {self._root!r} is being copied or imported: wait for it, at most a minute"
            )
        seen = ABSENT if held is None else When(equal={"owner": held["owner"]})
        value = {"owner": self._owner, "deadline": self._clock.now() + DEADLINE_S}
        await self._store.transact(
            "begin_import", [Check(session_key(self._root), ABSENT), Put(self.marker, value, seen)]
        )

    async def clear(self, table: Table, partition: str) -> None:
        """Remove the rows that a dead import or a deleted stream left behind, and release the files of a dead import.
        Raises `SessionExistsError` if the session exists."""
        while True:
            rows = await self._store.query(table, partition, limit=PAGE + 1)
            left = [row.key for row in rows if row.key != self.marker]
            if not left:
                return
            if any(key.sort == SESSION for key in left):
                raise SessionExistsError(f"session {partition!r} exists here: delete its root session first")
            for key in left:
                if is_hold(key):
                    await release_blob(self._store, self._clock, key, [self.alive()])
            deletes = [Delete(key) for key in left if not is_hold(key)]
            await self._store.transact("clear_import", [self.alive(), *deletes])

    async def store_files(self, export: Export, files: SessionFiles, owner: str) -> list[FilePart]:
        """Store the bytes of the files, and return the files. If one of them is refused, the id is free again."""
        stored: list[FilePart] = []
        left = iter(export.files or ())
        try:
            while (file := next(left, None)) is not None:  # a thread would keep the memory of the lines that it read
                await self._store.transact("import_file", [self.alive()])
                await files.uploads.store(owner, [file])
                stored.append(file.part)
                del file  # before the next one is read
        except ConditionFailedError:
            raise
        except Exception:
            await self._store.transact("stop_import", [Delete(self.marker, self.owned)])
            raise
        return stored

    async def hold_files(self, export: Export, files: SessionFiles, owner: str, stored: list[FilePart]) -> None:
        """Hold the files for each session whose rows name them."""
        by_session: dict[str, list[FilePart]] = {}
        named = named_files(export.rows)
        for part in stored:
            for session_id in named[part.sha256 or ""].session_ids:
                by_session.setdefault(session_id, []).append(part)
        for session_id, parts in by_session.items():
            await self._store.transact("import_holds", [self.alive()])
            await files.holders.hold(owner, session_id, parts)


def _here(row: Row, user_id: str | None) -> dict[str, Any]:
    """Return the row without the fields that are only valid in the store where it was written: workers, drawn budgets,
    effects and expiry times."""
    key, value = row
    if key.table == "streams":
        return {name: field for name, field in value.items() if name != "ttl"}
    if key.sort == SESSION:
        session = SessionRow.at(key.partition, value)
        owner = {"user_id": user_id} if user_id is not None and session.parent is None else {}
        alone: dict[str, Any] = {"bounds": None, "blocks": [], "claim": None, "lease_owner": None, "lease_expires": 0}
        return session.model_copy(update={**alone, **owner}).dump()
    if key.sort.startswith("r#"):
        run = RunRow.at(key.partition, key.sort, value)
        ended: dict[str, Any] = {"effects": "done", "blocks": [], "claim": None, "head": "", "output_limit": None}
        return run.model_copy(update=ended).dump()
    return dict(value)
