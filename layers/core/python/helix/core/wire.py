"""The wire format of a stream: one JSON envelope per message, the same from SQLite, SSE, WebSocket and Kinesis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import ConfigDict, Field

from helix.core.chunks import StreamChunk, parse_chunk
from helix.core.damage import first_problem
from helix.core.errors import DamagedRowError
from helix.core.json import JsonObject
from helix.core.messages import Record

Kind = Literal["chunk", "end", "fail", "paused"]


class StreamMessage(Record):
    """`chunk` carries a chunk. `end`, `fail` and `paused` close a run's part of the stream: `status` is the run's, and
    `error` its message. `session_id` names the session: a child's end is not the root's."""

    model_config = ConfigDict(extra="ignore")

    v: Literal[1] = 1
    stream_id: str
    session_id: str
    run_id: str
    turn: int = 0
    sequence: int = Field(ge=1)
    kind: Kind
    chunk: JsonObject | None = None
    status: str | None = None
    error: str | None = None

    def parsed(self) -> StreamChunk:
        """The chunk as a model, its `sequence` set. Only for `kind == "chunk"`. Raises `DamagedRowError`."""
        data: dict[str, Any] = {**(self.chunk or {}), "sequence": self.sequence}
        try:
            return parse_chunk(data)
        except ValueError as error:
            raise DamagedRowError(
                f"message {self.sequence} of stream {self.stream_id!r} cannot be read: {first_problem(error)}"
            ) from error


class StreamInfo(Record):
    """`latest_sequence` is 0 for a stream without messages. `status` is that of the root session's last run that the stream
    knows of, `turn` its number, and `began` the last sequence before it: a run may be claimed and not yet on the stream."""

    stream_id: str
    status: Literal["active", "paused", "ended", "failed"]
    latest_sequence: int
    total_chunks: int
    created_at: float
    updated_at: float
    turn: int = 0
    began: int = 0


def is_stream_end(message: StreamMessage) -> bool:
    """True for the message that closes a run: `end`, `fail` or `paused`."""
    return message.kind != "chunk"


def is_resync(message: StreamMessage) -> bool:
    """The word of the log that everything before is lost: it is in no run's name."""
    return message.run_id == "" and (message.chunk or {}).get("type") == "stream_resync"


Verdict = Literal["show", "skip", "last", "over"]
"""What a message is to a reader: to be shown, not its own, shown and the last, or a sign that the end has passed."""
Judge = Callable[[StreamMessage], Verdict]


def one_run(session_id: str, turn: int, *, begun: bool = False) -> Judge:
    """For readers that follow one run: from the session's first message of that turn to its end, the sub-agents' messages
    between included. A later turn means that the run was taken over, and has no end of its own. begun: the first message
    has been seen already."""

    def judge(message: StreamMessage) -> Verdict:
        nonlocal begun
        if is_resync(message):
            return "show"
        own = message.session_id == session_id
        if own and message.turn > turn:
            return "over"
        if own and message.turn == turn:
            begun = True
            return "show" if message.kind == "chunk" else "last"
        return "show" if begun and not own else "skip"

    return judge
