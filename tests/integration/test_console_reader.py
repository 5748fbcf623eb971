"""What stopped a reader who saw the console for the first time: letters that were lost, words that were wrong, and a header
that had no room for the title."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.support.browser import Watched, go
from tests.support.console_shop import opened

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser"), pytest.mark.asyncio(loop_scope="module")]
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def console(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Watched]:
    async with opened(str(tmp_path_factory.mktemp("shop"))) as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def page(console: Watched) -> AsyncIterator[Any]:
    page = await console.page()
    await page.locator(".row").first.wait_for()
    yield page
    await page.close()


async def test_letters_after_new_chat_are_the_message(page: Any) -> None:
    await page.get_by_role("link", name="New chat").click()
    await page.wait_for_function("() => document.activeElement.id === 'composer'")
    await page.keyboard.type("Good morning")
    assert await page.locator("#composer").input_value() == "Good morning"
    await page.locator(".agent").filter(has_text="finder").click()
    await page.wait_for_function("() => document.activeElement.getAttribute('aria-label') === 'Message to finder'")


async def test_a_phone_is_not_made_to_open_its_keyboard(console: Watched) -> None:
    browser = console.context.browser
    assert browser is not None
    phone = await browser.new_context(viewport=PHONE, is_mobile=True, has_touch=True)
    page = await phone.new_page()
    await page.goto(console.console.address)
    await page.get_by_role("link", name="New chat").click()
    await page.locator("#composer").wait_for()
    assert await page.evaluate("document.activeElement.id") != "composer"
    await phone.close()


async def test_a_list_without_a_match_offers_to_clear_what_hides_the_sessions(page: Any) -> None:
    rows = await page.locator(".row").count()
    await page.get_by_role("searchbox", name="Search sessions").fill("finder")
    await page.get_by_role("button", name="Failed", exact=True).click()
    await page.get_by_text("No session matches.").wait_for()
    await page.get_by_role("button", name="Clear search and filters").click()
    await page.wait_for_function("rows => document.querySelectorAll('.row').length === rows", arg=rows)
    assert await page.get_by_role("searchbox", name="Search sessions").input_value() == ""


async def test_a_denied_call_has_not_failed(page: Any) -> None:
    await go(page, "sessions/deny/chat")
    await page.get_by_label("Note for the agent, if you deny").fill("Too far away")
    await page.get_by_role("button", name="Deny").click()
    call = page.locator(".call")
    await call.locator(".call-state").get_by_text("denied").wait_for()
    await call.get_by_role("heading", name="Result").wait_for()
    assert await call.get_by_role("heading", name="Error").count() == 0


async def test_the_field_says_whether_an_approval_or_an_answer_comes_first(page: Any) -> None:
    for session, words in (("seat", "Answer the question first."), ("five", "Respond to the pending approval first.")):
        await go(page, f"sessions/{session}/chat")
        await page.get_by_placeholder(words).wait_for()


async def test_a_phone_shows_the_title_of_a_run_that_works(page: Any) -> None:
    await page.set_viewport_size(PHONE)
    await go(page, "sessions/oven/chat")
    await page.get_by_role("button", name="Interrupt", exact=True).wait_for()
    title = page.locator("h1 bdi")
    assert await title.inner_text() == "Watch the oven."
    assert await title.evaluate("one => one.scrollWidth <= one.clientWidth"), "the whole title is shown"
    await page.get_by_role("button", name="More actions").click()
    items = [one.strip() for one in await page.get_by_role("menuitem").all_inner_texts()]
    assert items == ["Compare with…", "Branch", "Rename", "Save as a page", "Abort the run", "Delete"]
    await page.keyboard.press("End")
    assert await page.evaluate("document.activeElement.innerText.trim()") == "Delete"
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="More actions").click()
    await page.get_by_role("menuitem", name="Branch").click()
    await page.get_by_role("dialog", name="Branch this session").wait_for()


async def test_a_run_is_aborted_from_the_menu_after_a_question(page: Any) -> None:
    await page.set_viewport_size(DESKTOP)
    await go(page, "sessions/oven/chat")
    await page.get_by_role("button", name="Interrupt", exact=True).wait_for()
    await page.get_by_role("button", name="More actions").click()
    items = [one.strip() for one in await page.get_by_role("menuitem").all_inner_texts()]
    assert items == ["Rename", "Save as a page", "Abort the run", "Delete"], "the rest is in the header"
    await page.get_by_role("menuitem", name="Abort the run").click()
    dialog = page.get_by_role("dialog", name="Abort this run?")
    await dialog.get_by_role("button", name="Cancel").click()
    assert await page.locator("h1 .status").inner_text() == "Running"
    await page.get_by_role("button", name="More actions").click()
    await page.get_by_role("menuitem", name="Abort the run").click()
    await dialog.get_by_role("button", name="Abort").click()
    await page.locator("h1 .status").get_by_text("Failed").wait_for()


async def test_the_newest_run_is_compared_with_the_others(page: Any) -> None:
    await go(page, "compare/two-turns")
    runs = page.get_by_role("region", name="Runs of the same session")
    await runs.get_by_text("compared with run 2, the newest").wait_for()
    assert await runs.get_by_role("link").count() == 1, "a run is not compared with itself"


async def test_a_server_with_an_error_does_not_ask_to_sign_in(console: Watched) -> None:
    page = await console.context.new_page()
    await page.route("**/config.json", lambda route: route.fulfill(status=500, body="no"))
    await page.goto(console.console.address.partition("#")[0])
    await page.get_by_role("heading", name="The console cannot be opened").wait_for()
    await page.get_by_text("The console's server answers 500.").wait_for()
    console.errors.clear()  # the browser reports the refused request
    await page.close()


async def test_the_ruler_of_the_trace_has_round_times(page: Any) -> None:
    await go(page, "sessions/bill/timeline")
    await page.locator(".marks i").first.wait_for()
    first, *others = await page.locator(".marks i").all_inner_texts()
    times = [int(one.removesuffix(" ms")) for one in others]
    assert first == "0" and 2 <= len(times) <= 5
    assert times == [times[0] * n for n in range(1, len(times) + 1)], "equal distances"
    assert str(times[0]).rstrip("0") in ("1", "2", "5"), times
    ticks = await page.locator(".trace-row.step-row .lane").first.locator("b").count()
    assert ticks == len(times) + 1, "the rows have the same ticks"


async def test_a_comparison_says_that_an_open_step_is_not_in_it(page: Any) -> None:
    await go(page, "compare/bill/five")
    await page.get_by_text("B has not ended: its open step, with its message, is not compared yet.").wait_for()
    await go(page, "compare/bill/finder")
    await page.get_by_role("link", name="finder", exact=True).wait_for()
    assert await page.get_by_text("is not compared yet").count() == 0
