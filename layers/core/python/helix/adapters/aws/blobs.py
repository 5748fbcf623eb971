"""Blobs in S3. Clients upload and download them with presigned requests, so the bytes never pass through a function.

Law: an upload's signature covers the length, the type and the SHA-256 of the bytes. S3 refuses any other bytes, so a client
can only store what it announced.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any
from urllib.parse import parse_qs, urlsplit

from botocore.exceptions import BotoCoreError

from helix.adapters.aws.calls import call
from helix.adapters.system import SystemClock
from helix.core.errors import StoreError
from helix.ports.blobs import Upload, attachment, check_blob_key, check_blob_prefix
from helix.ports.clock import Clock

_MISSING = frozenset({"NoSuchKey", "404", "NotFound"})
PAGE = 1000
"""The maximum number of keys that S3 lists at once."""
LONGEST_S = 604_800
"""The maximum lifetime of a presigned request, in seconds."""


class S3Blobs:
    """Implements `Blobs` with the objects under `prefix` in a bucket.

    The client needs `Config(signature_version="s3v4")`. Without it, botocore presigns with version 2, whose signature does
    not cover the length.
    """

    def __init__(self, client: Any, bucket: str, prefix: str = "", *, clock: Clock | None = None) -> None:
        self._client, self._bucket, self._prefix = client, bucket, prefix
        self._clock = clock or SystemClock()

    async def put(self, key: str, data: bytes, media_type: str) -> None:
        checksum = _base64(hashlib.sha256(data).hexdigest())
        await self._call("put_object", key, Body=data, ContentType=media_type, ChecksumSHA256=checksum)

    async def get(self, key: str) -> bytes | None:
        answer = await self._call("get_object", key)
        return None if answer is None else await self._read(answer)

    async def head(self, key: str, length: int) -> tuple[int, bytes] | None:
        answer = await self._call("head_object", key)
        size = 0 if answer is None else int(answer["ContentLength"])
        if answer is None or not size or not length:  # S3 refuses a range of an empty object
            return None if answer is None else (size, b"")
        answer = await self._call("get_object", key, Range=f"bytes=0-{length - 1}")
        return None if answer is None else (size, await self._read(answer))

    async def delete(self, key: str) -> None:
        await self._call("delete_object", key)

    async def list(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        check_blob_prefix(prefix)
        keys: list[str] = []
        while len(keys) < limit:
            start = {"StartAfter": self._prefix + (keys[-1] if keys else after)} if keys or after else {}
            wanted: dict[str, Any] = {"Prefix": self._prefix + prefix, "MaxKeys": min(PAGE, limit - len(keys)), **start}
            answer = await call(self._client, "list_objects_v2", "S3 list_objects_v2", Bucket=self._bucket, **wanted)
            keys += [one["Key"].removeprefix(self._prefix) for one in answer.get("Contents", [])]
            if not answer.get("IsTruncated"):
                break
        return keys

    async def upload(self, key: str, size: int, sha256: str, media_type: str, expires_s: float) -> Upload | None:
        headers = {"Content-Length": str(size), "Content-Type": media_type, "x-amz-checksum-sha256": _base64(sha256)}
        signed = {"ContentLength": size, "ContentType": media_type, "ChecksumSHA256": _base64(sha256)}
        url = self._presign("put_object", key, expires_s, **signed)
        covered = parse_qs(urlsplit(url).query).get("X-Amz-SignedHeaders", [""])[0].split(";")
        if missing := sorted({name.lower() for name in headers} - set(covered)):
            raise StoreError(
                f"the signature of an upload does not cover {missing}: make the S3 client with s3v4 signatures"
            )
        return Upload(url, "PUT", headers, self._clock.now() + expires_s)

    async def download(self, key: str, name: str | None, expires_s: float) -> str | None:
        return self._presign("get_object", key, expires_s, ResponseContentDisposition=attachment(name))

    def location(self, key: str) -> str | None:
        check_blob_key(key)
        return f"s3://{self._bucket}/{self._prefix}{key}"

    def _presign(self, verb: str, key: str, expires_s: float, **request: Any) -> str:
        """Sign a request. It needs no connection, but may load the process's credentials."""
        check_blob_key(key)
        given = {"Bucket": self._bucket, "Key": self._prefix + key, **request}
        try:
            return str(
                self._client.generate_presigned_url(verb, Params=given, ExpiresIn=min(int(expires_s), LONGEST_S))
            )
        except BotoCoreError as error:
            raise StoreError(f"S3 {verb} cannot be signed: {error}") from error

    async def _call(self, verb: str, key: str, **request: Any) -> Any:
        """Return S3's response, or None if there is no such object."""
        check_blob_key(key)
        place = {"Bucket": self._bucket, "Key": self._prefix + key}
        return await call(self._client, verb, f"S3 {verb}", _MISSING, **place, **request)

    async def _read(self, answer: Any) -> bytes:
        """Read the body of a response. The connection may still fail."""
        found: bytes = await call(answer["Body"], "read", "S3 get_object")
        return found


def _base64(sha256: str) -> str:
    return base64.b64encode(bytes.fromhex(sha256)).decode()
