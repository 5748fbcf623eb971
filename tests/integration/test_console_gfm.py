"""The console renders Markdown as GitHub does: the examples of GitHub's specification in Chromium, and what GitHub adds."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.browser import browsing, serious_problems

from helix import Agent, LLMConfig, LocalExecutor, ScriptedModel
from helix.console.here import serve_console
from helix.console.server import ConsoleServer, Service

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

EXAMPLES = json.loads((Path(__file__).parents[1] / "fixtures" / "gfm_examples.json").read_text(encoding="utf-8"))[
    "examples"
]
RAW_HTML = {"HTML blocks", "Raw HTML", "Disallowed Raw HTML (extension)"}
"""Sections about tags that a model writes. The console shows them as text."""
TAGS = dict.fromkeys(
    [170, 288, 289, 317, 327, 354, 484, 485, 486, 500, 503, 532, 544, 663, 664], "a tag is shown as it was written"
)
EXCEPTIONS = TAGS | dict.fromkeys([610, 616, 619, 620], "a bare address is a link, by GitHub's own extension")
"""Other examples that differ, by number, with the reason. Images are links to them. A line break is kept, as in GitHub's
comments; the comparison does not see it."""

COMPARE = """
async (examples) => {
  const { markdown } = await import("./console-markdown.js");
  const KEPT = ["start", "align", "checked", "href"];
  const tree = (html) => {
    const body = new DOMParser().parseFromString(html, "text/html").body;
    for (const listing of body.querySelectorAll(".listing")) listing.replaceWith(listing.querySelector("pre"));
    for (const image of body.querySelectorAll("img")) {
      const link = document.createElement("a");
      link.href = image.getAttribute("src");
      link.textContent = image.alt || image.getAttribute("src");
      image.replaceWith(image.closest("a") ? link.textContent : link);
    }
    const walk = (node, pre) => {
      if (node.nodeType === 3) return pre ? node.data : node.data.replace(/[ \\t\\n]+/g, " ");
      if (node.nodeType !== 1) return "";
      const tag = node.tagName.toLowerCase();
      if (tag === "br") return " ";
      const led = /^(https?|mailto):/i.test(node.getAttribute("href"));
      const given = KEPT.filter((name) => node.hasAttribute(name) && (name !== "href" || led));
      const code = tag === "code" && /language-\\S+/.exec(node.className);
      const values = given.map((name) => ` ${name}=${name === "checked" ? "" : node.getAttribute(name)}`);
      const said = values.join("") + (code ? ` ${code[0]}` : "");
      const inner = [...node.childNodes].map((child) => walk(child, pre || tag === "pre")).join("");
      const inline = ["a", "em", "strong", "del", "code", "input"].includes(tag);
      return `<${tag}${said}>${inline || pre ? inner : inner.trim()}</${tag}>`;
    };
    const text = walk(body, false);
    const blocks = "body|p|ul|ol|li|blockquote|h\\\\d|hr|pre|table|thead|tbody|tr|th|td";
    return text.replace(new RegExp(` *(</?(?:${blocks})\\\\b[^>]*>) *`, "g"), "$1").replace(/ +/g, " ");
  };
  return examples.map(({ markdown: source, html }) => [tree(html), tree(markdown(source))]);
}
"""


@pytest_asyncio.fixture
async def page() -> AsyncIterator[Any]:
    with ConsoleServer(Service("ws://127.0.0.1:9", None, "the tests")) as console:
        async with browsing(console) as browser:
            made = await browser.context.new_page()
            await made.goto(console.address)
            yield made


async def test_the_examples_of_githubs_specification_look_as_they_do_there(page: Any) -> None:
    results = await page.evaluate(COMPARE, EXAMPLES)
    differ = {
        one["example"]: (one["section"], one["markdown"], *result)
        for one, result in zip(EXAMPLES, results, strict=True)
        if one["section"] not in RAW_HTML and result[0] != result[1]
    }
    for number in differ.keys() - EXCEPTIONS.keys():
        print(number, *map(repr, differ[number]), sep="\n  ")
    assert differ.keys() == EXCEPTIONS.keys()


ANSWER = r"""
The answer needs `code`[^why] and $e^{i\pi} + 1 = 0$, and costs $5 to $10.

```python
def place(name: str) -> int:
    return len(name)  # <b>not bold</b>
```

$$
\frac{a}{b} \color{red}{c}
$$

> [!WARNING]
> Mind the gap.

- [x] done
- [ ] open

<img src=x onerror=alert(1)> <span class="listing" data-copy>no</span> \(x^2\)

[^why]: Since *reasons* matter.
"""


@asynccontextmanager
async def answered(**options: Any) -> AsyncIterator[tuple[Any, Any]]:
    """Open the session of a run that answered with `ANSWER`. Yields the page and the browser."""
    agent = Agent(name="writer", system_prompt="Write.", llm_config=LLMConfig(model="none"))
    async with LocalExecutor(":memory:", model=ScriptedModel([ANSWER])) as executor:
        handle = await executor.execute(agent, "Go on.")
        await handle.result()
        async with serve_console(executor, "the tests") as service:
            with ConsoleServer(service) as console:
                async with browsing(console, permissions=["clipboard-read", "clipboard-write"], **options) as browser:
                    yield await browser.page(f"sessions/{handle.session_id}/chat"), browser


async def test_code_formulas_footnotes_and_alerts_are_drawn_under_the_strict_policy() -> None:
    async with answered() as (page, browser):
        prose = page.locator(".prose")
        await prose.locator(".hljs-keyword").first.wait_for()
        await prose.locator("math[display=block] mfrac").wait_for()
        assert await prose.locator("math").count() == 3
        assert "costs $5 to $10" in await prose.inner_text()
        assert await prose.locator(".markdown-alert-warning").inner_text() == "Warning\n\nMind the gap."
        assert await prose.locator("input[type=checkbox]").count() == 2
        assert await prose.locator("img, .listing, [data-copy]").count() == 2, "a tag that a model writes is text"
        assert "<img src=x onerror=alert(1)>" in await prose.inner_text()

        await prose.get_by_role("button", name="Copy the code").click()
        await prose.get_by_text("Copied").wait_for()
        copied = await page.evaluate("navigator.clipboard.readText()")
        assert copied == "def place(name: str) -> int:\n    return len(name)  # <b>not bold</b>\n"

        await prose.get_by_role("button", name="Footnote 1").click()
        assert await page.evaluate("document.activeElement.innerText") == "Since reasons matter."
        assert "/chat" in page.url, "a footnote does not change the page's address"
        assert await serious_problems(page) == []
        assert browser.errors == [], "the policy refuses no style and no script"


async def test_a_page_without_the_library_of_code_shows_it_plain() -> None:
    async with answered() as (page, browser):
        await browser.context.route("**/console-highlight.js", lambda route: route.abort())
        await page.reload()
        await page.locator(".prose math").first.wait_for()
        assert "def place(name: str)" in await page.locator(".prose pre").first.inner_text()
        assert await page.locator(".hljs-keyword").count() == 0
