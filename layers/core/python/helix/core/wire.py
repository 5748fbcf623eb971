"""The wire format of a stream: one JSON envelope per message, identical for SQLite, SSE, WebSocket and Kinesis."""

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
    """A message of a stream."""

    model_config = ConfigDict(extra="ignore")

    v: Literal[1] = 1
    """The version of this format."""
    stream_id: str
    """The id of the stream, which is the id of its root session."""
    session_id: str
    """The session that the message belongs to. The end of a sub-agent's run is not the end of the root's run."""
    run_id: str
    """The run that the message belongs to. Empty if the log itself created the message."""
    turn: int = 0
    """The number of that run within its session."""
    sequence: int = Field(ge=1)
    """The position on the stream: 1, 2, 3, ... without gaps."""
    kind: Kind
    """`chunk` contains a chunk. `end`, `fail` and `paused` end the run's part of the stream."""
    chunk: JsonObject | None = None
    """The chunk as JSON, without its `sequence`. None for the other kinds."""
    status: str | None = None
    """The status of a run that ended or paused. None for chunks."""
    error: str | None = None
    """The message of the run's error. None for chunks, and for runs without an error."""

    def parsed(self) -> StreamChunk:
        """Parse the chunk and set its `sequence`. Only for `kind == "chunk"`. Raises `DamagedRowError`."""
        data: dict[str, Any] = {**(self.chunk or {}), "sequence": self.sequence}
        try:
            return parse_chunk(data)
        except ValueError as error:
            raise DamagedRowError(
                f"message {self.sequence} of stream {self.stream_id!r} cannot be read: {first_problem(error)}"
            ) from error


class StreamInfo(Record):
    """The state of a stream according to its messages. A claimed run may not have reached the stream yet."""

    stream_id: str
    """The id of the stream, which is the id of its root session."""
    status: Literal["active", "paused", "ended", "failed"]
    """`active` while the root session's last known run is in progress. `ended` if that run was completed or
    interrupted."""
    latest_sequence: int
    """The sequence of the last message. 0 for a stream without messages."""
    total_chunks: int
    """The number of messages so far, including those that end runs."""
    created_at: float
    """The time of the first record (Unix seconds). Without messages, the time of the root session's creation."""
    updated_at: float
    """The time of the newest record (Unix seconds)."""
    turn: int = 0
    """The number of the root session's last known run. 0 if the stream has no run yet."""
    began: int = 0
    """The last sequence before that run."""


def is_stream_end(message: StreamMessage) -> bool:
    """Return whether the message ends a run: `end`, `fail` or `paused`."""
    return message.kind != "chunk"


def is_resync(message: StreamMessage) -> bool:
    """Return whether this is the log's own `stream_resync`. It marks the loss of all earlier chunks and belongs to no
    run."""
    return message.run_id == "" and (message.chunk or {}).get("type") == "stream_resync"


Verdict = Literal["show", "skip", "last", "over"]
"""A reader's verdict on a message. `show`: show it. `skip`: it is not for this reader. `last`: show it and stop.
`over`: stop, because the end has already passed."""
Judge = Callable[[StreamMessage], Verdict]


def one_run(session_id: str, turn: int, *, begun: bool = False, run_id: str = "") -> Judge:
    """Return a judge for a reader that follows one run. It shows everything from the session's first message of that
    turn until the turn ends, including messages of sub-agents. A later turn means that the run was taken over and has
    no end message. `begun`: the reader has already seen the first message. `run_id`: the run, if `turn` is 0 because it
    has not begun. Everything before its first message is skipped."""

    def judge(message: StreamMessage) -> Verdict:
        nonlocal begun, turn
        own = message.session_id == session_id
        if turn == 0 and own and message.run_id == run_id:
            turn = message.turn
        if is_resync(message):
            return "show"
        if turn == 0:
            return "skip"
        if own and message.turn > turn:
            return "over"
        if own and message.turn == turn:
            begun = True
            return "show" if message.kind == "chunk" else "last"
        return "show" if begun and not own else "skip"

    return judge
