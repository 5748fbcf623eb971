"""The console's page of a session whose model sees a part of the conversation."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.test_console_page import page_of
from tests.support.browser import go, shows
from tests.support.long_conversation import CLEARS, LAST, SUMMARISES, SUMMARY, looking_agent, looking_model

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


async def test_a_summary_is_folded_in_the_chat_and_on_the_timeline(tmp_path: Path) -> None:
    async with page_of(str(tmp_path / "a.db"), [looking_agent(SUMMARISES)], looking_model()) as (browser, _):
        page = await browser.page("new/looker")
        await page.locator("#composer").fill("Look at everything.")
        await page.keyboard.press("Enter")
        await shows(page, LAST)
        session_id = str(page.url).partition("#/sessions/")[2].split("/")[0]
        for view in (".item.notice", ".step-row"):
            if view == ".step-row":
                await go(page, f"sessions/{session_id}/timeline")
            line = page.locator(f"{view} details").get_by_text("The model now sees a summary in place of the first")
            text = page.locator(f"{view} details").get_by_text(SUMMARY)
            await line.wait_for()
            assert (await line.count(), await text.is_visible()) == (1, False)
            await line.click()
            await text.wait_for()


async def test_a_clearing_is_a_line_in_the_chat_and_on_the_timeline(tmp_path: Path) -> None:
    async with page_of(str(tmp_path / "a.db"), [looking_agent(CLEARS)], looking_model()) as (browser, _):
        page = await browser.page("new/looker")
        await page.locator("#composer").fill("Look at everything.")
        await page.keyboard.press("Enter")
        await shows(page, LAST)
        await shows(page, "Old tool results were cleared from the model's context.")
        session_id = str(page.url).partition("#/sessions/")[2].split("/")[0]
        await go(page, f"sessions/{session_id}/timeline")
        await page.locator(".step-row").get_by_text("Old tool results were cleared").first.wait_for()
