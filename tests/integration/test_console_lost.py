"""The console's page when the service is lost. It says so, keeps the user's text, and sends each message once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_console_page import Forwarder
from tests.support.browser import Watched, browsing, go, serious_problems, shows
from tests.support_run import agent

from helix import LocalExecutor, ScriptedModel
from helix.console.here import OneToken
from helix.console.server import ConsoleServer, Service
from helix.core.registry import AgentRegistry
from helix.gateway.loopback import LoopbackGateway

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

SHOWN_S = 5.0
"""The seconds of real time within which the page says that the service is lost."""


class Desk:
    """A page whose service may stop and start again, at one address and with one store."""

    def __init__(self, db: str, forwarder: Forwarder, browser: Watched) -> None:
        self.db, self.forwarder, self.browser = db, forwarder, browser
        self._registry = AgentRegistry()
        self._registry.replace(agent("helper"))

    @asynccontextmanager
    async def service(self, *plan: Any) -> AsyncIterator[LocalExecutor]:
        async with LocalExecutor(self.db, model=ScriptedModel(list(plan)), registry=self._registry) as executor:
            authoriser = OneToken(executor.engine.clock, "token")
            async with LoopbackGateway(executor, authoriser=authoriser, operator=True) as served:
                self.forwarder.target = int(served.url.rpartition(":")[2])
                yield executor
                self.forwarder.target = 9  # no server listens there
                self.forwarder.cut()


@asynccontextmanager
async def desk(folder: Path) -> AsyncIterator[Desk]:
    async with AsyncExitStack() as stack:
        forwarder = await stack.enter_async_context(Forwarder())
        console = stack.enter_context(ConsoleServer(Service(forwarder.url, "token", "a test", ["helper"])))
        browser = await stack.enter_async_context(browsing(console, viewport={"width": 1000, "height": 800}))
        yield Desk(str(folder / "a.db"), forwarder, browser)


async def write(page: Any, text: str) -> None:
    await page.locator("#composer").fill(text)
    await page.keyboard.press("Enter")


async def test_a_lost_service_is_shown_and_the_message_arrives_once_it_is_back(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        async with made.service("Good morning.") as executor:
            page = await made.browser.page("new/helper")
            await write(page, "Hello")
            await shows(page, "Good morning.")
            session_id = str(page.url).partition("#/sessions/")[2].split("/")[0]
            assert await page.locator(".connection").inner_text() == ""
        began = time.monotonic()
        await page.get_by_role("status").get_by_text("The connection to Helix is lost.").wait_for()
        assert time.monotonic() - began < SHOWN_S
        await write(page, "And now?")
        kept = page.get_by_role("region", name="Message that is not sent")
        await kept.get_by_text("And now?").wait_for()
        await page.locator("#composer").fill("A thought")
        async with made.service("Good evening.") as executor:
            await shows(page, "Good evening.")
            await kept.wait_for(state="detached")
            await page.get_by_text("The connection to Helix is lost.").wait_for(state="detached")
            assert len((await executor.sessions.list_runs(session_id)).runs) == 2
            assert await page.locator("#composer").input_value() == "A thought"
            assert await page.locator(".item.user .bubble").all_inner_texts() == ["Hello", "And now?"]


async def test_a_new_chat_is_opened_although_the_filters_changed_meanwhile(tmp_path: Path) -> None:
    async with desk(tmp_path) as made, made.service("Good morning."):
        page = await made.browser.page("new/helper")
        await page.locator("#composer").wait_for()
        made.forwarder.delay_s = 0.5
        await write(page, "Hello")
        await page.locator("#search").fill("hello")
        await page.wait_for_url("**/#/sessions/*/chat?text=hello")
        made.forwarder.delay_s = 0.0
        await shows(page, "Good morning.")


async def test_a_message_whose_answer_was_lost_is_sent_again_and_runs_once(tmp_path: Path) -> None:
    async with desk(tmp_path) as made, made.service("One.", "Two.", "Three.", "Four.") as executor:
        page = await made.browser.page("new/helper")
        await write(page, "First")
        await shows(page, "One.")
        session_id = str(page.url).partition("#/sessions/")[2].split("/")[0]
        made.forwarder.is_mute = True
        await write(page, "Second")
        await page.locator("#composer").fill("A thought")
        await page.get_by_role("status").get_by_text("Helix does not answer.").wait_for()
        async with asyncio.timeout(20):
            while len((await executor.sessions.list_runs(session_id)).runs) < 2:
                await asyncio.sleep(0.02)
        made.forwarder.is_mute = False
        await page.reload()
        kept = page.get_by_role("region", name="Message that is not sent")
        await kept.get_by_text("Second").wait_for()
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            assert await serious_problems(page) == []
        assert await page.locator("#composer").input_value() == "A thought"
        assert await page.get_by_role("button", name="Send", exact=True).is_disabled(), "one after the other"
        await kept.get_by_role("button", name="Send again").click()
        await kept.wait_for(state="detached")
        assert len((await executor.sessions.list_runs(session_id)).runs) == 2
        await page.keyboard.press("Enter")
        await shows(page, "Three.")
        assert await page.locator(".item.user .bubble").all_inner_texts() == ["First", "Second", "A thought"]

        await go(page, "new/helper")
        made.forwarder.is_mute = True
        await write(page, "A new chat")
        await page.get_by_role("status").get_by_text("Helix does not answer.").wait_for()
        async with asyncio.timeout(20):
            while len((await executor.sessions.list_sessions()).sessions) < 2:
                await asyncio.sleep(0.02)
        made.forwarder.is_mute = False
        await page.reload()
        await kept.get_by_role("button", name="Send again").click()
        await shows(page, "Four.")
        assert len((await executor.sessions.list_sessions()).sessions) == 2


async def test_a_page_that_finds_no_service_says_so(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        made.forwarder.target = 9  # no server listens there
        page = await made.browser.context.new_page()
        await page.clock.install()  # the page retries for ten seconds of its own time
        await page.goto(made.browser.console.address)
        await page.get_by_text("Opening…").wait_for()
        title = page.get_by_role("heading", name="Helix cannot be reached")
        async with asyncio.timeout(30):
            while not await title.is_visible():
                await page.clock.run_for(500)
        await page.get_by_text("start it again and open the address that it prints").wait_for()


async def test_drafts_belong_to_their_sessions_over_a_reload(tmp_path: Path) -> None:
    async with desk(tmp_path) as made, made.service("One.", "Two.") as executor:
        places = ["new/helper"]
        for _ in range(2):
            handle = await executor.execute(agent("helper"), "Hello")
            await handle.result()
            places.append(f"sessions/{handle.session_id}/chat")
        page = await made.browser.page()
        for n, place in enumerate(places):
            await go(page, place)
            await page.locator("#composer").wait_for()
            await page.wait_for_function("() => document.querySelector('#composer').value === ''")
            await page.locator("#composer").fill(f"Draft {n}\nof more lines")
        for n in (2, 0, 1):
            await go(page, places[n])
            for _ in range(2):
                shown = f"() => document.querySelector('#composer')?.value === 'Draft {n}\\nof more lines'"
                await page.wait_for_function(shown)
                if n:
                    await page.reload()
        await page.locator("#composer").fill("")
        await page.reload()
        await page.locator("#composer").wait_for()
        assert await page.locator("#composer").input_value() == ""
        await go(page, places[2])
        await page.wait_for_function("() => document.querySelector('#composer')?.value.startsWith('Draft 2')")


async def test_a_refused_message_can_be_edited(tmp_path: Path) -> None:
    async with desk(tmp_path) as made, made.service("One.", "Two.") as executor:
        page = await made.browser.page("new/nothing")
        await write(page, "Hello")
        kept = page.get_by_role("region", name="Message that is not sent")
        await kept.get_by_role("alert").get_by_text("nothing").first.wait_for()
        await kept.get_by_role("button", name="Edit").click()
        await kept.wait_for(state="detached")
        assert await page.locator("#composer").input_value() == "Hello"
        assert (await executor.sessions.list_sessions()).sessions == []
