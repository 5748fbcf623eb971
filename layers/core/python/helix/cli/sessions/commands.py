"""Commands that act on a session without running an agent: interrupt, abort, compact, rename, branch, clone, delete."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from helix.adapters.system import SystemClock
from helix.cli.options import SessionName
from helix.cli.output import RefusedError, write
from helix.cli.where import Where, with_client
from helix.client import HelixClient
from helix.core.errors import CheckpointNotFoundError, SessionNotFoundError
from helix.core.request_fields import PAGE
from helix.engine.row_requests import check_focus, clean_title
from helix.services.claim_input import check_session_id

Checkpoint = Annotated[str | None, typer.Option("--checkpoint", help="Checkpoint to start from [default: the latest]")]
Step = Annotated[int | None, typer.Option("--step", min=0, help="The newest checkpoint of this step")]
Reason = Annotated[str | None, typer.Option("--reason", help="Stored with the run")]


def interrupt(session: SessionName, where: Where, reason: Reason = None) -> None:
    async def act(client: HelixClient) -> str:
        state = await client.get_session(session)
        if state.status != "running":
            raise RefusedError(f"session {session!r} does not run: it is {state.status}")
        if state.lease_expires and state.lease_expires < SystemClock().now():
            raise RefusedError(f"session {session!r} does not run: its process is gone; resume it")
        if not await client.interrupt(session, reason, run_id=state.current_run_id):
            raise RefusedError(f"session {session!r} does not run any more")
        return f"session {session} was asked to stop; it stops at its next step"

    write(with_client(where, session, act))


def abort(session: SessionName, where: Where, reason: Reason = None) -> None:
    async def act(client: HelixClient) -> str:
        state = await client.get_session(session)
        if state.status not in ("running", "paused", "interrupted"):
            raise RefusedError(f"session {session!r} has ended already: it is {state.status}")
        await client.abort(session, reason, run_id=state.current_run_id)
        return f"session {session} was aborted; a new message can continue it"

    write(with_client(where, session, act))


def compact(
    session: SessionName,
    where: Where,
    focus: Annotated[str, typer.Option("--focus", metavar="TEXT", help="Topic to cover in detail")] = "",
) -> None:
    check_focus(focus)
    with_client(where, session, lambda client: client.compact(session, focus))
    write(f"the next step of session {session} writes a summary first")


def rename(
    session: SessionName,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="At most 120 characters")],
    where: Where,
) -> None:
    clean_title(title)
    stored = with_client(where, session, lambda client: client.rename(session, title))
    write(f"session {session} is titled {stored!r}" if stored else f"session {session} has no title any more")


def branch(
    session: SessionName,
    where: Where,
    checkpoint: Checkpoint = None,
    step: Step = None,
    to: Annotated[str | None, typer.Option("--to", metavar="SESSION", help="Id of the new session")] = None,
) -> None:
    async def act(client: HelixClient) -> str:
        point = await checkpoint_of(client, session, checkpoint, step)
        return await client.branch(session, point, target=to)

    if to is not None:
        check_session_id(to)

    write(with_client(where, session, act))


def clone(
    session: SessionName,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Id of the new session")],
    where: Where,
    checkpoint: Checkpoint = None,
    messages: Annotated[int | None, typer.Option("--messages", min=0, help="Copy only the first N messages")] = None,
) -> None:
    check_session_id(target)
    cut: dict[str, Any] = {"checkpoint_id": checkpoint, "message_index": messages}
    write(with_client(where, session, lambda client: client.clone(session, target, **cut)))


def delete(session: SessionName, where: Where) -> None:
    async def act(client: HelixClient) -> None:
        if not await client.delete(session):
            raise SessionNotFoundError(session)

    with_client(where, session, act)
    write(f"deleted session {session}")


async def checkpoint_of(client: HelixClient, session_id: str, checkpoint: str | None, step: int | None) -> str | None:
    """Return the id of the checkpoint that the user named by its id or its step. None: the latest checkpoint. Raises
    `CheckpointNotFoundError`, and `RefusedError` if both are given."""
    if step is None:
        return checkpoint
    if checkpoint is not None:
        raise RefusedError("--checkpoint and --step exclude each other: choose one")
    cursor: Any = None
    steps: set[int] = set()
    while True:
        page: dict[str, Any] = await client.list_checkpoints(session_id, limit=PAGE, after=cursor)
        for point in page["checkpoints"]:
            if point["step"] == step:
                return str(point["id"])
            steps.add(point["step"])
        if (cursor := page["cursor"]) is None:
            known = ", ".join(map(str, sorted(steps)[:20])) or "none"
            raise CheckpointNotFoundError(
                f"session {session_id!r} has no checkpoint of step {step}; it has those of {known}"
            )
