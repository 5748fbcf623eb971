"""`helix export` and `helix import`: write a session to a file of JSON lines, and read it back.

Law: an export is a consistent snapshot. A running session is refused, and a session that changes during the export is read
again. Files are read after the rows, one at a time. An import writes rows, so only the operator of the store may use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from helix._private_files import new_file
from helix._version import __version__
from helix.adapters.system import SystemClock, SystemIds
from helix.cli.options import SessionName
from helix.cli.output import RefusedError, say, write
from helix.cli.sessions.rows import read_tree
from helix.cli.stores import open_files, with_new_store
from helix.cli.view.formats import count
from helix.cli.where import NotThereError, Where, with_client
from helix.client import HelixClient
from helix.core.errors import FileMissingError, InvalidFileError, InvalidInputError, SessionExistsError
from helix.core.printable import escape_json
from helix.core.wire import StreamMessage, one_run
from helix.ports.state_store import StateStore
from helix.sessions.export_files import NamedFile
from helix.sessions.exports import Export, read_exports
from helix.sessions.imports import import_session

TRIES = 5
WAIT_S, LOOK_S = 15.0, 0.25


def export(
    session: SessionName,
    where: Where,
    to: Annotated[
        str | None, typer.Option("--to", "-o", metavar="FILE", help="A new file [default: standard output]")
    ] = None,
    no_files: Annotated[bool, typer.Option("--no-files", help="Leave out the bytes of files")] = False,
) -> None:
    file = None if to is None else Path(to)
    if file is not None and file.exists():
        raise RefusedError(f"{to!r} exists already: name a new file")
    rows, files = with_client(where, session, lambda client: _write(client, session, file, not no_files))
    if file is not None:
        what = count(rows, "row") + (f" and {count(files, 'file')}" if files else "")
        say(f"{what} of session {session} are in {to!r}")


async def _write(client: HelixClient, session_id: str, to: Path | None, with_files: bool) -> tuple[int, int]:
    """Write the export to a file, or to standard output. Return how many rows and files it has."""
    made, reader = await _export(client, session_id), _Reader(client)
    with contextlib.nullcontext(sys.stdout) if to is None else new_file(to) as file:
        if with_files:
            async for text in made.text(reader.read):
                file.write(text if to is not None else escape_json(text))
        else:
            for line in made.lines():
                file.write(f"{line if to is not None else escape_json(line)}\n")
    return len(made.rows), reader.count


class _Reader:
    """Reads the files of an export. A file that cannot be read any more is reported, and left out of the export."""

    def __init__(self, client: HelixClient) -> None:
        self._client, self.count = client, 0

    async def read(self, file: NamedFile) -> bytes | None:
        reason = "its bytes do not exist any more"
        for session_id in file.session_ids:
            try:
                data = await self._client.read_file(session_id, file.part)
            except FileMissingError:
                continue
            except InvalidFileError as error:
                reason = str(error)
                continue
            if hashlib.sha256(data).hexdigest() == file.part.sha256:
                self.count += 1
                return data
            reason = "its bytes are damaged"
        say(f"{file.shown} is left out: {reason}")
        return None


async def _export(client: HelixClient, session_id: str) -> Export:
    for _ in range(TRIES):
        found: dict[str, Any] = dict(await client.ask("get_session", {"session_id": session_id, "runs": 1}))
        state = found["session"]
        if state["parent_session_id"] is not None:
            raise RefusedError(f"session {session_id!r} is a sub-agent's: export its root, {state['stream_id']!r}")
        if state["status"] == "running":
            raise RefusedError(f"session {session_id!r} is running: export it once it has stopped (helix interrupt)")
        if found["runs"]:
            await _wait_for_stream(client, session_id, found["runs"][0])
        rows = await read_tree(client, session_id)
        now = await client.get_session(session_id)
        if now.version == state["version"]:
            head = {"helix": __version__, "session_id": session_id, "agent_type": state["agent_type"]}
            return Export({**head, "user_id": state["user_id"], "exported_at": SystemClock().now()}, rows)
    raise RefusedError(f"session {session_id!r} changes during the export: export it once it is at rest")


async def _wait_for_stream(client: HelixClient, session_id: str, run: dict[str, Any]) -> None:
    """Wait until the stream contains the end of the run, which may arrive after the run's row. Return immediately if the
    stream was deleted."""
    judge, after = one_run(session_id, run["turn"]), run["start_sequence"]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(WAIT_S):
            while True:
                page: dict[str, Any] = dict(await client.ask("read_stream", {"session_id": session_id, "after": after}))
                for body in page["messages"]:
                    message = StreamMessage.model_validate({"stream_id": page["stream_id"], **body})
                    after = message.sequence
                    if judge(message) in ("last", "over"):
                        return
                if not page["messages"]:
                    if after == run["start_sequence"] == 0 and run["effects"] == "done":
                        return
                    await asyncio.sleep(LOOK_S)


def import_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A file that `helix export` wrote; - reads standard input")
    ],
    where: Where,
    user: Annotated[str | None, typer.Option("--user", help="Owner of the session [default: as exported]")] = None,
    no_files: Annotated[bool, typer.Option("--no-files", help="Import the session without its files")] = False,
) -> None:
    if where.url is not None:
        raise NotThereError("a service does not accept stored rows: import with --stage, or with --db")
    try:
        with contextlib.nullcontext(sys.stdin) if file == "-" else Path(file).open(encoding="utf-8") as lines:
            left = read_exports(lines, with_files=not no_files)
            exports = chain([next(left)], left)  # before the store is made
            with_new_store(where, lambda store: _import_all(where, store, exports, user))
    except UnicodeDecodeError:
        raise RefusedError(f"{file!r} is not UTF-8 text, so `helix export` did not write it") from None
    except InvalidInputError as error:
        raise RefusedError(f"{file!r} cannot be imported: {error}") from None


async def _import_all(where: Where, store: StateStore, exports: Iterable[Export], user: str | None) -> None:
    """Import each session. One that exists does not keep the others out."""
    here: list[SessionExistsError] = []
    total = 0
    for export in exports:
        total += 1
        try:
            await _import(where, store, export, user)
        except SessionExistsError as error:
            here.append(error)
        else:
            write(export.session_id)
    if here and total == 1:
        raise here[0]
    for problem in here:
        say(str(problem))
    if here:
        raise RefusedError(f"{len(here)} of {total} sessions are not imported")


async def _import(where: Where, store: StateStore, export: Export, user: str | None) -> None:
    files = None if export.files is None else open_files(where, store)
    if export.files is not None and files is None:
        raise RefusedError(f"the export has files, and {where} has no place for them: import it with --no-files")
    await import_session(store, export, SystemClock(), SystemIds(), user_id=user, files=files)
