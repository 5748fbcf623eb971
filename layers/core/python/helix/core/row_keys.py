"""The keys of a session's rows, and the ids derived from them (docs/protocol.md#keys).

    session            session            the current run, the end of history, the open step
    r#<run id>         run                one per execute, resume or retry
    m#<lineage>#<i>    user | assistant | call   written once at its final position; history ends at the session's count
    l#<lineage>        lineage            the older lineages that a lineage begins with
    c#<version>        checkpoint         count + lineage + custom state
    k#<version>        view               the part of history that the model is shown
    x#<run id>         stop               interrupt or abort of one run
    h#<run id>#<hook>  hook mark          marks a run-level hook as called
    t#<digest>         token              a parent's execution waiting for this session
    u#<run id>#<step>#<attempt>  attempt  a model call that left no answer in history
    b#<sha256>#<owner> held blob          a stored file that the session holds (`services.blob_rows`)
    q#<id>             head               a request head that depends on the session (`core.request_heads`)
    i#<id>             waiting            a message that waits for the session's run (`core.inbox`)

Law: numbers are zero-padded, so keys of one kind sort numerically and one query can read a range of them.
"""

from __future__ import annotations

from functools import lru_cache

from helix.core.errors import CheckpointNotFoundError

SESSION = "session"


def run_sort(run_id: str) -> str:
    return f"r#{run_id}"


def message_sort(lineage: int, index: int) -> str:
    return f"m#{lineage:06d}#{index:08d}"


def view_sort(version: int) -> str:
    return f"k#{version:010d}"


def lineage_sort(lineage: int) -> str:
    return f"l#{lineage:06d}"


def stop_sort(run_id: str) -> str:
    return f"x#{run_id}"


def hook_mark_sort(run_id: str, hook: str) -> str:
    return f"h#{run_id}#{hook}"


def token_sort(digest: str) -> str:
    return f"t#{digest}"


def attempt_sort(run_id: str, step: int, attempt: int) -> str:
    return f"u#{run_id}#{step:08d}#{attempt:04d}"


def head_sort(ident: str) -> str:
    return f"q#{ident}"


def inbox_sort(ident: str) -> str:
    return f"i#{ident}"


def checkpoint_id(session_id: str, step: int, now: float, version: int) -> str:
    """Return `cpv1-<session>-s<step>-t<ms>-<6 hex>`. The hex part is the session version, so the row can be found from
    the id without an index."""
    return f"cpv1-{session_id}-s{step}-t{int(now * 1000)}-{version:06x}"


def checkpoint_version(session_id: str, checkpoint: str) -> int:
    """Return the version in the id. Raises `CheckpointNotFoundError` for an id of another session or a malformed id."""
    head, _, tail = checkpoint.rpartition("-")
    try:
        if not head.startswith(f"cpv1-{session_id}-s"):
            raise ValueError(head)
        return int(tail, 16)
    except ValueError:
        raise CheckpointNotFoundError(
            f"session {session_id!r} has no checkpoint {checkpoint!r}: list its checkpoints to see which ones exist"
        ) from None


def step_of(checkpoint: str) -> int | None:
    """Return the step in the id, or None if the id is malformed."""
    step = checkpoint.rsplit("-", 3)[1:2]
    return int(step[0][1:]) if step and step[0][:1] == "s" and step[0][1:].isdecimal() else None


def checkpoint_sort(version: int) -> str:
    return f"c#{version:010d}"


def make_run_id(turn: int, fresh: str) -> str:
    """Return the id of a new run. Run ids sort by turn within their session. The 80 random bits of `fresh` (from the
    Ids port) make them globally unique. The timestamp in `fresh` is left out, because most rows already have the
    time."""
    return f"run_{turn:06d}_{fresh.rpartition('_')[2][-16:]}"


def make_worker_id(fresh: str) -> str:
    """Return the id of a worker process. Its 80 random bits make it unique. It is short because every answer row
    contains it."""
    return f"worker_{fresh.rpartition('_')[2][-16:]}"


@lru_cache(256)
def turn_of(run_id: str) -> int | None:
    """Return the turn in the run id, or None if the id has another form."""
    turn = run_id[4:].partition("_")[0]
    known = turn.isascii() and turn.isdigit() and run_id.startswith(f"run_{int(turn):06d}_")
    return int(turn) if known else None
