"""A session as one HTML page: `helix show --html`.

Law: the page is one file that loads no resources and runs no scripts. Its Content Security Policy allows only its own style
sheet, by hash. Text from models, tools and people is always treated as text. It is escaped when the element tree is
written, and control characters are made visible (`core.printable`).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, assert_never
from xml.etree.ElementTree import Element, tostring

from helix._private_files import write_whole
from helix._version import __version__
from helix.adapters.system import SystemClock
from helix.cli.output import RefusedError, say
from helix.cli.sessions.cost import read_ledger, streaming_of
from helix.cli.sessions.page import Page, read_page
from helix.cli.view import formats
from helix.cli.where import Where, with_client
from helix.client import HelixClient
from helix.core.conversation.conversation import Conversation
from helix.core.conversation.items import Call, Tone
from helix.core.conversation.pieces import (
    CallPiece,
    DiscardedPiece,
    MessagePiece,
    NoticePiece,
    StepPiece,
    describe_notice,
    describe_source,
    is_output,
    pieces_of,
)
from helix.core.errors import SessionNotFoundError
from helix.core.handles import SubSessionRef
from helix.core.json import dumps, loads
from helix.core.ledger import NANOS, Ledger
from helix.core.messages import Citation
from helix.core.printable import printable
from helix.core.run_row import RunRow
from helix.core.tools import SUBAGENT_TOOL_PREFIX

OPEN_CHARS: Final = 600
"""The maximum total length of arguments and result, in characters, of a call that is initially expanded."""
SUMMARY_CHARS: Final = 120

STYLE: Final = Path(__file__).with_name("page.css").read_text("utf-8").strip()
"""The style sheet, which the console's saved pages have too (`clients/console/src/sharedpage.ts`)."""
_HASH: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY: Final = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'"
_NOTICES: Final[Mapping[Tone, str]] = {"plain": "soft", "warn": "wait", "bad": "bad"}
_TONES: Final[Mapping[str, str]] = {"completed": "good", "failed": "bad", "paused": "wait", "interrupted": "wait"}


def write_html(where: Where, session_id: str, to: str) -> None:
    file = Path(to)
    if file.exists():
        raise RefusedError(f"{to!r} exists already: name a new file")
    streaming = streaming_of(where)

    async def read(client: HelixClient) -> tuple[Page, Conversation, Ledger]:
        page, conversation = await read_conversation(client, session_id)
        return page, conversation, await read_ledger(client, where, session_id, streaming)

    text = html_page(*with_client(where, session_id, read), SystemClock().now())
    write_whole(file, text)
    say(f"session {session_id} is in {to!r}: one page that needs nothing else, with all that was said in it")


async def read_conversation(client: HelixClient, session_id: str) -> tuple[Page, Conversation]:
    """Read a session with all messages, and the sessions of its sub-agents below their calls."""
    page = await read_page(client, session_id, None)
    conversation = page.fold()
    for ref in (SubSessionRef.model_validate(ref) for ref in page.sub_sessions):
        call = conversation.calls[ref.parent_tool_call_id]
        why = formats.MISSING.get(ref.status)
        if why is None:
            try:
                below, call.child = await read_conversation(client, ref.session_id)
                call.child.status = below.state.status
            except SessionNotFoundError:
                why = formats.MISSING["deleted"]
        if why is not None and call.child is not None:
            call.child.note(f"The session of the sub-agent {ref.agent_type} {why}.", "plain")
    return page, conversation


def html_page(page: Page, conversation: Conversation, ledger: Ledger, now: float) -> str:
    """Return the HTML page. The page shows `now`, the current time in Unix seconds."""
    state = page.state
    title = state.title or f"{state.agent_type}: {state.session_id}"
    policy = {"http-equiv": "Content-Security-Policy", "content": POLICY}
    head = _element(
        "head",
        _element("meta", charset="utf-8"),
        _element("meta", **policy),
        _element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        _element("meta", name="referrer", content="no-referrer"),
        _element("meta", name="robots", content="noindex"),
        _element("title", title),
        _element("style", STYLE),
    )
    sections = [_header(page, ledger), _element("h2", "Conversation"), *_items(conversation)]
    if state.output is not None and not any(is_output(call) for call in conversation.calls.values()):
        sections.append(_element("div", _element("div", "Output", cls="who"), _pre(_json(state.output)), cls="said"))
    if state.custom_state:
        sections += [_element("h2", "State"), _pre(_json(state.custom_state))]
    sections += [
        _element("h2", "Runs"),
        _runs(page.runs),
        _element("h2", "Cost"),
        *_cost(ledger, state.session_id),
    ]
    made = f"Made {formats.time(now)} by helix {__version__}. "
    made += f"To import the session elsewhere: helix export {state.session_id}"
    main = _element("main", *sections, _element("footer", made))
    body = tostring(_element("html", head, _element("body", main), lang="en"), encoding="unicode", method="html")
    return f"<!doctype html>\n{body}\n"


