"""The story of a run in words, for a terminal.

Law: a line says one thing, and what is not counted is said where the sum stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from helix.local.story import PRICES_OF, Execution, Rows, Story, total

ROW_NAMES = {
    "session": "session",
    "r": "run",
    "m": "message",
    "c": "checkpoint",
    "l": "lineage",
    "x": "stop",
    "h": "guard",
    "t": "token",
}
"""By what sort keys of the sessions table begin with (`core.row_keys`), in the order in which they are told."""
RUNS = 1_000


def lines_of(story: Story) -> Iterator[str]:
    """The story, line by line; an empty one between its parts."""
    yield f"Step Functions ran {_count(len(story.executions), 'execution')}, {_count(story.transitions, 'transition')}:"
    for execution in story.executions:
        yield from _execution(execution)
    yield ""
    calls, seconds, gb_s = total(story.invocations.values())
    yield f"Lambda ran {_count(calls, 'invocation')}, {seconds:.1f} s, {gb_s:.2f} GB-seconds:"
    often = sorted(story.invocations.items(), key=lambda pair: (-pair[1][0], pair[0]))
    yield "  " + ", ".join(f"{verb} {count}" for verb, (count, _, _) in often)
    yield ""
    size = sum(rows.size for rows in story.rows)
    yield f"DynamoDB holds {_count(sum(r.kinds.total() for r in story.rows), 'row')} of it, {size / 1024:.1f} KB:"
    for rows in story.rows:
        yield f"  {rows.table:<8} {rows.partition}: {', '.join(_kinds(rows))}, {rows.size / 1024:.1f} KB"
    yield ""
    dollars, whole = story.dollars, sum(story.dollars.values())
    yield f"At list prices ({PRICES_OF}) that is ${whole:.6f}, ${RUNS * whole:.2f} for {RUNS:,} such runs:"
    yield "  " + ", ".join(f"{name} ${value:.6f}" for name, value in dollars.items())
    yield "  Not counted: reads, rows that were written more than once, Kinesis, WebSocket messages, and the model."


def _execution(execution: Execution) -> Iterator[str]:
    retries = f", {_count(execution.retries, 'retry')} of them" if execution.retries else ""
    many = f"{_count(execution.transitions, 'transition')}{retries}"
    yield f"  {execution.session_id}: {execution.status.lower()} in {execution.seconds:.1f} s, {many}"
    yield f"    {' → '.join(_runs(execution.states))}"


def _kinds(rows: Rows) -> Iterator[str]:
    if rows.table == "sessions":
        order = [*ROW_NAMES, *(kind for kind in sorted(rows.kinds) if kind not in ROW_NAMES)]
        yield from (_count(rows.kinds[kind], ROW_NAMES.get(kind, kind)) for kind in order if rows.kinds[kind])
    else:
        yield _count(rows.kinds.total(), "row")


def _runs(states: Iterable[str]) -> Iterator[str]:
    """Equal neighbours as one."""
    last, count = "", 0
    for state in [*states, ""]:
        if state == last:
            count += 1
            continue
        if last:
            yield last if count == 1 else f"{last} ×{count}"
        last, count = state, 1


def _count(number: int, what: str) -> str:
    if number == 1:
        return f"1 {what}"
    return f"{number:,} {what[:-1]}ies" if what.endswith("y") else f"{number:,} {what}s"
