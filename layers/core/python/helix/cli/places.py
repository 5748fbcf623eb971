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
    configuration's `profile` and `region` (offline: the variables in .helix/env), or at `endpoint`: an offline cloud's."""

    db: str
    stage: str | None = None
    profile: str | None = None
    region: str | None = None
    endpoint: str | None = None

    def client(self, service: str) -> Any:
        """boto3's. Raises `RefusedError` where nothing says which region, or whose account."""
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
        except ImportError:
            raise RefusedError("a deployed stage needs boto3: pip install 'helix-agents[aws]'") from None
        given: dict[str, Any] = {"profile_name": self.profile, "region_name": self.region}
        if self.endpoint is not None:
            from helix.local.cloud import REGION
            from helix.local.emulator import ADMIN

            given = {"aws_access_key_id": ADMIN, "aws_secret_access_key": ADMIN, "region_name": REGION}
        config = Config(connect_timeout=5, retries={"mode": "standard", "total_max_attempts": 3})
        try:
            return boto3.Session(**given).client(service, endpoint_url=self.endpoint, config=config)
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
    from helix.adapters.aws.overflow import Overflow
    from helix.adapters.system import SystemClock

    stack = f"helix-{place.stage}"
    try:
        found = place.client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]
    except RefusedError:
        raise
    except Exception as error:  # boto3 has a class for each of many reasons; its text names the reason
        if place.endpoint is not None:
            at = place.endpoint.partition("//")[2]
            raise RefusedError(f"there is no stage {place.stage!r} at {at}: {error}") from error
        raise RefusedError(f"stage {place.stage!r}, stack {stack!r}, cannot be read: {error}") from error
    outputs = {output["OutputKey"]: output["OutputValue"] for output in found.get("Outputs", [])}
    tables: dict[Table, str] = {table: f"{stack}-{table}" for table in TABLES}
    objects = Overflow(place.client("s3"), outputs["BucketName"])
    return DynamoDBStateStore(place.client("dynamodb"), tables, clock=SystemClock(), overflow=objects)