def _element(tag: str, *inside: Element | str, **attributes: str) -> Element:
    """Create an element, and make its text printable. `cls` is its CSS class."""
    if (cls := attributes.pop("cls", None)) is not None:
        attributes["class"] = cls
    made = Element(tag, {name: printable(value) for name, value in attributes.items()})
    for part in inside:
        if isinstance(part, Element):
            made.append(part)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + printable(part)
        else:
            made.text = (made.text or "") + printable(part)
    return made


def _pre(text: str) -> Element:
    return _element("pre", text, tabindex="0")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _badge(status: str) -> Element:
    return _element("span", status, cls=f"badge {_TONES.get(status, '')}".strip())


def _usd(nanos: int) -> str:
    return f"${nanos / NANOS:,.4f}" if nanos >= NANOS // 100 or not nanos else f"${nanos / NANOS:.9f}".rstrip("0")


def _header(page: Page, ledger: Ledger) -> Element:
    state = page.state
    used = f"{formats.tokens(state.usage)}, {_usd(ledger.nanos)} in all"
    when = f"{formats.time(state.created_at)} to {formats.time(state.updated_at)}"
    lines = [
        _element("h1", f"{state.title or state.agent_type} ", _badge(state.status)),
        _element("p", f"{state.agent_type} · " if state.title else "", _element("code", state.session_id), cls="soft"),
        _element("p", f"{when} · {formats.count(state.message_count, 'message')} · {used}", cls="soft"),
    ]
    if state.forked_from:
        lines.append(_element("p", f"Copied from {formats.short(state.forked_from)}", cls="soft"))
    if state.error is not None:
        lines.append(_element("p", f"{state.error.code}: {state.error.message}", cls="bad"))
    for question in page.questions:
        why = f": {question.reason}" if question.reason else ""
        waits = f"Waits for {question.wanted} of {formats.call(question.tool_name, question.arguments)}{why}"
        lines.append(_element("p", waits, cls="wait"))
    return _element("header", *lines)


# --- the conversation -----------------------------------------------------------------------------------------------------


def _items(conversation: Conversation) -> Iterator[Element]:
    for piece in pieces_of(conversation.items):
        match piece:
            case MessagePiece(user):
                yield _said("user", "User", user.at, "\n".join([user.text, *map(formats.file, user.files)]))
            case CallPiece(call):
                yield _call(call)
            case StepPiece(_, "reasoning", text):
                inside = _element("div", _element("div", text, cls="text"))
                yield _element("details", _element("summary", "Thinking", cls="soft"), inside)
            case StepPiece(step, "answer", text):
                yield _said("agent", step.agent or conversation.agent, step.at, text)
            case StepPiece(step, "sources"):
                yield _element("ul", *(_element("li", *_source(source)) for source in step.sources), cls="soft")
            case StepPiece(_, "cut"):
                yield _element("p", formats.CUT, cls="wait")
            case StepPiece(_, _, text):
                yield _element("div", _element("div", "Output", cls="who"), _pre(_pretty(text)), cls="said")
            case NoticePiece(notice):
                yield _element("p", describe_notice(notice), cls=_NOTICES[notice.tone])
            case DiscardedPiece(step):
                yield _element("p", f"Attempt {step.attempt} of step {step.step} was discarded.", cls="wait")
            case _:
                assert_never(piece)


def _source(source: Citation) -> list[Element | str]:
    """Return a source as a link. Only addresses of the web become links."""
    title = source.title or source.url or "a document"
    if source.url is None or not source.url.startswith(("http://", "https://")):
        return [describe_source(source)]
    return [_element("a", title, href=source.url, rel="noreferrer noopener"), f" · {source.url}"]


def _said(kind: str, who: str, at: float | None, text: str) -> Element:
    when = [_element("span", f" · {formats.time(at)}", cls="soft")] if at else []
    head = _element("div", who, *when, cls="who")
    return _element("article", head, _element("div", text, cls="text"), cls=f"said {kind}")


