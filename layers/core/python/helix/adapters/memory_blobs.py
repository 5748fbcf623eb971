"""Blobs in memory, for tests and for runs that need not outlive the process."""

from __future__ import annotations

import threading

from helix.ports.blobs import LocalBlobs, check_blob_key, check_blob_prefix


class MemoryBlobs(LocalBlobs):
    """Implements `Blobs`."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}
        self._lock = threading.Lock()

    async def put(self, key: str, data: bytes, media_type: str) -> None:
        check_blob_key(key)
        with self._lock:
            self._blobs[key] = bytes(data)

    async def get(self, key: str) -> bytes | None:
        check_blob_key(key)
        return self._blobs.get(key)

    async def head(self, key: str, length: int) -> tuple[int, bytes] | None:
        data = await self.get(key)
        return None if data is None else (len(data), data[:length])

    async def delete(self, key: str) -> None:
        check_blob_key(key)
        with self._lock:
            self._blobs.pop(key, None)

    async def list(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        check_blob_prefix(prefix)
        with self._lock:
            keys = list(self._blobs)
        return sorted(key for key in keys if key.startswith(prefix) and key > after)[:limit]
