"""Access to the rows that a command reads, in a store on this machine or in the tables of a deployed stage.

Law: a command that only reads refuses a store that does not exist, and never creates it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from helix.adapters.system import SystemClock, SystemIds
from helix.cli.output import RefusedError
from helix.ports.state_store import StateStore
from helix.runtime.stores import open_store, store_exists

if TYPE_CHECKING:
    from helix.cli.options import Store
    from helix.cli.where import Where
    from helix.services.session_files import SessionFiles

T = TypeVar("T")


def require_session(db: str, session_id: str | None) -> None:
    """Raise `RefusedError` if a session is given but the store does not exist, so that the store is not created."""
    if session_id is not None and not store_exists(db):
        raise RefusedError(f"session {session_id!r} does not exist: there is no store {db!r} here (see --db)")


def with_store(place: Store | Where, work: Callable[[StateStore], Awaitable[T]]) -> T:
    """Return the result of `work`, which receives the state store of the place."""
    if place.stage is None and not store_exists(place.db):
        raise RefusedError(f"there is no store {place.db!r} here (see --db, and --stage for a deployed one)")
    return with_new_store(place, work)


def with_new_store(place: Store | Where, work: Callable[[StateStore], Awaitable[T]]) -> T:
    """Like `with_store`, but create the local store if it does not exist."""

    async def main() -> T:
        found = open_store(place.db) if place.stage is None else _open_deployed(place, place.stage, _open_stage)
        try:
            return await work(found)
        finally:
            await found.close()

    return asyncio.run(main())


def aws_client(service: str, profile: str | None = None, region: str | None = None) -> Any:
    """Create a boto3 client for an AWS service. Raises `RefusedError` if no region is configured or the profile is
    unknown."""
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError:
        raise RefusedError("a deployed stage needs boto3: pip install 'helix-agents[aws]'") from None
    given: dict[str, Any] = {"profile_name": profile, "region_name": region}
    signature = "s3v4" if service == "s3" else None  # `S3Blobs` needs it
    config = Config(
        connect_timeout=5, retries={"mode": "standard", "total_max_attempts": 3}, signature_version=signature
    )
    try:
        return boto3.Session(**given).client(service, config=config)
    except BotoCoreError as error:
        raise RefusedError(f"{error} (choose with --profile and --region)") from error


def _open_stage(client: Callable[[str], Any], stack: str) -> StateStore:
    from helix.runtime.tables import open_stage

    return open_stage(client, stack)


def open_files(place: Store | Where, store: StateStore) -> SessionFiles | None:
    """Return the files of the sessions in the place's `store`. None: the store has no place for files."""
    from helix.runtime.stores import open_blobs
    from helix.runtime.tables import open_stage_blobs
    from helix.services.session_files import SessionFiles

    blobs = open_blobs(place.db) if place.stage is None else _open_deployed(place, place.stage, open_stage_blobs)
    return None if blobs is None else SessionFiles(store, blobs, SystemClock(), SystemIds())


def _open_deployed(place: Store | Where, stage: str, opener: Callable[[Callable[[str], Any], str], T]) -> T:
    """Return what `opener` opens with the clients for AWS and the name of the stage's stack."""

    def client(service: str) -> Any:
        return aws_client(service, place.profile, place.region)

    stack = f"helix-{stage}"
    try:
        return opener(client, stack)
    except Exception as error:  # boto3 has a class for each of many causes; its message names the cause
        raise RefusedError(f"stage {stage!r}, stack {stack!r}, cannot be read: {error}") from error
