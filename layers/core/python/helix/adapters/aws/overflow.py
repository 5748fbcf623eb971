"""Values that are too large for a DynamoDB item or a Kinesis record, stored in S3. An object is written before its
pointer and never changed, because its name is derived from its content."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from helix.adapters.aws.calls import DENIED, call_and_wait
from helix.core.errors import AccessDeniedError, ObjectGoneError, StoreError
from helix.ports.state_store import Key

DAY_S = 86_400
EXPIRY_DAYS = (2, 31, 366)
"""The lifetimes of objects in days. Objects of rows that expire are stored under `expiring(days)`, with the shortest
lifetime that outlasts the row by a day. The bucket's lifecycle rules (`infra/storage.py`) delete them, because DynamoDB
deletes an expired row without its objects."""
_GONE = frozenset({"NoSuchKey", "404", "NotFound"})


def expiring_prefix(days: int) -> str:
    """Return the prefix of objects with this lifetime. No partition has such a prefix, because quoting would escape the
    mark."""
    return f"!{days}d/"


class Overflow:
    """The objects of a bucket. Each is named after its row and content, under its partition, so writing one twice is
    harmless.

    An object is deleted with its whole partition, or when its row has expired. It cannot be deleted earlier, because a
    reader may hold a row that points to it.
    """

    def __init__(self, client: Any, bucket: str, prefix: str = "overflow/") -> None:
        self._client, self._bucket, self._prefix = client, bucket, prefix

    def writer(self, key: Key, lasts_s: float | None = None) -> Callable[[bytes], str]:
        """Return a function that stores a part of this row and returns its name. `lasts_s` is the time until the row
        expires, in seconds; None means that the row never expires."""
        days = next((days for days in EXPIRY_DAYS if lasts_s is not None and lasts_s <= (days - 1) * DAY_S), None)
        place = self._prefix_of(key.partition, "" if days is None else expiring_prefix(days))

        def write(body: bytes) -> str:
            digest = hashlib.sha256(body).hexdigest()[:32]
            name = f"{place}{key.table}/{quote(key.sort, safe='')}/{digest}"
            self._call("put_object", Key=name, Body=body)
            return name

        return write

    def read(self, name: str) -> bytes:
        """Return an object's content. Raises `ObjectGoneError` if there is no such object."""
        body: bytes = self._call("get_object", Key=name)["Body"].read()
        return body

    def count(self, partition: str) -> int:
        """Return the number of objects of a partition."""
        total = 0
        for kind in ("", *map(expiring_prefix, EXPIRY_DAYS)):
            after = ""
            while found := self._call("list_objects_v2", Prefix=self._prefix_of(partition, kind), StartAfter=after).get(
                "Contents"
            ):
                total += len(found)
                after = found[-1]["Key"]
        return total

    def clear(self, partition: str) -> None:
        """Delete all objects of a partition in all tables, including those of replaced rows and of refused
        transactions. Idempotent."""
        for kind in ("", *map(expiring_prefix, EXPIRY_DAYS)):
            while found := self._call("list_objects_v2", Prefix=self._prefix_of(partition, kind)).get("Contents"):
                objects = [{"Key": one["Key"]} for one in found]
                answer = self._call("delete_objects", Delete={"Objects": objects, "Quiet": True})
                if errors := answer.get("Errors"):
                    first = errors[0]
                    if first.get("Code") in DENIED:
                        raise AccessDeniedError("s3:DeleteObject", f"{self._bucket}/{first.get('Key')}")
                    raise StoreError(f"S3 delete_objects: {first.get('Message')}")

    def _prefix_of(self, partition: str, kind: str) -> str:
        return f"{self._prefix}{kind}{quote(partition, safe='')}/"

    def _call(self, verb: str, **request: Any) -> Any:
        answer = call_and_wait(self._client, verb, f"S3 {verb}", _GONE, Bucket=self._bucket, **request)
        if answer is None:
            raise ObjectGoneError(f"S3 {verb}: {request.get('Key')!r} is not in {self._bucket!r}")
        return answer
