"""Commands about stored sessions that run no agent: list, show, interrupt, branch, clone, delete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from helix.cli.options import Db, Json, Limit, SessionName
from helix.cli.output import RefusedError, console, say, write, write_json
from helix.cli.run.follow import open_questions
from helix.cli.stores import exists, with_executor
from helix.cli.view import formats
from helix.cli.view.base import Question
from helix.cli.view.formats import print_table
from helix.core.claim_plan import lapsed
from helix.core.errors import DamagedRowError, SessionNotFoundError
from helix.core.handles import SessionState
from helix.core.messages import AnyMessage, AssistantMessage, ToolResultMessage, UserMessage
from helix.core.rows import CheckpointRow, RunRow
from helix.engine.runs.admission import InLine, in_line
from helix.runtime.local import LocalExecutor
from helix.runtime.settings import DEFAULT_DB
from helix.runtime.system import SystemClock
from helix.services.row_slots import RowSlots
from helix.sessions.read import MAX_PAGE, SessionPage, SubSessionRef

TEXT_CHARS, RESULT_CHARS = 2000, 200
Line = tuple[str | tuple[str, str], ...]
"""Parts of a line: a text, or a text and its style."""


@dataclass(frozen=True, slots=True)
class Page:
    """Messages oldest first; runs and checkpoints newest first. `queued`: its run's place in the queue for a slot."""

    state: SessionState
    queued: InLine | None
    messages: Sequence[AnyMessage]
    runs: Sequence[RunRow]
    checkpoints: Sequence[CheckpointRow]
    sub_sessions: Sequence[SubSessionRef]
    questions: Sequence[Question]

    def dump(self) -> dict[str, Any]:
        return {
            "session": self.state.model_dump(mode="json"),
            "queued": self.queued._asdict() if self.queued is not None else None,
            "state": self.state.custom_state,
            "messages": [message.model_dump(mode="json") for message in self.messages],
            "runs": [run.model_dump(mode="json") for run in self.runs],
            "checkpoints": [
                row.model_dump(mode="json", exclude={"state", "patches", "kind"}) for row in self.checkpoints
            ],
            "sub_sessions": [ref.model_dump(mode="json") for ref in self.sub_sessions],
            "waiting_for": [asdict(question) for question in self.questions],
        }


def print_page(console: Console, page: Page, now: float) -> None:
    for line in _head(page, now):
        console.print(Text.assemble(*line))
    sections: dict[str, Sequence[Line]] = {
        "messages": [line for message in page.messages for line in _message(message)],
        "state": [(line,) for line in formats.lines_of(page.state.custom_state)],
        "output": [] if page.state.output is None else [(line,) for line in formats.lines_of(page.state.output)],
        "runs": [_run(run) for run in page.runs],
        "checkpoints": [_checkpoint(row) for row in page.checkpoints],
        "sub-agents": [
            (f"{ref.session_id}  {ref.agent_type}  ", (ref.status, formats.status_style(ref.status)))
            for ref in page.sub_sessions
        ],
    }
    for title, lines in sections.items():
        if lines or title not in ("output", "sub-agents"):
            console.print(Text(f"\n{title}", "bold"))
        for line in lines:
            console.print(Text.assemble("  ", *line))


def _head(page: Page, now: float) -> Iterator[Line]:
    state = page.state
    yield (state.session_id, "bold"), f"  {state.agent_type}  ", (state.status, formats.status_style(state.status))
    used = f"{formats.tokens(state.usage)}, {formats.cost(state.usage)}"
    yield ((f"updated {formats.age(now - state.updated_at)} · {used}", "dim"),)
    if state.forked_from:
        yield ((f"copied from {formats.short(state.forked_from)}", "dim"),)
    if state.error is not None:
        yield ((f"{state.error.code}: {state.error.message}", "red"),)
    if page.queued is not None:
        yield ((f"waits for a slot: number {page.queued.place} in line", "yellow"),)
    for question in page.questions:
        called = formats.call(question.tool_name, question.arguments)
        yield ((f"waits for {question.kind} of {called}, call {question.call_id}", "yellow"),)


def _message(message: AnyMessage) -> Iterator[Line]:
    match message:
        case UserMessage():
            yield from _text("user", message.content, "bold cyan")
        case AssistantMessage():
            if message.content:
                yield from _text("assistant", message.content, "bold")
            for call in message.tool_calls:
                yield ((f"→ {formats.call(call.name, call.arguments)}", "cyan"),)
        case ToolResultMessage():
            said = f"← {message.tool_name}: {formats.cut(message.content, RESULT_CHARS)}"
            yield ((said, "green" if message.success else "red"),)


def _text(who: str, text: str, style: str) -> Iterator[Line]:
    text = text if len(text) <= TEXT_CHARS else f"{text[:TEXT_CHARS]}…"
    first, *rest = [line for line in text.splitlines() if line.strip()] or [""]
    yield (who, style), f"  {first}"
    for line in rest:
        yield (f"  {line}",)


def _run(run: RunRow) -> Line:
    why = f"  {run.error.code}: {run.error.message}" if run.error is not None else ""
    status = (run.status, formats.status_style(run.status))
    return f"{run.run_id}  {run.mode}  ", status, f"  {formats.count(run.steps, 'step')}{why}"


