"""Records that cannot be read, stored in S3 for inspection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from helix.adapters.aws.calls import call

PREFIX = "failed/project_stream/"


class S3Aside:
    """One object for each record, named by its stream and position: setting it aside twice is harmless. `client` gives
    botocore's of S3; it is asked for when there is something to set aside."""

    def __init__(self, client: Callable[[], Any], bucket: str, prefix: str = PREFIX) -> None:
        self._client, self._bucket, self._prefix = client, bucket, prefix

    async def put(self, stream_id: str, position: str, data: bytes) -> None:
        """Raises `StoreError` if the object cannot be written."""
        name = f"{self._prefix}{stream_id}/{position}"
        await call(self._client(), "put_object", "S3 put_object", Bucket=self._bucket, Key=name, Body=data)
