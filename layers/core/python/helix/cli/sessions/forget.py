"""`helix forget`: delete all of a user's data, and verify the deletion.

Law: nothing is written before the caller confirms. A note of the data to delete is stored before the first deletion. After
a crash the command can therefore be repeated, and the final check covers everything that the first attempt found. Without
`--abort`, the command is refused while a session of the user is running.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, Any

import typer

from helix.adapters.system import SystemClock
from helix.cli.options import Json
from helix.cli.output import COMPLETED, FAILED, RefusedError, ask, console, say, write_json
from helix.cli.stores import aws_client, with_store
from helix.cli.view.formats import count, print_table
from helix.cli.where import NotThereError, Where, with_client
from helix.client import HelixClient
from helix.core.errors import SessionNotFoundError
from helix.core.request_fields import PAGE
from helix.fleet.forgetting import UserDataDeletion
from helix.gateway.authoriser import ApiKeys
from helix.ports.objects import NoObjects
from helix.ports.state_store import StateStore
from helix.runtime.stores import open_blobs
from helix.runtime.tables import open_files, open_objects

STOP_S, LOOK_S = 60.0, 0.25
KEYS = "api keys"


def forget(
    where: Where,
    user: Annotated[str, typer.Option("--user", help="User id, as `helix sessions` shows it")],
    abort: Annotated[bool, typer.Option("--abort", help="Abort running sessions first")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False,
    json: Json = False,
) -> int:
    if where.url is not None:
        raise NotThereError("a service deletes one session at a time for its user: forget a user with --stage or --db")
    if not user:
        raise RefusedError("--user is empty: name the user")
    before = with_store(where, lambda rows: _count_held(rows, where, user))
    if not yes and any(before.values()):
        _show(user, before, None, json=json)
        if ask(f"Type {user!r} to delete all of it: ") != user:
            raise RefusedError("nothing was deleted: confirm with --yes, or type the user's id")
    if not abort:
        with_client(where, None, lambda client: _check_idle(client, user))
    with_store(where, lambda rows: _begin(rows, where, user))
    with_client(where, None, lambda client: _delete_sessions(client, user, abort=abort))
    after = with_store(where, lambda rows: _forget(rows, where, user))
    _show(user, before, after, json=json)
    if any(after.values()):
        say("some data is left, because this user's sessions are in use: repeat the command")
        return FAILED
    return COMPLETED


async def _count_held(rows: StateStore, where: Where, user: str) -> dict[str, int]:
    held = await _deletion(rows, where, user).find_data()
    keys = len(await ApiKeys(rows, SystemClock()).list_ids_of(user))
    return {**held.counts(), KEYS: keys}


async def _begin(rows: StateStore, where: Where, user: str) -> None:
    """Store a note of the data to delete, and revoke the user's keys, so that no new sessions can start in the meantime."""
    forgetting = _deletion(rows, where, user)
    await forgetting.note(await forgetting.find_data())
    keys = ApiKeys(rows, SystemClock())
    for key_id in await keys.list_ids_of(user):
        await keys.delete(key_id)


async def _forget(rows: StateStore, where: Where, user: str) -> dict[str, int]:
    """Delete the data outside of sessions and count what is left. If nothing is left, delete the notes too. Return the
    counts."""
    forgetting = _deletion(rows, where, user)
    await forgetting.delete(await forgetting.find_data())
    after = await _count_held(rows, where, user)
    if not any(after.values()):
        await forgetting.close()
    return after


def _deletion(rows: StateStore, where: Where, user: str) -> UserDataDeletion:
    if where.stage is None:
        return UserDataDeletion(rows, NoObjects(), open_blobs(where.db), user, SystemClock())

    def client(service: str) -> Any:
        return aws_client(service, where.profile, where.region)

    stack = f"helix-{where.stage}"
    return UserDataDeletion(rows, open_objects(client, stack), open_files(client, stack), user, SystemClock())


async def _check_idle(client: HelixClient, user: str) -> None:
    """Raise `RefusedError` if a session of the user is running."""
    _refuse_running(await _sessions(client, user), user)


def _refuse_running(found: list[dict[str, Any]], user: str) -> None:
    if running := _running(found):
        raise RefusedError(
            f"{count(len(running), 'session')} of user {user!r} {'is' if len(running) == 1 else 'are'} running, "
            f"{running[0]!r} for example: abort them (helix abort, or --abort), or wait"
        )


async def _delete_sessions(client: HelixClient, user: str, *, abort: bool) -> None:
    while found := await _sessions(client, user):
        if not abort:
            _refuse_running(found, user)
        running = _running(found)
        for session_id in running:
            await client.abort(session_id, "the user's data is deleted")
        try:
            async with asyncio.timeout(STOP_S):
                for session_id in running:
                    await _wait_until_ended(client, session_id)
        except TimeoutError:
            raise RefusedError(f"an aborted session still runs after {STOP_S:.0f} s: repeat the command") from None
        for entry in found:
            await client.delete(entry["session_id"])


def _running(found: list[dict[str, Any]]) -> list[str]:
    return [entry["session_id"] for entry in found if entry["status"] == "running"]


async def _wait_until_ended(client: HelixClient, session_id: str) -> None:
    with contextlib.suppress(SessionNotFoundError):
        while True:
            if (await client.get_session(session_id)).status != "running":
                return
            await asyncio.sleep(LOOK_S)


async def _sessions(client: HelixClient, user: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: Any = None
    while True:
        page: dict[str, Any] = await client.list_sessions(limit=PAGE, after=cursor, user=user)
        found += page["sessions"]
        found += [{"session_id": session_id, "status": "damaged"} for session_id in page["damaged"]]
        if (cursor := page["cursor"]) is None:
            return found


def _show(user: str, before: dict[str, int], after: dict[str, int] | None, *, json: bool) -> None:
    if json:
        if after is not None:
            write_json({"user": user, "before": before, "after": after})
        return
    columns = ["what", "stored", *(["left"] if after is not None else [])]
    rows = [[kind, str(n), *([str(after[kind])] if after is not None else [])] for kind, n in before.items()]
    print_table(columns, rows, right=columns[1:])
    if after is not None and not any(after.values()):
        console().print(f"\nNothing of user {user!r} is left in the tables and objects.", style="bold")
