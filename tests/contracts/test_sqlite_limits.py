"""A SQLite store on a full disk or on a read-only file."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix.adapters.sqlite import SQLiteStateStore
from helix.ports.state_store import Key, Put

KEY = Key("sessions", "s", "session")

LIMITED = """
import asyncio, os, resource, sys
from helix.adapters.sqlite import SQLiteStateStore
from helix.core.errors import StoreError
from helix.ports.state_store import Key, Put

async def main(path, limit, user):
    if int(limit):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    if int(user):
        os.setgid(int(user)), os.setuid(int(user))
    store = SQLiteStateStore(path)
    try:
        print("read", (await store.get([Key("sessions", "s", "session")]))[0])
        await store.transact("big", [Put(Key("sessions", "t", "session"), {"text": "x" * 200_000})])
        print("written")
    except StoreError as error:
        print("refused", error)
    print("read", (await store.get([Key("sessions", "s", "session")]))[0])
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


def limited(path: Path, *, limit: int = 0, user: int = 0) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path), str(limit), str(user)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
async def path() -> AsyncIterator[Path]:
    """A store's file in a folder that other users may enter."""
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteStateStore(Path(folder) / "helix.db")
        await store.transact("first", [Put(KEY, {"n": 1})])
        await store.close()
        yield store.path


def test_a_full_disk_refuses_the_write_and_keeps_what_was_there(path: Path) -> None:
    first, refused, again = limited(path, limit=100_000)
    assert refused.startswith("refused SQLite store") and ("full" in refused or "disk I/O" in refused)
    assert first == again == "read {'n': 1}"
    assert limited(path)[1] == "written"


@pytest.mark.parametrize("folder_too", [False, True])
def test_a_file_that_may_only_be_read_is_read(path: Path, folder_too: bool) -> None:
    user = 65534 if os.geteuid() == 0 else 0  # file modes do not restrict root
    path.chmod(0o444)
    path.parent.chmod(0o555 if folder_too else 0o777)
    try:
        first, refused, again = limited(path, user=user)
    finally:
        path.parent.chmod(0o755)
    assert first == again == "read {'n': 1}"
    assert "refused" in refused and "readonly" in refused
