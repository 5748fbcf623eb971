"""The console's address of a trace: its filters, and the row whose details are open."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_console_page import page_of
from tests.integration.test_console_trace import Place, helper, visit, visits
from tests.support.browser import go, serious_problems
from tests.support_run import a_tool, agent, call, calls

from helix import Agent, LLMConfig, ScriptedModel, create_sub_agent_tool

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


async def at(page: Any, end: str) -> None:
    """Wait until the address ends so."""
    await page.wait_for_function("end => location.hash.endsWith(end)", arg=end)


async def test_the_filters_of_a_trace_are_in_the_address(tmp_path: Path) -> None:
    plan = [*[visits("hall")] * 45, visits("cellar"), visits("hall", cost_micros=9_000_000), "The pantry has none."]
    async with page_of(str(tmp_path / "a.db"), [helper()], plan) as (browser, executor):
        handle = await executor.execute(helper(), "Visit")
        await handle.result()
        page = await browser.page()
        place = f"#/sessions/{handle.session_id}/timeline"
        await go(page, f"sessions/{handle.session_id}/timeline")
        fits = page.locator(".trace-count")
        await fits.get_by_text("48 steps", exact=True).wait_for()
        await page.get_by_role("button", name="Errors 1").click()
        await at(page, f"{place}?trace=errors")
        await fits.get_by_text("1 of 48 steps").wait_for()
        await page.get_by_label("Tool").select_option(label="visit (47)")
        await at(page, f"{place}?trace=errors&trace_tool=visit")
        await page.get_by_role("button", name="Slow").click()
        await at(page, f"{place}?trace=slow&trace_tool=visit")
        await page.go_back()
        await fits.get_by_text("1 of 48 steps").wait_for()
        await page.go_back()
        await at(page, f"{place}?trace=errors")
        assert await page.get_by_label("Tool").input_value() == ""
        await page.go_forward()
        await at(page, "trace=errors&trace_tool=visit")
        await page.reload()
        await fits.get_by_text("1 of 48 steps").wait_for()
        assert await page.get_by_label("Tool").input_value() == "visit"
        await page.get_by_role("button", name="All", exact=True).last.click()
        await at(page, place)
        await page.get_by_label("Search the trace").type("pantry NONE")
        await fits.get_by_text("1 of 48 steps").wait_for()
        await at(page, f"{place}?trace_text=pantry+NONE")
        await page.get_by_role("tree").get_by_text("Step 48").wait_for()
        await page.go_back()
        await at(page, "trace=errors&trace_tool=visit")  # Back does not lead through each letter
        await page.get_by_role("tab", name="Cost").click()
        await at(page, "/cost")
        await page.get_by_role("tab", name="Timeline").click()
        await fits.get_by_text("48 steps", exact=True).wait_for()
        await go(page, f"sessions/{handle.session_id}/timeline?trace=nonsense&trace_tool=oven")
        await fits.get_by_text("0 of 48 steps").wait_for()
        assert await page.get_by_label("Tool").evaluate("e => e.selectedOptions[0].textContent") == "oven (0)"
        assert await serious_problems(page) == []


async def test_a_link_opens_the_same_row_and_back_closes_it(tmp_path: Path) -> None:
    async with page_of(str(tmp_path / "a.db"), [helper()], [*[visits("hall")] * 50, "Done."]) as (browser, executor):
        handle = await executor.execute(helper(), "Visit", tags=["north"])
        await handle.result()
        page = await browser.page(f"sessions/{handle.session_id}/timeline?tag=north")
        tree = page.get_by_role("tree", name="Trace")
        await tree.get_by_text("Step 10", exact=True).wait_for()
        detail = page.locator(".trace-detail")
        step = tree.get_by_role("treeitem").filter(has=page.get_by_text("Step 10", exact=True))
        await step.locator(".twist").click()
        await tree.locator(".span.tool").click()
        await page.get_by_role("region", name="Details of visit, step 10").wait_for()
        await page.wait_for_function("() => location.hash.includes('?tag=north&trace_row=c+')")
        link = page.url
        other = await browser.context.new_page()
        await other.goto(link)
        await other.get_by_role("region", name="Details of visit, step 10").wait_for()
        row = other.get_by_role("tree").locator(".span.tool")
        assert await row.get_attribute("aria-selected") == "true", "its step is unfolded"
        await other.get_by_role("button", name="All", exact=True).first.click()  # of the list
        await at(other, link.split("tag=north&")[1])
        await other.get_by_role("region", name="Details of visit, step 10").wait_for()
        await other.close()
        await page.go_back()
        await detail.wait_for(state="detached")
        await page.go_forward()
        await page.get_by_role("region", name="Details of visit, step 10").wait_for()
        entries = await page.evaluate("history.length")
        await tree.focus()
        for _ in range(6):
            await page.keyboard.press("ArrowUp")
        await page.get_by_role("region", name="Details of Step 6").wait_for()
        await page.wait_for_function("() => location.hash.endsWith('+6')")
        assert await page.evaluate("history.length") == entries, "Back does not lead through each row"
        await page.reload()
        await page.get_by_role("region", name="Details of Step 6").wait_for()
        await tree.focus()
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Escape")
        await detail.wait_for(state="detached")
        await at(page, "/timeline?tag=north")
        await page.wait_for_timeout(500)  # longer than the address waits for the arrow keys
        assert page.url.endswith("/timeline?tag=north")
        await go(page, f"sessions/{handle.session_id}/timeline?trace_row=nonsense")
        await asyncio.sleep(0.2)
        assert await detail.count() == 0


async def test_a_filter_finds_what_a_sub_agent_did(tmp_path: Path) -> None:
    clerk = Agent(
        name="clerk",
        system_prompt="Help.",
        tools=[a_tool("visit", visit, input_schema=Place)],
        llm_config=LLMConfig(model="x"),
    )
    boss = agent("boss", tools=[create_sub_agent_tool(clerk, Place, description="Ask the clerk.")])
    plan = {
        "boss": [calls(call("subagent__clerk", place="hall")), "Well."],
        "clerk": [visits("attic"), "A kettle, polished."],
    }
    async with page_of(str(tmp_path / "a.db"), [boss], ScriptedModel(plan)) as (browser, executor):
        handle = await executor.execute(boss, "Look")
        await handle.result()
        page = await browser.page(f"sessions/{handle.session_id}/timeline?trace_text=polished")
        await page.locator(".trace-count").get_by_text("1 of 2 steps").wait_for()
        inner = page.get_by_role("treeitem").filter(has_text="Step 2").filter(has_text="clerk")
        await inner.click()
        await page.get_by_role("region", name="Details of Step 2").wait_for()
        await page.reload()
        await page.get_by_role("region", name="Details of Step 2").wait_for()
        assert await inner.get_attribute("aria-selected") == "true"
