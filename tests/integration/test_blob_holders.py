"""Files are stored once for each owner, held by sessions, and deleted when no session holds them."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from tests.properties.blob_walk import DAY_S, HOUR_S, Numbers
from tests.support.aws_resources import BUCKET, fresh, make_store, make_tables, moto
from tests.support.blob_releases import release_blobs
from tests.support.sample_files import png

from helix import FilePart, MemoryStateStore, SQLiteStateStore
from helix.adapters.aws.blobs import S3Blobs
from helix.adapters.folder_blobs import FolderBlobs
from helix.adapters.memory_blobs import MemoryBlobs
from helix.core.errors import ConditionFailedError, FileMissingError, InvalidFileError
from helix.core.file_checks import describe
from helix.core.json import size
from helix.ports.blobs import Blobs
from helix.ports.model import Files
from helix.ports.state_store import ABSENT, Check, Key, Operation, Put, StateStore
from helix.services.blob_collector import BlobCollector
from helix.services.blob_holders import BlobHolders, HeldParts
from helix.services.blob_rows import PARTITIONS, blob_key, blob_owner, due_partition
from helix.services.blob_uploads import BlobUploads
from helix.services.file_inputs import ReadFile
from helix.services.held_files import HeldFiles
from helix.testing.aws import LockedClient
from helix.testing.clocks import SetClock

ADA, BOB = blob_owner("ada", "x"), blob_owner("bob", "x")
SHA = hashlib.sha256(png()).hexdigest()


class CountingStore(MemoryStateStore):
    """Counts its transactions by name."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        self.names.append(name)
        await super().transact(name, operations)


class World:
    """The services of one process."""

    def __init__(self, store: StateStore, blobs: Blobs) -> None:
        self.store, self.blobs, self.clock = store, blobs, SetClock(1_800_000_000.1234)
        ids = Numbers()
        self.uploads = BlobUploads(store, blobs, self.clock, ids)
        self.holders = BlobHolders(store, self.uploads, self.clock, ids)
        self.collector = BlobCollector(store, blobs, self.clock)

    async def send(self, session: str, *datas: bytes, owner: str = ADA) -> list[FilePart]:
        """Store and hold files, and create the session."""
        found = await self.holders.store(owner, session, [read(data) for data in datas])
        await self.store.transact("claim", [Put(Key("sessions", session, "session"), {"status": "completed"})])
        return found.parts

    async def collect(self, after_s: float = HOUR_S + 1) -> int:
        self.clock.advance(after_s)
        return await self.collector.collect()

    async def release(self, session: str, guard: Sequence[Operation] = ()) -> int:
        return await release_blobs(self.store, self.clock, session, guard)

    async def left(self) -> list[Any]:
        """Return all due rows, bytes, and the rows of the picture."""
        due = [row for n in range(PARTITIONS) for row in await self.store.query("control", due_partition(n))]
        rows = [
            row for owner in (ADA, BOB) for row in await self.store.query("control", blob_key(owner, SHA).partition)
        ]
        return [*due, *rows, *await self.blobs.list("")]


def read(data: bytes, name: str | None = None) -> ReadFile:
    return ReadFile(describe(data, name=name), data)


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    if request.param == "memory":
        yield World(CountingStore(), MemoryBlobs())
    elif request.param == "sqlite":
        store = SQLiteStateStore(tmp_path / "a.db")
        yield World(store, FolderBlobs(tmp_path / "a.db.blobs"))
        await store.close()
    else:
        with moto() as aws:
            prefix = fresh()
            make_tables(aws["dynamodb"], prefix)
            s3 = LockedClient(boto3.client("s3", config=Config(signature_version="s3v4")))
            yield World(make_store(aws["dynamodb"], aws["s3"], prefix), S3Blobs(s3, BUCKET, f"{prefix}/"))


@pytest.fixture
def here() -> World:
    return World(CountingStore(), MemoryBlobs())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_file_lives_as_long_as_a_session_holds_it(world: World) -> None:
    """The whole life of a file, on each store: two sessions hold it, both release it, and it is deleted an hour later."""
    for session in ("s1", "s2"):
        (part,) = await world.send(session, png())
        assert (part.sha256, part.media_type, part.width) == (SHA, "image/png", 4)
    (blob,) = (await world.holders.held("s1")).values()
    assert await world.blobs.get(blob.key) == png() and len(await world.blobs.list("")) == 1
    assert await world.release("s1") == 1
    assert await world.collect(DAY_S) == 0 and await world.blobs.get(blob.key) == png()
    assert await world.release("s2") == 1 and await world.release("s2") == 0
    assert await world.collect(HOUR_S / 2) == 0 and await world.blobs.get(blob.key) == png()
    (part,) = await world.send("s3", png())
    assert await world.collect(2 * HOUR_S) == 0, "a session held it again in time"
    await world.release("s3")
    assert await world.collect() == 1
    assert await world.left() == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_client_uploads_a_file(world: World) -> None:
    """A message may name an uploaded file by its hash for a day. Its facts come from its bytes."""
    there, upload = await world.uploads.begin(ADA, SHA, len(png()), "text/plain", 60)
    assert not there and (upload is None) != isinstance(world.blobs, S3Blobs)
    with pytest.raises(FileMissingError):
        await world.uploads.finish(ADA, SHA)
    with pytest.raises(FileMissingError):
        await world.holders.hold(ADA, "s1", [describe(png())])
    await world.uploads.receive(ADA, SHA, png())
    part = await world.uploads.finish(ADA, SHA, "../photo.png")
    assert (part.name, part.media_type, part.width, part.height) == ("photo.png", "image/png", 4, 3)
    assert await world.uploads.finish(ADA, SHA, "photo.png") == part
    assert await world.uploads.begin(ADA, SHA, len(png()), "image/png", 60) == (True, None)
    claimed = FilePart(kind="file", media_type="text/html", sha256=SHA, size=1, width=9, name="n", after_text=3)
    (held,) = (await world.holders.hold(ADA, "s1", [claimed])).parts
    assert held == part.model_copy(update={"name": "n", "after_text": 3})


