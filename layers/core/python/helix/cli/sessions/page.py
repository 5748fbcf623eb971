"""`helix show`: print a session on one page, with its newest messages or all of them, or print the context that the model
was shown at a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, assert_never

import typer
from pydantic import TypeAdapter
from rich.console import Console
from rich.text import Text

from helix.adapters.system import SystemClock
from helix.cli.options import Json, SessionName
from helix.cli.output import RefusedError, console, write_json
from helix.cli.run.follow import open_questions
from helix.cli.view import formats
from helix.cli.view.base import Question
from helix.cli.where import Where, with_client
from helix.client import HelixClient
from helix.core.context_replies import ContextFound
from helix.core.conversation.conversation import Conversation
from helix.core.conversation.items import Call, Tone
from helix.core.conversation.pieces import (
    CallPiece,
    DiscardedPiece,
    MessagePiece,
    NoticePiece,
    StepPiece,
    describe_notice,
    fold_stored,
    pieces_of,
)
from helix.core.files import FilePart
from helix.core.handles import SessionState, SubSessionRef
from helix.core.json import JsonObject, dumps
from helix.core.lost_caches import WORDS as LOST
from helix.core.messages import AnyMessage, AssistantMessage, Message
from helix.core.request_fields import PAGE
from helix.core.request_heads import RequestHead
from helix.core.status import SubSessionStatus
from helix.core.tools import SUBAGENT_TOOL_PREFIX

TEXT_CHARS, RESULT_CHARS = 2000, 200
LAST = 20
WORKING: frozenset[SubSessionStatus] = frozenset({"running", "paused", "interrupted"})
Line = tuple[str | tuple[str, str], ...]
"""The parts of a line. Each is a string, or a string with its style."""
TONES: dict[Tone, str] = {"plain": "dim", "warn": "yellow", "bad": "red"}
_MESSAGES: TypeAdapter[list[AnyMessage]] = TypeAdapter(list[Message])


@dataclass(frozen=True, slots=True)
class Page:
    """The data of a session that the page shows."""

    state: SessionState
    """The session's committed state."""
    queued: dict[str, Any] | None
    """The position of the session's run in the queue for a slot (`helix.core.session_replies.Queued`). None if it is not
    queued."""
    messages: Sequence[AnyMessage]
    """The newest messages of the history, oldest first."""
    offset: int
    """The index in the history of the first of `messages`, which is also the number of earlier messages."""
    runs: Sequence[dict[str, Any]]
    """The newest runs, newest first."""
    more_runs: bool
    """Whether there are older runs."""
    checkpoints: Sequence[dict[str, Any]]
    """The newest checkpoints, newest first."""
    more_checkpoints: bool
    """Whether there are older checkpoints."""
    sub_sessions: Sequence[dict[str, Any]]
    """The sessions of the sub-agents, each with its agent, its status and the call that started it."""
    questions: Sequence[Question]
    """The calls that wait for a person, including those of sub-agents."""

    def fold(self) -> Conversation:
        """Return the conversation, without those of the sub-agents."""
        refs = [SubSessionRef.model_validate(ref) for ref in self.sub_sessions]
        if self.offset:  # the calls of most ended sub-agents are in earlier messages
            answers = [message for message in self.messages if isinstance(message, AssistantMessage)]
            here = {call.id for answer in answers for call in answer.tool_calls}
            refs = [ref for ref in refs if ref.parent_tool_call_id in here or ref.status in WORKING]
        state = self.state
        return fold_stored(state.session_id, state.agent_type, self.messages, refs, state.pending)

    def dump(self) -> dict[str, Any]:
        return {
            "session": self.state.model_dump(mode="json"),
            "queued": self.queued,
            "state": self.state.custom_state,
            "offset": self.offset,
            "messages": [message.model_dump(mode="json") for message in self.messages],
            "runs": self.runs,
            "checkpoints": self.checkpoints,
            "sub_sessions": self.sub_sessions,
            "waiting_for": [asdict(question) for question in self.questions],
        }


