"""`helix logs`: the log lines that name a session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from helix.adapters.system import SystemClock
from helix.cli.options import Json, SessionName
from helix.cli.output import one_line, say, write, write_json
from helix.cli.sessions.listing import moment_of
from helix.cli.stores import aws_client
from helix.cli.where import NotThereError, Where, with_client
from helix.core.log_lines import parse_line
from helix.ports.function_logs import LogEvent, Logs
from helix.runtime.stage_logs import open_logs

PAGE = 10_000
"""The number of lines per request, which is the limit of CloudWatch Logs."""


def logs(
    session: SessionName,
    where: Where,
    since: Annotated[str, typer.Option("--since", help="30min, 2h, 7d, or 2026-11-23")] = "1d",
    folder: Annotated[str, typer.Option("--logs", help="With --db: where `helix fleet serve` writes")] = ".helix/logs",
    json: Json = False,
) -> None:
    if where.url is not None:
        raise NotThereError("a service does not show its log: use --stage, with credentials of its AWS account")
    with_client(where, session, lambda client: client.get_session(session))
    began = moment_of(since, SystemClock().now())
    shown = 0
    for at, source, line in (
        _read_stage(where, session, began) if where.stage is not None else _read_files(folder, session)
    ):
        shown += 1
        if json:
            write_json({"source": source, "line": line})
        else:
            write(f"{source}  {line}" if at is None else event_line(at, source, line))
    if not shown:
        say(f"no log line names session {session}")


def event_line(at: float, function: str, text: str) -> str:
    """Format a function's log event as one line: time (UTC), level, function, message, session and run. `at` is in Unix
    seconds."""
    level, message, fields = parse_line(text)
    moment = datetime.fromtimestamp(at, UTC).isoformat(sep=" ", timespec="milliseconds").partition("+")[0]
    about = [f"{name}={fields[key]}" for name, key in (("session", "session_id"), ("run", "run_id")) if fields.get(key)]
    return " ".join([moment, f"{level:<7}", f"{function:<14}", one_line(" ".join([message, *about]))])


def _read_files(folder: str, session_id: str) -> Iterator[tuple[None, str, str]]:
    files = sorted(Path(folder).glob("*.log"))
    if not files:
        raise NotThereError(
            f"there are no logs in {folder!r}: a run of `helix run` writes its log to standard error (HELIX_LOG=info), "
            "and the worker processes of `helix fleet serve` write theirs to the folder of --logs"
        )
    for file in files:
        with file.open(encoding="utf-8", errors="backslashreplace") as lines:
            yield from ((None, file.stem, line.rstrip("\n")) for line in lines if session_id in line)


def _read_stage(where: Where, session_id: str, since: float) -> list[LogEvent]:
    """Return the log lines of all functions of the stage, ordered by time."""
    assert where.stage is not None
    logs = open_logs(aws_client("logs", where.profile, where.region), where.stage, SystemClock())
    return asyncio.run(_read_logs(logs, session_id, since))


async def _read_logs(logs: Logs, session_id: str, since: float) -> list[LogEvent]:
    functions, events, after = await logs.functions(), list[LogEvent](), None
    while True:
        page = await logs.read(functions, session_id, since=since, after=after, limit=PAGE)
        events += page.events
        if (after := page.after) is None:
            return sorted(events)
