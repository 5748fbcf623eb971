"""The console's comparison of two runs: chosen from a session's menu, side by side, with an address of its own."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.integration.test_console_page import page_of
from tests.support.browser import go, serious_problems
from tests.support_run import Gate, a_tool, agent, call, calls, gated

from helix import ToolContext
from helix.core.errors import StoreError
from helix.sessions.comparing import read_side

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


class Look(BaseModel):
    topic: str


class Refund(BaseModel):
    order: str
    amount: int


async def look(given: Look, ctx: ToolContext[Any]) -> str:
    """Look at a topic."""
    ctx.update_state(lambda state: state.update(seen=given.topic))
    return f"seen {given.topic}"


async def refund(given: Refund, ctx: ToolContext[Any]) -> str:
    """Refund an order."""
    ctx.update_state(lambda state: state.update(refunded=given.amount))
    return f"{given.order}: {given.amount} refunded"


def answered(content: str, cost: int) -> dict[str, Any]:
    return {"content": content, "usage": {"prompt_tokens": 100 * cost, "completion_tokens": 10, "cost_micros": cost}}


PLAN: list[Any] = [
    calls(call("look", topic="warranty")),
    calls(call("refund", order="A7", amount=3), call("look", topic="A7")),
    answered("The order A7 is refunded: 3 dollars, by card.", 5_000),
    calls(call("look", topic="warranty")),
    calls(call("look", topic="terms")),
    calls(call("refund", order="A7", amount=5), call("look", topic="A7")),
    answered("The order A7 is refunded: 5 dollars, to the account.", 7_500),
    answered("You are welcome.", 100),
]
DESK = agent(
    "desk", tools=[a_tool("look", look, input_schema=Look), a_tool("refund", refund, input_schema=Refund)]
)  # fmt: skip


async def test_two_sessions_are_chosen_and_compared_by_keyboard(tmp_path: Path) -> None:
    async with page_of(str(tmp_path / "a.db"), [DESK], PLAN) as (browser, executor):
        for name in ("first", "second"):
            await (await executor.execute(DESK, "Refund order A7.", session_id=name)).result()
        page = await browser.page("sessions/first/chat")
        await page.locator(".item.step").first.wait_for()
        await page.keyboard.press("Escape")
        await page.keyboard.press("c")
        await page.get_by_role("heading", name="Compare with").wait_for()
        await page.keyboard.type("second")
        await page.locator(".choices a").filter(has_text="by its id").wait_for(state="detached")
        await page.locator(".choices a").first.wait_for()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await page.locator(".step-pairs").wait_for()
        assert str(page.url).endswith("#/compare/first/second")
        facts = " ".join((await page.get_by_role("region", name="Facts of both sides").inner_text()).split())
        assert "Steps 3 4 33 % more" in facts and "Cost $0.005 $0.0075 50 % more" in facts
        answer = page.get_by_role("region", name="Answer")
        assert await answer.locator(".words del").all_inner_texts() == ["3", "by card"]
        assert await answer.locator(".words ins").all_inner_texts() == ["5", "to the account"]
        steps = page.get_by_role("region", name="Steps")
        await steps.get_by_text("1 step is the same").wait_for()
        heads = await steps.locator(".different h3").all_inner_texts()
        assert heads == [
            "Only B has step 2",
            "Step 2 of A and step 3 of B, by its calls and results",
            "Step 3 of A and step 4 of B, by its text",
        ]
        changed = await steps.locator(".argument-changes li").all_inner_texts()
        assert [" ".join(one.split()) for one in changed] == ["amount 3", "amount 5"]
        assert await steps.get_by_text("the same call").count() == 2, "the other call of the step"
        await page.get_by_role("button", name="Go to the first difference").click()
        assert "Only B has step 2" in await page.evaluate("document.activeElement.innerText")
        state = await page.get_by_role("region", name="Differences of the state").inner_text()
        assert " ".join(state.split()) == "Place A B refunded 3 5"
        await page.get_by_role("link", name="Swap sides").click()
        await steps.get_by_role("heading", name="Only A has step 2").wait_for()
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            assert await serious_problems(page) == [], scheme
        for width in (390, 1280):
            await page.set_viewport_size({"width": width, "height": 900})
            wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"wider than {width} px"


async def test_runs_of_one_session_are_chosen_and_the_address_holds_them(tmp_path: Path) -> None:
    async with page_of(str(tmp_path / "a.db"), [DESK], ["One.", "Two.", "Three."]) as (browser, executor):
        for text in ("First?", "Second?", "Third?"):
            await (await executor.execute(DESK, text, session_id="talk")).result()
        runs = (await executor.sessions.list_runs("talk")).runs
        page = await browser.page("sessions/talk/chat")
        await page.get_by_role("link", name="Compare with…").click()
        await page.get_by_role("region", name="Runs of the same session").get_by_text("Run 1: First?").click()
        answer = page.get_by_role("region", name="Answer")
        await answer.locator(".words ins").wait_for()
        assert (
            await answer.locator(".words del").inner_text() == "Three"
            and await answer.locator(".words ins").inner_text() == "One"
        )
        await page.get_by_label("Part of A").select_option(label="Run 2: Second?")
        await answer.locator(".words del").get_by_text("Two").wait_for()
        assert str(page.url).endswith(f"#/compare/talk/talk/{runs[1].run_id}/{runs[2].run_id}")
        again = await browser.page(str(page.url).partition("#/")[2])
        await again.get_by_role("region", name="Answer").locator(".words del").get_by_text("Two").wait_for()


async def test_a_failed_comparison_is_said_and_retried_and_a_slow_one_is_repeated_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, began = Gate(), list[float]()
    fails, slow_s = True, 0.0

    async def read(history: Any, row: Any, run_id: str | None) -> Any:
        if fails:
            raise StoreError("the store is away")
        if row.session_id == "done":
            began.append(time.monotonic())
            await asyncio.sleep(slow_s)
        return await read_side(history, row, run_id)

    monkeypatch.setattr("helix.gateway.reads.read_side", read)
    async with page_of(str(tmp_path / "a.db"), [DESK], ["One.", gated(gate, "Two.")]) as (browser, executor):
        await (await executor.execute(DESK, "First?", session_id="done")).result()
        handle = await executor.execute(DESK, "Second?", session_id="works")
        await gate.reached()
        page = await browser.page("compare/done/works")
        await page.get_by_role("heading", name="the service could not do this now").wait_for()
        fails = False
        facts = page.get_by_role("region", name="Facts of both sides")
        await facts.get_by_text("Running").wait_for()
        fails = True
        await page.get_by_role("alert").get_by_text("the service could not do this now").wait_for()
        assert await facts.is_visible(), "the last comparison stays beside the problem"
        fails, slow_s = False, 0.8
        await page.get_by_role("alert").get_by_text("the service could not do this now").wait_for(state="detached")
        began.clear()
        async with asyncio.timeout(30):
            while len(began) < 2:
                await asyncio.sleep(0.05)
        assert began[1] - began[0] > 4.5, "five times the time that it takes, after it"
        slow_s = 0.0
        gate.open()
        await handle.result()
        await facts.get_by_text("Running").wait_for(state="detached")
        await page.get_by_role("region", name="Answer").locator(".words ins").get_by_text("Two").wait_for()


async def test_a_branch_is_compared_with_its_origin_and_a_missing_session_is_said(tmp_path: Path) -> None:
    async with page_of(str(tmp_path / "a.db"), [DESK], ["One.", "Two."]) as (browser, executor):
        await (await executor.execute(DESK, "First?", session_id="talk")).result()
        page = await browser.page("sessions/talk/chat")
        await page.get_by_role("button", name="Branch", exact=True).click()
        await page.get_by_label("First message of the branch (optional)").fill("Second?")
        await page.get_by_role("button", name="Branch and compare").click()
        steps = page.get_by_role("region", name="Steps")
        await steps.get_by_text("Only B has step 2").first.wait_for()
        await steps.get_by_text("1 step is the same").wait_for()
        branch = str(page.url).rpartition("/")[2]
        await go(page, f"compare/{branch}")
        await page.get_by_text("the origin of this branch").click()
        await steps.get_by_text("Only B has step 2").first.wait_for()
        await go(page, "compare/talk/nothing")
        await page.get_by_role("heading", name="nothing").wait_for()
        await page.get_by_role("link", name="Compare with another session").click()
        await page.get_by_role("heading", name="Compare with").wait_for()
