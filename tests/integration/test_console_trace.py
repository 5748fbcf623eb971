"""The console's trace: its rows, filters, zoom and keys, the payload of a model call, and the state of a step."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.integration.test_console_page import page_of
from tests.support.browser import go, serious_problems
from tests.support_run import Gate, Nothing, a_tool, agent, call, calls

from helix import Agent, Confirmation, LLMConfig, LocalExecutor, ScriptedModel, ToolContext, create_sub_agent_tool
from helix.engine.engine import Settings

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]
USAGE = {"prompt_tokens": 1000, "completion_tokens": 50, "cached_tokens": 750, "cost_micros": 900}


class Place(BaseModel):
    place: str


async def visit(given: Place, ctx: ToolContext[Any]) -> str:
    if given.place == "cellar":
        raise ValueError("it is locked")
    await asyncio.sleep(0.05)
    return f"{given.place} has a kettle"


def helper(**more: Any) -> Agent[Any, Any]:
    return agent("helper", tools=[a_tool("visit", visit, input_schema=Place)], max_steps=None, **more)


def visits(*places: str, **usage: int) -> Any:
    return calls(*(call("visit", place=place) for place in places)) | {"usage": USAGE | usage}


async def test_a_failed_call_is_found_by_filter_and_read_by_keyboard(tmp_path: Path) -> None:
    plan = [
        *[visits("hall")] * 50,
        visits("cellar"),
        *[visits("yard")] * 10,
        visits("hall", cost_micros=9_000_000),
        "Done.",
    ]
    async with page_of(str(tmp_path / "a.db"), [helper()], plan) as (browser, executor):
        handle = await executor.execute(helper(), "Visit")
        await handle.result()
        page = await browser.page(f"sessions/{handle.session_id}/timeline")
        tree = page.get_by_role("tree", name="Trace")
        await tree.locator(".step-row").first.wait_for()
        assert await tree.locator(".trace-row").count() < 60, "only the rows on the screen are in the page"
        await tree.focus()
        await page.keyboard.press("End")
        await tree.locator("[aria-selected=true]").get_by_text("Step 63").wait_for()
        await page.keyboard.press("Home")
        await tree.locator("[aria-selected=true]").get_by_text("Run 1").wait_for()
        await page.get_by_role("button", name="Errors 1").click()
        await page.get_by_text("1 of 63 steps").wait_for()
        failed = tree.locator(".tool.failed")
        await failed.get_by_text("it is locked").wait_for()
        assert await failed.locator(".look-failed").count() == 1
        await tree.focus()
        await page.keyboard.press("End")
        await page.keyboard.press("Enter")
        detail = page.get_by_role("region", name="Details of visit, step 51")
        await page.wait_for_function("() => document.activeElement.className === 'trace-detail'")
        assert '"cellar"' in await detail.get_by_role("group", name="Arguments of visit").inner_text()
        await page.keyboard.press("Escape")
        await detail.wait_for(state="detached")
        assert await page.evaluate("document.activeElement.className") == "trace-tree"
        await page.keyboard.press("Enter")
        await detail.wait_for()
        await tree.focus()
        await page.keyboard.press("ArrowUp")
        await page.get_by_role("region", name="Details of Step 51").wait_for()
        assert await page.evaluate("document.activeElement.className") == "trace-tree", "the details follow the arrows"
        await page.keyboard.press("Escape")
        await page.locator(".trace-detail").wait_for(state="detached")
        await page.keyboard.press("ArrowLeft")
        await page.keyboard.press("ArrowLeft")
        await failed.wait_for(state="detached")
        await page.get_by_role("button", name="Expensive").click()
        await tree.get_by_text("Step 62").wait_for()
        await page.get_by_label("Tool").select_option(label="visit (62)")
        await page.get_by_text("62 of 63 steps").wait_for()


async def test_a_step_that_lost_its_cache_is_marked_and_found(tmp_path: Path) -> None:
    filled = visits("hall", calls=1, prompt_tokens=20_000, cached_tokens=0, written_tokens=20_000)
    held = visits("hall", calls=1, prompt_tokens=20_500, cached_tokens=20_000)
    empty = visits("hall", calls=1, prompt_tokens=21_000, cached_tokens=0)
    async with page_of(str(tmp_path / "a.db"), [helper()], [filled, held, empty, "Done."]) as (browser, executor):
        handle = await executor.execute(helper(), "Visit")
        await handle.result()
        page = await browser.page(f"sessions/{handle.session_id}/timeline")
        tree = page.get_by_role("tree", name="Trace")
        await page.get_by_role("button", name="Lost caches 1").click()
        await page.get_by_text("1 of 4 steps").wait_for()
        mark = tree.get_by_text("cache lost")
        assert await mark.count() == 1 and await mark.get_attribute("title") == "the provider did not have it"
        await tree.focus()
        await page.keyboard.press("End")
        await page.keyboard.press("ArrowUp")
        await page.keyboard.press("Enter")
        await page.get_by_text("20,000 tokens: the provider did not have it").wait_for()
        await tree.focus()
        await page.keyboard.press("ArrowUp")
        await page.keyboard.press("ArrowLeft")
        await tree.locator(".step-row").get_by_text("cache lost").wait_for()


async def test_parallel_calls_show_their_arguments_and_zoom_enlarges_them(tmp_path: Path) -> None:
    slow = {"content": "All three places have a kettle, and each of them is clean and red.", "delta_delay_s": 0.1}
    plan = [visits("hall", "yard", "attic"), slow]
    async with page_of(str(tmp_path / "a.db"), [helper()], plan) as (browser, executor):
        handle = await executor.execute(helper(), "Visit")
        await handle.result()
        page = await browser.page(f"sessions/{handle.session_id}/timeline")
        tree = page.get_by_role("tree", name="Trace")
        rows = tree.locator(".span.tool")
        await rows.nth(2).wait_for()
        texts = [await row.locator(".args").inner_text() for row in await rows.all()]
        assert texts == [f'{{"place":"{place}"}}' for place in ("hall", "yard", "attic")]
        await tree.locator(".step-row").first.get_by_text("∥ 3").wait_for()
        mark = rows.first.locator(".look-tool")
        before = (await mark.bounding_box())["width"]
        await rows.first.click()
        await tree.focus()
        await page.keyboard.press("+")
        await page.keyboard.press("+")
        lane = (await rows.first.locator(".lane").bounding_box())["width"]
        assert (await mark.bounding_box())["width"] >= min(2 * before, 0.9 * lane) > 1.2 * before
        await page.get_by_role("button", name="Fit").click()
        assert abs((await mark.bounding_box())["width"] - before) < 2


async def test_waits_takeovers_and_discarded_attempts_have_their_own_marks(tmp_path: Path) -> None:
    gate, db = Gate(), str(tmp_path / "a.db")

    async def act(given: Nothing, ctx: ToolContext[Any]) -> str:
        if gate.times == 0:
            await gate.wait()
        return "acted"

    async def refund(given: Nothing, ctx: ToolContext[Any]) -> str:
        return "refunded"

    tools = [a_tool("act", act), a_tool("refund", refund, require_approval=True)]
    clerk = agent("helper", tools=tools)
    executor = LocalExecutor(db, model=ScriptedModel([calls(call("act"))]), settings=Settings(claim_s=1))
    handle = await executor.execute(clerk, "Hello")
    await gate.reached()
    await executor.close()
    async with page_of(db, [clerk], [calls(call("refund")), "Done."]) as (browser, executor):
        waiting = await (await executor.resume(clerk, handle.session_id)).result()
        confirmation = Confirmation(waiting.pending[0].call_id, by="ada")
        await (await executor.resume(clerk, handle.session_id, confirmation=confirmation)).result()
        page = await browser.page(f"sessions/{handle.session_id}/timeline")
        tree = page.get_by_role("tree", name="Trace")
        await tree.get_by_text("Its worker died; another took over").wait_for()
        await tree.get_by_text("Waited for a response").wait_for()
        for look in ("takeover", "person", "tool"):
            assert await tree.locator(f".look-{look}").count() > 0, look
        await tree.get_by_text("↻ 2 claims").first.wait_for()
        await tree.locator(".run-row").nth(1).get_by_text("taken over from a dead worker").wait_for()
        await page.get_by_text("Legend", exact=True).click()
        await page.locator(".legend").get_by_text("Waits for a response").wait_for()
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            assert await serious_problems(page) == [], scheme


async def test_a_sub_agent_is_inside_its_call(tmp_path: Path) -> None:
    tools, config = [a_tool("visit", visit, input_schema=Place)], LLMConfig(model="x")
    clerk = Agent(name="clerk", system_prompt="Help.", tools=tools, llm_config=config)
    asks = create_sub_agent_tool(clerk, Place, description="Ask the clerk.")
    boss = Agent(name="boss", system_prompt="Ask.", tools=[asks], llm_config=config)
    plan = {"boss": [calls(call("subagent__clerk", place="hall")), "Well."], "clerk": [visits("hall"), "A kettle."]}
    async with page_of(str(tmp_path / "a.db"), [boss], ScriptedModel(plan)) as (browser, executor):
        handle = await executor.execute(boss, "Look")
        await handle.result()
        page = await browser.page(f"sessions/{handle.session_id}/timeline")
        tree = page.get_by_role("tree", name="Trace")
        asked = tree.get_by_role("treeitem").filter(has_text="sub-agent · 2 steps")
        await asked.wait_for()
        inner = tree.get_by_role("treeitem").filter(has_text="Step 1").filter(has_text="clerk")
        assert int(await inner.get_attribute("aria-level")) == int(await asked.get_attribute("aria-level")) + 1
        await asked.click()
        await tree.focus()
        await page.keyboard.press("ArrowLeft")
        await inner.wait_for(state="detached")


async def test_the_payload_has_what_was_sent_and_answered(tmp_path: Path) -> None:
    plan = [visits("hall") | {"content": "I look first."}, "There is one."]
    async with page_of(str(tmp_path / "a.db"), [helper()], plan) as (browser, executor):
        handle = await executor.execute(helper(), "Is there a kettle?")
        await handle.result()
        await browser.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = await browser.page(f"sessions/{handle.session_id}/timeline")
        await page.locator(".step-row").first.click()
        detail = page.locator(".trace-detail")
        await detail.get_by_role("tab", name="Payload").click()
        await detail.get_by_role("heading", name="Answer").wait_for()
        assert "I look first." in await detail.inner_text()
        cells = [await row.locator("th, td").all_inner_texts() for row in await detail.locator("tbody tr").all()]
        rows = {name.strip(): tokens for name, tokens in cells}
        assert next(n for name, n in rows.items() if name.startswith("From a cache")) == "750"
        parts = sum(int(n.removeprefix("about ").replace(",", "")) for n in rows.values() if n.startswith("about"))
        assert abs(parts - 1000) <= 3, rows
        await detail.get_by_role("button", name="Copy the payload as JSON").click()
        copied = json.loads(await page.evaluate("navigator.clipboard.readText()"))
        assert copied["messages"][0]["content"] == "Is there a kettle?" and copied["tools"][0]["name"] == "visit"
        assert copied["answer"]["tool_calls"][0]["arguments"] == {"place": "hall"}
        assert copied["usage"]["cached_tokens"] == 750
        await detail.get_by_role("button", name="Raw JSON").click()
        assert '"system_prompt"' in await detail.get_by_label("Payload of step 1").inner_text()


STATES: list[dict[str, Any]] = [
    {
        "shelves": [{"id": "a", "kettles": 1}, {"id": "b", "kettles": 2}, {"id": "c", "kettles": 3}],
        "note": "The kettle in the hall is red, and the one in the yard is blue; both are clean and ready to be sold.",
        "old": [1, 2],
    },
    {
        "shelves": [{"id": "c", "kettles": 3}, {"id": "a", "kettles": 5}, {"id": "d", "kettles": 4}],
        "note": "The kettle in the hall is green, and the one in the yard is blue; both are clean and ready to be sold.",
        "new": {"deep": True},
    },
]


async def test_the_state_before_and_after_a_step_and_what_changed(tmp_path: Path) -> None:
    async def put(given: Nothing, ctx: ToolContext[Any]) -> str:
        def change(state: dict[str, Any]) -> None:
            times = state.get("times", 0)
            state.clear()
            state.update(STATES[times], times=times + 1)

        ctx.update_state(change)
        return "put"

    keeper = agent("helper", tools=[a_tool("put", put)])
    plan = [calls(call("put")), calls(call("put")), "Done."]
    async with page_of(str(tmp_path / "a.db"), [keeper], plan) as (browser, executor):
        handle = await executor.execute(keeper, "Put")
        await handle.result()
        page = await browser.page(f"sessions/{handle.session_id}/timeline")
        await page.locator(".step-row").nth(1).click()
        detail = page.locator(".trace-detail")
        await detail.get_by_role("tab", name="State").click()
        await check_changes(detail)
        await detail.get_by_role("button", name="Before", exact=True).click()
        await detail.get_by_text("red, and the one").wait_for()
        await go(page, f"sessions/{handle.session_id}/state")
        view = page.get_by_role("region", name="State of step 2")
        await check_changes(view)
        await page.get_by_role("button", name="Step 1").click()
        await page.get_by_role("region", name="State of step 1").locator(".added").first.wait_for()
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            assert await serious_problems(page) == [], scheme


async def test_lists_that_are_too_long_to_compare_are_changed_as_a_whole(tmp_path: Path) -> None:
    async def put(given: Nothing, ctx: ToolContext[Any]) -> str:
        def change(state: dict[str, Any]) -> None:
            first = "long" not in state
            state["long"] = [f"{'old' if first else 'new'} {n}" for n in range(3_000)]
            state["grows"] = list(range(3_000 if first else 3_001))

        ctx.update_state(change)
        return "put"

    keeper = agent("helper", tools=[a_tool("put", put)])
    async with page_of(str(tmp_path / "a.db"), [keeper], [calls(call("put")), calls(call("put")), "Done."]) as (
        browser,
        executor,
    ):
        handle = await executor.execute(keeper, "Put")
        await handle.result()
        page = await browser.page(f"sessions/{handle.session_id}/state")
        changes = page.get_by_role("region", name="State of step 2").locator(".state-changes > li")
        await changes.first.wait_for()
        found = sorted([" ".join((await row.inner_text()).split()) for row in await changes.all()])
        assert len(found) == 2 and found[0] == "+ added grows[3000] 3000", found
        assert found[1].startswith("~ changed long too long to compare element by element"), found


async def check_changes(view: Any) -> None:
    await view.locator(".state-changes li").first.wait_for()
    found = [" ".join((await row.inner_text()).split()) for row in await view.locator(".state-changes > li").all()]
    assert "~ changed times 1 2" in found
    assert any(row.startswith("→ moved shelves[0] from shelves[2]") for row in found), found
    assert "~ changed shelves[1].kettles 1 5" in found
    assert any(row.startswith("+ added shelves[2]") and '"d"' in row for row in found), found
    assert any(row.startswith("− removed shelves[1]") and '"b"' in row for row in found), found
    assert any(row.startswith("− removed old") for row in found) and any(row.startswith("+ added new") for row in found)
    note = view.locator(".state-changes li").filter(has_text="note")
    assert (await note.locator("del").inner_text(), await note.locator("ins").inner_text()) == ("red", "green")


async def test_a_long_trace_shows_its_end_first_and_then_all(tmp_path: Path) -> None:
    steps = 320
    plan = [*[visits("hall")] * steps, "Done."]
    async with page_of(str(tmp_path / "a.db"), [helper()], plan) as (browser, executor):
        handle = await executor.execute(helper(), "Visit")
        await handle.result()
        info = await executor.streams.info(handle.session_id)
        assert info is not None and info.latest_sequence > 1_000, "more than one read"
        page = await browser.page(f"sessions/{handle.session_id}/timeline")
        tree = page.get_by_role("tree", name="Trace")
        await tree.get_by_text(f"Step {steps + 1}").wait_for()
        await page.locator(".trace-count").get_by_text(f"{steps + 1} steps", exact=True).wait_for()
        await tree.get_by_text(f"Step {steps + 1}").wait_for()
        await tree.focus()
        await page.keyboard.press("Home")
        await tree.get_by_text("Step 1", exact=True).wait_for()
        await page.get_by_role("button", name="Unfold all").click()
        assert await tree.locator(".trace-row").count() < 80
        for width in (390, 1280):
            await page.set_viewport_size({"width": width, "height": 900})
            wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"wider than {width} px"
