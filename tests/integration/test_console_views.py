"""The console's page of a session whose model sees a part of the conversation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_console_page import page_of
from tests.support.browser import go, serious_problems, shows
from tests.support.long_conversation import (
    CLEARS,
    LAST,
    STEPS,
    SUMMARISES,
    SUMMARY,
    look,
    looking_agent,
    looking_model,
)
from tests.support_run import agent

from helix import LLMConfig
from helix.ports.state_store import Delete

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


async def test_a_summary_is_folded_in_the_chat_and_on_the_timeline(tmp_path: Path) -> None:
    async with page_of(str(tmp_path / "a.db"), [looking_agent(SUMMARISES)], looking_model()) as (browser, _):
        page = await browser.page("new/looker")
        await page.locator("#composer").fill("Look at everything.")
        await page.keyboard.press("Enter")
        await shows(page, LAST)
        session_id = str(page.url).partition("#/sessions/")[2].split("/")[0]
        for view in (".item.notice", ".trace-detail"):
            if view == ".trace-detail":
                await go(page, f"sessions/{session_id}/timeline")
                await page.locator(".view-row").first.click()
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
        await page.locator(".view-row").get_by_text("Old tool results were cleared").first.wait_for()


def prompt(state: Any) -> str:
    """Return a prompt that only the recorded head has: the service does not know the state of a past step."""
    return "You look at things.\nCount them."


async def test_the_timeline_shows_what_the_model_was_asked(tmp_path: Path) -> None:
    config = LLMConfig(model="scripted", temperature=0.25, max_output_tokens=500)
    looker = agent("looker", tools=[look], context=SUMMARISES, system_prompt=prompt, llm_config=config)
    async with page_of(str(tmp_path / "a.db"), [looker], looking_model()) as (browser, executor):
        page = await browser.page("new/looker")
        await page.locator("#composer").fill("Look at everything.")
        await page.keyboard.press("Enter")
        await shows(page, LAST)
        session_id = str(page.url).partition("#/sessions/")[2].split("/")[0]
        await go(page, f"sessions/{session_id}/timeline")
        await page.locator(".step-row").last.click()
        await page.get_by_role("tab", name="Payload").click()
        body = page.locator(".asked-body")
        await body.get_by_text("You look at things.").wait_for()
        facts = " ".join((await body.locator(".facts").inner_text()).split())
        for fact in (
            "Model scripted",
            "Temperature 0.25",
            "(tokens) 500",
            "View made at step",
            "by the agent's policy",
        ):
            assert fact in facts
        hidden = (await executor.sessions.get_context(session_id, STEPS)).hidden
        assert hidden and f"{hidden} hidden and 0 results cleared" in facts
        await body.get_by_text("Look at something long.").click()
        assert "number" in await body.get_by_role("group", name="Arguments of the tool look").inner_text()
        await body.get_by_text("as shown to the model").click()
        messages = body.locator("details > ol.asked-list > li")
        await messages.first.wait_for()
        shown = await messages.all_inner_texts()
        assert SUMMARY in shown[0] and "700" not in shown[0] and "calls look" in " ".join(shown)
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            assert await serious_problems(page) == [], scheme
        for width in (390, 1280):
            await page.set_viewport_size({"width": width, "height": 900})
            wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"wider than {width} px"


async def test_a_step_without_a_recorded_request_says_so(tmp_path: Path) -> None:
    looker = agent("looker", system_prompt=prompt)
    async with page_of(str(tmp_path / "a.db"), [looker], ["Seen."]) as (browser, executor):
        page = await browser.page("new/looker")
        await page.locator("#composer").fill("Look.")
        await page.keyboard.press("Enter")
        await shows(page, "Seen.")
        session_id = str(page.url).partition("#/sessions/")[2].split("/")[0]
        heads = await executor.store.query("sessions", session_id, start="q#", end="q$")
        await executor.store.transact("lose", [Delete(row.key) for row in heads])
        await go(page, f"sessions/{session_id}/timeline")
        await page.locator(".step-row").first.click()
        await page.get_by_role("tab", name="Payload").click()
        await page.locator(".asked-body").get_by_text("The request of this step was not recorded.").wait_for()
        assert heads and not await page.get_by_text("Count them.").count()
