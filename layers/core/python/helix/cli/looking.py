"""Commands that only read: `sessions` and `show`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from helix.adapters.row_slots import RowSlots
from helix.adapters.system import SystemClock
from helix.cli import formats
from helix.cli.playing import require_store
from helix.cli.questions import open_questions
from helix.cli.refusal import COMPLETED
from helix.cli.session_page import Page, print_page
from helix.cli.views import say
from helix.core.messages import AnyMessage, UserMessage
from helix.engine.admission import in_line
from helix.engine.sessions import MAX_PAGE, SessionState
from helix.runtime.local import LocalExecutor

T = TypeVar("T")
TITLE_CHARS = 50
PIPE_WIDTH = 400


def sessions(db: str, limit: int, user_id: str | None, as_json: bool) -> int:
    if not Path(db).is_file():
        say(f"no sessions yet: there is no store {db!r} here (see --db)")
        return COMPLETED

    async def read(executor: LocalExecutor) -> list[tuple[SessionState, str]]:
        page = await executor.sessions.list_sessions(user_id=user_id, limit=limit)
        return [(state, await _title(executor, state)) for state in page.sessions]

    found = _read(db, read)
    if as_json:
        for state, title in found:
            print(json.dumps({**state.model_dump(mode="json"), "title": title}, ensure_ascii=False))
        return COMPLETED
    if not found:
        say(f"no sessions yet in {db!r}")
        return COMPLETED
    console().print(_table(found))
    return COMPLETED


def _table(found: Sequence[tuple[SessionState, str]]) -> Table:
    """Only the title gives way on a narrow terminal: an id that is cut is no use."""
    now = SystemClock().now()
    rows = [
        [
            state.session_id,
            state.agent_type,
            state.status,
            str(state.turn),
            str(state.message_count),
            formats.cost(state.usage),
            formats.age(now - state.updated_at),
        ]
        for state, _ in found
    ]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for place, name in enumerate(("session", "agent", "status", "turns", "messages", "cost", "when")):
        table.add_column(name, no_wrap=True, min_width=max(len(name), *(len(row[place]) for row in rows)))
    table.add_column("begins with", no_wrap=True, overflow="ellipsis")
    for cells, (state, title) in zip(rows, found, strict=True):
        cells[2] = f"[{formats.status_style(state.status)}]{state.status}[/]"
        table.add_row(*cells, escape(title))
    return table


async def _title(executor: LocalExecutor, state: SessionState) -> str:
    first = (await executor.sessions.get_messages(state.session_id, limit=1)).messages
    return formats.cut(first[0].content, TITLE_CHARS) if first and isinstance(first[0], UserMessage) else ""


def show(db: str, session_id: str, as_json: bool) -> int:
    require_store(db, session_id)
    page = _read(db, lambda executor: _page(executor, session_id))
    if as_json:
        print(json.dumps(page.dump(), ensure_ascii=False))
    else:
        print_page(console(), page, SystemClock().now())
    return COMPLETED


async def _page(executor: LocalExecutor, session_id: str) -> Page:
    read = executor.sessions
    state = await read.get(session_id)
    messages: list[AnyMessage] = []
    while len(messages) < state.message_count:
        messages += (await read.get_messages(session_id, offset=len(messages), limit=MAX_PAGE)).messages
    queued = None
    if state.status == "running":
        history, slots = executor.engine.history, RowSlots(executor.store)  # the line of a fleet on the same store
        queued = await in_line(slots, history, session_id, state.current_run_id)
    return Page(
        state=state,
        queued=queued,
        messages=messages,
        runs=(await read.list_runs(session_id, limit=MAX_PAGE)).runs,
        checkpoints=(await read.list_checkpoints(session_id, limit=MAX_PAGE)).items,
        sub_sessions=await read.list_sub_sessions(session_id),
        questions=await open_questions(executor, session_id),
    )


def _read(db: str, work: Callable[[LocalExecutor], Awaitable[T]]) -> T:
    async def main() -> T:
        async with LocalExecutor(db) as executor:
            return await work(executor)

    return asyncio.run(main())


def console() -> Console:
    """Into a pipe nothing is cut."""
    console = Console(file=sys.stdout, highlight=False)
    return console if console.is_terminal else Console(file=sys.stdout, highlight=False, width=PIPE_WIDTH)
