"""The sequencer: at-least-once records of many writers become one dense, truthful stream (docs/protocol.md#sequencer).

Law: `admit` is a pure function of (head, records). Sequences are 1, 2, 3, ...; each chunk of a committed attempt is
admitted once and in order; nothing of a superseded run or a dead attempt is admitted after its successor began; no
reader of turn t is ended by turn t-1. The head travels with the last segment, so one conditional put moves both.
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


class StreamRecord(Record):
    """What a writer hands to the log.

    kind: `run` (its first and last record), `attempt` (a try at a step), `call` (a claim of a tool call), `fold` (what a
        commit made of a step).
    attempt: the try's number within the step; for `call`, the number of the claim.
    n: 0, 1, 2, ... per writer; a resend keeps its number. Not used by `run` and `fold`.
    version: for `fold`, the session version that the commit made; it is admitted if newer than the last one. For `call`,
        that of the fold with which a result is written again; where the fold is known, so is the result.
    created_at: of the session's row. A session that was deleted and one made later under its id differ in it. 0: of an
        earlier version, or of no session.
    last: for `started` and the ends, (step, attempt) staged or committed last: it settles an attempt left open.
    seen: for `started`, the stream's last sequence and its time as the claim saw them, where nothing deleted the stream
        between the two: a head that has them is the present one. Not handed to a log that other processes read.
    chunks: JSON of chunks, envelope filled in but for `sequence`.
    """

    model_config = ConfigDict(extra="ignore")

    session_id: str
    run_id: str
    turn: int
    created_at: float = 0.0
    agent_type: str = ""
    kind: Literal["run", "attempt", "call", "fold"]
    step: int = 0
    attempt: int = 0
    call_id: str | None = None
    n: int = 0
    version: int = 0
    mark: Mark | None = None
    last: tuple[int, int] | None = None
    seen: tuple[int, float] | None = None
    status: str | None = None
    error: str | None = None
    chunks: list[JsonObject] = Field(default_factory=list)
    time: float = 0.0


class SessionHead(Record):
    """Where one session stands on the stream. `calls` maps a call id of the current step to (claim, last n, ended).
    `began`: the stream's last sequence before the current turn. `run_id` and `agent_type` are known while the turn runs.
    `created_at`: of the session's row, as the turn's first record has it; of a sub-agent, while its turn runs."""

    model_config = ConfigDict(extra="ignore")

    turn: int = 0
    began: int = 0
    over: bool = True
    status: str = "running"
    step: int = 0
    attempt: int = 0
    open: bool = False
    n: int = -1
    version: int = 0
    run_id: str = ""
    agent_type: str = ""
    created_at: float = 0.0
    calls: dict[str, tuple[int, int, bool]] = Field(default_factory=dict)


class Head(Record):
    """Everything the next admission needs to know of the past. `root` is the first session seen: the stream's own."""

    model_config = ConfigDict(extra="ignore")

    sequence: int = 0
    root: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0
    sessions: dict[str, SessionHead] = Field(default_factory=dict)

    def copied(self) -> Head:
        """A copy that shares nothing that admission changes."""
        sessions = {key: value.model_copy(update={"calls": dict(value.calls)}) for key, value in self.sessions.items()}
        return self.model_copy(update={"sessions": sessions})


def admit(stream_id: str, head: Head, records: Sequence[StreamRecord]) -> tuple[Head, list[StreamMessage]]:
    """The head after `records`, and the messages they add. The arguments are not changed."""
    admission = _Admission(stream_id, head.copied())
    for record in records:
        admission.take(record)
    admission.head.sequence, admission.head.updated_at = admission.sequence, admission.updated_at
    return admission.head, admission.out


class _Admission:
    def __init__(self, stream_id: str, head: Head) -> None:
        self.stream_id, self.head = stream_id, head
        self.sequence, self.updated_at = head.sequence, head.updated_at  # the head has those of the end
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
        session.run_id, session.agent_type, session.n = "", "", -1  # only an open attempt is spoken for
        if record.session_id != self.head.root:
            session.created_at = 0.0
        kind: Kind = "fail" if record.mark == "fail" else "paused" if record.mark == "paused" else "end"
        self._message(record, kind, status=record.status, error=record.error)
        self._forget_children(record.session_id)

    def _fold(self, session: SessionHead, record: StreamRecord) -> None:
        if record.version > session.version:
            session.version = record.version
            self._emit(record, record.chunks)

    def _call(self, session: SessionHead, record: StreamRecord) -> None:
        if record.step < session.step:
            return  # its step is over, and `calls` has forgotten how far it came
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
        self._gap(record, n)  # the end may be written by another worker, whose n = 0 proves nothing
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
            self._gap(record, session.n)  # another worker's mark has n = 0 and proves nothing
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
        """A new turn: what the last one left open is committed if the record says so, else discarded."""
        self._close_attempt(session, record)
        retained = record.last is not None and record.last[0] == session.step
        session.turn, session.over, session.status = record.turn, False, "running"
        session.began = self.sequence
        session.run_id, session.agent_type, session.created_at = record.run_id, record.agent_type, record.created_at
        session.open, session.n = False, -1
        if not retained:  # what was staged last stays closed, unless a rewind (no `last`) left it behind
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
        """The end of the open attempt, in the name of its writer."""
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
        """A hole in a writer's numbers: its chunks are lost for good, and readers start again from the checkpoint."""
        if record.n > last + 1:
            self._add(record, StreamResyncChunk(reason="chunks were lost", from_sequence=self.sequence))

    def _add(self, about: StreamRecord, chunk: StepCommittedChunk | StepDiscardedChunk | StreamResyncChunk) -> None:
        """A chunk of the sequencer's own."""
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
        """Ended children leave the head after a while: it travels with every segment and must not grow for ever. The one
        that has just ended, `session_id`, is the last to go."""
        self.head.sessions[session_id] = self.head.sessions.pop(session_id)
        ended = [key for key, value in self.head.sessions.items() if value.over and key != self.head.root]
        for key in ended[: max(0, len(ended) - MAX_ENDED_CHILDREN)]:
            del self.head.sessions[key]
