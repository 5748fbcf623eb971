"""Where a command finds sessions and a fleet: a store on this machine, or the tables of a deployed stage.

Law: a store that does not exist is refused, and never created by a command that only looks.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from helix.cli.options import Store
from helix.cli.output import RefusedError, naming
from helix.ports.state_store import StateStore

if TYPE_CHECKING:
    from helix.runtime.local import LocalExecutor

T = TypeVar("T")
SERVERS = ("redis://", "rediss://", "unix://")


def exists(db: str) -> bool:
    return db.startswith(SERVERS) or Path(db).is_file()


def require_session(db: str, session_id: str | None) -> None:
    """A command about a stored session makes no store."""
    if session_id is not None and not exists(db):
        raise RefusedError(f"session {session_id!r} does not exist: there is no store {db!r} here (see --db)")


def with_executor(db: str, session_id: str | None, work: Callable[[LocalExecutor], Awaitable[T]]) -> T:
    """What `work` returns. `session_id`: the session that it is about."""
    from helix.runtime.local import LocalExecutor

    async def main() -> T:
        async with LocalExecutor(db) as executor:
            return await work(executor)

    require_session(db, session_id)
    with naming(session_id):
        return asyncio.run(main())


def with_store(store: Store, work: Callable[[StateStore], Awaitable[T]], endpoint: str | None = None) -> T:
    """What `work` returns. `endpoint`: where an offline cloud answers for AWS."""

    async def main() -> T:
        found = _local(store.db) if store.stage is None else _deployed(store, store.stage, endpoint)
        try:
            return await work(found)
        finally:
            await found.close()

    return asyncio.run(main())


def _local(db: str) -> StateStore:
    from helix.runtime.local import open_store

    if not exists(db):
        raise RefusedError(f"there is no store {db!r} here (see --db, and --stage for a deployed one)")
    return open_store(db)


def aws_client(service: str, profile: str | None = None, region: str | None = None, endpoint: str | None = None) -> Any:
    """boto3's. Raises `RefusedError` without a region, and for an unknown profile."""
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError:
        raise RefusedError("a deployed stage needs boto3: pip install 'helix-agents[aws]'") from None
    given: dict[str, Any] = {"profile_name": profile, "region_name": region}
    if endpoint is not None:
        from helix.local.cloud import REGION
        from helix.local.credentials import credentials_for

        found = credentials_for(endpoint, Path.cwd(), os.environ)
        if found is None:
            raise RefusedError(
                f"the credentials of {endpoint} are missing: source the file env in its state folder (.helix)"
            )
        given = {**found.options, "region_name": REGION}
    config = Config(connect_timeout=5, retries={"mode": "standard", "total_max_attempts": 3})
    try:
        return boto3.Session(**given).client(service, endpoint_url=endpoint, config=config)
    except BotoCoreError as error:
        raise RefusedError(f"{error} (choose with --profile and --region)") from error


def _deployed(store: Store, stage: str, endpoint: str | None) -> StateStore:
    from helix.runtime.tables import open_stage

    def client(service: str) -> Any:
        return aws_client(service, store.profile, store.region, endpoint)

    stack = f"helix-{stage}"
    try:
        return open_stage(client, stack)
    except Exception as error:  # boto3 has a class for each of many reasons; its text names the reason
        if endpoint is not None:
            at = endpoint.partition("//")[2]
            raise RefusedError(f"there is no stage {stage!r} at {at}: {error}") from error
        raise RefusedError(f"stage {stage!r}, stack {stack!r}, cannot be read: {error}") from error
