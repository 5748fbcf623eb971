"""Blobs: the bytes of files, each under a key that contains the hash of its content.

Law: the bytes under a key never change, so a repeated `put` has no effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol
from urllib.parse import quote

from helix.core.errors import InvalidInputError

MAX_KEY: Final = 512
"""The maximum length of a key, in characters. It leaves room for a prefix, since S3 limits keys to 1,024 bytes."""
ADDRESS_S: Final = 900.0
"""The number of seconds for which clients get the address of an upload or a download. A slow connection needs time to
send 50 MB."""
_SEGMENT: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}"
_KEY: Final = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")


@dataclass(frozen=True, slots=True)
class Upload:
    """A request that a client sends to store a blob itself. Its signature covers the length and the hash."""

    url: str
    """The address of the request."""
    method: str = "PUT"
    """The HTTP method."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers that the client must send unchanged."""
    expires_at: float = 0
    """The time until which the request is accepted (Unix seconds)."""


class Blobs(Protocol):
    """A store of blobs. All verbs may be called from several tasks and processes at once. They raise `StoreError` if
    the store cannot be reached, and `InvalidInputError` for a key or prefix that `check_blob_key` or
    `check_blob_prefix` rejects."""

    async def put(self, key: str, data: bytes, media_type: str) -> None:
        """Store the bytes. Idempotent."""
        ...

    async def get(self, key: str) -> bytes | None:
        """Return the bytes, or None if the blob does not exist."""
        ...

    async def head(self, key: str, length: int) -> tuple[int, bytes] | None:
        """Return the size of the blob and its first `length` bytes, or None if it does not exist."""
        ...

    async def delete(self, key: str) -> None:
        """Delete the blob. Idempotent."""
        ...

    async def list(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        """Return up to `limit` keys with this prefix, in ascending order, starting after the key `after`."""
        ...

    async def upload(self, key: str, size: int, sha256: str, media_type: str, expires_s: float) -> Upload | None:
        """Return a request with which a client stores the blob itself. None: the store does not support this, so the
        bytes go through `put`."""
        ...

    async def download(self, key: str, name: str | None, expires_s: float) -> str | None:
        """Return a URL from which a client downloads the blob as an attachment called `name`. None: the store does not
        support this, so the bytes go through `get`."""
        ...

    def location(self, key: str) -> str | None:
        """Return the `s3://<bucket>/<key>` address of the blob. None: it is not in S3."""
        ...


class LocalBlobs:
    """The verbs of `Blobs` with which a client reaches S3 itself, for stores that are not in S3: all return None."""

    async def upload(self, key: str, size: int, sha256: str, media_type: str, expires_s: float) -> Upload | None:
        check_blob_key(key)
        return None

    async def download(self, key: str, name: str | None, expires_s: float) -> str | None:
        check_blob_key(key)
        return None

    def location(self, key: str) -> str | None:
        check_blob_key(key)
        return None


def check_blob_key(key: str) -> None:
    """Check the form of a key, which is the same for every adapter. Its segments begin with a letter or a digit, so no
    key can point outside the adapter's folder. Raises `InvalidInputError`."""
    if len(key) > MAX_KEY or not _KEY.fullmatch(key):
        raise InvalidInputError(
            f"{key[:80]!r} is not a blob's key: it has at most {MAX_KEY} letters, digits and ._-, with / between its parts"
        )


def check_blob_prefix(prefix: str) -> None:
    """Check that a prefix is empty or the beginning of a valid key. Raises `InvalidInputError`."""
    if prefix and not _KEY.fullmatch(f"{prefix}x"):
        raise InvalidInputError(f"{prefix[:80]!r} is not the beginning of a blob's key")


def attachment(name: str | None) -> str:
    """Return the value of a Content-Disposition header (RFC 6266) that makes a browser save the bytes rather than
    display them. `name`: the name under which to save them, or None to let the browser choose."""
    if not name:
        return "attachment"
    plain = re.sub(r"[^A-Za-z0-9 ._()-]", "_", name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
