"""The sequencer: turns the at-least-once records of many writers into one correct stream without gaps or duplicates
(docs/protocol.md#sequencer).

Law: `admit` is a pure function of (head, records). Sequences are 1, 2, 3, ... Each chunk of a committed attempt is
admitted once and in order. Nothing from a superseded run or a dead attempt is admitted after its successor began. The
end of turn t-1 never ends a reader of turn t. The head is stored with the last segment, so one conditional put updates
both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import ConfigDict, Field

from helix.core.chunks import StepCommittedChunk, StepDiscardedChunk, StreamResyncChunk
from helix.core.json import JsonObject
from helix.core.messages import Record
from helix.core.wire import Kind, StreamMessage

Mark = Literal["started", "committed", "end", "fail", "paused"]
MAX_ENDED_CHILDREN = 16
REMINDER = "reminder:"
"""The beginning of the `call_id` of a reminder, before the id of the call. Its `attempt` is the number of the reminder. The
log takes it while the run of its turn is paused."""


class StreamRecord(Record):
    """A record of chunks that a writer appends to the log."""

    model_config = ConfigDict(extra="ignore")

    session_id: str
    """The session that the chunks belong to. A sub-agent's records go to the stream of its root."""
    run_id: str
    """The run that the record belongs to. Empty in a record that fails a stream without a known run."""
    turn: int
    """The number of that run within its session. Records of an older turn are dropped."""
    created_at: float = 0.0
    """The creation time in the session's row (Unix seconds). It distinguishes a deleted session from a later one with
    the same id. 0 if an earlier version wrote the record, or if it belongs to no session."""
    agent_type: str = ""
    """The name of the session's agent."""
    kind: Literal["run", "attempt", "call", "fold", "inbox"]
    """`run`: the first or last record of a run. `attempt`: an attempt at a step. `call`: a claim of a tool call.
    `fold`: the result of committing a step. `inbox`: a message for the run, from outside of it."""
    step: int = 0
    """The step that the record is about. 0 for `run`."""
    attempt: int = 0
    """The number of the attempt within the step. For `call`, the number of the claim."""
    call_id: str | None = None
    """The tool call that a `call` is about. None for other kinds."""
    n: int = 0
    """The writer's number for the record: 0, 1, 2, ... A resend keeps its number. Not used for `run` and `fold`."""
    version: int = 0
    """For `fold`, the session version after the commit. The fold is admitted only if it is newer than the last one. For
    `call`, the version of the fold that also contains this result. If that fold was admitted, so was the result."""
    mark: Mark | None = None
    """The beginning or end that the record marks. `started` begins a run, and `end`, `fail` and `paused` end it.
    `committed` ends an attempt or a call. None for chunks in between."""
    last: tuple[int, int] | None = None
    """For the first and last record of a run, the (step, attempt) that was staged or committed last. It settles an
    attempt left open. None if there was none."""
    seen: tuple[int, float] | None = None
    """For `started`, the stream's last sequence and its time as seen by the claim, unless the stream was deleted since.
    A cached head with the same values is current. It is left out of logs that other processes read."""
    status: str | None = None
    """For the last record of a run, the run's status."""
    error: str | None = None
    """For the last record of a run, the message of the run's error. None without an error."""
    chunks: list[JsonObject] = Field(default_factory=list)
    """The chunks as JSON. Their envelope is complete except for `sequence`."""
    time: float = 0.0
    """The writer's time when it made the record (Unix seconds)."""


class SessionHead(Record):
    """The position of one session on the stream."""

    model_config = ConfigDict(extra="ignore")

    turn: int = 0
    """The current or last turn. 0 before the first."""
    began: int = 0
    """The last sequence of the stream before that turn."""
    over: bool = True
    """Whether the turn has ended. Further records of it are dropped."""
    status: str = "running"
    """The status of the turn's run: `running`, or how it ended."""
    step: int = 0
    """The step of the newest attempt."""
    attempt: int = 0
    """The number of that attempt within the step."""
    open: bool = False
    """Whether that attempt is neither committed nor discarded yet."""
    n: int = -1
    """The number of the last record admitted from that attempt. -1: none yet."""
    version: int = 0
    """The session version of the last admitted fold."""
    run_id: str = ""
    """The run of the turn. Empty once the turn is over."""
    agent_type: str = ""
    """The name of the session's agent. Empty once the turn is over."""
    created_at: float = 0.0
    """The creation time in the session's row, taken from the first record of the turn (Unix seconds). For a sub-agent
    it becomes 0 when its turn ends."""
    calls: dict[str, tuple[int, int, bool]] = Field(default_factory=dict)
    """The (claim, last n, ended) of each call of the current step, by call id."""


