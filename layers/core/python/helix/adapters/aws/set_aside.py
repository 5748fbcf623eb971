"""Records that cannot be read, stored in S3 for inspection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from helix.adapters.aws.calls import call

PREFIX = "failed/project_stream/"


class S3Aside:
    """The records that could not be read. Each is one object, named by its stream and position, so storing it twice is
    harmless. `client` returns a botocore S3 client; it is called when the first record has to be stored."""

    def __init__(self, client: Callable[[], Any], bucket: str, prefix: str = PREFIX) -> None:
        self._client, self._bucket, self._prefix = client, bucket, prefix

    async def put(self, stream_id: str, position: str, data: bytes) -> None:
        """Store a record. Raises `StoreError` if the object cannot be written."""
        name = f"{self._prefix}{stream_id}/{position}"
        await call(self._client(), "put_object", "S3 put_object", Bucket=self._bucket, Key=name, Body=data)
