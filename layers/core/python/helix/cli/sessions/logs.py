"""`helix logs`: the log lines that name a session."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from helix.cli.options import Json, SessionName
from helix.cli.output import say, write, write_json
from helix.cli.sessions.listing import moment_of
from helix.cli.stores import aws_client
from helix.cli.where import NotThereError, Where, with_client
from helix.runtime.system import SystemClock


def logs(
    session: SessionName,
    where: Where,
    since: Annotated[str, typer.Option("--since", help="30min, 2h, 7d, or 2026-11-23")] = "1d",
    folder: Annotated[str, typer.Option("--logs", help="With --db: where `helix fleet serve` writes")] = ".helix/logs",
    json: Json = False,
) -> None:
    if where.url is not None:
        raise NotThereError("a service shows its log to nobody: use --stage with credentials of its AWS account")
    with_client(where, session, lambda client: client.get_session(session))
    began = moment_of(since, SystemClock().now())
    found = _of_stage(where, session, began) if where.stage is not None else _of_files(folder, session)
    shown = 0
    for source, line in found:
        shown += 1
        if json:
            write_json({"source": source, "line": line})
        else:
            write(f"{source}  {line}")
    if not shown:
        say(f"no log line names session {session}")


def _of_files(folder: str, session_id: str) -> Iterator[tuple[str, str]]:
    files = sorted(Path(folder).glob("*.log"))
    if not files:
        raise NotThereError(
            f"there are no logs in {folder!r}: a run of `helix run` writes its log to standard error (HELIX_LOG=info), "
            "and the worker processes of `helix fleet serve` write theirs to the folder of --logs"
        )
    for file in files:
        with file.open(encoding="utf-8", errors="backslashreplace") as lines:
            yield from ((file.stem, line.rstrip("\n")) for line in lines if session_id in line)


def _of_stage(where: Where, session_id: str, since: float) -> Iterator[tuple[str, str]]:
    """From all functions of the stage, by time."""
    from helix.cli.cloud.deploy import aws_errors

    client, prefix = aws_client("logs", where.profile, where.region), f"/aws/lambda/helix-{where.stage}-"
    with aws_errors():
        events: list[tuple[int, str, str]] = []
        for page in client.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=prefix):
            for group in page["logGroups"]:
                events += _events(client, group["logGroupName"], prefix, session_id, since)
    for _, source, line in sorted(events):
        yield source, line


def _events(client: Any, group: str, prefix: str, session_id: str, since: float) -> Iterator[tuple[int, str, str]]:
    asked = {
        "logGroupName": group,
        "startTime": int(since * 1000),
        "filterPattern": json_module.dumps(session_id),
    }
    for page in client.get_paginator("filter_log_events").paginate(**asked):
        for event in page["events"]:
            if session_id in event["message"]:
                yield event["timestamp"], group.removeprefix(prefix), event["message"].rstrip()
