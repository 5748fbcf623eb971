"""The forms of the console for the questions of tools, in Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from tests.integration.test_console_page import page_of
from tests.support.browser import shows
from tests.support_run import agent, call, calls, result_of

from helix import Confirmation, Question, ToolContext, tool

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


class Order(BaseModel):
    size: Literal["small", "large"]
    count: int


@tool
async def book(ctx: ToolContext) -> str:
    """Book."""
    seat = await ctx.ask(Question("Which seat?", choices=["window", "aisle"]))
    order, extras, note = await ctx.ask(
        Question("Which meal?", schema=Order),
        Question("Which extras?", choices=["nuts", "tea"], several=True),
        Question("A note?"),
    )
    return f"{seat}, {order.count} {order.size}, {', '.join(extras)}, {note}"


async def test_a_form_for_each_round_of_questions(tmp_path: Path) -> None:
    plan: list[Any] = [calls(call("book")), "Booked."]
    async with page_of(str(tmp_path / "a.db"), [agent("helper", tools=[book])], plan) as (browser, executor):
        page = await browser.page("new/helper")
        await page.locator("#composer").fill("Book")
        await page.keyboard.press("Enter")
        box = page.get_by_role("form", name="This call asks you book")
        await box.get_by_text("Which seat?").wait_for()
        await box.get_by_role("combobox").select_option("aisle")
        await box.get_by_role("button", name="Send the answer").click()
        await box.get_by_text("Which meal?").wait_for()
        await box.get_by_label("size").select_option("large")
        await box.get_by_label("tea").check()
        await box.get_by_role("textbox", name="Answer", exact=True).fill("thanks")
        await box.get_by_role("button", name="Send the answer").click()
        await box.get_by_role("alert").get_by_text("count: is missing").wait_for()
        await box.get_by_label("count").fill("2")
        await box.get_by_role("button", name="Send the answer").click()
        await shows(page, "Booked.")
        session_id = str(page.url).partition("#/sessions/")[2].split("/")[0]
        messages = (await executor.sessions.get_messages(session_id)).messages
    assert [m.content for m in messages if m.role == "tool"] == ["aisle, 2 large, tea, thanks"]


@tool(require_approval=True)
async def pay(ctx: ToolContext) -> str:
    """Pay."""
    return str(await ctx.ask(Question("Which account?"), Question("How much?", schema=int)))


async def test_a_reload_shows_what_was_answered_and_by_whom(tmp_path: Path) -> None:
    who = agent("helper", tools=[pay])
    plan: list[Any] = [calls(call("pay")), calls(call("pay")), "Paid."]
    async with page_of(str(tmp_path / "a.db"), [who], plan) as (browser, executor):
        handle = await executor.execute(who, "Pay", session_id="s")
        await result_of(handle)
        for given in (
            Confirmation("call_0", by="ann"),
            Confirmation("call_0", data=["savings", 7], by="ben"),
            Confirmation("call_1", approved=False, reason="enough", by="eve"),
        ):
            await executor.answer(who, "s", given)
            await result_of(await executor.get_handle(who, "s"))
        page = await browser.page("sessions/s")
        for _ in range(2):
            await shows(page, "Paid.")
            for call_id in ("call_0", "call_1"):
                await page.locator(f"#call-{call_id} > summary").click()
            first, second = page.locator("#call-call_0"), page.locator("#call-call_1")
            await first.get_by_text("Which account?").wait_for()
            await first.get_by_text("savings").first.wait_for()
            assert await first.get_by_text("Answered by ben on").count() == 2
            await first.get_by_text("Approved by ann on").wait_for()
            await second.get_by_text("Denied by eve on").wait_for()
            await page.screenshot(path=str(tmp_path / "answered.png"), full_page=True)
            await page.reload()
