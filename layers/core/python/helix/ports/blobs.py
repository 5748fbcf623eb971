"""Blobs: the bytes of files, each under a key that contains the hash of its content.

Law: a key never changes its bytes, so that a repeated `put` has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Upload:
    """A request that a client sends itself to store a blob. Its signature covers the length and the hash."""

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
    the store cannot be reached."""

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
        """Return up to `limit` keys with this prefix, in ascending order, beginning after the key `after`."""
        ...

    async def upload(self, key: str, size: int, sha256: str, media_type: str, expires_s: float) -> Upload | None:
        """Return a request by which a client stores the blob itself. None: the store has no such requests, so the bytes
        go through `put`."""
        ...

    async def download(self, key: str, name: str | None, expires_s: float) -> str | None:
        """Return a URL from which a client reads the blob as an attachment called `name`. None: the store has no such
        URLs, so the bytes go through `get`."""
        ...

    def location(self, key: str) -> str | None:
        """Return the `s3://<bucket>/<key>` address of the blob. None: it is not in S3."""
        ...