def show(
    session: SessionName,
    where: Where,
    last: Annotated[
        int | None,
        typer.Option(
            "--last", "-n", min=1, help="Number of messages, runs and checkpoints [default: 20; JSON has all]"
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All messages, runs and checkpoints")] = False,
    json: Json = False,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="All of it, as one page in a new file, to be shared")
    ] = None,
    context: Annotated[
        str | None, typer.Option("--context", metavar="STEP", help="Show the model's view at this step, or `next`")
    ] = None,
) -> None:
    if context is not None:
        if everything or last is not None or html is not None:
            raise RefusedError("--context shows one step: leave out --all, --last and --html")
        _show_context(where, session, context, json)
        return
    if html is not None:
        if json or everything or last is not None:
            raise RefusedError("--html writes the whole session: leave out --json, --all and --last")
        from helix.cli.sessions.html import write_html  # imported late, because it imports this module

        write_html(where, session, html)
        return
    if everything and last is not None:
        raise RefusedError("--all and --last exclude each other: choose one")
    most = last if last is not None else None if everything or json else LAST
    page = with_client(where, session, lambda client: read_page(client, session, most))
    if json:
        write_json(page.dump())
    else:
        print_page(console(soft_wrap=True), page, SystemClock().now())


def _show_context(where: Where, session: str, context: str, json: bool) -> None:
    """Print the context of the step that the user named, by its number or as `next`."""
    if context != "next" and not (context.isdecimal() and int(context) > 0):
        raise RefusedError(f"--context takes the number of a step, or next; it is {context!r}")
    step = None if context == "next" else int(context)
    found = with_client(where, session, lambda client: client.get_context(session, step))
    if json:
        write_json(found)
        return
    out = console(soft_wrap=True)
    for line in _context(ContextFound.model_validate(found)):
        out.print(Text.assemble(*line))


def _context(found: ContextFound) -> Iterator[Line]:
    run = f"run {found.run_id}" if found.run_id is not None else "not bought yet"
    yield (found.session_id, "bold"), f"  step {found.step}  ", (run, "dim")
    view = found.view
    if view is None:
        yield ((f"the whole history was shown: {formats.count(found.count, 'message')}", "dim"),)
    else:
        cleared = formats.count(len(found.cleared), "result")
        yield ((f"of {formats.count(found.count, 'message')}: {found.hidden} hidden, {cleared} cleared", "dim"),)
        about = f"{view.cause}, step {view.step}, at about {view.tokens:,} tokens"
        paid = f"; {view.model}: {formats.tokens(view.usage)}, {formats.cost(view.usage)}" if view.model else ""
        yield ((f"view: {about}{paid}", "dim"),)
    if (head := found.request) is not None:
        yield from _asked(found, head)
    if found.system_prompt:
        yield from _text("system", found.system_prompt, "bold magenta")
    conversation = Conversation(found.session_id)
    conversation.load(found.messages, {})
    yield from _items(conversation)


def _asked(found: ContextFound, head: RequestHead) -> Iterator[Line]:
    """Yield the lines with the model, its limits and settings, and the names of the tools."""
    limit = f", at most {found.output_limit:,} tokens in the answer" if found.output_limit is not None else ""
    yield ((f"asked: {found.model or 'an unknown model'}{limit}; head {found.head}", "dim"),)
    if head.settings:
        settings = (f"{name}={dumps(value)}" for name, value in head.settings.items())
        yield ((f"settings: {', '.join(settings)}", "dim"),)
    if head.tools:
        choice = "" if head.tool_choice == "auto" else f"; choice: {head.tool_choice}"
        yield ((f"tools: {', '.join(tool.name for tool in head.tools)}{choice}", "dim"),)


