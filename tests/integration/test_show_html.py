"""`helix show --html` renders a session as one page that runs no script, requests nothing, and shows all content as
text."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import CommandLine
from tests.support_resume import Log, writer
from tests.support_run import Text, a_tool, agent, call, calls

from helix import Confirmation, LocalExecutor, ModelError, ScriptedModel, create_sub_agent_tool
from helix.adapters.models.scripted import Entry
from helix.core.printable import printable

EVIL = (
    '<script>alert(1)</script><img src=x onerror="alert(2)"></style></pre></title><!-- --> &lt;b&gt; '
    "javascript:alert(3) \u202egnp.exe\u2066 \x1b]0;owned\x07 \x00 \r end"
)


class Reader(HTMLParser):
    """The page as a browser reads it: its elements with their attributes, and its texts."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((tuple(self._open), data))

    def text(self) -> str:
        return "".join(text for path, text in self.texts if "style" not in path)


async def played(db: Path) -> None:
    """Play a session in which every text is hostile."""
    finder = agent("finder", tools=[writer("note")], state_schema=Log, output_schema=Text)
    pay = a_tool("pay", lambda given, ctx: {"paid": EVIL}, input_schema=Text, require_approval=lambda given: EVIL)
    who = agent("boss", tools=[pay, create_sub_agent_tool(finder), writer()], state_schema=Log)
    script: dict[str, list[Entry]] = {
        "boss": [
            calls(
                call("pay", text=EVIL), call("subagent__finder", message=EVIL), call("write", text=EVIL), content=EVIL
            )
            | {"thinking": [{"text": EVIL}]},
            calls(call("pay", text="more")),
            ModelError(EVIL),
        ],
        "finder": [calls(call("note", text=EVIL)), calls(call("__finish__", text=EVIL))],
    }
    async with LocalExecutor(str(db), model=ScriptedModel(script)) as executor:
        handle = await executor.execute(who, EVIL, session_id="evil", metadata={"x": EVIL}, tags=[EVIL[:20]])
        paused = await handle.result()
        answer = Confirmation(paused.pending[0].call_id, arguments={"text": EVIL}, by=EVIL)
        assert (await (await handle.resume(confirmation=answer)).result()).status == "paused"


def made(tmp_path: Path) -> Reader:
    asyncio.run(played(tmp_path / "s.db"))
    helix = CommandLine(tmp_path)
    done = helix("show", "evil", "--db", "s.db", "--html", "evil.html")
    assert done.code == 0 and done.out == "", done
    again = helix("show", "evil", "--db", "s.db", "--html", "evil.html")
    assert again.code == 2 and "exists already" in again.err
    return Reader((tmp_path / "evil.html").read_text("utf-8"))


def test_hostile_texts_are_texts_and_the_page_asks_for_nothing(tmp_path: Path) -> None:
    page = made(tmp_path)
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "img", "link", "iframe", "object", "embed", "form", "a", "base", "svg", "input", "b"}
    names = {name for _, attributes in page.elements for name in attributes}
    assert names <= {"charset", "http-equiv", "content", "name", "lang", "class", "open", "tabindex"}
    policy = next(attributes["content"] for _, attributes in page.elements if "http-equiv" in attributes)
    (style,) = [text for path, text in page.texts if path[-1:] == ("style",)]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert not re.search(r"url\(|@import|https?:", style)
    text = page.text()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    assert text.count(printable(EVIL)) >= 6  # question, message, answer, thinking, edit's author, sub-agent's message


def test_a_sub_agent_is_in_its_call_and_a_waiting_call_is_shown(tmp_path: Path) -> None:
    page = made(tmp_path)
    inside = [text for path, text in page.texts if path.count("section") == 1 and "h3" in path]
    assert (inside[0].startswith("Sub-agent finder") and "details" in page.texts[0][0]) or inside
    notes = [path for path, text in page.texts if text == "note"]
    assert notes and all(path.count("details") == 2 and "section" in path for path in notes)
    waiting = [text for _, text in page.texts if text == "no result"]
    assert len(waiting) == 1 and "Waits for approval of pay(" in page.text()
    assert {"Runs", "Cost", "State", "Conversation"} <= {text for path, text in page.texts if path[-1:] == ("h2",)}


@pytest.mark.parametrize("words", [["--json"], ["--all"], ["--last", "3"]])
def test_a_page_has_all_and_takes_no_other_form(tmp_path: Path, words: list[str]) -> None:
    done = CommandLine(tmp_path)("show", "evil", "--html", "evil.html", *words)
    assert done.code == 2 and "--html" in done.err and not (tmp_path / "evil.html").exists()


def test_both_pages_mark_an_answer_that_an_interrupt_cut_off(tmp_path: Path) -> None:
    async def stop() -> None:
        entry: list[Entry] = [{"content": "Once upon a time.", "delta_delay_s": 0.3}]
        async with LocalExecutor(str(tmp_path / "s.db"), model=ScriptedModel(entry)) as executor:
            handle = await executor.execute(agent("poet", keep_partial=True), "Tell me.", session_id="cut")
            async for chunk in await handle.stream():
                if chunk.type == "text_delta":
                    break
            assert await handle.interrupt(wait=True)

    asyncio.run(stop())
    helix = CommandLine(tmp_path)
    assert helix("show", "cut", "--db", "s.db", "--html", "cut.html").code == 0
    texts = [text for path, text in Reader((tmp_path / "cut.html").read_text("utf-8")).texts if "style" not in path]
    assert texts[texts.index("Once upon a ") + 1] == "stopped here"
    lines = [line.strip() for line in helix("show", "cut", "--db", "s.db").out.splitlines()]
    assert lines[lines.index("assistant  Once upon a") + 1] == "stopped here"
