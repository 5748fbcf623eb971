"""Measure the console's page in Chromium on long lists, long sessions and traces, and a fast stream: first content, frames,
input, memory.

    python bench/console_page.py                 prints the table and saves it to bench/results/ (eight minutes)
    python bench/console_page.py --only list     one of list, session, trace, stream; saves nothing

The server is `helix console`'s on SQLite, in a process of its own. Playwright drives Debian's Chromium. Needs the package
`playwright` and a `chromium` on the path.

First content: the time from the start of the navigation to the frame that shows the first row or the newest answer. Frames:
measured while a script scrolls by a fixed distance in each frame; the longest is the longest time between two. Input: the
longest event that `PerformanceObserver` reports while keys are typed (INP). Heap: the used heap after a collection.

The trace of 10,000 steps is that of a run whose 100 steps each ask a sub-agent, which takes 99 steps: one session of 10,000
steps takes a quarter of an hour to make. The trace of 2,000 steps is that of the long session, without sub-agents.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from helix import Agent, LLMConfig, LocalExecutor, ScriptedModel, create_sub_agent_tool, tool
from helix.console.here import serve_console
from helix.console.server import ConsoleServer
from helix.core.registry import AgentRegistry
from helix.core.steps import AnyStepResult, TextStepResult
from helix.ports.model import LLMGenerateInput

HERE = Path(__file__).parent
SESSIONS, STEPS, RATE = 5_000, 2_000, 1_000
ASKED, STEPS_EACH = 100, 99
SECONDS = int(os.environ.get("STREAM_SECONDS", "60"))
OLD = 1234
SCROLL_S, ROW_PX, ITEM_PX = 6, 60, 90
SENTENCES = (
    "The **kettle** is on the shelf, and the shelf is in the hall.\n\n"
    "- one of `three`\n- two of three, with a [link](https://example.com/a)\n- three\n\n"
    "```python\nfor place in places:\n    print(place)\n```\n\n"
    "| place | pieces |\n|---|---|\n| hall | 4 |\n| yard | 7 |\n\n"
)
CHARS = 5
FIRST = """
window.first = new Promise((found) => {
  const look = () => {
    if (!document.querySelector("SELECTOR")) return requestAnimationFrame(look);
    requestAnimationFrame(() => setTimeout(() => found(performance.now())));
  };
  addEventListener("DOMContentLoaded", look);
});
"""
SCROLL = """
async ([which, px, seconds]) => {
  const box = document.querySelector(which);
  const times = [];
  const begun = performance.now();
  await new Promise((done) => {
    const frame = (now) => {
      times.push(now);
      box.scrollTop += px;
      if (performance.now() - begun < seconds * 1000) requestAnimationFrame(frame); else done();
    };
    requestAnimationFrame(frame);
  });
  const gaps = times.slice(1).map((time, n) => time - times[n]);
  const long = gaps.filter((gap) => gap > 34).length;
  return { fps: 1000 * gaps.length / (times.at(-1) - times[0]), longest: Math.max(...gaps), long, frames: gaps.length };
}
"""
FRAMES = """
seconds => new Promise((done) => {
  let frames = 0;
  const begun = performance.now();
  const frame = (now) => {
    if (now - begun > seconds * 1000) return done(frames / seconds);
    frames++;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})
"""
INPUT = """
window.events = [];
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) if (one.interactionId || one.name === "input") window.events.push(one.duration);
}).observe({ type: "event", durationThreshold: 16 });
"""
ALL_READ = "() => document.querySelector('.trace-count') && !document.querySelector('.trace-reading')"


@tool
async def look(place: str) -> str:
    """What is at a place."""
    return f"{place} has 4 kettles"


class Speaker:
    """Says Markdown, so many pieces a second."""

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        said: list[str] = []
        assert request.callbacks.on_text_delta is not None
        begun = time.monotonic()
        for n in range(RATE * SECONDS + 1):
            await asyncio.sleep(max(0.0, begun + n / RATE - time.monotonic()))
            start = n * CHARS % len(SENTENCES)
            said.append((SENTENCES + SENTENCES)[start : start + CHARS] if n < RATE * SECONDS else "\n\nThat was all.")
            if (waiting := request.callbacks.on_text_delta(said[-1])) is not None:
                await waiting
        return TextStepResult(content="".join(said))


def helper() -> Agent[Any, Any]:
    return Agent(name="helper", system_prompt="Help.", tools=[look], llm_config=LLMConfig(model="none"), max_steps=None)


class Question(BaseModel):
    place: str


def boss() -> Agent[Any, Any]:
    config = LLMConfig(model="none")
    clerk = Agent(name="clerk", system_prompt="Help.", tools=[look], llm_config=config, max_steps=None)
    tools = [create_sub_agent_tool(clerk, Question, description="Ask the clerk.")]
    return Agent(name="boss", system_prompt="Ask.", tools=tools, llm_config=config, max_steps=None)


async def seed_trace(path: str, asked: int, steps: int) -> str:
    """Return the id of a session whose steps each ask a sub-agent, which takes this many steps."""
    usage = {"prompt_tokens": 900, "completion_tokens": 30, "cached_tokens": 600, "cost_micros": 400}
    work = {"content": "I look.", "tool_calls": [{"name": "look", "arguments": {"place": "the hall"}}], "usage": usage}
    ask = {"tool_calls": [{"name": "subagent__clerk", "arguments": {"place": "the hall"}}], "usage": usage}
    plan = {"boss": [*[ask] * asked, "That was all."], "clerk": [*[work] * (steps - 1), "Four kettles."] * asked}
    async with LocalExecutor(path, model=ScriptedModel(plan, record=False)) as executor:
        handle = await executor.execute(boss(), "Where are all the kettles?")
        await handle.result()
        return handle.session_id


async def seed(path: str, sessions: int, steps: int) -> str:
    """Return the id of the session with this many steps, which is the newest."""
    step = {"content": f"{SENTENCES}", "tool_calls": [{"name": "look", "arguments": {"place": "the hall"}}]}
    script = [*["Good morning."] * sessions, *[step] * (steps - 1), "That was all."]
    async with LocalExecutor(path, model=ScriptedModel(script, record=False)) as executor:
        for n in range(sessions):
            await (await executor.execute(helper(), f"Question {n}: where is the kettle?")).result()
        handle = await executor.execute(helper(), "Where are all the kettles?")
        await handle.result()
        return handle.session_id


async def serve(path: str) -> None:
    """Print the address; serve until stdin ends."""
    registry = AgentRegistry()
    registry.register(helper())
    async with LocalExecutor(path, model=Speaker(), registry=registry) as executor:
        async with serve_console(executor, "the bench") as service:
            with ConsoleServer(service) as console:
                print(console.address, flush=True)
                await asyncio.to_thread(sys.stdin.read)


@asynccontextmanager
async def served(path: str) -> AsyncIterator[str]:
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(sys.executable, __file__, "serve", path, stdin=pipe, stdout=pipe)
    assert server.stdin is not None and server.stdout is not None
    try:
        yield (await server.stdout.readline()).decode().strip()
    finally:
        server.stdin.close()
        await server.wait()


class Page:
    """Open a new tab of a new browser context at an address of the console."""

    def __init__(self, page: Any, address: str) -> None:
        self.page, self.address = page, address

    async def open(self, at: str, first: str) -> float:
        """Return the seconds to the first content, which matches the selector `first`."""
        await self.page.add_init_script(FIRST.replace("SELECTOR", first))
        await self.page.goto(f"{self.address}/{at}" if at else self.address)
        return float(await self.page.evaluate("window.first")) / 1000

    async def scroll(self, which: str, px: int) -> str:
        await self.page.wait_for_timeout(500)
        found = await self.page.evaluate(SCROLL, [which, px, SCROLL_S])
        return f"{found['fps']:.0f} a second, longest {found['longest']:.0f} ms, {found['long']} over 34 ms"

    async def type(self, which: str, text: str) -> float:
        """Return the milliseconds of the slowest event."""
        await self.page.evaluate(INPUT)
        await self.page.focus(which)
        await self.page.keyboard.type(text, delay=60)
        await self.page.wait_for_timeout(300)
        return float(await self.page.evaluate("Math.max(0, ...window.events)"))

    async def press(self, which: str, key: str, times: int) -> float:
        """Return the milliseconds of the slowest event."""
        await self.page.evaluate(INPUT)
        await self.page.focus(which)
        for _ in range(times):
            await self.page.keyboard.press(key, delay=40)
        await self.page.wait_for_timeout(300)
        return float(await self.page.evaluate("Math.max(0, ...window.events)"))

    async def heap(self) -> float:
        """Return the MB in use after a collection."""
        session = await self.page.context.new_cdp_session(self.page)
        await session.send("HeapProfiler.collectGarbage")
        used = await session.send("Runtime.getHeapUsage")
        await session.detach()
        return float(used["usedSize"]) / 1e6


async def long_list(page: Page) -> list[tuple[str, str]]:
    first = await page.open("", ".row")
    await page.page.wait_for_timeout(1000)
    fps = await page.scroll(".sessions", ROW_PX)
    rows = await page.page.locator(".row").count()
    begun = time.monotonic()
    slowest = await page.type("#search", f"question {OLD}:")
    await page.page.locator(".row").filter(has_text=f"Question {OLD}:").wait_for(timeout=60_000)
    found = time.monotonic() - begun - 14 * 0.06 - 0.3
    await page.page.fill("#search", "")
    begun = time.monotonic()
    await page.page.get_by_role("button", name="Filters").click()
    await page.page.locator(".panel-fields option", has_text="helper (").wait_for(state="attached")
    counted = time.monotonic() - begun
    return [
        ("first content", f"{first:.2f} s"),
        ("the filters have their counts", f"{counted:.2f} s"),
        ("scrolling", fps),
        ("rows in the page after scrolling", f"{rows:,}"),
        ("an old session is found by its text", f"{max(0.0, found):.2f} s after the last key"),
        ("typing in the search", f"{slowest:.0f} ms"),
    ]


async def long_session(page: Page, session_id: str) -> list[tuple[str, str]]:
    first = await page.open(f"sessions/{session_id}/chat", ".item.step")
    await page.page.get_by_text("That was all.").wait_for()
    await page.page.wait_for_timeout(2000)
    fps = await page.scroll(".scroller", -ITEM_PX)
    items = await page.page.locator(".item").count()
    slowest = await page.type("#composer", "typed while it is long")
    return [
        ("first content", f"{first:.2f} s"),
        ("scrolling up", fps),
        ("items in the page after scrolling", f"{items:,}"),
        ("typing", f"{slowest:.0f} ms"),
        ("heap", f"{await page.heap():.0f} MB"),
    ]


async def long_trace(page: Page, session_id: str) -> list[tuple[str, str]]:
    first = await page.open(f"sessions/{session_id}/timeline", ".step-row")
    await page.page.wait_for_function(ALL_READ, timeout=300_000)
    read = await page.page.evaluate("performance.now()")
    await page.page.get_by_role("button", name="Unfold all").click()
    fps = await page.scroll(".trace-tree", ROW_PX)
    rows = await page.page.locator(".trace-row").count()
    begun = time.monotonic()
    await page.page.get_by_role("button", name="Slow", exact=True).click()
    await page.page.locator(".trace-count").get_by_text(" of ").wait_for()
    filtered = time.monotonic() - begun
    slowest = await page.press(".trace-tree", "ArrowDown", 20)
    return [
        ("first content", f"{first:.2f} s"),
        ("all steps are read", f"{read / 1000:.1f} s"),
        ("scrolling, all unfolded", fps),
        ("rows in the page after scrolling", f"{rows:,}"),
        ("the slow steps", f"{filtered:.2f} s"),
        ("arrow keys", f"{slowest:.0f} ms"),
        ("heap", f"{await page.heap():.0f} MB"),
    ]


async def fast_stream(page: Page) -> list[tuple[str, str]]:
    await page.open("new/helper", "#composer")
    await page.page.fill("#composer", "Speak.")
    await page.page.keyboard.press("Enter")
    await page.page.locator(".item.step").first.wait_for()
    begun, heaps, slowest = time.monotonic(), [], []
    frames = await page.page.evaluate(FRAMES, 5)
    for second in (10, SECONDS - 5):
        await page.page.wait_for_timeout(max(0.0, begun + second - 4 - time.monotonic()) * 1000)
        which = "#composer" if await page.page.locator("#composer").is_enabled() else "#search"
        slowest.append(await page.type(which, "typed in the stream"))
        heaps.append(await page.heap())
    await page.page.get_by_text("That was all.").wait_for(timeout=60_000)
    await page.page.locator(".working").wait_for(state="detached", timeout=60_000)
    late = time.monotonic() - begun - SECONDS
    shown = "document.querySelector('.item.step .prose').textContent.replace(/\\s+/g, '')"
    text = await page.page.evaluate(shown)
    heap = await page.heap()
    await page.page.reload()
    await page.page.get_by_text("That was all.").wait_for()
    same = "the same" if text == await page.page.evaluate(shown) else "**another**"
    return [
        (
            "chunks",
            f"{RATE * SECONDS:,} in {SECONDS} s, {RATE * SECONDS * CHARS / 1e6:.2f} MB; {same} when read again",
        ),
        ("frames while it streams", f"{frames:.0f} a second"),
        ("typing at 10 s", f"{slowest[0]:.0f} ms"),
        (f"typing at {SECONDS - 5} s", f"{slowest[1]:.0f} ms"),
        ("heap at 10 s", f"{heaps[0]:.1f} MB"),
        (f"heap at {SECONDS - 5} s", f"{heaps[1]:.1f} MB"),
        ("heap after the end", f"{heap:.1f} MB"),
        ("the page shows the end", f"{max(0.0, late):.1f} s after the last chunk"),
    ]


async def measure(only: str | None) -> list[str]:
    from playwright.async_api import async_playwright

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/helix.db"
        traced = await seed_trace(path, ASKED, STEPS_EACH) if only in (None, "trace") else ""
        session_id = await seed(path, SESSIONS if only in (None, "list") else 3, STEPS if only != "list" else 3)
        async with served(path) as address, async_playwright() as running:
            browser = await running.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])

            async def page() -> Page:
                context = await browser.new_context(viewport={"width": 1280, "height": 800})
                return Page(await context.new_page(), address)

            found = {}
            if only in (None, "list"):
                found[f"{SESSIONS:,} sessions"] = await long_list(await page())
            if only in (None, "session"):
                found[f"a session of {STEPS:,} steps"] = await long_session(await page(), session_id)
            if only in (None, "trace"):
                found[f"the trace of {STEPS:,} steps"] = await long_trace(await page(), session_id)
                found[f"the trace of {ASKED * (STEPS_EACH + 1):,} steps"] = await long_trace(await page(), traced)
            if only in (None, "stream"):
                found[f"{RATE:,} chunks a second"] = await fast_stream(await page())
            await browser.close()
    return [f"| {what} | {name} | {value} |" for what, rows in found.items() for name, value in rows]


def main() -> None:
    match sys.argv[1:]:
        case ["serve", path]:
            asyncio.run(serve(path))
        case ["--only", only]:
            print("\n".join(asyncio.run(measure(only))))
        case _:
            load = os.getloadavg()[0]
            head = [
                "# The console's page",
                "",
                f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs, load {load:.1f} before; "
                "headless Chromium without a graphics card; `python bench/console_page.py`.",
                "",
                "| what | measure | value |",
                "|---|---|---|",
            ]
            text = "\n".join([*head, *asyncio.run(measure(None))]) + "\n"
            print(text)
            saved = HERE / "results" / "console_page.md"
            _, *sections = saved.read_text().split("\n## ")  # what was compared earlier, by hand
            saved.write_text("\n## ".join([text, *sections]))


if __name__ == "__main__":
    main()
