"""Checks of the invariants between a stream and the stored rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from helix.core.call_results import call_value, has_end
from helix.core.entries import AssistantRow, CallRow
from helix.core.json import loads
from helix.core.tools import FINISH_TOOL_NAME
from helix.core.wire import StreamMessage
from helix.ports.streams import StreamManager
from helix.sessions.session_rows import SessionRows

Attempt = tuple[int, int]


async def check_stream(
    streams: StreamManager, stream_id: str, tree: Sequence[SessionRows], *, at_rest: bool = False
) -> list[str]:
    """Return the problems of a stream. It must have no gaps and be the same from any starting point. It must contain the
    stored final text, one end per turn and one `tool_end` per call."""
    messages = await read_all(streams, stream_id)
    info = await streams.info(stream_id)
    problems = list(_find_gaps(stream_id, messages, info.latest_sequence if info is not None else 0))
    for start in {1, len(messages) // 2, max(0, len(messages) - 1)}:
        if await read_all(streams, stream_id, start) != messages[start:]:
            problems.append(f"stream_gapless: a read after {start} does not return the tail of a full read")
    for rows in tree:
        if rows.session is None or rows.session.status == "deleting":
            continue
        tally = replay([m for m in messages if m.session_id == rows.session_id])
        problems += [f"{rows.session_id}: {p}" for p in _find_wrong_reports(rows, tally, at_rest=at_rest)]
    return problems


async def read_all(streams: StreamManager, stream_id: str, after: int = 0) -> list[StreamMessage]:
    """Return all messages after a sequence, read page by page."""
    found: list[StreamMessage] = []
    while page := await streams.read(stream_id, found[-1].sequence if found else after):
        found.extend(page)
    return found


def _find_gaps(stream_id: str, messages: Sequence[StreamMessage], latest: int) -> Iterator[str]:
    sequences = [message.sequence for message in messages]
    if sequences != list(range(1, len(messages) + 1)):
        yield f"stream_gapless: stream {stream_id!r} has sequences {sequences}"
    if latest < len(messages):
        yield f"stream_gapless: the stream says it ends at {latest}, but it has {len(messages)} messages"


@dataclass(slots=True)
class Tally:
    """The facts that a reader has learned about one session by the end of its stream."""

    texts: list[tuple[int, int, str, str]] = field(default_factory=list)
    """Committed texts, each as (step, attempt, run id, text)."""
    outputs: list[tuple[int, int, str, str]] = field(default_factory=list)
    """Committed JSON texts of structured outputs, each as (step, attempt, run id, text)."""
    open_outputs: dict[Attempt, str] = field(default_factory=dict)
    """Such texts that are neither committed nor discarded, by (step, attempt)."""
    open: dict[Attempt, tuple[str, str]] = field(default_factory=dict)
    """Texts that are neither committed nor discarded: (run id, text) by (step, attempt)."""
    tool_ends: list[tuple[str, object, bool, object]] = field(default_factory=list)
    """The `tool_end` chunks, each as (call id, result, success, files)."""
    ends: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The statuses of the ends, by turn. A correct stream has at most one for each turn."""
    runs: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The ids of the runs that wrote messages, by turn."""
    problems: list[str] = field(default_factory=list)
    """Problems that are visible in the messages alone."""
    lossy: bool = False
    """Whether the stream reported that chunks were lost."""


def replay(messages: Sequence[StreamMessage]) -> Tally:
    """Read messages like a client: collect text by attempt, keep it at `step_committed`, and drop it at
    `step_discarded`."""
    tally = Tally()
    turn = 0
    for message in messages:
        if message.turn < turn:
            tally.problems.append(
                f"zombie_invisible: sequence {message.sequence} belongs to turn {message.turn} but follows turn {turn}"
            )
        reminds = (message.chunk or {}).get("type") == "call_reminder" and tally.ends[message.turn] == ["paused"]
        if tally.ends.get(message.turn) and not reminds:
            tally.problems.append(
                f"end_truthful: sequence {message.sequence} comes after the end of turn {message.turn}"
            )
        turn = max(turn, message.turn)
        tally.runs[message.turn].add(message.run_id)
        if message.kind != "chunk":
            tally.ends[message.turn].append(message.status or message.kind)
            continue
        chunk = message.chunk or {}
        step, attempt = chunk.get("step", 0), chunk.get("attempt", 0)
        assert isinstance(step, int) and isinstance(attempt, int)
        match chunk.get("type"):
            case "text_delta":
                _, text = tally.open.get((step, attempt), ("", ""))
                tally.open[step, attempt] = (str(chunk.get("run_id")), text + str(chunk["delta"]))
            case "output_delta":
                tally.open_outputs[step, attempt] = tally.open_outputs.get((step, attempt), "") + str(chunk["delta"])
            case "step_committed":
                run_id, text = tally.open.pop((step, attempt), (str(chunk.get("run_id")), ""))
                if text:
                    tally.texts.append((step, attempt, run_id, text))
                if (output := tally.open_outputs.pop((step, attempt), None)) is not None:
                    tally.outputs.append((step, attempt, str(chunk.get("run_id")), output))
            case "step_discarded":
                tally.open.pop((step, attempt), None)
                tally.open_outputs.pop((step, attempt), None)
            case "tool_end":
                result, success = chunk.get("result"), bool(chunk.get("success", True))
                tally.tool_ends.append((str(chunk["tool_call_id"]), result, success, chunk.get("files", [])))
            case "stream_resync" if chunk.get("reason") == "chunks were lost":
                tally.lossy = True
    return tally


def _find_wrong_reports(rows: SessionRows, tally: Tally, *, at_rest: bool) -> Iterator[str]:
    yield from tally.problems
    if tally.lossy:
        yield "stream_gapless: chunks were lost"
    for turn, runs in tally.runs.items():
        known = {run.run_id for run in rows.runs.values() if run.turn == turn}
        if not runs <= known:
            yield f"zombie_invisible: turn {turn} has messages of runs {runs}, but its run is {known}"
    for turn, ends in tally.ends.items():
        if len(ends) > 1:
            yield f"end_truthful: turn {turn} ended {len(ends)} times: {ends}"
    yield from _find_wrong_texts(rows, tally, at_rest=at_rest)
    yield from _find_wrong_tool_ends(rows, tally, at_rest=at_rest)
    if at_rest:
        yield from _find_wrong_ends(rows, tally)


def _find_wrong_texts(rows: SessionRows, tally: Tally, *, at_rest: bool) -> Iterator[str]:
    """Check final_is_committed in both directions: every committed text on the stream is stored, and (at rest) every stored
    text is committed on the stream."""
    answers = {(e.step, e.attempt, e.run_id): e for e in rows.entries.values() if isinstance(e, AssistantRow)}
    for step, attempt, run_id, text in tally.texts:
        answer_row = answers.get((step, attempt, run_id))
        stored = answer_row.content if answer_row is not None else None
        if stored != text:
            where = f"step {step}, attempt {attempt}"
            yield f"final_is_committed: {where} has the final text {text!r}, but {stored!r} is stored"
    for step, attempt, run_id, text in tally.outputs:
        answer_row = answers.get((step, attempt, run_id))
        if answer_row is None or not _is_output_of(answer_row, text):
            yield f"final_is_committed: step {step}, attempt {attempt} has the output {text!r}, which is not stored"
    counts = Counter((step, attempt, run_id) for step, attempt, run_id, _ in tally.texts)
    for place, count in counts.items():
        if count > 1:
            yield f"final_is_committed: {place} was committed {count} times"
    if at_rest and rows.session is not None and rows.session.forked_from is None:
        # Only for answers in history: a staged answer that a rewind left behind is rightly discarded.
        history = [e for e in rows.history(rows.session.lineage, rows.session.count) if isinstance(e, AssistantRow)]
        for answer, content in (((e.step, e.attempt, e.run_id), e.content) for e in history):
            if content and answer not in counts:
                yield f"final_is_committed: the stored text of {answer} never became final on the stream"
        if tally.open:
            yield f"final_is_committed: text of {sorted(tally.open)} was neither committed nor discarded"


def _is_output_of(answer: AssistantRow, text: str) -> bool:
    """Return whether the text is that of the answer's first output."""
    call = next((call for call in answer.tool_calls if call.name == FINISH_TOOL_NAME), None)
    if call is None or call.malformed is not None:
        return call is not None and call.malformed == text
    return bool(call.arguments == loads(text))


