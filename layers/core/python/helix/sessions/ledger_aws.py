"""The AWS part of the ledger: the charges for a deployed session at list price, derived from its rows.

Law: each line states whether its quantity was counted from rows or how it was estimated. Quantities that no row shows
are omitted and listed in `LEFT_OUT`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

from helix.core import aws_prices as prices
from helix.core.ledger import Basis, Line, priced
from helix.sessions.ledger_counts import RunCount, count_run
from helix.sessions.ledger_rows import SessionRows

MEMORY_GB = {"call_model": 1.0}
OTHER_MEMORY_GB = 0.5
"""The memory of all other functions in GB, as deployed with litellm (`SIZES` in infra/verbs.py). Without litellm,
`call_model` also has 0.5. An agent with its own resources may have more."""
OWN_S = 0.1
"""The assumed duration of an invocation, in seconds, in addition to the model or tool call."""
READ_UNITS = {"call_model": 4, "call_tool": 3, "start_run": 5, "finish_run": 6, "fail_run": 6}
"""The strongly consistent read units that one delivery uses in a warm process (bench/results/aws_calls.md)."""
LOOKS_PER_S = 2
"""The number of checks for a stop request per second during a model or tool call."""
CONTROL_UNITS = 12
"""The write units per run for control rows: its entry in the index of open runs, and its usage counters."""
LEFT_OUT = (
    "rows that were read to show them",
    "deliveries that were refused because another was at work",
    "Kinesis shard hours and API Gateway connection minutes",
    "CloudWatch, S3 objects, KMS and storage",
)


def aws_lines(rows: SessionRows, *, kinesis: bool = True) -> list[Line]:
    """Return the lines for one session, without its sub-agents' sessions. `kinesis`: whether chunks reach the log
    through Kinesis."""
    counts = [count_run(rows, run) for run in rows.runs]
    lines = [line for count in counts for line in _run_lines(rows.session.session_id, count)]
    return [line for line in [*lines, *_row_lines(rows, counts), *_stream_lines(rows, kinesis)] if line.quantity]


def _run_lines(session_id: str, count: RunCount) -> Iterator[Line]:
    run_id = count.run.run_id

    def line(
        service: str, what: str, quantity: float, unit: str, price: float, basis: Basis = "counted", how: str = ""
    ) -> Line:
        return Line(service, what, session_id, quantity, unit, priced(quantity, price), basis, how, run_id)

    states = ", ".join(f"{state} {many}" for state, many in count.states.items())
    yield line("Step Functions", "transitions", count.states.total(), "transitions", prices.TRANSITION, how=states)
    again = ", ".join(f"{verb} {many}" for verb, many in count.repeated.items())
    many = count.repeated.total()
    yield line("Step Functions", "repeated tasks", many, "transitions", prices.TRANSITION, how=f"at least: {again}")
    for verb, calls in count.invocations.items():
        yield line("Lambda", verb, calls, "requests", prices.LAMBDA_REQUEST)
        waited = {"call_model": count.model_s, "call_tool": count.tool_s}.get(verb, 0.0)
        gb_s = (waited + calls * OWN_S) * MEMORY_GB.get(verb, OTHER_MEMORY_GB)
        how = f"{waited:.1f} s between its rows, and {OWN_S:g} s for each request"
        yield line("Lambda", f"{verb}, time", round(gb_s, 3), "GB-seconds", prices.LAMBDA_GB_S, "estimated", how)


def _row_lines(rows: SessionRows, counts: Iterable[RunCount]) -> Iterator[Line]:
    """Yield the lines for the rows. A transactional write uses two units per KB (rounded up) of each row; a call's
    result is written on its own."""
    session_id = rows.session.session_id

    def units(kind: str, writes: float) -> float:
        return sum(writes * 2 * _kb(size) for size in rows.sizes.get(kind, ()))

    claims = sum(1 for one in rows.answers for row in one.calls if row is not None and row.claim)
    own = sum(units(kind, 1) for kind in ("c", "l", "x", "h", "t", "u"))
    written = {
        "session row": (units("session", rows.session.version), f"{rows.session.version} versions"),
        "run rows": (units("r", 3), "claim, end, effects"),
        # each answer and message once; a call's claim, with a check of the session, and its result
        "messages and calls": (units("m", 1) + claims * 3, f"{len(rows.sizes.get('m', ()))} rows, {claims} claims"),
        "checkpoints and others": (own, f"{len(rows.sizes.get('c', ()))} checkpoints"),
        "control rows": (CONTROL_UNITS * len(rows.runs), "assumed for each run"),
    }
    for what, (quantity, how) in written.items():
        basis: Basis = "estimated" if what == "control rows" else "counted"
        cost = priced(quantity, prices.DYNAMODB_WRITE_UNIT)
        how = how if basis == "estimated" else f"{how}; at the size that the rows have now"
        yield Line("DynamoDB", f"writes: {what}", session_id, quantity, "write units", cost, basis, how)
    reads = looks = 0.0
    for count in counts:
        reads += sum(READ_UNITS.get(verb, 4) * many for verb, many in count.invocations.items())
        looks += LOOKS_PER_S * (count.model_s + count.tool_s)
    for what, quantity, how in (
        ("reads of deliveries", reads, "by what a delivery reads in a warm process"),
        ("looks for a stop", round(looks), f"{LOOKS_PER_S} each second of waiting"),
    ):
        cost = priced(quantity, prices.DYNAMODB_READ_UNIT)
        yield Line("DynamoDB", what, session_id, quantity, "read units", cost, "estimated", how)


def _stream_lines(rows: SessionRows, kinesis: bool) -> Iterator[Line]:
    """Yield the lines for the stream. Chunks go to the log, with or without Kinesis, and to one client. Each log
    segment is one batch of messages."""
    session_id, segments = rows.session.session_id, rows.segments
    if not segments:
        return
    many, messages = len(segments), sum(math.ceil(size / prices.MESSAGE_BYTES) for size in segments)
    puts = sum(math.ceil(size / prices.PUT_UNIT_BYTES) for size in segments)
    writes = sum(_kb(size) for size in segments)
    gb_s = round(many * OWN_S * OTHER_MEMORY_GB, 3)
    how = f"at least: {many} segments in the log"
    asked = Counter(run.mode for run in rows.runs)
    runs = f"one for each run: {', '.join(f'{mode} {count}' for mode, count in asked.items())}"
    quantities: dict[tuple[str, str], tuple[float, str, float, Basis, str]] = {
        ("Kinesis", "puts"): (puts if kinesis else 0, "put units", prices.KINESIS_PUT_UNIT, "estimated", how),
        ("Lambda", "project_stream"): (many, "requests", prices.LAMBDA_REQUEST, "estimated", how),
        ("Lambda", "project_stream, time"): (gb_s, "GB-seconds", prices.LAMBDA_GB_S, "estimated", f"{OWN_S:g} s each"),
        ("DynamoDB", "writes: stream"): (writes, "write units", prices.DYNAMODB_WRITE_UNIT, "counted", "segments"),
        ("API Gateway", "messages"): (messages, "messages", prices.SOCKET_MESSAGE, "estimated", "for one client"),
        ("Lambda", "ws_message"): (asked.total(), "requests", prices.LAMBDA_REQUEST, "estimated", runs),
    }
    for (service, what), (quantity, unit, price, basis, how) in quantities.items():
        yield Line(service, what, session_id, quantity, unit, priced(quantity, price), basis, how)


def _kb(size: int) -> int:
    return max(1, math.ceil(size / 1024))
