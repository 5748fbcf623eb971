"""The contract of `Blobs`: whole bytes under valid keys, even under races."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from helix.core.errors import InvalidInputError
from helix.ports.blobs import Blobs

PNG = "image/png"


class BlobsContract:
    """The tests. They need a fixture `blobs`. If possible, the fixture `other` is the store of a second process on the same
    data."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def other(self, blobs: Blobs) -> Blobs:
        return blobs

    @pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 400])
    async def test_bytes_come_back_as_they_were(self, blobs: Blobs, other: Blobs, data: bytes) -> None:
        """Every process reads the bytes that were stored, whatever they are."""
        await blobs.put("blobs/owner/one", data, PNG)
        assert await other.get("blobs/owner/one") == data
        assert await other.head("blobs/owner/one", 10) == (len(data), data[:10])
        assert await other.head("blobs/owner/one", 0) == (len(data), b"")
        assert await other.head("blobs/owner/one", 1_000_000) == (len(data), data)

    async def test_a_missing_blob_is_none(self, blobs: Blobs) -> None:
        """Reading a blob that was never stored, or was deleted, returns None, even if other keys begin with its key."""
        await blobs.put("a/b/c", b"1", PNG)
        for key in ("a/b", "a", "a/b/c/d", "a/b/cc", "none"):
            assert await blobs.get(key) is None
            assert await blobs.head(key, 5) is None is await blobs.head(key, 0)
        await blobs.delete("a/b/c")
        assert await blobs.get("a/b/c") is None is await blobs.head("a/b/c", 5)

    async def test_put_and_delete_are_idempotent(self, blobs: Blobs, other: Blobs) -> None:
        """A repeated `put` or `delete` changes nothing, and a deleted blob can be stored again."""
        for _ in range(2):
            await blobs.put("a/b", b"data", PNG)
            await other.put("a/b", b"data", PNG)
            assert await blobs.list("") == ["a/b"]
            await blobs.delete("a/b")
            await other.delete("a/b")
            await blobs.delete("never/there")
            assert await blobs.list("") == []

    async def test_list_orders_pages_and_filters(self, blobs: Blobs) -> None:
        """`list` returns the keys in ascending order by their characters, under the prefix and after the given key."""
        keys = sorted(["a/1", "a/10", "a/2", "a-b/1", "a.b/1", "A/1", "ab/1", "b/x/y", "b/z", "c"])
        for key in keys:
            await blobs.put(key, b"x", PNG)
        assert await blobs.list("") == keys
        assert await blobs.list("a/") == ["a/1", "a/10", "a/2"]
        assert await blobs.list("a") == [key for key in keys if key.startswith("a")]
        assert await blobs.list("b/x") == ["b/x/y"]
        assert await blobs.list("none/") == []
        assert await blobs.list("", limit=3) == keys[:3]
        assert await blobs.list("", after=keys[2]) == keys[3:]
        assert await blobs.list("a/", after="a/1", limit=1) == ["a/10"]
        assert await blobs.list("", after="zzz") == []

    @pytest.mark.parametrize(
        "key",
        [
            *("", "/", "..", ".", "a/../b", "../a", "/etc/passwd", "a//b", "a/", "/a", ".hidden", "a/.b.part"),
            *("a\\b", "a b", "a\x00", "a\n", "é", "a/%2e%2e/b", "x" * 600, "C:a"),
        ],
    )
    async def test_other_keys_are_refused(self, blobs: Blobs, key: str) -> None:
        """A key that could leave a folder raises `InvalidInputError` from every verb, and nothing is written."""
        digest = hashlib.sha256(b"x").hexdigest()
        for call in (
            lambda: blobs.put(key, b"x", PNG),
            lambda: blobs.get(key),
            lambda: blobs.head(key, 1),
            lambda: blobs.delete(key),
            lambda: blobs.upload(key, 1, digest, PNG, 60),
            lambda: blobs.download(key, None, 60),
        ):
            with pytest.raises(InvalidInputError):
                await call()
        with pytest.raises(InvalidInputError):
            blobs.location(key)
        assert await blobs.list("") == []

    @pytest.mark.parametrize("prefix", ["/", "../", "a/../", "a//", "."])
    async def test_other_prefixes_are_refused(self, blobs: Blobs, prefix: str) -> None:
        with pytest.raises(InvalidInputError):
            await blobs.list(prefix)

    async def test_two_puts_of_one_key(self, blobs: Blobs, other: Blobs) -> None:
        """Concurrent puts of the same bytes all succeed."""
        data = b"z" * 300_000
        await asyncio.gather(*((blobs, other)[n % 2].put("a/b", data, PNG) for n in range(8)))
        assert await blobs.get("a/b") == data
        assert await blobs.list("") == ["a/b"]

    async def test_a_reader_never_sees_a_part(self, blobs: Blobs, other: Blobs) -> None:
        """While others store and delete a blob, a reader gets all of its bytes or None."""
        data = b"y" * 300_000
        over = False

        async def write(store: Blobs) -> None:
            for _ in range(8):
                await store.put("a/b", data, PNG)
                await store.delete("a/b")

        async def read(store: Blobs) -> None:
            while not over:
                assert await store.get("a/b") in (None, data)
                assert await store.head("a/b", 4) in (None, (len(data), data[:4]))
                assert await store.list("") in ([], ["a/b"])
                await asyncio.sleep(0)

        readers = [asyncio.ensure_future(read(store)) for store in (blobs, other)]
        await asyncio.gather(write(blobs), write(other))
        over = True
        await asyncio.gather(*readers)
        await blobs.put("a/b", data, PNG)
        assert await other.get("a/b") == data

    async def test_neighbours_are_not_disturbed(self, blobs: Blobs, other: Blobs) -> None:
        """Blobs under the same prefix can be stored and deleted concurrently without affecting each other."""

        async def work(store: Blobs, name: str) -> None:
            for _ in range(6):
                await store.put(f"owner/{name}/x", name.encode(), PNG)
                await asyncio.sleep(0)
                assert await store.get(f"owner/{name}/x") == name.encode()
                await store.delete(f"owner/{name}/x")

        await asyncio.gather(*(work((blobs, other)[n % 2], f"n{n}") for n in range(6)))
        assert await blobs.list("") == []