def _find_wrong_tool_ends(rows: SessionRows, tally: Tally, *, at_rest: bool) -> Iterator[str]:
    """Check that each call has one `tool_end` with the stored result. Lineages may reuse a call id; then any of its rows
    may match."""
    calls: defaultdict[str, list[CallRow]] = defaultdict(list)
    for entry in rows.entries.values():
        if isinstance(entry, CallRow):
            calls[entry.call_id].append(entry)
    counts = Counter(call_id for call_id, *_ in tally.tool_ends)
    for call_id, count in counts.items():
        if count > max(1, len(calls[call_id])):
            yield f"stream_gapless: {call_id!r} has {count} tool_end chunks"
    for call_id, *reported in tally.tool_ends:
        done = [row for row in calls[call_id] if row.state == "done"]
        if not done:
            yield f"zombie_invisible: tool_end for {call_id!r}, whose rows are {[row.state for row in calls[call_id]]}"
        elif not any(row.by == "merge" or _reported(row) == reported for row in done):
            yield f"result_immutable: tool_end for {call_id!r} says {reported!r}, but {_reported(done[0])!r} is stored"
    session = rows.session
    if at_rest and session is not None and session.forked_from is None:
        for message in rows.history(session.lineage, session.count):
            if isinstance(message, CallRow) and has_end(message) and message.call_id not in counts:
                yield f"stream_gapless: call {message.call_id!r} ({message.by}) has no tool_end"


def _reported(row: CallRow) -> list[object]:
    """Return the fields of the `tool_end` of a call that is done."""
    files = [file.model_dump(mode="json", exclude_defaults=True) for file in row.files]
    return [call_value(row), bool(row.success), files]


def _find_wrong_ends(rows: SessionRows, tally: Tally) -> Iterator[str]:
    """Check that the stream contains the last turn's end with its status."""
    session = rows.session
    run = rows.runs.get(session.run_id) if session is not None else None
    if session is None or run is None or session.status == "running":
        return
    ends = tally.ends.get(run.turn, [])
    if ends != [session.status]:
        yield f"end_truthful: turn {run.turn} is {session.status!r}, but its stream ended as {ends}"
