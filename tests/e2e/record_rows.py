"""`python -m tests.e2e.record_rows COMMIT FILE`: record the rows that an earlier Helix stores in DynamoDB.

A stage of that commit is deployed offline, and `living_stage` leaves sessions in every state there. FILE gets the items of
its tables, one per line. tests/integration/test_older_rows.py reads them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from tests.e2e.living_stage import AT_WORK, USER, Living
from tests.support.offline_cloud import CloudForTests
from tests.support.old_release import old_stage

BYTES = "latin-1"
"""The encoding of a binary value, which maps each byte to a character."""
SMALL = 2_000
"""The length of the largest state. A file cannot hold the objects of a bucket."""
TABLES = ("sessions", "streams", "control")


async def record(commit: str, folder: Path) -> list[dict[str, Any]]:
    with old_stage(commit, folder) as stage:
        (folder / "gates").mkdir()
        living = Living(stage, folder / "gates", large=SMALL)
        async with stage.user(USER) as client:
            await living.leave(client)
            found = rows_of(stage)
            for name in AT_WORK:
                Path(living.gate(name)).touch()
        return found


def rows_of(stage: CloudForTests) -> list[dict[str, Any]]:
    return [{"table": table, "item": item} for table in TABLES for item in stage.rows(table)]


def _plain(value: bytes) -> dict[str, str]:
    return {BYTES: value.decode("latin-1")}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("commit")
    parser.add_argument("file", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(record(asked.commit, Path(folder)))
        lines = [json.dumps(row, sort_keys=True, default=_plain) for row in rows]
    asked.file.write_text("\n".join(sorted(lines)) + "\n")


if __name__ == "__main__":
    main()
