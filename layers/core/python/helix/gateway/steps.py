"""The history of a step: its attempts, the text of each attempt that stream readers saw, and the outcomes of its calls.

Law: nothing here writes, and one request reads a bounded number of rows and messages. Rows record what happened. The
stream, which expires, records what was shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from helix.core.budget import MICROS
from helix.core.chunks import StepDiscardedChunk, StreamChunk, TextDeltaChunk, ToolStartChunk
from helix.core.entries import AssistantRow, CallRow, parse_entry
from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject, dumps
from helix.core.prompt import UNKNOWN
from helix.core.run_row import RunRow
from helix.core.session_requests import GetStep
from helix.core.session_row import SessionRow
from helix.core.usage import Usage
from helix.gateway.backend import Backend
from helix.gateway.connections import Connection
from helix.gateway.money import MOST_ROWS
from helix.ports.state_store import Row
from helix.services.session_calls import ModelCall, calls_in
from helix.sessions.ledger_rows import bounded_rows

MOST_MESSAGES: Final = 5_000
BATCH: Final = 500
MAX_TEXT: Final = 20_000
"""The number of characters after which displayed text is truncated."""


@dataclass(slots=True)
class _StreamedAttempt:
    """The stream's record of an attempt."""

    text: str = ""
    """The text that readers saw, truncated to `MAX_TEXT` characters."""
    dropped: list[str] = field(default_factory=list)
    """The text of earlier tries within the attempt, which readers were told to drop."""
    discarded: bool = False
    """Whether readers were told to drop `text`."""
    reason: str | None = None
    """The reason that readers were given for dropping it. None if they were given none."""


@dataclass(slots=True)
class _StreamedStep:
    attempts: dict[tuple[str, int], _StreamedAttempt] = field(default_factory=dict)
    """The attempts that the stream contains, by run id and attempt."""
    starts: dict[str, set[int]] = field(default_factory=dict)
    """The numbers of the claims under which a call started, by call id."""
    complete: bool = True
    """Whether everything about the step was read. False if reading stopped after `MOST_MESSAGES` messages."""


async def get_step(backend: Backend, caller: Connection, request: GetStep) -> JsonObject:
    session = await backend.get_owned(caller.principal, request.session_id)
    rows = await bounded_rows(backend.executor.store, session.session_id, MOST_ROWS)
    runs = {
        run.run_id: run
        for run in (RunRow.at(session.session_id, r.key.sort, r.value) for r in rows if r.key.sort.startswith("r#"))
    }
    calls = _attempts_of_step(
        [*calls_in(session.session_id, rows)[0], *_open_attempt(session, runs)], request.step, request.run_id
    )
    if not calls:
        of = f" of run {request.run_id!r}" if request.run_id is not None else ""
        raise InvalidInputError(f"session {session.session_id!r} has no step {request.step}{of}")
    seen = await _read_stream(backend, session, runs, calls)
    answered = _calls_of_answer(rows, calls[-1])
    asked = {call.call_id for run in runs.values() for call in run.pending if call.kind == "unknown"}
    return {
        "session_id": session.session_id,
        "step": request.step,
        "attempts": [_attempt(call, seen, runs) for call in calls],
        "calls": [] if answered is None else [_call(*found, seen, asked) for found in answered],
        "complete": seen.complete,
    }


def _open_attempt(session: SessionRow, runs: dict[str, RunRow]) -> list[ModelCall]:
    """Return the attempt in progress, as a list of one or none."""
    claim = session.claim
    if claim is None or claim.run_id not in runs:
        return []
    run = runs[claim.run_id]
    about = (session.session_id, session.agent_type, claim.run_id, run.turn, claim.step, claim.attempt)
    call = ModelCall(*about, "dead", run.model or None, Usage(), claim.micros, claim.tokens)
    return [replace(call, head=session.head, output_limit=session.output_limit)]


def _attempts_of_step(calls: Sequence[ModelCall], step: int, run_id: str | None) -> list[ModelCall]:
    """Return the attempts of the newest step with this number, or of the step that the run attempted. An answer ends a
    step. Later attempts with the same number belong to a step after a rewind."""
    found: list[list[ModelCall]] = []
    for call in sorted(calls, key=lambda call: (call.turn, call.attempt)):
        if call.step != step:
            continue
        if not found or found[-1][-1].outcome == "answered":
            found.append([])
        found[-1].append(call)
    fitting = [life for life in found if run_id is None or any(call.run_id == run_id for call in life)]
    return fitting[-1] if fitting else []


