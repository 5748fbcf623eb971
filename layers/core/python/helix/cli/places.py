"""Where a command finds sessions and the fleet: a store on this machine, or the tables of a deployed stage.

Law: which of the two is said by `--stage` alone; a place that is not there is refused before anything is asked of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helix.cli.refusal import RefusedError
from helix.ports.state_store import StateStore, Table

SERVERS = ("redis://", "rediss://", "unix://")
TABLES: tuple[Table, ...] = ("sessions", "streams", "control")


@dataclass(frozen=True, slots=True)
class Place:
    """`db`: a SQLite file or a Redis URL; not looked at where `stage` names a deployed stage, which is found with the AWS
    configuration's `profile` and `region` (offline: the variables in .helix/env)."""

    db: str
    stage: str | None = None
    profile: str | None = None
    region: str | None = None

    def client(self, service: str) -> Any:
        """boto3's. Raises `RefusedError` where nothing says which region, or whose account."""
        try:
            import boto3
            from botocore.exceptions import BotoCoreError
        except ImportError:
            raise RefusedError("a deployed stage needs boto3: pip install 'helix-agents[aws]'") from None
        try:
            return boto3.Session(profile_name=self.profile, region_name=self.region).client(service)
        except BotoCoreError as error:
            raise RefusedError(f"{error} (--profile and --region choose)") from error


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[StateStore]:
    """The store of the place, closed at the end."""
    store = _deployed(place) if place.stage is not None else _here(place.db)
    try:
        yield store
    finally:
        await store.close()


def _here(db: str) -> StateStore:
    if not db.startswith(SERVERS) and not Path(db).is_file():
        raise RefusedError(f"there is no store {db!r} here (see --db; --stage for a deployed one)")
    from helix.runtime.local import open_store

    return open_store(db)


def _deployed(place: Place) -> StateStore:
    from helix.adapters.aws.dynamodb import DynamoDBStateStore
    from helix.adapters.system import SystemClock

    client = place.client("dynamodb")
    name = f"helix-{place.stage}-control"
    try:
        client.describe_table(TableName=name)
    except client.exceptions.ResourceNotFoundException:
        raise RefusedError(f"there is no table {name!r} in {client.meta.region_name}: deploy the stage first") from None
    except Exception as error:  # boto3 has a class for each of many reasons; its text names the reason
        raise RefusedError(f"the table {name!r} cannot be read: {error}") from error
    tables = {table: f"helix-{place.stage}-{table}" for table in TABLES}
    return DynamoDBStateStore(client, tables, clock=SystemClock())
