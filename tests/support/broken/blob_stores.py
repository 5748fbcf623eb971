"""Stores of blobs that break one law each."""

from __future__ import annotations

import asyncio

from helix.adapters.memory_blobs import MemoryBlobs
from helix.core.errors import StoreError
from helix.ports.blobs import Upload


class DropsEmptyBlobs(MemoryBlobs):
    async def put(self, key: str, data: bytes, media_type: str) -> None:
        if data:
            await super().put(key, data, media_type)


class CountsTheHead(MemoryBlobs):
    """Returns the size of the head as that of the blob."""

    async def head(self, key: str, length: int) -> tuple[int, bytes] | None:
        found = await super().head(key, length)
        return None if found is None else (len(found[1]), found[1])


class FindsByPrefix(MemoryBlobs):
    async def get(self, key: str) -> bytes | None:
        return next((data for name, data in self._blobs.items() if name.startswith(key)), None)


class DeletesOnce(MemoryBlobs):
    async def delete(self, key: str) -> None:
        if await self.get(key) is None:
            raise StoreError("there is no such blob")
        await super().delete(key)


class ListsAsStored(MemoryBlobs):
    async def list(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        found = await super().list(prefix, after)
        return [key for key in reversed(self._blobs) if key in found][:limit]


class ListsTheKeyBefore(MemoryBlobs):
    """Includes the key after which it has to begin."""

    async def list(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        first = [after] if after in self._blobs else []
        return [*first, *await super().list(prefix, after, limit)][:limit]


class TakesAnyKey(MemoryBlobs):
    async def upload(self, key: str, size: int, sha256: str, media_type: str, expires_s: float) -> Upload | None:
        return None


class TakesAnyPrefix(MemoryBlobs):
    async def list(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        return sorted(key for key in self._blobs if key.startswith(prefix) and key > after)[:limit]


class RefusesASecondPut(MemoryBlobs):
    async def put(self, key: str, data: bytes, media_type: str) -> None:
        if await self.get(key) is not None:
            raise StoreError("there is such a blob")
        await super().put(key, data, media_type)


class WritesInParts(MemoryBlobs):
    async def put(self, key: str, data: bytes, media_type: str) -> None:
        await super().put(key, data[: len(data) // 2], media_type)
        await asyncio.sleep(0)
        await super().put(key, data, media_type)


class DeletesTheFolder(MemoryBlobs):
    """Deletes the neighbours of a blob too."""

    async def delete(self, key: str) -> None:
        await asyncio.sleep(0)
        for other in await self.list(key.partition("/")[0]):
            await super().delete(other)
