"""The chat, `helix show`, its HTML page, the notebook and the console draw the same items in the same order."""

from __future__ import annotations

import asyncio
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.integration.test_console_page import page_of
from tests.support.chat_screen import Here, screen
from tests.support.command_line import CommandLine
from tests.support_run import Gate, a_tool, agent, call, calls, gated, result_of
from textual.widget import Widget

from helix import (
    Agent,
    AgentInput,
    Allow,
    Block,
    Confirmation,
    Guard,
    LocalExecutor,
    Question,
    ScriptedModel,
    ToolContext,
    create_sub_agent_tool,
    tool,
)
from helix.adapters.models.scripted import Entry
from helix.cli.chat.blocks import CallBlock, ConversationBlock, LineBlock, ReasoningBlock, StepBlock
from helix.cli.chat.texts import ModelText
from helix.cli.sessions.page import read_page
from helix.client import HelixClient
from helix.client.polling import PollingLink
from helix.core.conversation.conversation import Conversation
from helix.core.conversation.items import User
from helix.core.conversation.pieces import CallPiece, MessagePiece, NoticePiece, StepPiece, pieces_of
from helix.core.errors import ModelError
from helix.core.files import FilePart
from helix.core.wire import StreamMessage
from helix.stream.notebook import Panel
from helix.stream.reader import read_page as read_stream

SESSION = "rich"


class Topic(BaseModel):
    topic: str


class Refund(BaseModel):
    amount: int


async def look(given: Topic, ctx: ToolContext[Any]) -> str:
    if given.topic == "lamp":
        raise ValueError("no lamp is known")
    return f"seen {given.topic}"


async def refund(given: Refund, ctx: ToolContext[Any]) -> str:
    return f"refunded {given.amount}"


@tool
async def book(ctx: ToolContext) -> str:
    """Book a seat."""
    return f"booked {await ctx.ask(Question('Which seat?'))}"


FINDER = agent("finder", description="Find things.")
BILLING = agent("billing")
DESK: Agent[Any, Any] = agent(
    "desk",
    tools=[
        a_tool("look", look, input_schema=Topic),
        a_tool("refund", refund, input_schema=Refund, require_approval=True),
        book,
        create_sub_agent_tool(FINDER, Topic),
    ],
    guards=[Guard(name="mind", call=lambda value, context: Block("not the bin") if "bin" in str(value) else Allow())],
    handoffs=[BILLING],
    keep_partial=True,
)
AGENTS = [DESK, FINDER, BILLING]


FOUND = {
    "id": "s1",
    "name": "web_search",
    "arguments": {"query": "shops"},
    "done": True,
    "result": [{"title": "Shops"}],
}
SHOPS = {"start": 0, "end": 4, "url": "https://shops.example/all", "title": "All [the](x) shops"}
SEARCHED: dict[str, Any] = {
    "server_blocks": [{"raw": {"type": "web_search_tool_result"}, "call": FOUND}],
    "citations": [SHOPS, {**SHOPS, "start": 5, "end": 10}],
}


def script(gate: Gate) -> dict[str, list[Entry]]:
    both = calls(call("look", topic="kettle"), call("look", topic="lamp"), content="I look at **both**.")
    return {
        "desk": [
            {**both, "thinking": "Two things are named."},
            calls(call("refund", amount=9), call("look", topic="bin")),
            calls(call("subagent__finder", topic="shelf")),
            calls(call("book")),
            "All of it is done.",
            gated(gate, calls(call("look", topic="door"))),
            "The door was seen.",
            ModelError("the model is away", retryable=False),
            {"content": "Here again.", **SEARCHED},
            {"content": "Once upon a time there was a shop.", "delta_delay_s": 0.3},
            calls(call("transfer_to_billing")),
        ],
        "finder": ["It is on the shelf."],
        "billing": ["Billing speaks."],
    }


async def play(executor: LocalExecutor, gate: Gate) -> None:
    """Play the session: all that a conversation can have."""
    picture = FilePart(kind="image", media_type="image/png", url="https://example.com/cat.png", name="cat.png")
    handle = await executor.execute(DESK, AgentInput(message="Do all of it.", files=[picture]), session_id=SESSION)
    assert (await result_of(handle)).status == "paused"
    handle = await handle.resume(confirmation=Confirmation("call_2", arguments={"amount": 5}, by="ada"))
    paused = await result_of(handle)
    asked = [one.call_id for one in paused.pending]
    handle = await handle.resume(confirmation=Confirmation(asked[0], data="aisle", by="ben"))
    assert (await result_of(handle)).status == "completed"

    handle = await executor.execute(DESK, "Look at the door.", session_id=SESSION)
    await gate.reached()
    await executor.execute(DESK, "Quickly, please.", session_id=SESSION, when_running="steer")
    gate.open()
    assert (await result_of(handle)).status == "completed"

    handle = await executor.execute(DESK, "Are you there?", session_id=SESSION)
    assert (await result_of(handle)).status == "failed"
    assert (await result_of(await handle.retry())).status == "completed"

    handle = await executor.execute(DESK, "Tell me a story.", session_id=SESSION)
    async for chunk in await handle.stream():
        if chunk.type == "text_delta":
            break
    assert await handle.interrupt(wait=True)
    last = await executor.execute(DESK, "Now billing.", session_id=SESSION)
    assert (await result_of(last)).status == "completed"


