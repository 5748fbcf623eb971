"""Forms of the console: nested arguments, what the model asked for, problems at their fields, and unknown outcomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field
from tests.integration.test_console_page import Question, page_of
from tests.support.browser import serious_problems, shows
from tests.support_run import Gate, Nothing, a_tool, agent, call, calls

from helix import LocalExecutor, ScriptedModel, ToolContext
from helix.engine.engine import Settings

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


class Address(BaseModel):
    street: str
    city: str = Field(min_length=2)


class Line(BaseModel):
    item: str
    pieces: int = Field(ge=1)


class Order(BaseModel):
    address: Address
    lines: list[Line] = Field(max_length=3)
    gift: bool
    note: str | None = None


ASKED: dict[str, Any] = {
    "address": {"street": "High Street 1", "city": "Bonn"},
    "lines": [{"item": "kettle", "pieces": 1}, {"item": "lamp", "pieces": 2}],
    "gift": False,
}
CHANGED = [
    "address.city Bonn became Bern",
    "gift false became true",
    "lines[1].item lamp became chair",
    "lines[1].pieces 2 became 4",
]


async def opened(page: Any) -> None:
    """Open the call, if it is not open."""
    await page.locator(".call").wait_for()
    if await page.locator(".call[open]").count() == 0:
        await page.locator(".call > summary").click()


async def test_nested_arguments_are_edited_field_by_field_and_problems_stand_at_their_field(tmp_path: Path) -> None:
    taken: list[Order] = []

    async def order(given: Order, ctx: ToolContext[Any]) -> str:
        taken.append(given)
        return "ordered"

    tool = a_tool("order", order, require_approval=True, input_schema=Order)
    plan = [calls(call("order", **ASKED)), "It is ordered."]
    async with page_of(str(tmp_path / "a.db"), [agent("helper", tools=[tool])], plan) as (browser, _):
        page = await browser.page("new/helper")
        await page.locator("#composer").fill("Order, please.")
        await page.keyboard.press("Enter")
        form = page.get_by_role("form", name="Approve this call? order")
        await form.get_by_label("city").fill("B")
        await form.get_by_label("pieces").nth(1).fill("many")
        assert await form.locator(".was").all_inner_texts() == ["The model asked for Bonn", "The model asked for 2"]

        approve = form.get_by_role("button", name="Approve")
        await approve.click()
        pieces = form.get_by_label("pieces").nth(1)
        await form.locator("[id='problem-lines.1.pieces']").get_by_text("must be of type integer").wait_for()
        assert await pieces.get_attribute("aria-invalid") == "true"

        await pieces.fill("0")
        await approve.click()
        await form.locator("[id='problem-address.city']").wait_for()
        assert "1" in await form.locator("[id='problem-lines.1.pieces']").inner_text()
        assert await serious_problems(page) == []

        await form.get_by_label("city").fill("Bern")
        await form.get_by_role("button", name="Remove lines 2").click()
        await form.get_by_role("button", name="Add to lines").click()
        await form.get_by_label("item").nth(1).fill("chair")
        await form.get_by_label("pieces").nth(1).fill("4")
        await form.get_by_label("gift").select_option("true")
        mine = page.get_by_role("region", name="Your changes")
        assert [" ".join(one.split()) for one in await mine.locator("li").all_inner_texts()] == CHANGED
        await form.get_by_role("button", name="Approve with changes").click()
        await shows(page, "It is ordered.")
        await opened(page)
        changes = page.get_by_label("Changed arguments, before and after")
        assert [" ".join(one.split()) for one in await changes.locator("li").all_inner_texts()] == CHANGED
        await page.get_by_text("Arguments edited").wait_for()
        await page.reload()
        await opened(page)
        assert [" ".join(one.split()) for one in await changes.locator("li").all_inner_texts()] == CHANGED
        assert await serious_problems(page) == []
    lines = [Line(item="kettle", pieces=1), Line(item="chair", pieces=4)]
    assert taken == [Order(address=Address(street="High Street 1", city="Bern"), lines=lines, gift=True)]


async def test_the_third_of_five_calls_is_approved_by_keyboard(tmp_path: Path) -> None:
    taken: list[str] = []

    async def ship(given: Address, ctx: ToolContext[Any]) -> str:
        taken.append(given.street)
        return f"shipped to {given.street}"

    tool = a_tool("ship", ship, require_approval=True, input_schema=Address)
    plan = [calls(*(call("ship", street=f"Street {n}", city="Bonn") for n in range(1, 6))), "All are shipped."]
    async with page_of(str(tmp_path / "a.db"), [agent("helper", tools=[tool])], plan) as (browser, executor):
        page = await browser.page("new/helper")
        await page.locator("#composer").fill("Ship, please.")
        await page.keyboard.press("Enter")
        forms = page.get_by_role("form", name="Approve this call? ship")
        await forms.nth(4).wait_for()
        assert [await forms.nth(n).locator(".tag").inner_text() for n in range(5)] == [f"{n} of 5" for n in range(1, 6)]
        await page.keyboard.press("Escape")
        for _ in range(3):
            await page.keyboard.press("w")
        await page.keyboard.press("Control+Enter")
        await page.locator(".tag").get_by_text("of 4").first.wait_for()
        session_id = str(page.url).partition("#/sessions/")[2].split("/")[0]
        pending = (await executor.sessions.get(session_id)).pending
        assert [one.arguments["street"] for one in pending] == ["Street 1", "Street 2", "Street 4", "Street 5"]
        await forms.nth(0).get_by_label("street").fill("Street 0")
        await page.keyboard.press("Control+Enter")
        for left in (3, 2, 1):
            await page.wait_for_function("left => document.querySelectorAll('.approval').length === left", arg=left)
            await page.keyboard.press("Escape")
            await page.keyboard.press("w")
            await page.keyboard.press("Control+Enter")
        await shows(page, "All are shipped.")
    assert sorted(taken) == ["Street 0", "Street 2", "Street 3", "Street 4", "Street 5"]


async def test_arguments_that_do_not_fit_are_refused_and_the_call_waits_on(tmp_path: Path) -> None:
    async def refund(given: Question, ctx: ToolContext[Any]) -> str:
        return f"refunded {given.question}"

    tool = a_tool("refund", refund, require_approval=True, input_schema=Question)
    plan = [calls(call("refund", question="A7")), "Denied, then."]
    async with page_of(str(tmp_path / "a.db"), [agent("helper", tools=[tool])], plan) as (browser, executor):
        page = await browser.page("new/helper")
        await page.locator("#composer").fill("Hello")
        await page.keyboard.press("Enter")
        box = page.get_by_role("form", name="Approve this call? refund")
        await box.get_by_role("button", name="Edit as JSON").click()
        await box.get_by_label("Arguments as JSON").fill('{"question": 7}')
        await box.get_by_role("button", name="Approve").click()
        await box.get_by_role("alert").wait_for()
        await box.get_by_label("Arguments as JSON").fill('{"question": "A7"}')
        note = box.get_by_label("Note for the agent, if you deny")
        await note.fill("not today")
        for key in ("Enter", "Control+Enter"):
            await note.press(key)
        await box.get_by_label("Arguments as JSON").press("Control+Enter")
        await box.get_by_role("button", name="Deny").click()
        await shows(page, "Denied, then.")
        session_id = str(page.url).partition("#/sessions/")[2].split("/")[0]
        messages = (await executor.sessions.get_messages(session_id)).messages
    (result,) = [m for m in messages if m.role == "tool"]
    assert not result.success and "not today" in result.content


async def test_an_unknown_outcome_is_ruled(tmp_path: Path) -> None:
    gate, db = Gate(), str(tmp_path / "a.db")
    begun = 0

    async def act(given: Nothing, ctx: ToolContext[Any]) -> str:
        nonlocal begun
        begun += 1
        await gate.wait()
        return "acted"

    helper = agent("helper", tools=[a_tool("act", act, on_unknown="ask")])
    executor = LocalExecutor(db, model=ScriptedModel([calls(call("act"))]), settings=Settings(claim_s=1))
    handle = await executor.execute(helper, "Hello")
    await gate.reached()
    await executor.close()
    async with page_of(db, [helper], ["It was done."]) as (browser, _):
        page = await browser.page(f"sessions/{handle.session_id}/chat")
        await page.get_by_role("button", name="Resume", exact=True).click()
        box = page.get_by_role("form", name="The outcome of this call is unknown act")
        outcome, note = box.get_by_role("textbox", name="Its result"), box.get_by_role("textbox", name="Note for")
        await outcome.press("Control+Enter")  # nothing is written yet
        await outcome.fill("it was sent")
        for key in ("Enter", "Control+Enter"):
            await note.press(key)
        await note.fill("not yet")
        await outcome.press("Control+Enter")
        await page.wait_for_timeout(500)
        assert await box.get_by_role("button", name="Run it again").is_enabled(), "nothing was sent"
        await note.fill("")
        await outcome.press("Control+Enter")
        await shows(page, "It was done.")
        await page.get_by_text("it was sent").first.wait_for()
        assert begun == 1, "the tool did not run again"