async def read_page(client: HelixClient, session_id: str, most: int | None) -> Page:
    """Read a session with its newest `most` messages, runs and checkpoints (None: all of them)."""
    first = PAGE if most is None else min(most, PAGE)
    asked: JsonObject = {"session_id": session_id, "messages": first, "runs": first, "sub_sessions": True}
    found: dict[str, Any] = dict(await client.ask("get_session", asked))
    state = SessionState.model_validate(found["session"])
    messages, offset = found["messages"], found["offset"]
    while offset > 0 and (most is None or len(messages) < most):
        limit = PAGE if most is None else min(PAGE, most - len(messages))
        older: dict[str, Any] = await client.get_messages(session_id, limit=limit, before=offset)
        messages, offset = [*older["messages"], *messages], older["offset"]
    runs, more_runs = found["runs"], found["more_runs"]
    while more_runs and (most is None or len(runs) < most):
        limit = PAGE if most is None else min(PAGE, most - len(runs))
        earlier = {"session_id": session_id, "runs": limit, "runs_before": runs[-1]["run_id"]}
        page: dict[str, Any] = dict(await client.ask("get_session", earlier))
        runs, more_runs = [*runs, *page["runs"]], page["more_runs"]
    checkpoints: list[dict[str, Any]] = []
    cursor: Any = None
    while most is None or len(checkpoints) < most:
        limit = PAGE if most is None else min(PAGE, most - len(checkpoints))
        listed: dict[str, Any] = await client.list_checkpoints(session_id, limit=limit, after=cursor)
        checkpoints += listed["checkpoints"]
        if (cursor := listed["cursor"]) is None:
            break
    return Page(
        state=state,
        queued=found.get("queued"),
        messages=_MESSAGES.validate_python(messages),
        offset=offset,
        runs=runs,
        more_runs=more_runs,
        checkpoints=checkpoints,
        more_checkpoints=cursor is not None,
        sub_sessions=found["sub_sessions"],
        questions=await open_questions(client.get_session, session_id) if state.pending else [],
    )


def print_page(console: Console, page: Page, now: float) -> None:
    for line in _head(page, now):
        console.print(Text.assemble(*line))
    state = page.state
    sections: dict[str, tuple[Sequence[Line], str | None]] = {
        "messages": (
            [*_items(page.fold())],
            f"{formats.count(page.offset, 'earlier message')}" if page.offset else None,
        ),
        "state": ([(line,) for line in formats.lines_of(state.custom_state)], None),
        "output": ([] if state.output is None else [(line,) for line in formats.lines_of(state.output)], None),
        "runs": ([_run(run) for run in page.runs], "earlier runs" if page.more_runs else None),
        "checkpoints": (
            [_checkpoint(row) for row in page.checkpoints],
            "earlier checkpoints" if page.more_checkpoints else None,
        ),
        "lost caches": ([*_lost_caches(page.messages)], None),
        "sub-agents": (
            [
                (
                    f"{ref['session_id']}  {ref['agent_type']}  ",
                    (formats.MISSING.get(status, status), formats.status_style(status)),
                )
                for ref in page.sub_sessions
                for status in [ref["status"]]
            ],
            None,
        ),
    }
    for title, (lines, left_out) in sections.items():
        if lines or title not in ("output", "lost caches", "sub-agents"):
            console.print(Text(f"\n{title}", "bold"))
        note = f"  … {left_out}: --all shows them" if left_out is not None else None
        if note is not None and title == "messages":
            console.print(Text(note, "dim"))
        for line in lines:
            console.print(Text.assemble("  ", *line))
        if note is not None and title != "messages":
            console.print(Text(note, "dim"))


def _head(page: Page, now: float) -> Iterator[Line]:
    state = page.state
    active = "" if state.active_agent == state.agent_type else f" ({state.active_agent} is active)"
    yield (
        (state.session_id, "bold"),
        f"  {state.agent_type}{active}  ",
        (state.status, formats.status_style(state.status)),
    )
    if state.title:
        yield ((state.title, "bold"),)
    used = f"{formats.tokens(state.usage)}, {formats.cost(state.usage)}"
    of_user = f"user {formats.short(state.user_id)} · " if state.user_id is not None else ""
    yield ((f"{of_user}updated {formats.age(now - state.updated_at)} · {used}", "dim"),)
    if state.forked_from:
        yield ((f"copied from {formats.short(state.forked_from)}", "dim"),)
    if state.error is not None:
        yield ((f"{state.error.code}: {state.error.message}", "red"),)
    if state.in_batch:
        yield (("waits for a batch of the model's provider", "yellow"),)
    if page.queued is not None:
        why = f"; the agent is {page.queued['reason']}" if page.queued.get("reason") else ""
        yield ((f"waits for a slot: number {page.queued['place']} in line{why}", "yellow"),)
    for question in page.questions:
        called = formats.call(question.tool_name, question.arguments)
        why = f": {question.reason}" if question.reason else ""
        yield ((f"waits for {question.wanted} of {called}, call {question.call_id}{why}", "yellow"),)


