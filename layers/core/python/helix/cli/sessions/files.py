"""`helix export` and `helix import`: write a session to a file of JSON lines, and read it back.

Law: an export is a consistent snapshot. A running session is refused, and a session that changes during the export is read
again. An import writes rows, so only the operator of the store may use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from helix._private_files import write_whole
from helix._version import __version__
from helix.adapters.system import SystemClock, SystemIds
from helix.cli.options import SessionName
from helix.cli.output import RefusedError, say, write
from helix.cli.sessions.rows import read_tree
from helix.cli.stores import with_new_store
from helix.cli.view.formats import count
from helix.cli.where import NotThereError, Where, with_client
from helix.client import HelixClient
from helix.core.errors import InvalidInputError
from helix.core.printable import escape_json
from helix.core.wire import StreamMessage, one_run
from helix.sessions.exports import Export, import_session, read_export

TRIES = 5
WAIT_S, LOOK_S = 15.0, 0.25


def export(
    session: SessionName,
    where: Where,
    to: Annotated[
        str | None, typer.Option("--to", "-o", metavar="FILE", help="A new file [default: standard output]")
    ] = None,
) -> None:
    file = None if to is None else Path(to)
    if file is not None and file.exists():
        raise RefusedError(f"{to!r} exists already: name a new file")
    made = with_client(where, session, lambda client: _export(client, session))
    if file is None:
        for line in made.lines():
            sys.stdout.write(f"{escape_json(line)}\n")
        return
    write_whole(file, "".join(f"{line}\n" for line in made.lines()))
    say(f"{count(len(made.rows), 'row')} of session {session} are in {to!r}")


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
) -> None:
    if where.url is not None:
        raise NotThereError("a service does not accept stored rows: import with --stage, or with --db")
    export = _read(file)
    clock, ids = SystemClock(), SystemIds()
    with_new_store(where, lambda store: import_session(store, export, clock, ids, user_id=user))
    write(export.session_id)


def _read(file: str) -> Export:
    try:
        if file == "-":
            return read_export(sys.stdin)
        with Path(file).open(encoding="utf-8") as lines:
            return read_export(lines)
    except UnicodeDecodeError:
        raise RefusedError(f"{file!r} is not UTF-8 text, so `helix export` did not write it") from None
    except InvalidInputError as error:
        raise RefusedError(f"{file!r} cannot be imported: {error}") from None
