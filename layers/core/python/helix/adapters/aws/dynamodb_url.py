"""Opens a DynamoDB store from its URL: `dynamodb://?sessions=TABLE&streams=TABLE&control=TABLE`.

The options `region` and `profile` select the AWS configuration, and `bucket` names the S3 bucket for large fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

from helix.adapters.system import SystemClock
from helix.core.errors import DefinitionError, InvalidInputError
from helix.ports.state_store import TABLES

try:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    from helix.adapters.aws.dynamodb import DynamoDBStateStore
    from helix.adapters.aws.overflow import Overflow
except ModuleNotFoundError as error:
    if error.name not in ("boto3", "botocore"):
        raise
    problem = "boto3 is not installed: pip install 'helix-agents[aws]'"
    raise DefinitionError("DynamoDBStateStore", "boto3", problem) from error

URL = "dynamodb://?"
OPTIONS = ("bucket", "profile", "region")
CONFIG = Config(
    connect_timeout=5, read_timeout=10, max_pool_connections=32, retries={"mode": "standard", "total_max_attempts": 3}
)


def open_dynamodb(url: str) -> DynamoDBStateStore:
    """Return the store at a URL. It calls AWS when it is first used. Raises `InvalidInputError`."""
    given = _read_url(url)
    tables = {table: given[table] for table in TABLES}
    try:
        session = boto3.Session(region_name=given.get("region"), profile_name=given.get("profile"))
        client = session.client("dynamodb", config=CONFIG)
        overflow = Overflow(session.client("s3", config=CONFIG), given["bucket"]) if "bucket" in given else None
    except BotoCoreError as error:
        raise InvalidInputError(f"{url!r} cannot be opened: {error} (choose with region= and profile=)") from error
    return DynamoDBStateStore(client, tables, clock=SystemClock(), overflow=overflow)


def _read_url(url: str) -> Mapping[str, str]:
    pairs = parse_qsl(url.removeprefix(URL), keep_blank_values=True)
    given = dict(pairs)
    known = given.keys() <= {*TABLES, *OPTIONS} and given.keys() >= set(TABLES)
    if not url.startswith(URL) or not known or len(given) < len(pairs) or not all(given.values()):
        raise InvalidInputError(
            f"{url!r} does not name a DynamoDB store: write {URL}sessions=TABLE&streams=TABLE&control=TABLE, and "
            f"{', '.join(f'{name}=' for name in OPTIONS)} if needed"
        )
    return given