def _call(call: Call) -> Element:
    asked = call.arguments if call.asked is None else call.asked
    inside: list[Element] = [_label("Arguments"), _pre(_json(asked))] if asked else []
    size = len(_json(asked))
    if call.edited is not None:
        inside += [_label(f"Executed with, changed by {call.edited.by or 'an operator'}"), _pre(_json(call.arguments))]
    for question in call.questions if call.state != "waiting" else ():
        inside += [_label(question.text), _pre(formats.asked(question))]
    inside += [_label(formats.response(given)) for given in call.responses]
    if call.child is not None:
        inside.append(_child_section(call.child))
    status = _element("span", "no result", cls="badge wait")
    if call.state in ("done", "failed"):
        good = call.state == "done"
        status = _element("span", "ok" if good else "failed", cls=f"badge {'good' if good else 'bad'}")
        said = call.result if call.error is None else call.error
        text = "\n".join([_pretty(said if isinstance(said, str) else dumps(said)), *map(formats.file, call.files)])
        inside += [_label("Result"), _pre(text)]
        size += len(text)
    opened = {"open": "open"} if size <= OPEN_CHARS and call.child is None else {}
    name = call.name.removeprefix(SUBAGENT_TOOL_PREFIX)
    kind = "sub-agent " if name != call.name else ""
    short = formats.cut(formats.call("", asked)[1:-1], SUMMARY_CHARS)
    brief = [_element("span", f" {short}", cls="soft")] if short and not opened else []
    summary = _element("summary", kind, _element("code", name), " ", status, *brief)
    return _element("details", summary, _element("div", *inside), cls="call", **opened)


def _child_section(child: Conversation) -> Element:
    head = _element("h3", f"Sub-agent {child.agent} ", *([_badge(child.status)] if child.status else []))
    return _element("section", head, *_items(child), cls="child")


def _label(text: str) -> Element:
    return _element("div", text, cls="label")


def _pretty(text: str) -> str:
    """Pretty-print a JSON object or list. Return any other text unchanged."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return _json(loads(text))
    except ValueError:
        return text


# --- runs and money -------------------------------------------------------------------------------------------------------


def _table(columns: Sequence[str], rows: Sequence[Sequence[Element | str]], numbers: int) -> Element:
    """Create a table whose last `numbers` columns contain numbers."""

    def line(tag: str, cells: Sequence[Element | str]) -> Element:
        first = len(cells) - numbers
        kinds = [{"cls": "number"} if place >= first else {} for place in range(len(cells))]
        return _element("tr", *(_element(tag, cell, **kind) for cell, kind in zip(cells, kinds, strict=True)))

    head, body = _element("thead", line("th", columns)), _element("tbody", *(line("td", row) for row in rows))
    return _element("div", _element("table", head, body), cls="wide", tabindex="0")


def _runs(runs: Sequence[dict[str, Any]]) -> Element:
    rows: list[Element] = []
    for run in (RunRow.model_validate(run) for run in reversed(runs)):
        took = f"took {run.ended_at - run.started_at:.1f} s" if run.ended_at else ""
        facts = [formats.time(run.started_at), took, formats.count(run.steps, "step"), formats.tokens(run.usage)]
        about = _element("span", f" · {' · '.join(fact for fact in facts if fact)}", cls="soft")
        why = [] if run.error is None else [_element("div", f"{run.error.code}: {run.error.message}", cls="bad")]
        rows.append(_element("li", f"{run.turn}. {run.mode.replace('_', ' ')} ", _badge(run.status), about, *why))
    return _element("ol", *rows)


def _cost(ledger: Ledger, session_id: str) -> Iterator[Element]:
    services: list[list[Element | str]] = [[name, _usd(nanos)] for name, nanos in ledger.by_service().items()]
    yield _table(("service", "cost"), [*services, [_element("strong", "in all"), _usd(ledger.nanos)]], 1)
    lines: list[list[Element | str]] = []
    for line in ledger.lines:
        what = line.what if line.session_id == session_id else f"{line.what} ({line.session_id})"
        step = "" if line.step is None else str(line.step)
        lines.append([line.service, what, step, f"{line.quantity:,g} {line.unit}", _usd(line.nanos)])
    table = _table(("service", "what", "step", "quantity", "cost"), lines, 2)
    yield _element("details", _element("summary", f"Line by line ({len(lines)})", cls="soft"), _element("div", table))
    if ledger.left_out:
        yield _element("p", f"Not in it: {'; '.join(ledger.left_out)}.", cls="soft")
