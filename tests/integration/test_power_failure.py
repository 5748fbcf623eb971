"""A loss of power at any moment. With `synchronous="FULL"` the SQLite store has every transaction that it acknowledged."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import power

from helix import SQLiteStateStore
from helix.ports.state_store import Key

PROGRAM = """
import asyncio, os, sys
from helix.adapters import sqlite, sqlite_log
from helix.ports.state_store import Key, Put, Update, When

sqlite.CHECKPOINT_ROWS = 40  # so that the log begins anew many times

async def main(file, answers, synchronous):
    store = sqlite.SQLiteStateStore(file, synchronous=synchronous)

    async def write(name):
        for number in range(1, 26):
            value = {"n": number, "filler": name * 40}
            await store.transact("step", [Put(Key("sessions", name, sort), value) for sort in ("left", "right")])
            os.write(answers, f"{name} {number}\\n".encode())
            await store.transact("append_segment", [Put(Key("streams", name, f"{number:03}"), {"text": "x" * 300})])

    await asyncio.gather(*(write(f"s{k}") for k in range(8)))
    await store.close()

asyncio.run(main(sys.argv[1], os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND), sys.argv[3]))
"""
pytestmark = power.NEEDED
LOSSES = int(os.environ.get("HELIX_EXAMPLES", "60"))
SEED = int(os.environ.get("HELIX_SEED", "1"))


def played(folder: Path, synchronous: str) -> list[power.Record]:
    disk = folder / "disk"
    disk.mkdir()
    variables = power.variables(disk, folder / "log")
    words = [sys.executable, "-c", PROGRAM, str(disk / "helix.db"), str(disk / "answers"), synchronous]
    subprocess.run(words, env=variables, check=True, timeout=60)
    return power.read(folder / "log")


def answered(records: list[power.Record]) -> dict[str, int]:
    """Return the last acknowledged number of each session."""
    lines = b"".join(record.data for record in records if record.path == "answers").decode().split("\n")
    return {name: int(number) for name, number in (line.split() for line in lines if line)}


def lost(folder: Path, records: list[power.Record], end: int, seed: int) -> list[str]:
    """Return the sessions whose acknowledged numbers are lost, or whose transactions were written in part."""
    folder.mkdir()
    for name, data in power.after_loss(records, end, random.Random(seed)).items():
        if not name.endswith("-shm"):  # the store creates it anew
            (folder / name).write_bytes(data)
    told = answered(records[:end])

    async def look() -> list[str]:
        store = SQLiteStateStore(folder / "helix.db")
        wrong = []
        for name in (f"s{k}" for k in range(8)):
            rows = await store.get([Key("sessions", name, sort) for sort in ("left", "right")])
            left, right = (0 if row is None else row["n"] for row in rows)
            if left != right or left < told.get(name, 0):
                wrong.append(f"{name}: answered {told.get(name, 0)}, stored {left} and {right}")
        await store.close()
        return wrong

    return asyncio.run(look())


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> list[power.Record]:
    return played(tmp_path_factory.mktemp("full"), "FULL")


def test_nothing_that_was_answered_is_lost(full: list[power.Record], tmp_path: Path) -> None:
    chance = random.Random(SEED)
    answers = [place for place, record in enumerate(full) if record.path == "answers"]
    for number in range(LOSSES):
        end = 1 + (chance.choice(answers) if number % 2 else chance.randrange(len(full)))
        seed = chance.randrange(2**32)
        wrong = lost(tmp_path / str(number), full, end, seed)
        assert not wrong, f"after {end} records, seed {seed}"
    assert answered(full) == {f"s{k}": 25 for k in range(8)}


def test_the_play_loses_what_is_not_synced(tmp_path: Path) -> None:
    """Otherwise the tests above would prove nothing."""
    records = played(tmp_path, "NORMAL")
    chance = random.Random(SEED)
    assert any(
        lost(tmp_path / str(number), records, chance.randrange(len(records) // 2, len(records)), number)
        for number in range(20)
    )
