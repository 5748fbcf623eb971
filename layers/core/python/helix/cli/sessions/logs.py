"""`helix logs`: the log lines that name a session."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from helix.adapters.system import SystemClock
from helix.cli.options import Json, SessionName
from helix.cli.output import one_line, say, write, write_json
from helix.cli.sessions.listing import moment_of
from helix.cli.stores import aws_client
from helix.cli.where import NotThereError, Where, with_client
from helix.core.json import load_object


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
    fields = load_object(text) or {}
    if (units := _units(fields)) is not None:
        message = _format_metrics(fields, units)
    elif "message" in fields:
        more = [f"{name}={value}" for name, value in fields.items() if name not in _HIDDEN]
        problem = str(fields.get("exception", "")).strip().splitlines()[-1:]
        message = " ".join([str(fields["message"]), *more, *(f"({line})" for line in problem)])
    else:
        message, fields = text.removeprefix(_UNCAUGHT), {"level": "ERROR" if text.startswith(_UNCAUGHT) else "INFO"}
    level = str(fields.get("level", "INFO")).upper()
    moment = datetime.fromtimestamp(at, UTC).isoformat(sep=" ", timespec="milliseconds").partition("+")[0]
    about = [f"{name}={fields[key]}" for name, key in (("session", "session_id"), ("run", "run_id")) if fields.get(key)]
    return " ".join([moment, f"{level:<7}", f"{function:<14}", one_line(" ".join([message, *about]))])


_UNCAUGHT = "[ERROR] "
"""The prefix of the line that Lambda logs for an uncaught exception."""
_HIDDEN = frozenset(
    {"level", "message", "timestamp", "service", "location", "xray_trace_id", "sampling_rate", "request_id", "stage"}
    | {"session_id", "run_id", "exception", "exception_name", "stack_trace", "_aws"}
)
_UNITS = {"Milliseconds": "ms", "Seconds": "s", "Percent": "%"}


def _units(fields: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the metrics' units by name if the line is in CloudWatch's embedded metric format, otherwise None."""
    try:
        metrics = [metric for directive in fields["_aws"]["CloudWatchMetrics"] for metric in directive["Metrics"]]
        return {metric["Name"]: _UNITS.get(metric.get("Unit"), "") for metric in metrics}
    except (KeyError, TypeError, AttributeError):
        return None


def _format_metrics(fields: Mapping[str, Any], units: Mapping[str, str]) -> str:
    """Format the dimensions of the metrics, and each metric that is not 0."""
    about = [f"{name}={value}" for name, value in fields.items() if name not in _HIDDEN | units.keys()]
    values = {name: value for name in units if (value := _number(fields.get(name)))}
    return " ".join([*about, *(f"{name}={_format_value(value, units[name])}" for name, value in values.items())])


def _format_value(value: float, unit: str) -> str:
    return f"{value:.1f}{unit}" if unit else f"{value:.10g}"


def _number(value: Any) -> float:
    """Return the value of a metric, which Powertools writes as a list."""
    first = value[0] if isinstance(value, list) and value else value
    return round(first, 6) if isinstance(first, int | float) else 0


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


def _read_stage(where: Where, session_id: str, since: float) -> Iterator[tuple[float, str, str]]:
    """Yield the log lines of all functions of the stage, ordered by time."""
    from helix.cli.cloud.deploy import aws_errors

    client, prefix = aws_client("logs", where.profile, where.region), f"/aws/lambda/helix-{where.stage}-"
    with aws_errors():
        events: list[tuple[int, str, str]] = []
        for page in client.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=prefix):
            for group in page["logGroups"]:
                events += _read_events(client, group["logGroupName"], prefix, session_id, since)
    for at, source, line in sorted(events):
        yield at / 1000, source, line


def _read_events(client: Any, group: str, prefix: str, session_id: str, since: float) -> Iterator[tuple[int, str, str]]:
    asked = {
        "logGroupName": group,
        "startTime": int(since * 1000),
        "filterPattern": json_module.dumps(session_id),
    }
    for page in client.get_paginator("filter_log_events").paginate(**asked):
        for event in page["events"]:
            if session_id in event["message"]:
                yield event["timestamp"], group.removeprefix(prefix), event["message"].rstrip()
