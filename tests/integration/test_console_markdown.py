"""Markdown of a model on the console's page is rendered correctly, while it streams and after it is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_console_page import page_of
from tests.support.browser import serious_problems, shows
from tests.support_run import Gate, agent

from helix.core.steps import AnyStepResult, TextStepResult
from helix.ports.model import LLMGenerateInput

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

TEXT = """\
5. five
6. six

- [x] done
- [ ] open
- plain

1. [x] counted

From zero:

0. zero

| name | price | note | rest |
|:-----|------:|:----:|------|
| Donaudampfschifffahrt | 12.50 | in the middle | internationalisation of everything that is here |
| https://example.org/a-long-address/without-any-space/in-it | 7 | ~~gone~~ | `incomprehensibilities` and more words |

1000. many
"""
LISTS = """all => all.map(list => [list.tagName, list.tagName === 'OL' ? list.start : 0, list.children.length])"""
NUMBERED = """all => all.map(list => {
  const digits = String(list.start + list.children.length - 1).length;
  const item = getComputedStyle(list.lastElementChild);
  return item.listStyleType === 'decimal' && parseFloat(getComputedStyle(list).paddingLeft) >= (digits + 1) * 8;
})"""
BOXES = """all => all.map(box => [box.checked, box.disabled, box.getAttribute('aria-label'), box.offsetWidth > 8])"""
ALIGNED = """all => all.map(cell => getComputedStyle(cell).textAlign)"""
BROKEN = r"""(root) => {
  const broken = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode()); ) {
    for (const word of node.data.matchAll(/\w+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map(rect => Math.round(rect.top))).size > 1) broken.push(word[0]);
    }
  }
  return broken;
}"""
"""A script that returns the words below an element that are broken over more than one line."""


class Writing:
    """A model that writes the text in pieces, and ends when the test lets it."""

    def __init__(self) -> None:
        self.gate = Gate()

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        assert request.callbacks.on_text_delta is not None
        for n in range(0, len(TEXT), 9):
            if (waiting := request.callbacks.on_text_delta(TEXT[n : n + 9])) is not None:
                await waiting
        await self.gate.wait()
        return TextStepResult(content=TEXT)


async def _means_what_it_says(page: Any) -> None:
    prose = page.locator(".item.step .prose")
    lists = await prose.locator("ol, ul").evaluate_all(LISTS)
    assert lists == [["OL", 5, 2], ["UL", 0, 3], ["OL", 1, 1], ["OL", 0, 1], ["OL", 1000, 1]]
    assert await prose.locator("ol").evaluate_all(NUMBERED) == [True] * 4, (
        "numbers are not cut off, and task boxes are shown"
    )
    boxes = await prose.locator("input").evaluate_all(BOXES)
    assert boxes == [[True, True, "Done", True], [False, True, "Not done", True], [True, True, "Done", True]]
    for row in await prose.locator("tr").all():
        assert await row.locator("th, td").evaluate_all(ALIGNED) == ["left", "right", "center", "left"]
    table = prose.locator("table")
    assert await table.evaluate(BROKEN) == []
    inside = "box => [box.scrollWidth > box.clientWidth, document.documentElement.scrollWidth <= innerWidth]"
    scrolls, fits = await table.evaluate(inside)
    assert scrolls and fits, "a wide table scrolls in itself, and the page does not"


async def test_lists_boxes_and_tables_mean_what_they_say(tmp_path: Path) -> None:
    model = Writing()
    async with page_of(str(tmp_path / "a.db"), [agent("helper")], model) as (browser, _):
        page = await browser.page("new/helper")
        await page.set_viewport_size({"width": 420, "height": 900})
        await page.locator("#composer").fill("Hello")
        await page.keyboard.press("Enter")
        await shows(page, "many")
        await _means_what_it_says(page)
        assert await serious_problems(page) == []
        model.gate.open()
        await page.locator(".working").wait_for(state="detached")
        await page.reload()
        await shows(page, "many")
        await _means_what_it_says(page)
