"""The chat's screen without a terminal: an app on the test's executor, driven by Textual's pilot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot

from helix import LocalExecutor
from helix.cli.chat.screen import ChatScreen
from helix.cli.where import StoreService
from helix.client import HelixClient
from helix.client.polling import PollingLink

PATIENCE = 400
TICK_S = 0.03


class Here(StoreService):
    """A service on an existing executor, which it does not close."""

    def __init__(self, executor: LocalExecutor) -> None:
        super().__init__("the test's")
        self._given = executor

    def executor(self) -> LocalExecutor:
        return self._given

    async def close(self) -> None:
        return


class Screen:
    def __init__(self, app: ChatScreen, pilot: Pilot[Any]) -> None:
        self.app, self.pilot = app, pilot

    @property
    def text(self) -> str:
        """Return the text of the screen, line by line."""
        return "\n".join(strip.text for strip in self.app.screen._compositor.render_strips())

    async def until(self, condition: str | Callable[[], bool]) -> None:
        """Wait until the condition holds, or the text is on the screen."""
        for _ in range(PATIENCE):
            await self.pilot.pause(TICK_S)
            if condition in self.text if isinstance(condition, str) else condition():
                return
        raise AssertionError(f"{condition} never came:\n{self.text}")

    async def type(self, text: str) -> None:
        """Type into the prompt, and send it."""
        self.app.prompt.focus()
        self.app.prompt.text = text
        await self.pilot.press("enter")

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def ended(self, status: str = "completed") -> None:
        """Wait until the run has ended and all of it is drawn."""
        await self.until(lambda: self.app.session.status == status and not self.app.session.busy)
        for _ in range(4):
            await self.pilot.pause(TICK_S)


@asynccontextmanager
async def screen(
    given: LocalExecutor | Callable[[], HelixClient],
    agent: str = "helper",
    session_id: str | None = None,
    size: tuple[int, int] = (90, 40),
) -> AsyncIterator[Screen]:
    """Open the screen. `given` is an executor, or a function that makes the chat's clients."""
    connect = given if callable(given) else lambda: HelixClient.over(PollingLink(Here(given), poll_s=0.01))
    app = ChatScreen(connect, agent, session_id)
    await app.session.open()
    try:
        async with app.run_test(size=size) as pilot:
            yield Screen(app, pilot)
    finally:
        await app.session.close()
