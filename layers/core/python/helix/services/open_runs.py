"""The index of open runs, which lists each run from its claim until its effects are done, for the sweep
(docs/protocol.md#sweep).

Law: a run enters the index in the transaction of its claim and leaves it in the transaction of its effects. A session
that is being deleted is in the index too. The index is only used for runs that deliveries execute. For in-process runs,
opening a session repairs its runs.
"""

from __future__ import annotations

from zlib import crc32

from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.ports.state_store import Key, Put

PARTITIONS = 8
"""The number of partitions of the index. A partition takes 1,000 writes/s, and each run writes here twice."""


def partition_name(number: int) -> str:
    return f"open-runs#{number}"


def open_run_key(run_id: str) -> Key:
    return Key("control", partition_name(crc32(run_id.encode()) % PARTITIONS), run_id)


def open_deletion_key(session_id: str) -> Key:
    return Key("control", partition_name(crc32(session_id.encode()) % PARTITIONS), f"delete:{session_id}")


def open_deletion_put(session: SessionRow, now: float) -> Put:
    value = {"session_id": session.session_id, "agent_type": session.agent_type, "started_at": now}
    return Put(open_deletion_key(session.session_id), value)


def open_run_put(run: RunRow) -> Put:
    """Return the run's row in the index. A `priority` other than 0 is stored, because the sweep needs it to find the
    run's ticket."""
    value = {"session_id": run.session_id, "agent_type": run.agent_type, "started_at": run.started_at}
    return Put(open_run_key(run.run_id), {**value, **({"priority": run.priority} if run.priority else {})})
