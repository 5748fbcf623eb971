"""Messages that are sent again from the console, the way to the newest one, and the command palette."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.browser import browsing, serious_problems

from helix import Agent, LLMConfig, LocalExecutor, ScriptedModel
from helix.console.here import serve_console
from helix.console.server import ConsoleServer
from helix.core.registry import AgentRegistry

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

LONG = "\n\n".join(f"Line {n}" for n in range(120))


def writer() -> Agent[Any, Any]:
    return Agent(name="writer", system_prompt="Write.", llm_config=LLMConfig(model="none"))


@asynccontextmanager
async def two_turns(*later: str) -> AsyncIterator[tuple[Any, LocalExecutor, str]]:
    """Open a session of two turns; the model answers later runs with `later`."""
    registry = AgentRegistry()
    registry.register(writer())
    model = ScriptedModel(["One.", LONG, *later])
    async with LocalExecutor(":memory:", model=model, registry=registry) as executor:
        first = await executor.execute(writer(), "First?")
        await first.result()
        await (await executor.execute(writer(), "Second?", session_id=first.session_id)).result()
        async with serve_console(executor, "the tests") as service:
            with ConsoleServer(service) as console:
                permissions = ["clipboard-read", "clipboard-write"]
                async with browsing(console, permissions=permissions) as browser:
                    page = await browser.page(f"sessions/{first.session_id}/chat")
                    await page.locator(".item.user").nth(1).wait_for()
                    yield page, executor, first.session_id
                    assert browser.errors == []


async def messages(page: Any) -> list[str]:
    return [text.strip() for text in await page.locator(".item.user .bubble").all_inner_texts()]


async def test_an_edited_message_is_sent_in_a_branch_that_begins_before_it() -> None:
    async with two_turns("Another answer.") as (page, executor, original):
        first, second = page.locator(".item.user").first, page.locator(".item.user").nth(1)
        await first.get_by_role("button", name="Edit").click()
        await page.keyboard.press("Escape")
        await second.get_by_role("button", name="Edit").click()
        assert await serious_problems(page) == []
        await page.keyboard.press("Control+a")  # the field has the focus
        await page.keyboard.type("Second, but edited?")
        await second.get_by_role("button", name="Send in a branch").click()
        await page.get_by_text("Another answer.").wait_for()
        assert await messages(page) == ["First?", "Second, but edited?"]
        assert original not in page.url
        kept = (await executor.sessions.get_messages(original)).messages
        assert len(kept) == 4, "the session itself stays as it was"


async def test_the_first_message_is_run_again_in_a_session_of_its_own() -> None:
    async with two_turns("Another first answer.") as (page, _, original):
        await page.locator(".item.user").first.get_by_role("button", name="Run again").click()
        await page.get_by_text("Another first answer.").wait_for()
        assert await messages(page) == ["First?"]
        assert original not in page.url


async def test_answers_are_copied_and_the_newest_message_is_one_press_away() -> None:
    async with two_turns() as (page, _, _original):
        await page.locator(".prose .block").first.wait_for()
        newest = page.get_by_role("button", name="Newest")
        assert await newest.count() == 0, "the page opens at the end"
        await page.locator(".scroller").evaluate("box => { box.scrollTop = 0 }")
        await newest.wait_for()
        await page.locator(".item.step").first.get_by_role("button", name="Copy the answer").click()
        assert await page.evaluate("navigator.clipboard.readText()") == "One."
        await newest.click()
        await newest.wait_for(state="detached")
        assert await page.locator(".scroller").evaluate(
            "box => box.scrollHeight - box.scrollTop - box.clientHeight < 120"
        )


async def test_the_palette_finds_sessions_agents_and_actions_by_keyboard() -> None:
    async with two_turns() as (page, _, original):
        await page.keyboard.press("Control+k")
        field = page.get_by_role("combobox", name="Find a session, an agent or an action")
        await field.fill("time")
        assert await page.get_by_role("option", selected=True).inner_text() == "Action\nTimeline\n2"
        assert await serious_problems(page) == []
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/timeline")

        await page.keyboard.press("Control+k")
        await field.fill("writer")
        await page.get_by_role("option").filter(has_text="New chat with writer").wait_for()
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/new/writer")

        await page.locator("#composer").focus()
        await page.keyboard.press("Control+k")
        await field.fill("first?")
        await page.get_by_role("option").filter(has_text="First?").wait_for()
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"**/sessions/{original}/**")

        await page.keyboard.press("Control+k")
        await field.fill("nothing of this name")
        await page.get_by_text("Nothing fits.").wait_for()
        await page.keyboard.press("Escape")
        await field.wait_for(state="detached")