async def test_an_upload_that_no_message_took_is_deleted(world: World) -> None:
    await world.uploads.begin(ADA, SHA, len(png()), "image/png", 60)
    await world.uploads.receive(ADA, SHA, png())
    assert await world.collect(HOUR_S / 2) == 0
    await world.uploads.finish(ADA, SHA)
    assert await world.collect(DAY_S / 2) == 0 and await world.collect(DAY_S) == 1
    await world.uploads.begin(BOB, SHA, len(png()), "image/png", 60)  # these bytes never come
    assert await world.collect(HOUR_S / 2) == 0 and await world.collect() == 1
    assert await world.left() == []


async def test_users_do_not_share_a_file(here: World) -> None:
    """The hash of another user's file is of no use: it is missing, as any other hash is."""
    await here.send("s1", png(), owner=ADA)
    with pytest.raises(FileMissingError):
        await here.holders.hold(BOB, "s2", [describe(png())])
    assert await here.uploads.begin(BOB, SHA, len(png()), "image/png", 60) == (False, None)
    await here.send("s2", png(), owner=BOB)
    keys = await here.blobs.list("")
    assert len(keys) == 2 and {key.split("/")[1] for key in keys} == {ADA, BOB}
    await here.release("s1")
    assert await here.collect() == 1
    assert [key.split("/")[1] for key in await here.blobs.list("")] == [BOB]


def test_owners_do_not_collide() -> None:
    named = [
        ("a", "s"),
        (None, "s"),
        ("s", "s"),
        ("user\0a", "s"),
        ("\ud800", "s"),
        (None, "a"),
        ("../a", "s"),
        ("", "s"),
    ]
    owners = {blob_owner(user, session) for user, session in named}
    assert len(owners) == len(named) and all(owner.isalnum() for owner in owners)
    assert blob_owner("a", "s") == blob_owner("a", "t")


async def test_a_held_file_costs_no_write(here: World) -> None:
    store = here.store
    assert isinstance(store, CountingStore)
    files = [png(note=b"%d" % number) for number in range(3)]
    parts = await here.send("s1", *files)
    store.names.clear()
    held = HeldParts(parts, dict.fromkeys([part.sha256 or "" for part in parts], ADA))
    assert await here.holders.store(ADA, "s1", [read(data) for data in files]) == held
    assert await here.holders.hold(ADA, "s1", parts) == held
    assert store.names == []


async def test_forty_images_in_one_message(here: World) -> None:
    files = [png(note=b"%d" % number) for number in range(40)]
    parts = await here.send("s1", *files, files[0])
    assert len(parts) == 41 and len(await here.holders.held("s1")) == 40
    due = [row for n in range(PARTITIONS) for row in await here.store.query("control", due_partition(n))]
    rows = [*due, *await here.store.query("sessions", "s1")]
    assert max(size(row.value) for row in rows) < 4096, "no row is large because of a file"


async def test_many_sessions_share_a_file(here: World) -> None:
    for number in range(2_000):
        await here.send(f"s{number}", png())
    assert len(await here.blobs.list("")) == 1
    (value,) = await here.store.get([blob_key(ADA, SHA)])
    assert value is not None and value["holders"] == 2_000
    for number in range(2_000):
        await here.release(f"s{number}")
    await here.collect(2 * HOUR_S)
    assert await here.left() == []


async def test_a_file_is_uploaded_under_a_new_key_while_it_is_deleted(here: World) -> None:
    """A collector that stops before it deletes the bytes deletes nothing that was uploaded since."""
    await here.send("s1", png())
    (old,) = await here.blobs.list("")
    await here.release("s1")
    stopped, delete = [], here.blobs.delete

    async def stop(key: str) -> None:
        stopped.append(key)
        raise KeyboardInterrupt

    here.blobs.delete = stop  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        await here.collect()
    here.blobs.delete = delete  # type: ignore[method-assign]
    with pytest.raises(FileMissingError):
        await here.holders.hold(ADA, "s2", [describe(png())])
    await here.send("s2", png())
    (new,) = (await here.holders.held("s2")).values()
    assert stopped == [old] != [new.key]
    assert await here.collect() == 1, "the next collector finishes"
    await here.blobs.delete(old)  # and the one that stopped continues
    assert await here.blobs.list("") == [new.key] and await here.blobs.get(new.key) == png()


