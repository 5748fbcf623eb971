"""Messages that are sent in the console while a run works: they wait, stay after a reload, and can be taken back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_console_page import page_of
from tests.support.browser import serious_problems, shows
from tests.support_run import Gate, Text, a_tool, agent, call, calls

from helix import create_sub_agent_tool

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]
SHOTS = os.environ.get("HELIX_SCREENSHOTS")


async def say(page: Any, text: str) -> None:
    await page.locator("#composer").fill(text)
    await page.keyboard.press("Enter")


async def shot(page: Any, name: str) -> None:
    if SHOTS:
        await page.screenshot(path=Path(SHOTS) / f"{name}.png")


def session_of(page: Any) -> str:
    return str(page.url).partition("#/sessions/")[2].split("/")[0]


async def test_messages_wait_are_sent_now_and_are_withdrawn(tmp_path: Path) -> None:
    gate = Gate()
    plan: list[Any] = [calls(call("work"), content="I look."), "I add the station.", "And here is the hotel."]
    agents = [agent("helper", tools=[a_tool("work", lambda args, ctx: gate.wait())])]
    async with page_of(str(tmp_path / "a.db"), agents, plan) as (browser, executor):
        page = await browser.page("new/helper")
        await say(page, "Find the way")
        await gate.reached()
        waiting = page.get_by_role("region", name="Messages that wait").locator("li")
        for n, text in enumerate(["Add the station", "Then find a hotel", "Never mind"]):
            await say(page, text)
            await waiting.nth(n).wait_for()
        await shot(page, "waiting")
        assert await serious_problems(page) == []
        await page.reload()
        await waiting.nth(2).wait_for()
        assert [await one.locator(".bubble").inner_text() for one in await waiting.all()] == [
            "Add the station",
            "Then find a hotel",
            "Never mind",
        ]
        other = await browser.page(f"sessions/{session_of(page)}")
        seen = other.get_by_role("region", name="Messages that wait").locator("li")
        await seen.nth(2).wait_for()
        await waiting.filter(has_text="Never mind").get_by_role("button", name="Withdraw").click()
        await waiting.filter(has_text="Add the station").get_by_role("button", name="Send now").click()
        await waiting.get_by_text("Waits for the next step of the run").wait_for()
        await seen.get_by_text("Waits for the next step of the run").wait_for()
        assert await waiting.count() == await seen.count() == 2
        await shot(page, "sent-now")
        gate.open()
        await shows(page, "And here is the hotel.")
        await page.get_by_role("region", name="Messages that wait").wait_for(state="detached")
        for tab in (page, other):
            await shows(tab, "And here is the hotel.")
            users = [await one.inner_text() for one in await tab.locator(".item.user .bubble").all()]
            assert users == ["Find the way", "Add the station", "Then find a hotel"]
        await shot(page, "delivered")
        messages = (await executor.sessions.get_messages(session_of(page))).messages
        told = [m.content for m in messages if m.role in ("user", "assistant")]
        assert told == [
            *("Find the way", "I look.", "Add the station"),
            *("I add the station.", "Then find a hotel", "And here is the hotel."),
        ]


async def test_a_message_that_waits_when_the_run_is_stopped_goes_before_the_next_one(tmp_path: Path) -> None:
    gate = Gate()
    plan: list[Any] = [calls(call("work"), content="I look."), "First.", "Second."]
    agents = [agent("helper", tools=[a_tool("work", lambda args, ctx: gate.wait())])]
    async with page_of(str(tmp_path / "a.db"), agents, plan) as (browser, executor):
        page = await browser.page("new/helper")
        await say(page, "Go")
        await gate.reached()
        await say(page, "One")
        waiting = page.get_by_role("region", name="Messages that wait").locator("li")
        await waiting.first.wait_for()
        assert await executor.interrupt(session_of(page))
        gate.open()
        await waiting.get_by_text("Waits until the session goes on").wait_for()
        await shot(page, "stopped")
        await say(page, "Two")
        await shows(page, "Second.")
        messages = (await executor.sessions.get_messages(session_of(page))).messages
        assert [m.content for m in messages if m.role == "user"] == ["Go", "One", "Two"]


async def test_a_sub_agent_is_addressed_on_its_own_page(tmp_path: Path) -> None:
    gate = Gate()
    child = agent("child", output_schema=Text, tools=[a_tool("work", lambda args, ctx: gate.wait())])
    plan: list[Any] = [
        calls(call("subagent__child", message="go"), content="You do it."),
        calls(call("work"), content="I work."),
        calls(call("__finish__", text="as told")),
        "All done.",
    ]
    agents = [agent("helper", tools=[create_sub_agent_tool(child)])]
    async with page_of(str(tmp_path / "a.db"), agents, plan) as (browser, executor):
        page = await browser.page("new/helper")
        await say(page, "Go")
        await gate.reached()
        await page.wait_for_function("() => location.hash.startsWith('#/sessions/')")
        root = session_of(page)
        (below,) = await executor.sessions.list_sub_sessions(root)
        inner = await browser.page(f"sessions/{below.session_id}")
        await say(inner, "Mind the gap")
        await inner.get_by_role("region", name="Messages that wait").get_by_text("Mind the gap").wait_for()
        gate.open()
        await shows(page, "All done.")
        messages = (await executor.sessions.get_messages(below.session_id)).messages
        assert [m.content for m in messages if m.role == "user"] == ["go", "Mind the gap"]
