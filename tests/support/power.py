"""Simulated losses of power. The writes and syncs of a process are logged, and its files are rebuilt as a loss would leave
them."""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

NEEDED = pytest.mark.skipif(
    not os.environ.get("CI") and not (sys.platform == "linux" and shutil.which("cc")),
    reason="needs Linux and a C compiler",
)
SHIM = Path(__file__).with_name("power_shim.c")
HEAD = struct.Struct("=cHIQ")
SECTOR = 512
"""The unit that a disk writes completely or not at all."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record. `kind` is W, T, S or U. `at` is the offset of a write, the size of a truncation, or for a sync the number
    of records when it began."""

    kind: str
    path: str
    at: int
    data: bytes


def variables(folder: Path, log: Path) -> dict[str, str]:
    """Return the variables for a process whose writes to `folder` are logged."""
    shim = log.with_name("power.so")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", shim, SHIM, "-ldl"], check=True)
    return {**os.environ, "LD_PRELOAD": str(shim), "POWER_FOLDER": str(folder.resolve()), "POWER_LOG": str(log)}


def read(log: Path) -> list[Record]:
    """Read the records, without the one at which a process was killed."""
    data, place, found = log.read_bytes(), 0, list[Record]()
    while place + HEAD.size <= len(data):
        kind, length, size, at = HEAD.unpack_from(data, place)
        place += HEAD.size
        if place + length + size > len(data):
            break
        path = data[place : place + length].decode()
        found.append(Record(kind.decode(), path, at, data[place + length : place + length + size]))
        place += length + size
    return found


def after_loss(records: list[Record], end: int, chance: random.Random) -> dict[str, bytearray]:
    """Return the files if the power fails after `end` records. Synced data is there. Each other write is there, torn or
    lost, whatever came after it."""
    synced: dict[str, int] = {}
    for record in records[:end]:
        if record.kind == "S":
            synced[record.path] = max(synced.get(record.path, 0), record.at)
    return _made(
        record if place < synced.get("." if record.kind == "U" else record.path, 0) else _hit(record, chance)
        for place, record in enumerate(records[:end])
        if record.kind != "S"
    )


def _hit(record: Record, chance: random.Random) -> Record | None:
    match chance.randrange(3):
        case 0:
            return None
        case 1 if record.kind == "W":
            kept = chance.randrange(0, len(record.data) + 1, SECTOR)
            return Record("W", record.path, record.at, record.data[:kept])
        case _:
            return record


def _made(records: Iterable[Record | None]) -> dict[str, bytearray]:
    files: dict[str, bytearray] = {}
    for record in records:
        if record is None:
            continue
        if record.kind == "U":
            files.pop(record.path, None)
            continue
        file = files.setdefault(record.path, bytearray())
        if record.kind == "T":
            file[:] = file[: record.at].ljust(record.at, b"\0")
        else:
            file.extend(bytes(max(0, record.at - len(file))))
            file[record.at : record.at + len(record.data)] = record.data
    return files
