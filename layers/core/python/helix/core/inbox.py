"""The inbox: messages that wait while a run of their session works (docs/protocol.md#inbox).

Law: a waiting message is a row of its own. The transaction that adds the message to history deletes the row, so each
message is delivered once. Messages are delivered in the order of their arrival; those that `steer` or `interrupt` come
before those that `queue`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self, get_args

from pydantic import Field

from helix.core.errors import CallerError, InvalidInputError, RunNotFoundError
from helix.core.files import FilePart
from helix.core.inbox_chunks import WaitMode
from helix.core.json import JsonObject, text_size
from helix.core.messages import Record
from helix.core.session_row import SessionRow
from helix.core.stored import Stored

WhenRunning = Literal["refuse", WaitMode]
"""The handling of a message for a session that is running. `refuse` raises `AgentAlreadyRunningError`."""
WHEN_RUNNING: tuple[str, ...] = (*get_args(WhenRunning)[:1], *get_args(WaitMode))
Withdrawn = Literal["withdrawn", "delivered", "not_found"]
"""The outcome of a withdrawal. `delivered`: the message is in history already. `not_found`: no such message waits."""

MAX_WAITING = 20
"""The maximum number of messages that wait in a session."""
MAX_WAITING_BYTES = 2_000_000
"""The maximum size of the texts, metadata and tools of a session's waiting messages together."""


class InboxFullError(CallerError):
    """Raised if no more messages may wait in a session."""

    code = "inbox_full"

    def __init__(self, session_id: str, waiting: int) -> None:
        super().__init__(
            f"{waiting} messages wait in session {session_id!r}; the limit is {MAX_WAITING}, and {MAX_WAITING_BYTES:,} "
            "bytes together: withdraw one, or send this one after the run has ended"
        )


class MessageWithdrawnError(RunNotFoundError):
    """Raised if the message of a run was taken back before the run began."""

    code = "message_withdrawn"

    def __init__(self, session_id: str, run_id: str) -> None:
        super().__init__(f"run {run_id!r} of session {session_id!r} never began: its message was withdrawn")


class InboxRow(Stored):
    """A message that waits for the session's run."""

    kind: Literal["waiting"] = "waiting"
    """The tag of this kind of row in the store."""
    id: str
    """The id of the message. It is not stored here, because the row's key has it. Ids sort by arrival."""
    mode: WaitMode
    """How the message waits."""
    run_id: str
    """The id of the message's own run, if it gets a turn of its own."""
    content: str
    """The text of the message. Empty if it has only files."""
    files: list[FilePart] = Field(default_factory=list)
    """The files of the message. The session holds them."""
    metadata: JsonObject = Field(default_factory=dict)
    """The JSON object that the caller sent with the message."""
    tools: str = ""
    """The text of the request head with the tools that the message's own run declares. Empty if it declares none."""
    priority: int | None = None
    """The queue priority of the message's own run, and of later ones. None keeps the session's priority."""
    created_at: float = 0
    """The time of arrival (Unix seconds)."""

    @classmethod
    def at(cls, session_id: str, sort: str, value: JsonObject) -> Self:
        """Parse the row stored under this key. Raises `DamagedRowError`."""
        return cls.read(session_id, sort, {**value, "id": sort[2:]})

    def dump(self) -> JsonObject:
        return {"kind": self.kind, **{name: value for name, value in super().dump().items() if name != "id"}}


class WaitingMessage(Record):
    """A message that waits in a session, as readers see it."""

    id: str
    """The id with which the message can be withdrawn. The delivered message names it as `queued_id`."""
    mode: WaitMode
    """How the message waits."""
    run_id: str
    """The id of the message's own run, if it gets a turn of its own."""
    content: str
    """The text of the message."""
    files: list[FilePart] = Field(default_factory=list)
    """The files of the message."""
    metadata: JsonObject = Field(default_factory=dict)
    """The JSON object that the caller sent with the message."""
    created_at: float = 0
    """The time of arrival (Unix seconds)."""


def waiting_message(row: InboxRow) -> WaitingMessage:
    """Return the message of the row."""
    return WaitingMessage.model_validate(row.model_dump(exclude={"kind", "priority", "tools"}))


def check_when_running(when_running: object) -> None:
    if when_running not in WHEN_RUNNING:
        raise InvalidInputError(f"when_running must be one of {', '.join(WHEN_RUNNING)}, not {when_running!r}")


def next_id(rows: Sequence[InboxRow], now: float, fresh: str) -> str:
    """Return an id that sorts after the waiting messages. Its random end makes it unique, however often ids of the same
    millisecond are delivered."""
    last = max((int(row.id.partition("-")[0]) for row in rows), default=0)
    return f"{max(int(now * 1000), last + 1):014d}-{fresh.rpartition('_')[2][-8:].lower()}"


def check_room(session_id: str, rows: Sequence[InboxRow], new: InboxRow) -> None:
    """Raise `InboxFullError` if the message would exceed a limit."""
    size = sum(text_size(row.content) + len(str(row.metadata)) + len(row.tools) for row in [*rows, new])
    if len(rows) >= MAX_WAITING or size > MAX_WAITING_BYTES:
        raise InboxFullError(session_id, len(rows))


def in_order(rows: Sequence[InboxRow]) -> list[InboxRow]:
    """Return the messages in the order of their turns."""
    return sorted(rows, key=lambda row: (row.mode == "queue", row.id))


def next_turn(session: SessionRow, rows: Sequence[InboxRow]) -> InboxRow | None:
    """Return the message that gets the next turn of a session whose run has ended. None: the messages keep waiting,
    because the session is paused, a person stopped it, or it is a sub-agent's."""
    if session.parent is not None:  # it has reported to its parent
        return None
    if session.status == "completed" or (session.status == "failed" and not session.aborted):
        return next(iter(in_order(rows)), None)
    if session.status == "interrupted":
        return next((row for row in in_order(rows) if row.mode == "interrupt"), None)
    return None
