"""The tables of a SQLite store (docs/adr/0006-sqlite.md).

The name of a partition is stored once, in `partitions`. The key of a row is stored once, in the tree that holds its value,
because these tables have no rowid. Such a tree puts a row larger than a quarter of a page on a separate page. So larger
values are stored in `large`, and the row holds their number. The views `sessions`, `streams` and `control` show (partition,
sort, value).

Law: a partition exists while it has rows, and its number is never used again. Triggers delete values in `large` that no
row refers to.
"""

from __future__ import annotations

import sqlite3

from helix.core.errors import StoreError
from helix.core.json import text_size
from helix.ports.state_store import Table

SCHEMA_VERSION = 2
OLDER_VERSION = 1
"""The version with three tables of (partition, sort, value) and a rowid. They are named like the views, so such a file
can be read without changes."""
TABLES: tuple[Table, ...] = ("sessions", "streams", "control")
INLINE = 900
"""The size of the largest value that is stored in its row, in bytes."""

_SHARED = (
    "CREATE TABLE partitions (name TEXT PRIMARY KEY NOT NULL, id INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE last_partition (id INTEGER NOT NULL)",
    "INSERT INTO last_partition VALUES (0)",
    "CREATE TABLE large (id INTEGER PRIMARY KEY, value TEXT NOT NULL)",
)
_ROWS = """CREATE TABLE {table}_rows
    (partition INTEGER NOT NULL, sort TEXT NOT NULL, value NOT NULL, PRIMARY KEY (partition, sort)) WITHOUT ROWID"""
_EMPTY = " AND ".join(f"NOT EXISTS (SELECT 1 FROM {table}_rows WHERE partition = id)" for table in TABLES)
_SHOWN = (
    """CREATE VIEW {table} AS SELECT name AS partition, sort, CASE typeof(value)
            WHEN 'integer' THEN (SELECT large.value FROM large WHERE large.id = {table}_rows.value) ELSE value END AS value
        FROM partitions JOIN {table}_rows ON partition = partitions.id""",
    """CREATE TRIGGER {table}_replaced AFTER UPDATE OF value ON {table}_rows
        WHEN typeof(OLD.value) = 'integer' AND OLD.value IS NOT NEW.value
        BEGIN DELETE FROM large WHERE id = OLD.value; END""",
    """CREATE TRIGGER {table}_deleted AFTER DELETE ON {table}_rows WHEN typeof(OLD.value) = 'integer'
        BEGIN DELETE FROM large WHERE id = OLD.value; END""",
)
_NUMBER = (
    "INSERT INTO partitions (name, id) SELECT partition, row_number() OVER (ORDER BY partition) FROM ("
    + " UNION ".join(f"SELECT partition FROM {table}" for table in TABLES)
    + ")",
    "UPDATE last_partition SET id = (SELECT count(*) FROM partitions)",
)
_MOVE = (
    f"""INSERT INTO large (id, value) SELECT {len(TABLES)} * rowid + {{number}}, value FROM {{table}}
        WHERE length(CAST(value AS BLOB)) > {INLINE}""",
    f"""INSERT INTO {{table}}_rows SELECT id, sort,
            CASE WHEN length(CAST(value AS BLOB)) > {INLINE} THEN {len(TABLES)} * {{table}}.rowid + {{number}}
            ELSE value END
        FROM {{table}} JOIN partitions ON name = partition ORDER BY id, sort""",
    "DROP TABLE {table}",
)


def prepare(db: sqlite3.Connection, file: str) -> None:
    """Create the tables of a new file, or move the rows of an older one, in one transaction. Raises `StoreError` for
    another version."""
    if _version(db, file) == SCHEMA_VERSION:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        version = _version(db, file)  # another process may have done it while this one waited
        if version != SCHEMA_VERSION:
            _make(db, older=version == OLDER_VERSION)
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def readable(db: sqlite3.Connection) -> bool:
    """Return whether the file can be read without changes."""
    return db.execute("PRAGMA user_version").fetchone()[0] in (OLDER_VERSION, SCHEMA_VERSION)


def _version(db: sqlite3.Connection, file: str) -> int:
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    if version not in (0, OLDER_VERSION, SCHEMA_VERSION):
        raise StoreError(f"{file!r} has schema version {version}, this Helix reads {SCHEMA_VERSION}: use another file")
    return version


def _make(db: sqlite3.Connection, *, older: bool) -> None:
    for sql in (*_SHARED, *(_ROWS.format(table=table) for table in TABLES), *(_NUMBER if older else ())):
        db.execute(sql)
    for number, table in enumerate(TABLES):
        for sql in (*(_MOVE if older else ()), *_SHOWN):
            db.execute(sql.format(table=table, number=number))


def put_row(db: sqlite3.Connection, table: Table, partition: str, sort: str, text: str) -> None:
    value: str | int | None = text
    if text_size(text) > INLINE:
        value = db.execute("INSERT INTO large (value) VALUES (?)", (text,)).lastrowid
    row = partition, sort, value
    sql = (
        f"INSERT OR IGNORE INTO {table}_rows (partition, sort, value)"
        " VALUES ((SELECT id FROM partitions WHERE name = ?), ?, ?)"
        " ON CONFLICT (partition, sort) DO UPDATE SET value = excluded.value"
    )
    if db.execute(sql, row).rowcount == 0:
        db.execute("UPDATE last_partition SET id = id + 1")
        db.execute("INSERT INTO partitions (name, id) SELECT ?, id FROM last_partition", (partition,))
        db.execute(sql, row)


def delete_row(db: sqlite3.Connection, table: Table, partition: str, sort: str) -> None:
    sql = f"DELETE FROM {table}_rows WHERE partition = (SELECT id FROM partitions WHERE name = ?) AND sort = ?"
    if db.execute(sql, (partition, sort)).rowcount:
        db.execute(f"DELETE FROM partitions WHERE name = ? AND {_EMPTY}", (partition,))
