"""Changes to the rows of a SQLite store that bypass the store."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path


def rewrite(file: Path, table: str, partition: str, sort: str, text: str) -> int:
    """Set this value in the matching rows, and return their number. `partition` and `sort` may have `%`."""
    with contextlib.closing(sqlite3.connect(file)) as db, db:
        return db.execute(
            f"UPDATE {table}_rows SET value = ? WHERE sort LIKE ?"
            " AND partition IN (SELECT id FROM partitions WHERE name LIKE ?)",
            (text, sort, partition),
        ).rowcount