def _items(conversation: Conversation) -> Iterator[Line]:
    for piece in pieces_of(conversation.items):
        match piece:
            case MessagePiece(user):
                yield from _text("user", user.text, "bold cyan")
                yield from _files(user.files)
            case CallPiece(call):
                yield from _call(call)
            case StepPiece(_, "reasoning", text):
                yield ((f"reasoning  {formats.cut(text, RESULT_CHARS)}", "dim"),)
            case StepPiece(step, "answer", text):
                yield from _text(step.agent or "assistant", text, "bold")
            case StepPiece(_, "sources", text):
                yield from (((f"source  {line}", "dim"),) for line in text.splitlines())
            case StepPiece(_, "cut"):
                yield ((formats.CUT, "yellow"),)
            case StepPiece(_, _, text):
                yield ((f"output  {formats.cut(text, RESULT_CHARS)}", "green"),)
            case NoticePiece(notice):
                yield ((describe_notice(notice), TONES[notice.tone]),)
            case DiscardedPiece(step):
                yield ((f"attempt {step.attempt} of step {step.step} was discarded", "yellow"),)
            case _:
                assert_never(piece)


def _lost_caches(messages: Sequence[AnyMessage]) -> Iterator[Line]:
    for message in messages:
        if isinstance(message, AssistantMessage) and (reason := message.metadata.get("lost_cache")):
            yield f"step {message.step}  ", (LOST.get(str(reason), str(reason)), "yellow")


def _call(call: Call) -> Iterator[Line]:
    asked = call.arguments if call.asked is None else call.asked
    name = call.name.removeprefix(SUBAGENT_TOOL_PREFIX)
    yield ((f"→ {formats.call(name, asked)}", "cyan"),)
    if call.edited is not None:
        who = call.edited.by or "an operator"
        yield ((f"~ {formats.call(name, call.arguments)}, changed by {who}", "yellow"),)
    for question in call.questions if call.state != "waiting" else ():
        yield ((f"? {question.text}: {formats.asked(question)}", "yellow"),)
    for given in call.responses:
        yield ((f"? {name}: {formats.response(given)}", "yellow"),)
    if call.state in ("done", "failed"):
        said = str(call.result if call.error is None else call.error)
        yield ((f"← {name}: {formats.cut(said, RESULT_CHARS)}", "green" if call.state == "done" else "red"),)
        yield from _files(call.files)
    elif call.state == "waiting":
        yield (("waits for another system" if call.kind == "elsewhere" else "waits for you", "yellow"),)


def _files(files: Sequence[FilePart]) -> Iterator[Line]:
    for part in files:
        yield ((f"  + {formats.file(part)}", "dim"),)


def _text(who: str, text: str, style: str) -> Iterator[Line]:
    text = text if len(text) <= TEXT_CHARS else f"{text[:TEXT_CHARS]}…"
    first, *rest = [line for line in text.splitlines() if line.strip()] or [""]
    yield (who, style), f"  {first}"
    for line in rest:
        yield (f"  {line}",)


def _run(run: dict[str, Any]) -> Line:
    error = run["error"]
    why = f"  {error['code']}: {error['message']}" if error is not None else ""
    status = (run["status"], formats.status_style(run["status"]))
    return f"{run['run_id']}  {run['mode']}  ", status, f"  {formats.count(run['steps'], 'step')}{why}"


def _checkpoint(row: dict[str, Any]) -> Line:
    return f"{row['id']}  ", (f"step {row['step']}, {formats.count(row['count'], 'message')}, {row['status']}", "dim")