class Page(HTMLParser):
    """The kinds of the pieces of `helix show --html`, without those inside a call."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.kinds: list[str] = []
        self._open: list[str] = []
        self.feed(text.partition(">Conversation</h2>")[2].partition("<h2>")[0])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        cls = dict(attrs).get("class") or ""
        if "details" not in self._open:
            if tag == "article":
                self.kinds.append("message" if cls == "said user" else "answer")
            elif tag == "details":
                self.kinds.append("call" if cls == "call" else "reasoning")
            elif tag == "ul":
                self.kinds.append("sources")
            elif tag == "p":
                self.kinds.append(cls)
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def kind_of(widget: Widget) -> list[str]:
    match widget:
        case LineBlock():
            return ["message" if isinstance(widget._item, User) else "notice"]
        case ReasoningBlock():
            return ["reasoning"]
        case ModelText():
            rest = {"sources": "shops.example", "cut": "stopped here"}
            return ["answer", *(kind for kind, text in rest.items() if text in widget.source)]
        case CallBlock():
            return ["call"]
        case StepBlock():
            return [kind for child in widget.children for kind in kind_of(child)]
        case _:
            return [type(widget).__name__]


CONSOLE_KINDS = """
list => [...list.children].flatMap(item => {
  if (item.matches('.user')) return ['message'];
  if (item.matches('.notice')) return ['notice'];
  return [...item.children].flatMap(part =>
    part.matches('.thinking') ? ['reasoning'] : part.matches('.prose') ? ['answer'] : part.matches('.sources') ? ['sources'] : part.matches('.output') ? ['output']
    : part.matches('.call') ? ['call'] : part.matches('p.quiet') ? ['cut'] : part.matches('.message-actions') ? [] : [part.outerHTML]);
})
"""  # noqa: E501


def of_pieces(conversation: Conversation) -> list[str]:
    return [piece.kind for piece in pieces_of(conversation.items)]


def words_of(conversation: Conversation) -> list[str]:
    """Return words of each piece that every reader shows."""
    found = []
    for piece in pieces_of(conversation.items):
        match piece:
            case MessagePiece(user):
                found.append(user.text)
            case CallPiece(call):
                found.append(call.name.removeprefix("subagent__"))
            case StepPiece(_, "answer", text):
                found.append(text.replace("*", "").strip())
            case NoticePiece(notice):
                found.append(notice.text)
            case StepPiece(step, "sources"):
                found += [source.title for source in step.sources if source.title]
            case StepPiece(_, "cut"):
                found.append("stopped here")
    return found


def in_order(words: list[str], text: str) -> None:
    """Check that the text has the words, one behind the other."""
    flat, place = re.sub(r"\s+", " ", text.replace("*", "")).lower(), 0
    for word in words:
        found = flat.find(re.sub(r"\s+", " ", word).lower(), place)
        assert found >= 0, f"{word!r} is not behind {flat[max(0, place - 200) : place]!r}"
        place = found + len(word)


@pytest.mark.slow
@pytest.mark.xdist_group("browser")
async def test_five_readers_draw_the_same_items_in_the_same_order(tmp_path: Path) -> None:
    gate, db = Gate(), str(tmp_path / "a.db")
    async with page_of(db, AGENTS, ScriptedModel(script(gate))) as (browser, executor):
        await play(executor, gate)
        async with HelixClient.over(PollingLink(Here(executor))) as client:
            conversation = (await read_page(client, SESSION, None)).fold()
        kinds, words = of_pieces(conversation), words_of(conversation)
        assert {"message", "reasoning", "answer", "sources", "call", "cut", "notice"} == set(kinds)
        names = [call.name for call in conversation.calls.values()]
        assert names == [*["look"] * 2, "refund", "look", "subagent__finder", "book", "look", "transfer_to_billing"]

        page = await browser.page(f"sessions/{SESSION}/chat")
        await page.locator(".item.step").filter(has_text="Billing speaks.").wait_for()
        await page.locator(".prose .block").first.wait_for()
        assert await page.locator(".column > .items, .scroller .items").first.evaluate(CONSOLE_KINDS) == kinds
        in_order(words, str(await page.locator(".items").first.text_content()))

        async with screen(executor, "desk", SESSION, size=(100, 200)) as chat:
            await chat.until("Billing speaks.")
            (block,) = [one for one in chat.app.query(ConversationBlock) if one.conversation.call is None]
            assert [kind for child in block.children for kind in kind_of(child)] == kinds
            in_order(words, chat.text)

        panel = Panel(SESSION)
        messages: list[StreamMessage] = []
        while read := await read_stream(executor.streams, SESSION, messages[-1].sequence if messages else 0, 500):
            messages += read
        for message in messages:
            if message.kind == "chunk":
                panel.add(message.parsed())
        # It has no message that began a run, and parallel calls are in the order in which they began.
        began = {item.text for item in conversation.items if isinstance(item, User) and not item.queued_id}
        called = {name.removeprefix("subagent__") for name in names}
        in_order([word for word in words if word not in began | called], panel.text())
        assert all(panel.text().count(f"{name} → ") == names.count(name) for name in names)

    helix = CommandLine(tmp_path)
    shown = await asyncio.to_thread(helix, "show", SESSION, "--db", db, "--all")
    in_order(words, shown.out.partition("\nmessages")[2])
    assert "refund(amount=9)" in shown.out and "~ refund(amount=5), changed by ada" in shown.out
    assert (await asyncio.to_thread(helix, "show", SESSION, "--db", db, "--html", "a.html")).code == 0
    text = (tmp_path / "a.html").read_text("utf-8")
    lines = {"cut": "wait", "notice": "soft"}
    assert Page(text).kinds == [lines.get(kind, kind) for kind in kinds]
    in_order(words, re.sub(r"<[^>]*>", " ", text.partition("</header>")[2]))