class Head(Record):
    """Everything that the next admission needs to know about earlier records."""

    model_config = ConfigDict(extra="ignore")

    sequence: int = 0
    """The sequence of the last message. 0 for a stream without messages."""
    root: str = ""
    """The first session on the stream, which is its root. Empty before the first record."""
    created_at: float = 0.0
    """The time of the first record (Unix seconds)."""
    updated_at: float = 0.0
    """The latest time of a record that produced messages (Unix seconds)."""
    sessions: dict[str, SessionHead] = Field(default_factory=dict)
    """The sessions on the stream, by id. At most `MAX_ENDED_CHILDREN` sub-agents that have ended are kept."""

    def copied(self) -> Head:
        """Return a copy that shares no mutable data that admission changes."""
        sessions = {key: value.model_copy(update={"calls": dict(value.calls)}) for key, value in self.sessions.items()}
        return self.model_copy(update={"sessions": sessions})


def admit(stream_id: str, head: Head, records: Sequence[StreamRecord]) -> tuple[Head, list[StreamMessage]]:
    """Return the head after `records`, and the messages that they add. The arguments are not changed."""
    admission = _Admission(stream_id, head.copied())
    for record in records:
        admission.take(record)
    admission.head.sequence, admission.head.updated_at = admission.sequence, admission.updated_at
    return admission.head, admission.out


