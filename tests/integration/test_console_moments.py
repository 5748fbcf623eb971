"""The console's page while its service is killed and its network is slow or lost, at 50 moments. No message is lost or sent
twice, and the page always says what is happening.

Law: all faults follow from the seed, as far as concurrent processes allow.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_console_page import Forwarder
from tests.support.browser import browsing
from tests.support.console_service import Services, services

from helix import LocalExecutor
from helix.console.server import ConsoleServer, Service
from helix.core.messages import UserMessage

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser"), pytest.mark.timeout(600)]

SEED, MOMENTS = 7, 50
FAULTS = ("kill", "kill", "cut", "offline", "slow", "mute", "reload")
NOWHERE = 9
"""A port at which no server listens."""
PATIENCE_S = 60.0
WATCH = """
limit => {
  window.unsaid = [];
  window.sent = [];
  let missing = 0;
  let last = performance.now();
  setInterval(() => {
    const now = performance.now();
    const took = Math.min(now - last, 200);  // a machine that is busy is not the page's fault
    last = now;
    const shown = [...document.querySelectorAll(".bubble, .unsent-text")].map(one => one.textContent);
    const draft = document.querySelector("#composer")?.value ?? "";
    const opens = document.querySelector(".opening") !== null || document.querySelector(".connection p") !== null
      || document.querySelector(".column > .quiet") !== null;
    const lost = window.sent.filter(text => !shown.includes(text) && draft !== text);
    missing = lost.length > 0 && !opens ? missing + took : 0;
    if (missing > limit) window.unsaid.push(`${lost}: neither sent, unsent nor a draft for ${missing} ms`);
  }, 50);
}
"""
"""Records each time when the page shows a message nowhere, and says nothing about its connection, for over `limit` ms."""
UNSAID_MS = 1_500
PRESS = "buttons => buttons[0]?.click()"
"""Presses a button if it is there. The page may remove it at any moment."""


class Moments:
    def __init__(self, page: Any, forwarder: Forwarder, made: Services, dice: random.Random) -> None:
        self.page, self.forwarder, self.made, self.dice = page, forwarder, made, dice
        self.met = dict.fromkeys(FAULTS, 0)

    async def send(self, text: str) -> None:
        """Write a message and send it, with a fault around that moment. Return when the service has the message."""
        fault = self.dice.choice(FAULTS)
        self.met[fault] += 1
        before, length = self.dice.uniform(-0.25, 0.15), self.dice.uniform(0.1, 0.9)
        await self.page.locator("#composer:enabled").fill(text)
        pressing = asyncio.create_task(self._press(text, max(0.0, before)))
        await asyncio.sleep(max(0.0, -before))
        await self._fault(fault, length)
        await pressing
        await self._settle(text)

    async def _press(self, text: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await self.page.evaluate("text => window.sent?.push(text)", text)
        await self.page.keyboard.press("Enter")

    async def _fault(self, fault: str, length: float) -> None:
        forwarder = self.forwarder
        match fault:
            case "kill":
                self.made.kill()
                forwarder.target = NOWHERE
                await asyncio.sleep(length / 2)
                forwarder.target = await self.made.start()
            case "cut":
                target, forwarder.target = forwarder.target, NOWHERE
                forwarder.cut()
                await asyncio.sleep(length)
                forwarder.target = target
            case "offline":
                network = await self.page.context.new_cdp_session(self.page)
                conditions = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
                await network.send("Network.emulateNetworkConditions", conditions)
                forwarder.cut()
                await asyncio.sleep(length)
                await network.send("Network.emulateNetworkConditions", {**conditions, "offline": False})
                await network.detach()
            case "slow":
                forwarder.delay_s = length
                await asyncio.sleep(3 * length)
                forwarder.delay_s = 0.0
            case "mute":
                forwarder.is_mute = True
                await asyncio.sleep(length)
                forwarder.is_mute = False
                forwarder.cut()
            case "reload":
                await asyncio.sleep(length / 4)
                await self.page.reload()
                await self.page.evaluate(WATCH, UNSAID_MS)

    async def _settle(self, text: str) -> None:
        """Do what a person does: send again what the page says is unsent, and send a draft that outlasted a reload."""
        page = self.page
        async with asyncio.timeout(PATIENCE_S):
            while True:
                await page.get_by_role("button", name="Send again").evaluate_all(PRESS)
                if await page.locator(".unsent").count() == 0:
                    if await page.locator(".bubble").filter(has_text=text).count() == 1:
                        return
                    if (
                        await page.locator("#composer:enabled").count()
                        and await page.locator("#composer").input_value() == text
                    ):
                        await page.locator("#composer").focus()
                        await page.keyboard.press("Enter")
                await asyncio.sleep(0.03)


async def test_no_message_is_lost_or_sent_twice_at_fifty_moments(tmp_path: Path) -> None:
    db, dice = str(tmp_path / "a.db"), random.Random(SEED)
    texts = [f"Message {n:02}." for n in range(MOMENTS)]
    async with Forwarder() as forwarder, services(db) as made:
        forwarder.target = await made.start()
        with ConsoleServer(Service(forwarder.url, "token", "a test", ["helper"])) as console:
            async with browsing(console, viewport={"width": 1000, "height": 800}) as browser:
                page = await browser.page("new/helper")
                await page.locator("#composer").fill("Begin.")
                await page.keyboard.press("Enter")
                await page.locator(".item.step").filter(has_text="You said Begin.").wait_for()
                session_id = str(page.url).partition("#/sessions/")[2].split("/")[0]
                await page.evaluate(WATCH, UNSAID_MS)
                moments = Moments(page, forwarder, made, dice)
                for text in texts:
                    await moments.send(text)
                    assert await page.evaluate("window.unsaid") == []
                assert min(moments.met.values()) >= 3, moments.met
                resume = page.get_by_role("button", name="Resume", exact=True)
                async with asyncio.timeout(PATIENCE_S):
                    while await page.locator(".waiting-messages li, .working").count() > 0:
                        await resume.evaluate_all(PRESS)  # the run whose worker was killed
                        await asyncio.sleep(0.1)
                await page.locator(".item.step").filter(has_text=f"You said {texts[-1]}").wait_for()
                await page.reload()
                await page.locator(".item.step").filter(has_text=f"You said {texts[-1]}").wait_for()
    async with LocalExecutor(db) as executor:
        found = (await executor.sessions.get_messages(session_id, limit=1000)).messages
        said = [message.content for message in found if isinstance(message, UserMessage)]
        assert said == ["Begin.", *texts]
        assert len((await executor.sessions.list_sessions()).sessions) == 1