async def test_a_branch_holds_the_files_of_its_source(here: World) -> None:
    """A branch of another owner keeps the file alive, and may name it again."""
    other = png(note=b"other")
    await here.send("s1", png(), other)
    for _ in range(2):
        await here.holders.share("s1", "s2", {SHA})
    await here.send("s2", owner=BOB)
    await here.release("s1")
    assert await here.collect(2 * HOUR_S) == 1
    assert [blob.owner for blob in (await here.holders.held("s2")).values()] == [ADA]
    held = await here.holders.hold(BOB, "s2", [describe(png())])
    assert held.parts[0].width == 4 and held.owners == {SHA: ADA} and len(await here.blobs.list("")) == 1
    await here.store.transact("check", held.checks("s2"))
    with pytest.raises(FileMissingError):
        await here.holders.hold(BOB, "s2", [describe(other)])


async def test_bytes_that_were_deleted_behind_the_back_are_stored_again(here: World) -> None:
    await here.send("s1", png())
    (key,) = await here.blobs.list("")
    await here.blobs.delete(key)
    await here.send("s1", png())
    assert await here.blobs.get(key) == png()


async def test_a_hold_whose_session_never_came_is_released(here: World) -> None:
    """The transaction of the message checks the holds, so a message that comes later is refused."""
    held = await here.holders.store(ADA, "s1", [read(png())])
    checks = held.checks("s1")
    await here.store.transact("check", checks)
    await here.collect()
    assert await here.collect() == 1 and await here.left() == []
    with pytest.raises(ConditionFailedError):
        await here.store.transact("check", checks)


async def test_a_release_is_guarded(here: World) -> None:
    await here.send("s1", png())
    with pytest.raises(ConditionFailedError):
        await here.release("s1", [Check(Key("sessions", "s1", "session"), ABSENT)])
    assert len(await here.holders.held("s1")) == 1


@pytest.mark.parametrize("value", [{"state": "live"}, {"state": 7, "key": [], "size": "x"}])
async def test_a_damaged_row_does_not_stop_a_deletion(here: World, value: dict[str, Any]) -> None:
    """The session releases its blobs, and the sweep handles the others."""
    await here.send("s1", png(), png(note=b"other"))
    await here.store.transact("damage", [Put(blob_key(ADA, SHA), value)])
    assert await here.release("s1") == 2
    assert await here.holders.held("s1") == {}
    assert await here.collect(2 * HOUR_S) == 1


async def test_a_sweep_stops_in_time(here: World) -> None:
    await here.send("s1", png())
    await here.release("s1")
    here.clock.advance(2 * HOUR_S)
    assert await here.collector.collect(until=here.clock.now()) == 0
    assert await here.collector.collect(until=here.clock.now() + 1) == 1


async def test_other_bytes_than_announced_are_refused(here: World) -> None:
    await here.uploads.begin(ADA, SHA, len(png()), "image/png", 60)
    for data in (b"<html>", png() + b"x", bytes(len(png()))):
        with pytest.raises(InvalidFileError):
            await here.uploads.receive(ADA, SHA, data)
    assert await here.blobs.list("") == []
    with pytest.raises(InvalidFileError, match="at most"):
        await here.uploads.begin(ADA, SHA, 10**9, "image/png", 60, "large.png")
    with pytest.raises(FileMissingError, match=r"'a.png' does not exist: upload it again"):
        await here.uploads.receive(BOB, SHA, png(), "a.png")


async def test_an_uploaded_file_is_what_its_bytes_are(here: World) -> None:
    """A PNG that is HTML is HTML, and an image with too many pixels is never stored."""
    page, huge = b"<html><script>alert(1)</script>", png(60_000, 60_000)
    for data in (page, huge):
        sha256 = hashlib.sha256(data).hexdigest()
        await here.uploads.begin(ADA, sha256, len(data), "image/png", 60)
        await here.uploads.receive(ADA, sha256, data)
    part = await here.uploads.finish(ADA, hashlib.sha256(page).hexdigest(), "photo.png")
    assert (part.kind, part.media_type) == ("document", "text/html")
    with pytest.raises(InvalidFileError, match="pixels"):
        await here.uploads.finish(ADA, hashlib.sha256(huge).hexdigest(), "huge.png")
    assert await here.collect(2 * HOUR_S) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_model_call_reads_the_files_of_its_session(world: World) -> None:
    (part,) = await world.send("s1", png())
    other = png(note=b"other")
    await world.send("s2", other)
    files: Files = HeldFiles(world.blobs, await world.holders.held("s1"))
    assert await files.read(part) == png()
    assert (files.location(part) or "s3://").startswith("s3://")
    for missing in (describe(other), FilePart(kind="image", media_type="image/*", url="https://a.com/b.png")):
        with pytest.raises(FileMissingError):
            await files.read(missing)
    (key,) = [blob.key for blob in (await world.holders.held("s1")).values()]
    await world.blobs.delete(key)
    with pytest.raises(FileMissingError):
        await files.read(part)