class _Admission:
    def __init__(self, stream_id: str, head: Head) -> None:
        self.stream_id, self.head = stream_id, head
        self.sequence, self.updated_at = head.sequence, head.updated_at  # copied to the head at the end
        self.out: list[StreamMessage] = []

    def take(self, record: StreamRecord) -> None:
        if not self.head.root:
            self.head.created_at, self.head.root = record.time, record.session_id
        session = self.head.sessions.get(record.session_id)
        if session is None:
            session = self.head.sessions[record.session_id] = SessionHead()
        if record.turn < session.turn:
            return
        if record.kind == "run":
            self._run(session, record)
            return
        if record.kind == "inbox":
            self._inbox(session, record)
            return
        if record.kind == "call" and (record.call_id or "").startswith(REMINDER):
            if record.turn == session.turn and (not session.over or session.status == "paused"):
                self._call(session, record)
            return
        if record.turn > session.turn:
            self._begin(session, record)
        if session.over:
            return
        if record.kind == "fold":
            self._fold(session, record)
        elif record.kind == "call":
            self._call(session, record)
        else:
            self._attempt(session, record)

    # --- one kind each --------------------------------------------------------------------------------------------

    def _run(self, session: SessionHead, record: StreamRecord) -> None:
        if record.mark == "started":
            if record.turn > session.turn:
                self._begin(session, record)
                self._emit(record, record.chunks)
            return
        if record.turn > session.turn:
            self._begin(session, record)
        if session.over:
            return
        self._close_attempt(session, record)
        self._emit(record, record.chunks)
        session.over, session.status = True, record.status or "completed"
        session.run_id, session.agent_type, session.n = "", "", -1  # only an open attempt needs them
        if record.session_id != self.head.root:
            session.created_at = 0.0
        kind: Kind = "fail" if record.mark == "fail" else "paused" if record.mark == "paused" else "end"
        self._message(record, kind, status=record.status, error=record.error)
        self._forget_children(record.session_id)

    def _inbox(self, session: SessionHead, record: StreamRecord) -> None:
        """Add a record from outside of its run. Readers ignore repeats. It never begins a turn, because its sender does
        not know what the turn before left behind: it may come between the end of that turn and `started`."""
        if session.over == (record.turn > session.turn):
            self._emit(record, record.chunks)

    def _fold(self, session: SessionHead, record: StreamRecord) -> None:
        if record.version > session.version:
            session.version = record.version
            self._emit(record, record.chunks)

    def _call(self, session: SessionHead, record: StreamRecord) -> None:
        if record.step < session.step:
            return  # its step is over, and `calls` no longer has its position
        if 0 < record.version <= session.version:
            return
        call_id = record.call_id or ""
        claim, n, ended = session.calls.get(call_id, (-1, -1, False))
        if ended or record.attempt < claim:
            return
        if record.attempt > claim:
            n = -1
        if record.mark != "committed" and record.n <= n:
            return
        self._gap(record, n)  # another worker may write the end: its n is 0 and shows no gap
        session.calls[call_id] = (record.attempt, record.n, record.mark == "committed")
        self._emit(record, record.chunks)

    def _attempt(self, session: SessionHead, record: StreamRecord) -> None:
        mine, current = (record.step, record.attempt), (session.step, session.attempt)
        if mine < current or (mine == current and not session.open):
            return
        if mine > current:
            if session.open:
                self._mark(session, StepDiscardedChunk(reason="another attempt took over"))
            if record.step != session.step:
                session.calls = {}
            session.step, session.attempt, session.open, session.n = *mine, True, -1
        if record.mark == "committed":
            self._gap(record, session.n)  # the mark of another worker has n = 0 and shows no gap
            session.open = False
            self._emit(record, record.chunks)
            return
        if record.n <= session.n:
            return
        self._gap(record, session.n)
        session.n = record.n
        self._emit(record, record.chunks)

    # --- shared ---------------------------------------------------------------------------------------------------

    def _begin(self, session: SessionHead, record: StreamRecord) -> None:
        """Begin a new turn. An attempt that the last turn left open is committed if the record says so, and discarded
        otherwise."""
        self._close_attempt(session, record)
        retained = record.last is not None and record.last[0] == session.step
        session.turn, session.over, session.status = record.turn, False, "running"
        session.began = self.sequence
        session.run_id, session.agent_type, session.created_at = record.run_id, record.agent_type, record.created_at
        session.open, session.n = False, -1
        if not retained:  # the last staged step stays closed, unless a rewind (no `last`) left it behind
            past = record.last if record.last is not None and record.last[0] < session.step else (0, 0)
            session.step, session.attempt = past
            session.calls = {}

    def _close_attempt(self, session: SessionHead, record: StreamRecord) -> None:
        if not session.open:
            return
        committed = record.last == (session.step, session.attempt)
        discarded = StepDiscardedChunk(
            reason="the run ended before this step was committed",
            status=record.status if record.mark == "end" else None,
        )
        self._mark(session, StepCommittedChunk() if committed else discarded, record.time)
        session.open = False

    def _mark(self, session: SessionHead, chunk: StepCommittedChunk | StepDiscardedChunk, time: float = 0.0) -> None:
        """Add the chunk that ends the open attempt, on behalf of its writer."""
        session_id = next(key for key, value in self.head.sessions.items() if value is session)
        about = StreamRecord(
            session_id=session_id,
            run_id=session.run_id,
            turn=session.turn,
            agent_type=session.agent_type,
            kind="attempt",
            step=session.step,
            attempt=session.attempt,
            time=time or self.updated_at,
        )
        self._add(about, chunk)

    def _gap(self, record: StreamRecord, last: int) -> None:
        """Add a `stream_resync` if a writer's record numbers have a gap. The chunks are lost permanently, and readers
        reload from the checkpoint."""
        if record.n > last + 1:
            self._add(record, StreamResyncChunk(reason="chunks were lost", from_sequence=self.sequence))

    def _add(self, about: StreamRecord, chunk: StepCommittedChunk | StepDiscardedChunk | StreamResyncChunk) -> None:
        """Add a chunk that the sequencer itself creates."""
        envelope = {name: getattr(about, name) for name in ("session_id", "run_id", "agent_type", "step", "attempt")}
        reported = chunk.model_copy(update={**envelope, "agent_id": about.session_id, "timestamp": about.time})
        self._emit(about, [{"type": chunk.type, **reported.model_dump(mode="json", exclude_defaults=True)}])

    def _emit(self, record: StreamRecord, chunks: Sequence[JsonObject]) -> None:
        for chunk in chunks:
            self._message(record, "chunk", chunk=chunk)

    def _message(self, record: StreamRecord, kind: Kind, **fields: Any) -> None:
        self.sequence += 1
        self.updated_at = max(self.updated_at, record.time)
        self.out.append(
            StreamMessage(
                stream_id=self.stream_id,
                session_id=record.session_id,
                run_id=record.run_id,
                turn=record.turn,
                sequence=self.sequence,
                kind=kind,
                **fields,
            )
        )

    def _forget_children(self, session_id: str) -> None:
        """Remove ended children from the head, oldest first. Every segment contains the head, so it must not grow
        without limit. The child that has just ended, `session_id`, is removed last."""
        self.head.sessions[session_id] = self.head.sessions.pop(session_id)
        ended = [key for key, value in self.head.sessions.items() if value.over and key != self.head.root]
        for key in ended[: max(0, len(ended) - MAX_ENDED_CHILDREN)]:
            del self.head.sessions[key]