async def _read_stream(
    backend: Backend, session: SessionRow, runs: dict[str, RunRow], calls: Sequence[ModelCall]
) -> _StreamedStep:
    """Read the stream from the start of the step's first run to its end, or to a later step of a later run."""
    mine = {call.run_id for call in calls}
    after = min(runs[run_id].start_sequence for run_id in mine)
    last = max(runs[run_id].turn for run_id in mine)
    seen, read = _StreamedStep(), 0
    while batch := await backend.executor.streams.read(session.stream_id, after, BATCH):
        for message in batch:
            after = message.sequence
            if message.session_id != session.session_id:
                continue
            if message.kind != "chunk":
                continue
            chunk = message.parsed()
            if message.turn > last and chunk.step > calls[0].step:  # a later run may continue the calls of the step
                return seen
            if chunk.step == calls[0].step:
                _add_chunk(seen, message.run_id, chunk)
        read += len(batch)
        if read >= MOST_MESSAGES:
            seen.complete = False
            return seen
    return seen


def _add_chunk(seen: _StreamedStep, run_id: str, chunk: StreamChunk) -> None:
    if isinstance(chunk, ToolStartChunk):
        seen.starts.setdefault(chunk.tool_call_id, set()).add(chunk.attempt)
    elif isinstance(chunk, TextDeltaChunk | StepDiscardedChunk):
        shown = seen.attempts.setdefault((run_id, chunk.attempt), _StreamedAttempt())
        if isinstance(chunk, StepDiscardedChunk):
            shown.discarded, shown.reason = True, chunk.reason
            return
        if shown.discarded:  # the model was called again within the attempt
            shown.dropped.append(shown.text)
            shown.text, shown.discarded, shown.reason = "", False, None
        shown.text = (shown.text + chunk.delta)[:MAX_TEXT]


def _attempt(call: ModelCall, seen: _StreamedStep, runs: dict[str, RunRow]) -> JsonObject:
    shown = seen.attempts.get((call.run_id, call.attempt), _StreamedAttempt())
    taken = (run for run in runs.values() if run.mode == "takeover" and run.previous_run_id == call.run_id)
    return {
        "attempt": call.attempt,
        "run_id": call.run_id,
        "turn": call.turn,
        "outcome": "open" if call.at == 0 else call.outcome,
        "model": call.model,
        "head": call.head or None,
        "output_limit": call.output_limit,
        "usage": call.usage.model_dump(mode="json"),
        "assumed_usd": call.assumed_micros / MICROS,
        "assumed_tokens": call.assumed_tokens,
        "error": call.error,
        "at": call.at,
        "text": shown.text,
        "dropped": [*shown.dropped],
        "discarded": shown.discarded,
        "reason": shown.reason,
        "taken_over_by": next((run.run_id for run in taken if call.outcome != "answered"), None),
    }


def _calls_of_answer(rows: Sequence[Row], last: ModelCall) -> list[tuple[str, str, CallRow | None]] | None:
    """Return the calls of the answer that the last attempt gave: id, tool and row."""
    entries = {
        row.key.sort: parse_entry(row.key.partition, row.key.sort, row.value)
        for row in rows
        if row.key.sort.startswith("m#")
    }
    for sort, answer in entries.items():
        if isinstance(answer, AssistantRow) and (answer.run_id, answer.step) == (last.run_id, last.step):
            head, _, index = sort.rpartition("#")
            found = [entries.get(f"{head}#{int(index) + 1 + n:08d}") for n in range(len(answer.tool_calls))]
            return [
                (request.id, request.name, row if isinstance(row, CallRow) and row.call_id == request.id else None)
                for request, row in zip(answer.tool_calls, found, strict=True)
            ]
    return None


Ruling = Literal["asked", "executed_again", "reported", "unknown"]


def _call(call_id: str, tool_name: str, row: CallRow | None, seen: _StreamedStep, asked: set[str]) -> JsonObject:
    """Return a call. `asked` contains the calls whose unknown outcome a person was asked about."""
    starts = seen.starts.get(call_id, set())
    edited: JsonObject | None = (
        None if row is None or row.edited is None else {"by": row.edited.by, "at": row.edited.at}
    )
    return {
        "call_id": call_id,
        "tool_name": tool_name,
        "state": "waiting" if row is None else row.state,
        "by": None if row is None else row.by,
        "success": None if row is None else row.success,
        "starts": len(starts),
        "edited": edited,
        "ruling": None if row is None else _ruling(row, call_id in asked, len(starts)),
    }


def _ruling(row: CallRow, asked: bool, starts: int) -> Ruling | None:
    if row.state == "asked":
        return "asked" if row.ask == "unknown" else None
    if row.by == "policy" or (asked and row.by == "answer" and row.content == dumps(UNKNOWN)):
        return "unknown"
    if asked and row.by == "answer":
        return "reported"
    return "executed_again" if asked or starts > 1 else None
