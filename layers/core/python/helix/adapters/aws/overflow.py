"""What exceeds a DynamoDB item or a Kinesis record, in S3. Objects are written before what points to them, and never
changed: a name stands for its content."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from helix.adapters.aws.calls import ask
from helix.core.errors import ObjectGoneError, StoreError
from helix.ports.state_store import Key

_GONE = frozenset({"NoSuchKey", "404", "NotFound"})


class Overflow:
    """Objects are named by row and content, below their partition: writing one twice is harmless.

    An object is removed with its whole partition only: while that lives, a reader may hold a row that points to it."""

    def __init__(self, client: Any, bucket: str, prefix: str = "overflow/") -> None:
        self._client, self._bucket, self._prefix = client, bucket, prefix

    def writer(self, key: Key) -> Callable[[bytes], str]:
        def write(body: bytes) -> str:
            digest = hashlib.sha256(body).hexdigest()[:32]
            name = f"{self._place(key.partition)}{key.table}/{quote(key.sort, safe='')}/{digest}"
            self._call("put_object", Key=name, Body=body)
            return name

        return write

    def read(self, name: str) -> bytes:
        """Raises `ObjectGoneError` if there is no such object."""
        body: bytes = self._call("get_object", Key=name)["Body"].read()
        return body

    def clear(self, partition: str) -> None:
        """Remove all objects of a partition, whichever table's: also those of rows that were replaced, or that a refused
        transaction would have written. Idempotent."""
        while found := self._call("list_objects_v2", Prefix=self._place(partition)).get("Contents"):
            objects = [{"Key": one["Key"]} for one in found]
            answer = self._call("delete_objects", Delete={"Objects": objects, "Quiet": True})
            if answer.get("Errors"):
                raise StoreError(f"S3 delete_objects: {answer['Errors'][0].get('Message')}")

    def _place(self, partition: str) -> str:
        return f"{self._prefix}{quote(partition, safe='')}/"

    def _call(self, verb: str, **request: Any) -> Any:
        answer = ask(self._client, verb, f"S3 {verb}", _GONE, Bucket=self._bucket, **request)
        if answer is None:
            raise ObjectGoneError(f"S3 {verb}: {request.get('Key')!r} is not in {self._bucket!r}")
        return answer
