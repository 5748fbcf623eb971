"""The log lines of a run, read from the logs of the functions that may have carried it out. Operators only.

Law: only lines that name the run are returned. Operators may not read the sessions of other users, so they may not read
those users' log lines either.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any, Final

from helix.core.errors import AgentNotFoundError, InvalidInputError
from helix.core.json import JsonObject, clean_text
from helix.core.log_lines import names_run, parse_line
from helix.core.resources import DEFAULT_PROFILE, IMAGE_SUFFIX
from helix.core.run_row import RunRow
from helix.core.session_requests import GetLogs
from helix.core.session_row import SessionRow
from helix.engine.runs.admission import part_of, profile_of
from helix.gateway.backend import Backend
from helix.gateway.connections import Connection
from helix.ports.function_logs import LogEvent

PROFILE_VERBS: Final = ("call_model", "call_tool")
SHARED_VERBS: Final = (
    *("start_run", "finish_run", "fail_run", "sweep", "govern", "ws_message"),
    *("serve_http", "start_triggered"),
)
"""The other functions that act on runs. The last two exist only on stages with triggers."""
BEFORE_S: Final = 60
AFTER_S: Final = 300
"""The margins around a run, in seconds, in which its functions may log, and clocks may differ."""
MAX_LINE_BYTES: Final = 2_500


async def get_logs(backend: Backend, caller: Connection, request: GetLogs) -> JsonObject:
    session = await backend.get_owned(caller.principal, request.session_id)
    backend.check_operator(caller)
    if backend.logs is None:
        raise InvalidInputError(
            "get_logs works only on a deployed stage. This service writes its log to standard error or to files: use "
            "`helix logs`"
        )
    run = await backend.executor.sessions.get_run(session.session_id, request.run_id or session.run_id)
    since = max(0.0, run.started_at - BEFORE_S) if request.since is None else request.since
    until = run.ended_at + AFTER_S if request.until is None and run.ended_at is not None else request.until
    if until is not None and since > until:
        raise InvalidInputError(f"since is {since} and until is {until}: since must not be later than until")
    functions = list_functions(await _profiles(backend, caller, session, run))
    page = await backend.logs.read(
        functions, run.run_id, since=since, until=until, after=request.after, limit=request.limit
    )
    lines: list[Any] = [_line(event) for event in page.events if names_run(event.text, run.run_id)]
    return {"session_id": session.session_id, "run_id": run.run_id, "lines": lines, "cursor": page.after}


def list_functions(profiles: Collection[str]) -> list[str]:
    """Return the functions of these profiles and those that all profiles share, without the stage's prefix. Some of them
    may not exist: a function is deployed as a zip file or as an image."""
    own = [
        f"{name}{suffix}"
        for profile in sorted(profiles)
        for verb in PROFILE_VERBS
        for name in [verb if profile == DEFAULT_PROFILE else f"{profile}-{verb}"]
        for suffix in ("", IMAGE_SUFFIX)
    ]
    return [*own, *SHARED_VERBS]


async def _profiles(backend: Backend, caller: Connection, session: SessionRow, run: RunRow) -> set[str]:
    """Return the profiles whose functions may have carried out the run: those of the session's agent and of the agent of
    the run's last execution. Those of agents in between are not stored."""
    engine, found = backend.executor.engine, {DEFAULT_PROFILE}
    with suppress(AgentNotFoundError):  # it was removed: its log may still be there, but its profile is not known
        agent = await backend.agent_of(session, caller.principal)
        found |= {profile_of(engine, agent), part_of(engine, agent, run).profile}
    return found


def _line(event: LogEvent) -> JsonObject:
    parts = parse_line(event.text)
    text = clean_text(" ".join(parts.message.split()))
    if len(data := text.encode()) > MAX_LINE_BYTES:
        text = f"{data[:MAX_LINE_BYTES].decode(errors='ignore')}…"
    return {"at": event.at, "function": event.function, "level": clean_text(parts.level), "text": text}
