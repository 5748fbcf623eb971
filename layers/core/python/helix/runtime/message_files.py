"""The files of a message in a run's claim. They are stored and held before the claim, which checks them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from helix.core.agents import AnyAgent
from helix.core.errors import NOT_HELD, FileMissingError, InvalidFileError, SessionNotFoundError, StaleStateError
from helix.core.file_checks import check_message
from helix.core.files import FilePart
from helix.core.session_row import SessionRow
from helix.engine.engine import Engine
from helix.services.blob_holders import HeldParts
from helix.services.claim_input import ClaimInput
from helix.services.file_inputs import ReadFile
from helix.services.session_files import NO_FILES

HOLDS = 3
"""The number of times that a claim with files is attempted, in case the session changes or its hold expires in between."""
HandleT = TypeVar("HandleT")


async def start_with_files(
    engine: Engine,
    agent: AnyAgent,
    session_id: str,
    ask: ClaimInput,
    files: Sequence[ReadFile],
    start: Callable[[ClaimInput], Awaitable[HandleT]],
) -> HandleT:
    """Store the files, hold them for the session, and start the run with them. Raises `InvalidFileError` if the agent or
    the store does not accept files."""
    if agent.function is not None:
        raise InvalidFileError(f"agent {agent.name!r} is a function: it takes no files")
    for attempt in range(1, HOLDS + 1):
        try:
            held = await _hold(engine, session_id, ask, files)
            return await start(replace(ask, files=held.parts, holds=held.checks(session_id)))
        except StaleStateError:
            if attempt == HOLDS or ask.version is not None:
                raise
    raise AssertionError("unreachable")


async def _hold(engine: Engine, session_id: str, ask: ClaimInput, files: Sequence[ReadFile]) -> HeldParts:
    if engine.files is None:
        raise InvalidFileError(NO_FILES)
    session = None if ask.made else await engine.history.session(session_id)
    user_id, root = ask.opening.user_id, session_id
    if session is not None:
        if user_id is not None and not await engine.history.belongs(session, user_id):
            raise SessionNotFoundError(session_id)  # before anything is stored, or looked up among the owner's files
        user_id, root = await owner_of(engine, session)
    held = await engine.files.take(user_id, root, session_id, files)
    check_message(held.parts)  # again, because a caller may describe stored files wrongly
    return held


async def owner_of(engine: Engine, session: SessionRow) -> tuple[str | None, str]:
    """Return the user and the root session that own the files of a session."""
    root = session if session.parent is None else await engine.history.existing(session.stream_id)
    return root.user_id, root.session_id


async def read_file(engine: Engine, session_id: str, file: FilePart) -> bytes:
    """Return the bytes of a file that the session holds. Raises `FileMissingError`."""
    await engine.history.existing(session_id)
    if engine.files is None:
        raise FileMissingError(file.sha256 or file.url or "", file.name, NOT_HELD)
    return await (await engine.files.held(session_id)).read(file)
