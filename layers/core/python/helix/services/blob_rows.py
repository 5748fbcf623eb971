"""The rows of blobs: the sessions that hold the bytes of a file, and the time at which the bytes are deleted.

    control / blob#<owner>#<sha256> / blob           the blob itself: a `BlobRow`
    control / blob#<owner>#<sha256> / h#<session>    one row for each session that holds it: {session_id}
    sessions / <session> / b#<sha256>#<owner>        the same hold, for the session: {key}
    control / blobs-due#<n> / <due>#<key>            bytes that `collect` then deletes: {owner, sha256, key, deleting}
    control / blobs-due#<n> / <due>#hold#<id>        holds that `collect` confirms then: {session_id, owner, hashes}

The states of a blob. Every line except the last is one transaction. `collect` deletes the bytes, and so does the
deletion of a user's data (`services.owner_blobs`), in the same order. `store` deletes bytes that it has just stored
itself, if no row names them any more.

    | From              | To        | By                | When                                                          |
    |-------------------|-----------|-------------------|---------------------------------------------------------------|
    | none              | uploading | `begin`, `store`  | before the bytes are stored, under a new key                  |
    | uploading         | marked    | `finish`, `store` | the bytes are there, and were read and checked                |
    | marked            | live      | `hold`            | the first session holds it                                    |
    | live              | live      | `hold`, `release` | other sessions hold it                                        |
    | live              | marked    | `release`         | the last session released it                                  |
    | uploading, marked | deleting  | `collect`         | its time has come: its row goes, and its due row says so       |
    | deleting          | none      | `collect`         | its bytes were deleted, and then its due row                  |

Law: the bytes of a held blob exist. A blob is deleted only if no session holds it, because `hold` and `collect` write
its row under conditions that only one of them can meet. The key of the bytes is never reused: a file that is uploaded
while its old bytes are being deleted gets a new key. So a collector that pauses between two lines, for however long,
cannot delete bytes that were uploaded later, and no upload waits for a collector.

Law: a crash at any line leaves a row that leads to the bytes, because the row comes before the bytes and goes after them.
So `collect` reads due rows and never lists the bytes. It cannot find bytes that no row names. They exist only if a
process stood still for over `UPLOAD_S` while it stored them and then died, if an upload arrives after its user's data
was deleted, or if rows were lost. The deletion of a user's data lists the bytes of that user and deletes them. A sweep
must not do this for all: after a restore of older rows it would delete the bytes of sessions that still hold them.

Law: owners never share a blob, even if their bytes are the same.
"""

from __future__ import annotations

import hashlib
from typing import Literal
from zlib import crc32

from helix.core.errors import DamagedRowError, damaged_row
from helix.core.files import FilePart
from helix.core.media_types import BINARY, kind_of
from helix.core.stored import AsStored, Stored
from helix.ports.state_store import Delete, Key, Put, Value, When

BLOB = "blob"
HELD_START, HELD_END = "b#", "b$"
"""The range of sort keys of a session's holds."""
PARTITIONS = 8
"""The number of partitions of the due rows. A partition takes 1,000 writes/s."""
UNUSED_S = 3_600.0
"""The number of seconds that a blob without a holder is kept, so that a session can hold it again without another
upload."""
UPLOADED_S = 86_400.0
"""The number of seconds within which a message must name a file that a client has uploaded."""
UPLOAD_S = 3_600.0
"""The maximum number of seconds that an upload may take after its request has expired, or after a server has begun
it."""
CONFIRM_S = 3_600.0
"""The number of seconds after which a hold is released if its session does not exist because its first message never
arrived."""


