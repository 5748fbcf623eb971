"""Random walks of sessions that send, share and delete files, on one store, with processes that die or pause at any call.

After each call: the bytes of a held blob exist, a session holds every file that its messages name, owners share nothing,
and the counts agree with the rows. At the end: without sessions, nothing is left, neither a row nor a byte.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

from tests.support.blob_releases import release_blobs

from helix import MemoryStateStore
from helix.adapters.memory_blobs import MemoryBlobs
from helix.core.errors import ConditionFailedError, ContentionError, FileMissingError, InvalidFileError
from helix.core.file_checks import describe
from helix.ports.state_store import ABSENT, Check, Delete, Key, Put, Value, When
from helix.services.blob_collector import BlobCollector
from helix.services.blob_holders import BlobHolders
from helix.services.blob_rows import PARTITIONS, blob_owner, due_key, due_partition, held_key, owner_prefix
from helix.services.blob_uploads import BlobUploads
from helix.services.file_inputs import ReadFile
from helix.services.owner_blobs import OwnerBlobs
from helix.testing.clocks import SetClock
from helix.testing.crash import Crash

USERS = ("ada", None, "ada")
SESSIONS = 4
FILES = [f"file {number}\n".encode() * 3 for number in range(2)]
HASHES = {hashlib.sha256(data).hexdigest(): data for data in FILES}
HOUR_S, DAY_S = 3_600.0, 86_400.0
PROCESSES, ACTS = 6, 120
EXPECTED = (FileMissingError, InvalidFileError, ConditionFailedError, ContentionError)


class Numbers:
    """Ids that differ, as those of a system do."""

    def __init__(self) -> None:
        self._last = 0

    def new(self, prefix: str) -> str:
        self._last += 1
        return f"{prefix}_{self._last:026d}"


class Gated:
    """A store whose calls wait at the gate of their process, before and after."""

    def __init__(self, inner: Any, process: Process) -> None:
        self._inner, self._process = inner, process

    def __getattr__(self, verb: str) -> Any:
        found = getattr(self._inner, verb)

        async def call(*given: Any, **named: Any) -> Any:
            await self._process.gate()
            result = await found(*given, **named)
            self._process.walk.check(verb)
            if verb == "put":
                self._process.walk.note_late(given[0])
            await self._process.gate()
            return result

        return call


class Process:
    """One process, with its own services. It dies at the call `dies_at`."""

    def __init__(self, walk: Walk, dies_at: int | None, *, calm: bool = False) -> None:
        self.walk, self.dies_at, self.calm, self.calls = walk, dies_at, calm, 0
        self.store: Any = Gated(walk.rows, self)
        self.blobs: Any = Gated(walk.bytes, self)
        self.uploads = BlobUploads(self.store, self.blobs, walk.clock, walk.ids)
        self.holders = BlobHolders(self.store, self.uploads, walk.clock, walk.ids)
        self.collector = BlobCollector(self.store, self.blobs, walk.clock)

    async def gate(self) -> None:
        self.calls += 1
        if self.dies_at is not None and self.calls >= self.dies_at:
            raise Crash("gate")
        if self.calm:
            return
        for _ in range(self.walk.rng.randrange(3)):
            await asyncio.sleep(0)
        if self.walk.rng.random() < 0.05:
            resumed = asyncio.Event()
            self.walk.paused.append(resumed)
            await resumed.wait()


class Walk:
    """The state that all processes share, and the acts that they do."""

    def __init__(self, seed: int) -> None:
        self.rng, self.clock, self.ids = Random(seed), SetClock(1_800_000_000.0), Numbers()
        self.rows, self.bytes = MemoryStateStore(), MemoryBlobs()
        self.paused: list[asyncio.Event] = []
        self.done: Counter[str] = Counter()
        self.late: set[str] = set()

    def owner(self, number: int) -> str:
        return blob_owner(USERS[number % len(USERS)], session_id(number))

    # --- acts -------------------------------------------------------------------------------------------------------

    async def send(self, process: Process) -> None:
        """Store files and write a message that names them, as a claim does."""
        number = self.rng.randrange(SESSIONS)
        files = [file_of(data) for data in self.rng.sample(FILES, self.rng.randrange(1, 3))]
        held = await process.holders.store(self.owner(number), session_id(number), files)
        await self._claim(process, session_id(number), held.checks(session_id(number)), list(held.owners))

    async def upload(self, process: Process) -> None:
        """Upload a file as a client does. Some clients stop half-way."""
        number, data = self.rng.randrange(SESSIONS), self.rng.choice(FILES)
        owner, sha256 = self.owner(number), hashlib.sha256(data).hexdigest()
        found, _ = await process.uploads.begin(owner, sha256, len(data), "text/plain", 60)
        if not found and self.rng.random() < 0.8:
            await process.uploads.receive(owner, sha256, data)
        if self.rng.random() < 0.8:
            await process.uploads.finish(owner, sha256)

    async def send_stored(self, process: Process) -> None:
        """Write a message that names a file by its hash alone."""
        number, data = self.rng.randrange(SESSIONS), self.rng.choice(FILES)
        owner, part = self.owner(number), file_of(data).part
        held = await process.holders.hold(owner, session_id(number), [part])
        await self._claim(process, session_id(number), held.checks(session_id(number)), list(held.owners))

    async def branch(self, process: Process) -> None:
        """Copy the messages of one session to another, which may be of another user."""
        source, target = (session_id(number) for number in self.rng.sample(range(SESSIONS), 2))
        messages = await process.store.query("sessions", source, start="m#", end="m$")
        hashes = {name for message in messages for name in message.value["files"]}
        await process.holders.share(source, target, hashes)
        held = await process.holders.held(target)
        if hashes and hashes <= held.keys():
            checks = [Check(held_key(target, name, held[name].owner), When()) for name in hashes]
            await self._claim(process, target, checks, sorted(hashes))

    async def _claim(self, process: Process, session: str, checks: list[Check], hashes: list[Any]) -> None:
        key = Key("sessions", session, "session")
        (found,) = await process.store.get([key])
        if found is not None and found["status"] == "deleting":
            return
        version = (found or {}).get("version", self.rng.randrange(10**6))
        when = ABSENT if found is None else When(equal={"version": version, "status": "completed"})
        new = {"status": "completed", "version": version + 1}
        message = Put(Key("sessions", session, f"m#{version:08d}"), {"files": hashes})
        await process.store.transact("claim", [Put(key, new, when), *checks, message])
        self.done["message"] += 1

    async def delete(self, process: Process) -> None:
        await self._delete(process, session_id(self.rng.randrange(SESSIONS)))

    async def _delete(self, process: Process, session: str) -> None:
        """Delete a session as `sessions.deletion` does: hide it, release its blobs, delete its rows."""
        key = Key("sessions", session, "session")
        (found,) = await process.store.get([key])
        if found is None:
            return
        hidden = {"status": "deleting", "version": found["version"] + 1}
        if found["status"] == "deleting":
            hidden = found
        else:
            await process.store.transact("hide", [Put(key, hidden, When(equal={"version": found["version"]}))])
        guard = Check(key, When(equal=hidden))
        await release_blobs(process.store, self.clock, session, [guard])
        rows = await process.store.query("sessions", session, start="m#", end="m$")
        for row in rows:
            await process.store.transact("delete_rows", [guard, Delete(row.key)])
        await process.store.transact("finish", [Delete(key, guard.when)])
        self.done["deletion"] += 1

    async def collect(self, process: Process) -> None:
        self.done["collected"] += await process.collector.collect()

    async def forget(self, process: Process, number: int | None = None) -> None:
        """Delete what an owner has and no session holds, as the deletion of a user's data does."""
        owner = self.owner(self.rng.randrange(SESSIONS) if number is None else number)
        await OwnerBlobs(process.store, process.blobs, self.clock, owner).delete()

    def note_late(self, key: str) -> None:
        """Note bytes that a process stored after their row had expired. Only the deletion of a user's data finds
        them."""
        if not any('"state"' in text and f'"{key}"' in text for text in self.rows._rows.values()):
            self.late.add(key)

    # --- the laws ---------------------------------------------------------------------------------------------------

    def check(self, verb: str) -> None:
        if verb in ("get", "query", "head", "list"):
            return
        rows = {key: self.rows._value(key) or {} for key in self.rows._rows}
        blobs = {key.partition: value for key, value in rows.items() if key.sort == "blob"}
        holders = Counter(key.partition for key in rows if key.table == "control" and key.sort.startswith("h#"))
        for partition, value in blobs.items():
            _, owner, sha256 = partition.split("#")
            assert value["key"].startswith(owner_prefix(owner) + sha256), "owners share nothing"
            assert (value["state"] == "live") == (holders[partition] > 0), "a blob is live while it is held"
            assert value.get("holders", 0) == holders[partition], "the count is that of the rows"
            if value["state"] != "uploading":
                assert self.bytes._blobs[value["key"]] == HASHES[sha256], "bytes that count as stored exist"
            due = None if value.get("due") is None else due_key(value["due"], value["key"])
            assert (due in rows) if due else value["state"] == "live", "what is not live is collected some day"
        assert set(holders) <= set(blobs), "a held blob has a row"
        held = {key: value for key, value in rows.items() if key.table == "sessions" and key.sort.startswith("b#")}
        for key, value in held.items():
            _, sha256, owner = key.sort.split("#")
            assert Key("control", f"blob#{owner}#{sha256}", f"h#{key.partition}") in rows
            assert blobs[f"blob#{owner}#{sha256}"]["key"] == value["key"]
        assert sum(holders.values()) == len(held), "a holder has its row in its session"
        self._check_messages(rows, {(key.partition, key.sort.split("#")[1]) for key in held})

    def _check_messages(self, rows: dict[Key, Value], held: set[tuple[str, str]]) -> None:
        for key, value in rows.items():
            session = rows.get(Key("sessions", key.partition, "session"))
            if key.sort.startswith("m#") and session is not None and session["status"] != "deleting":
                assert all((key.partition, name) in held for name in value["files"]), "a message's files are held"

    # --- the walk ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        acts = [self.send, self.send, self.upload, self.send_stored, self.branch, self.delete, self.delete]
        acts += [self.collect, self.collect, self.collect, self.forget]
        tasks = [asyncio.ensure_future(self._live(acts)) for _ in range(PROCESSES)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            if self.paused and self.rng.random() < 0.2:
                self.paused.pop(self.rng.randrange(len(self.paused))).set()
            if self.rng.random() < 0.05:
                self.clock.advance(self.rng.choice([1.0, HOUR_S / 2, HOUR_S, 2 * HOUR_S, DAY_S]))
        await asyncio.gather(*tasks)
        await self._end()

    async def _live(self, acts: Sequence[Callable[[Process], Awaitable[None]]]) -> None:
        """Do acts as one process after another. Each dies at some call."""
        process = Process(self, self.rng.randrange(1, 200))
        for _ in range(ACTS // PROCESSES):
            try:
                await self.rng.choice(acts)(process)
            except EXPECTED as error:
                self.done[type(error).__name__] += 1
            except Crash:
                self.done["crash"] += 1
                process = Process(self, self.rng.randrange(1, 200))

    async def _end(self) -> None:
        """Delete all sessions. Afterwards nothing is left."""
        process = Process(self, None, calm=True)
        await self.collect(process)
        for number in range(SESSIONS):
            await self._delete(process, session_id(number))
        for _ in range(4):
            self.clock.advance(2 * DAY_S)
            await self.collect(process)
        due = [await self.rows.query("control", due_partition(number)) for number in range(PARTITIONS)]
        assert due == [[]] * PARTITIONS
        assert self.rows._rows == {}, "a blob without holders is deleted"
        assert set(await self.bytes.list("")) <= self.late, "the sweep finds the bytes of every row"
        for number in range(SESSIONS):
            await self.forget(process, number)
        assert await self.bytes.list("") == []


def session_id(number: int) -> str:
    return f"session-{number}"


def file_of(data: bytes) -> ReadFile:
    return ReadFile(describe(data), data)


def walk(seed: int) -> Counter[str]:
    """Run one walk, and return how often each thing happened."""
    made = Walk(seed)
    asyncio.run(made.run())
    return made.done
