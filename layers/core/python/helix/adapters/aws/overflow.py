"""What exceeds a DynamoDB item, in S3. Objects are written before the row that points to them, and never changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from helix.ports.state_store import Key


class Overflow:
    """Objects are named by row and content: writing one twice is harmless, deleting a row's prefix deletes all."""

    def __init__(self, client: Any, bucket: str, prefix: str = "overflow/") -> None:
        self._client, self._bucket, self._prefix = client, bucket, prefix

    def writer(self, key: Key) -> Callable[[bytes], str]:
        def write(body: bytes) -> str:
            name = f"{self._prefix}{key.table}/{key.partition}/{key.sort}/{hashlib.sha256(body).hexdigest()[:32]}"
            self._client.put_object(Bucket=self._bucket, Key=name, Body=body)
            return name

        return write

    def read(self, name: str) -> bytes:
        body: bytes = self._client.get_object(Bucket=self._bucket, Key=name)["Body"].read()
        return body