class BlobRow(Stored):
    """A blob: its state, the key of its bytes, and the metadata that messages copy."""

    state: AsStored[Literal["uploading", "marked", "live"]]
    """`uploading`: the bytes may be missing. `marked`: they exist, and no session holds them. `live`: sessions hold
    them."""
    key: str
    """The key of the bytes in the blob store. Each upload gets a new key."""
    media_type: str = BINARY
    """The media type, detected from the bytes. While the blob is uploading, the type that the client announced."""
    size: int
    """The number of bytes. While the blob is uploading, the number that the client announced."""
    width: int | None = None
    """The width of an image in pixels. None if unknown, or if the file is not an image."""
    height: int | None = None
    """The height of an image in pixels. None if unknown, or if the file is not an image."""
    pages: int | None = None
    """The number of pages of a document. None if unknown, or if the file is not a document."""
    holders: int = 0
    """The number of sessions that hold the blob."""
    due: float | None = None
    """The time at which `collect` deletes the blob (Unix seconds). None while it is live."""
    created_at: float = 0
    """The time at which its upload began (Unix seconds)."""

    def describe(self, sha256: str, name: str | None = None, after_text: int = 0) -> FilePart:
        """Return the file in the form that a message contains. Its metadata comes from this row, whatever a client
        claimed."""
        return FilePart(
            kind=kind_of(self.media_type),
            media_type=self.media_type,
            sha256=sha256,
            size=self.size,
            name=name,
            width=self.width,
            height=self.height,
            pages=self.pages,
            after_text=after_text,
        )


def blob_owner(user_id: str | None, session_id: str) -> str:
    """Return the owner of a session's files: a digest of the user, or of the session if its user is not known. For a
    sub-agent, `session_id` is the root session. A digest is a valid part of a key, whatever characters the user's id
    contains."""
    named = f"session\0{session_id}" if user_id is None else f"user\0{user_id}"
    return hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def owner_prefix(owner: str) -> str:
    """Return the key prefix of all bytes that belong to an owner."""
    return f"blobs/{owner}/"


def new_object_key(owner: str, sha256: str, fresh: str) -> str:
    """Return the key for new bytes, `blobs/<owner>/<sha256>.<16 characters>`. `fresh`: an id from the Ids port."""
    return f"{owner_prefix(owner)}{sha256}.{fresh.rpartition('_')[2][-16:]}"


def parse_object_key(key: str) -> tuple[str, str] | None:
    """Return the owner and the hash in a key. None if the key does not come from `new_object_key`."""
    parts = key.split("/")
    if len(parts) != 3 or parts[0] != "blobs" or "." not in parts[2]:
        return None
    return parts[1], parts[2].partition(".")[0]


def blob_partition(owner: str, sha256: str) -> str:
    return f"blob#{owner}#{sha256}"


def blob_key(owner: str, sha256: str) -> Key:
    return Key("control", blob_partition(owner, sha256), BLOB)


def holder_key(owner: str, sha256: str, session_id: str) -> Key:
    return Key("control", blob_partition(owner, sha256), f"h#{session_id}")


def held_key(session_id: str, sha256: str, owner: str) -> Key:
    """Return the key of a hold in the session's own partition. The hash comes first, so that a session can find a file
    that it got from another owner."""
    return Key("sessions", session_id, f"{HELD_START}{sha256}#{owner}")


def parse_held(sort: str) -> tuple[str, str]:
    """Return the hash and the owner in the sort key of a hold."""
    _, sha256, owner = sort.split("#", 2)
    return sha256, owner


def due_partition(number: int) -> str:
    return f"blobs-due#{number}"


def due_time(now: float, after_s: float) -> float:
    """Return a due time, rounded to the precision of `due_key`."""
    return round(now + after_s, 3)


def due_key(due: float, name: str) -> Key:
    """Return the key of a due row. `name`: the key of a blob's bytes, or `hold#<id>`."""
    return Key("control", due_partition(crc32(name.encode()) % PARTITIONS), f"{due:015.3f}#{name}")


def due_put(owner: str, sha256: str, row: BlobRow, due: float) -> Put:
    return Put(due_key(due, row.key), {"owner": owner, "sha256": sha256, "key": row.key})


def due_deletes(row: BlobRow) -> list[Delete]:
    """Return the operation that deletes the blob's due row, if there is one."""
    return [] if row.due is None else [Delete(due_key(row.due, row.key))]


def unchanged(row: BlobRow) -> When:
    """Return the condition that the blob's state, bytes and due time are unchanged since it was read."""
    return When(equal={"state": row.state, "key": row.key, "due": row.due})


def read_blob(owner: str, sha256: str, value: Value | None) -> BlobRow | None:
    """Parse the blob's row. Raises `DamagedRowError`, which names the key."""
    if value is None:
        return None
    fields = dict(value.items())
    try:
        return BlobRow.model_validate(fields)
    except DamagedRowError as error:
        raise damaged_row(*blob_key(owner, sha256), error) from error