def _checkpoint(row: CheckpointRow) -> Line:
    return f"{row.id}  ", (f"step {row.step}, {formats.count(row.count, 'message')}, {row.status}", "dim")


TITLE_CHARS = 50


def sessions(
    limit: Limit = 20,
    user: Annotated[str | None, typer.Option("--user", help="Only sessions of this user id")] = None,
    db: Db = DEFAULT_DB,
    json: Json = False,
) -> None:
    if not exists(db):
        say(f"no sessions yet: there is no store {db!r} here (see --db)")
        return

    async def read(executor: LocalExecutor) -> tuple[SessionPage, list[str]]:
        page = await executor.sessions.list_sessions(user_id=user, limit=limit)
        return page, [await _title(executor, state) for state in page.sessions]

    page, titles = with_executor(db, None, read)
    found = list(zip(page.sessions, titles, strict=True))
    if json:
        for state, title in found:
            write_json({**state.model_dump(mode="json"), "title": title})
    elif found:
        now = SystemClock().now()
        columns = ["session", "agent", "status", "turns", "messages", "cost", "when", "begins with"]
        print_table(columns, [[*_cells(state, now), title] for state, title in found], last="ellipsis")
    elif not page.damaged:
        say(f"no sessions yet in {db!r}")
    for session_id in page.damaged:
        say(f"session {session_id!r} is damaged and not listed: its stored row cannot be read")


def _cells(state: SessionState, now: float) -> list[str]:
    counts = [str(state.turn), str(state.message_count)]
    figures = [*counts, formats.cost(state.usage), formats.age(now - state.updated_at)]
    return [state.session_id, state.agent_type, state.status, *figures]


async def _title(executor: LocalExecutor, state: SessionState) -> str:
    try:
        first = (await executor.sessions.get_messages(state.session_id, limit=1)).messages
    except DamagedRowError:
        return "(a damaged message)"
    return formats.cut(first[0].content, TITLE_CHARS) if first and isinstance(first[0], UserMessage) else ""


def show(session: SessionName, db: Db = DEFAULT_DB, json: Json = False) -> None:
    page = with_executor(db, session, lambda executor: _page(executor, session))
    if json:
        write_json(page.dump())
    else:
        print_page(console(soft_wrap=True), page, SystemClock().now())


async def _page(executor: LocalExecutor, session_id: str) -> Page:
    read = executor.sessions
    state = await read.get(session_id)
    messages: list[AnyMessage] = []
    while len(messages) < state.message_count:
        messages += (await read.get_messages(session_id, offset=len(messages), limit=MAX_PAGE)).messages
    queued = None
    if state.status == "running":
        history, slots = executor.engine.history, RowSlots(executor.store)  # the queue of a fleet on the same store
        queued = await in_line(slots, history, session_id, state.current_run_id)
    return Page(
        state=state,
        queued=queued,
        messages=messages,
        runs=(await read.list_runs(session_id, limit=MAX_PAGE)).runs,
        checkpoints=(await read.list_checkpoints(session_id, limit=MAX_PAGE)).items,
        sub_sessions=await read.list_sub_sessions(session_id),
        questions=await open_questions(read.load, session_id),
    )


Checkpoint = Annotated[str | None, typer.Option("--checkpoint", help="Its state and messages [default: the latest]")]


def interrupt(
    session: SessionName,
    reason: Annotated[str | None, typer.Option("--reason", help="Stored with the run")] = None,
    db: Db = DEFAULT_DB,
) -> None:
    async def act(executor: LocalExecutor) -> str:
        state = await executor.sessions.get(session)
        if state.status != "running":
            raise RefusedError(f"session {session!r} does not run: it is {state.status}")
        if lapsed(state, SystemClock().now()):
            raise RefusedError(f"session {session!r} does not run: its process is gone; resume it")
        if not await executor.interrupt(session, reason, run_id=state.current_run_id):
            raise RefusedError(f"session {session!r} does not run any more")
        return f"session {session} was asked to stop; it stops at its next step"

    write(with_executor(db, session, act))


def branch(
    session: SessionName,
    checkpoint: Checkpoint = None,
    to: Annotated[str | None, typer.Option("--to", metavar="SESSION", help="Id of the new session")] = None,
    db: Db = DEFAULT_DB,
) -> None:
    made = with_executor(db, session, lambda e: e.branch(session, checkpoint, session_id=to))
    write(made.session_id)


def clone(
    session: SessionName,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Id of the new session")],
    checkpoint: Checkpoint = None,
    messages: Annotated[int | None, typer.Option("--messages", min=0, help="Only the first messages")] = None,
    db: Db = DEFAULT_DB,
) -> None:
    cut: dict[str, Any] = {"from_checkpoint_id": checkpoint, "from_message_index": messages}
    made = with_executor(db, session, lambda e: e.clone_session(session, target, **cut))
    write(made.session_id)


def delete(session: SessionName, db: Db = DEFAULT_DB) -> None:
    if not with_executor(db, session, lambda executor: executor.delete(session)):
        raise SessionNotFoundError(session)
    write(f"deleted session {session}")
