"""`helix sessions`: list sessions page by page, and the calls that wait for an answer."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, get_args

import typer

from helix.adapters.system import SystemClock
from helix.cli.options import Json, Limit
from helix.cli.output import RefusedError, say, write_json
from helix.cli.run.follow import open_questions
from helix.cli.view import formats
from helix.cli.view.base import Question, command
from helix.cli.view.formats import print_table
from helix.cli.where import NoStoreError, Where, with_client
from helix.client import HelixClient
from helix.core.handles import SessionState
from helix.core.request_fields import PAGE
from helix.core.status import AgentStatus

TITLE_CHARS = 50
UNITS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
Found = tuple[list[dict[str, Any]], str | None, list[str], dict[str, list[Question]]]
"""A page: sessions, the next page's cursor, the ids of damaged sessions, and the open questions by session."""


def sessions(
    where: Where,
    limit: Limit = 20,
    after: Annotated[
        str | None, typer.Option("--after", metavar="SESSION", help="Next page: only sessions after this one")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="Only sessions of this user id")] = None,
    status: Annotated[
        str | None, typer.Option("--status", help=f"Only those that are {', '.join(get_args(AgentStatus))}")
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="Only those of this agent")] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Only those with this tag")] = None,
    tool: Annotated[str | None, typer.Option("--tool", help="Only those whose model called this tool")] = None,
    error: Annotated[str | None, typer.Option("--error", help="Only those that failed with this error code")] = None,
    text: Annotated[
        str | None, typer.Option("--text", help="Only those with these words in their title, id, agent or tags")
    ] = None,
    cost_from: Annotated[
        float | None, typer.Option("--cost-from", help="Only those that cost at least so many $")
    ] = None,
    cost_to: Annotated[float | None, typer.Option("--cost-to", help="Only those that cost at most so many $")] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only those that changed since: 30min, 2h, 7d, or 2026-11-23")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Only those that last changed until then, such as 7d or 2026-11-23")
    ] = None,
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Only those that wait for an answer, with the call")
    ] = False,
    json: Json = False,
) -> None:
    if status is not None and status not in get_args(AgentStatus):
        raise RefusedError(f"--status is {status!r}; it must be one of {', '.join(get_args(AgentStatus))}")
    now = SystemClock().now()
    filters: dict[str, Any] = {"user": user, "status": status, "agent": agent, "tag": tag, "waiting": waiting}
    filters |= {"tool": tool, "error": error, "text": text, "titles": True}
    filters |= {"cost_from": _micros("--cost-from", cost_from), "cost_to": _micros("--cost-to", cost_to)}
    filters |= {"since": None if since is None else moment_of(since, now)}
    filters |= {"until": None if until is None else moment_of(until, now, "--until")}
    try:
        found, cursor, damaged, questions = with_client(where, None, _page_reader(filters, limit, after, waiting))
    except NoStoreError:
        say(f"no sessions yet: there is no store {where.db!r} here (see --db, --url and --stage)")
        return
    if json:
        for entry in found:
            asked = [asdict(question) for question in questions.get(entry["session_id"], [])]
            write_json({**entry, "waiting_for": asked} if waiting else entry)
    elif waiting and found:
        _print_waiting(found, questions, where)
    elif found:
        _print_sessions(found, now)
    elif not damaged:
        chosen = (value for name, value in filters.items() if name != "titles")
        narrowed = after is not None or any(value not in (None, False) for value in chosen)
        say(f"no sessions {'like that' if narrowed else 'yet'} in {where}")
    if cursor is not None:
        say(f"there are more: --after {cursor}")
    for session_id in damaged:
        say(f"session {session_id!r} is damaged and not listed: its stored row cannot be read")


def _page_reader(
    filters: dict[str, Any], limit: int, after: str | None, waiting: bool
) -> Callable[[HelixClient], Awaitable[Found]]:
    async def read(client: HelixClient) -> Found:
        found: list[dict[str, Any]] = []
        damaged: list[str] = []
        cursor = after
        while True:
            asked = {"limit": min(PAGE, limit - len(found)), "after": cursor, **filters}
            page: dict[str, Any] = await client.list_sessions(**asked)
            found += page["sessions"]
            damaged += page["damaged"]
            cursor = page["cursor"]
            if cursor is None or len(found) >= limit:
                break
        questions = {}
        if waiting:
            ids = [entry["session_id"] for entry in found]
            questions = {session_id: await open_questions(client.get_session, session_id) for session_id in ids}
        return found, cursor, damaged, questions

    return read


def _micros(option: str, dollars: float | None) -> int | None:
    """Return the dollars as micro-dollars. Raises `RefusedError`."""
    if dollars is None:
        return None
    if not 0 <= dollars < float("inf"):
        raise RefusedError(f"{option} is {dollars}; it must be 0 or more")
    return round(dollars * 1_000_000)


def moment_of(text: str, now: float, option: str = "--since") -> float:
    """Parse a time that the user typed: an age such as `2h`, or a date or time (UTC unless it has an offset). Return Unix
    seconds. Raises `RefusedError`."""
    match = re.fullmatch(r"(\d{1,9})\s*([a-z]+)", text.strip())
    if match is not None and match[2] in UNITS:
        return now - int(match[1]) * UNITS[match[2]]
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise RefusedError(
            f"{option} is {text!r}; it must be like 30min, 2h, 7d, 2026-11-23 or 2026-11-23T09:00"
        ) from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _print_sessions(found: Sequence[dict[str, Any]], now: float) -> None:
    columns, rows = session_rows(found, now)
    print_table(columns, rows, last="ellipsis")


def session_rows(found: Sequence[dict[str, Any]], now: float) -> tuple[list[str], list[list[str]]]:
    """Return the columns and rows of a list of sessions."""
    states = [SessionState.model_validate({"custom_state": {}, **entry}) for entry in found]
    users = any(state.user_id is not None for state in states)
    columns = ["session", *(["user"] if users else []), "agent", "status", "turns", "messages", "cost", "when"]
    rows = []
    for entry, state in zip(found, states, strict=True):
        who = [formats.cut(state.user_id or "", TITLE_CHARS)] if users else []
        figures = [str(state.turn), str(state.message_count), formats.cost(state.usage)]
        when = formats.age(now - state.updated_at)
        title = formats.cut(entry["title"], TITLE_CHARS)
        rows.append([state.session_id, *who, state.agent_type, state.status, *figures, when, title])
    return [*columns, "begins with"], rows


def _print_waiting(found: Sequence[dict[str, Any]], questions: dict[str, list[Question]], where: Where) -> None:
    rows = []
    for entry in found:
        for question in questions[entry["session_id"]]:
            called = formats.call(question.tool_name, question.arguments)
            data = ["--data", "ANSWER"] if question.kind == "question" else []
            ids = ["answer", entry["agent_type"], entry["session_id"], question.call_id, *data]
            ids = ["calls", "complete", "TOKEN"] if question.kind == "elsewhere" else ids
            how = command(*ids, *where.words())
            rows.append([entry["session_id"], entry["agent_type"], question.kind, formats.cut(called, 60), how])
    print_table(["session", "agent", "waits for", "call", "answer with"], rows)
