"""The wire format of a stream: one JSON envelope per message, the same from SQLite, SSE, WebSocket and Kinesis."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from helix.core.chunks import StreamChunk, parse_chunk
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
        """The chunk as a model, its `sequence` set. Only for `kind == "chunk"`."""
        data: dict[str, Any] = {**(self.chunk or {}), "sequence": self.sequence}
        return parse_chunk(data)


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
