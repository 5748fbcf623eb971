"""Harmful texts of a model on the console's page are shown as text, while they stream and after they are stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_console_page import page_of
from tests.support.browser import shows
from tests.support_run import Gate, agent

from helix.core.steps import AnyStepResult, TextStepResult
from helix.ports.model import LLMGenerateInput

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

LINKS = (
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "java&#x09;script:alert(1)",
    "&#106;avascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:x",
    "blob:https://evil.example/x",
    "//evil.example/x",
    "#/sessions/x",
    "file:///etc/passwd",
)
HOSTILE = (
    "".join(f"[link{n}](<{link}>) " for n, link in enumerate(LINKS))
    + "[there](https://bank.example/a) [named][ref] ![i](https://evil.example/a.png)\n\n[ref]: javascript:alert(2)\n\n"
    "&#x202e;evil&#8237; &lrm; \u2067raw\n\n"
    "<img src=x onerror=alert(3)> <svg onload=alert(4)> <a href='javascript:alert(5)'>a</a> <form action=https://evil.example>"
    "<input name=body><base href=https://evil.example/><link rel=stylesheet href=//evil.example/a.css>"
    "<iframe srcdoc='<script>alert(6)</script>'></iframe> <math><mtext><style><img src=x onerror=alert(7)></style>\n\n"
    "```<img src=x onerror=alert(8)>\n<script>alert(9)</script>\n```\n\n| <b onclick=alert(10)>a |\n|---|\n| `<u>` |\n\n"
)
LISTING = "```\n" + "<script>alert(11)</script> <img src=x onerror=alert(12)> </pre>\n" * 500
HARMFUL = "img, svg, style, script, iframe, form, input, base, link, math, u, b, [onerror], [onload], [onclick]"
MARKS = r"/[\u200e\u200f\u202a-\u202e\u2066-\u2069]/"


class Hostile:
    """A model that streams the texts, and ends when the test lets it."""

    def __init__(self) -> None:
        self.gate = Gate()

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        said = [*(HOSTILE[n : n + 7] for n in range(0, len(HOSTILE), 7)), *[LISTING, "the last line\n"]]
        assert request.callbacks.on_text_delta is not None
        for piece in said:
            if (waiting := request.callbacks.on_text_delta(piece)) is not None:
                await waiting
        await self.gate.wait()
        return TextStepResult(content="".join(said))


async def _is_harmless(page: Any) -> None:
    answer = page.locator(".item.step .prose")
    await answer.locator(".block").first.wait_for()
    text = await answer.inner_text()
    assert "<script>alert(11)</script>" in text and "<img src=x onerror=alert(3)>" in text
    assert "⟨U+202E⟩evil⟨U+202D⟩" in text and "⟨U+2067⟩raw" in text
    assert not await answer.evaluate(f"one => {MARKS}.test(one.innerHTML)")
    assert await answer.locator(HARMFUL).count() == 0
    anchors = await answer.locator("a[href]").evaluate_all(
        "all => all.map(one => [one.getAttribute('href'), one.target, one.rel, one.title])"
    )
    links = ["https://bank.example/a", "https://evil.example/a.png"]
    assert anchors == [[link, "_blank", "noopener noreferrer nofollow", link] for link in links], "a picture is a link"


async def test_hostile_markdown_is_text_while_it_comes_and_when_it_is_stored(tmp_path: Path) -> None:
    model = Hostile()
    async with page_of(str(tmp_path / "a.db"), [agent("helper")], model) as (browser, _):
        page = await browser.page("new/helper")
        await page.locator("#composer").fill("Hello \u202e<b>you</b>")
        await page.keyboard.press("Enter")
        await shows(page, "the last line")
        assert "Hello ⟨U+202E⟩<b>you</b>" in await page.locator(".item.user").inner_text()
        await _is_harmless(page)
        model.gate.open()
        await page.locator(".working").wait_for(state="detached")
        await _is_harmless(page)
        await page.reload()
        await shows(page, "the last line")
        await _is_harmless(page)
        assert not [url for url in browser.requests if "evil" in url]
