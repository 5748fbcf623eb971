"""Twenty tasks that a newcomer to the console has, each carried out by keyboard alone.

A task begins at the list of sessions. Its function returns when the page shows what the person wanted to see.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.support.browser import Watched, go

MOST_TABS: Final = 60
READ_S: Final = 0.05


class Keys:
    """The keyboard of a person, which counts its keys."""

    def __init__(self, page: Any) -> None:
        self.page, self.pressed, self.typed = page, 0, 0

    async def press(self, *keys: str) -> None:
        for key in keys:
            self.pressed += 1
            await self.page.keyboard.press(key)

    async def write(self, text: str) -> None:
        self.typed += len(text)
        await self.page.keyboard.type(text)

    async def reach(self, place: Any, key: str = "Tab") -> None:
        """Press Tab until the element has the focus."""
        await place.wait_for()
        for _ in range(MOST_TABS):
            if await place.evaluate("element => element === document.activeElement"):
                return
            await self.press(key)
        raise AssertionError(f"{place} cannot be reached with {MOST_TABS} times {key}")

    async def open(self, words: str, tab: str = "") -> None:
        """Open a session through the palette, and perhaps one of its tabs."""
        await self.press("Control+k")
        option = self.page.get_by_role("option").filter(has_text=words).filter(has_text="Session").first
        await self.page.get_by_role("combobox").wait_for()
        await self.write(words)
        await option.wait_for()
        while await option.get_attribute("aria-selected") != "true":
            await self.press("ArrowDown")
            await asyncio.sleep(READ_S)
        await self.press("Enter")
        await self.page.locator("h1").filter(has_text=words).wait_for()
        await self.leave_field()
        if tab:
            await self.press(tab)

    async def leave_field(self) -> None:
        if await self.page.evaluate("document.activeElement.matches('input, textarea, select')"):
            await self.press("Escape")

    async def see(self, text: str) -> None:
        await self.page.locator("main").get_by_text(text).first.wait_for()


Task = Callable[[Keys, Any], Awaitable[None]]
TASKS: Final[dict[str, Task]] = {}


def task(words: str) -> Callable[[Task], Task]:
    def add(function: Task) -> Task:
        TASKS[words] = function
        return function

    return add


@task("Find the session about the finder")
async def _(keys: Keys, page: Any) -> None:
    await keys.press("/")
    await keys.write("finder")
    row = page.locator(".row").first
    await page.wait_for_function("() => document.querySelectorAll('.row').length === 1")
    await keys.reach(row)
    await keys.press("Enter")
    await keys.see("It is on the shelf.")


@task("Find the run that failed, and say why")
async def _(keys: Keys, page: Any) -> None:
    await keys.reach(page.get_by_role("button", name="Failed", exact=True))
    await keys.press("Enter")
    await page.wait_for_function("() => document.querySelectorAll('.row').length === 1")
    await keys.reach(page.locator(".row").first)
    await keys.press("Enter")
    await page.locator("main .status.bad").wait_for()
    await keys.press("Escape", "2")
    await keys.reach(page.get_by_role("tree", name="Trace"))
    await keys.press("Home", "Enter")
    await keys.see("the model is away")


@task("Find what waits for a person")
async def _(keys: Keys, page: Any) -> None:
    await keys.reach(page.get_by_role("button", name="Waiting", exact=True))
    await keys.press("Enter")
    await page.wait_for_function("() => document.querySelectorAll('.row').length === 4")


@task("Say why a run was expensive")
async def _(keys: Keys, page: Any) -> None:
    await keys.open("Explain the bill", "4")
    await keys.see("$0.077")


@task("See what a tool returned")
async def _(keys: Keys, page: Any) -> None:
    await keys.open("Explain the bill")
    await keys.reach(page.locator(".call > summary").first)
    await keys.press("Enter")
    await keys.see("seen ledger")


@task("Read what a sub-agent said")
async def _(keys: Keys, page: Any) -> None:
    await keys.open("Ask the finder")
    await keys.reach(page.locator(".call > summary").first)
    await keys.press("Enter")
    await page.locator(".child").get_by_text("It is on the shelf.").wait_for()


@task("See what changed the state")
async def _(keys: Keys, page: Any) -> None:
    await keys.open("Explain the bill", "3")
    await page.locator(".state-changes").get_by_text("ledger").first.wait_for()


@task("See what the model was asked at a step")
async def _(keys: Keys, page: Any) -> None:
    await keys.open("Explain the bill", "2")
    await keys.reach(page.get_by_role("tree", name="Trace"))
    await keys.press("Home", "ArrowDown", "Enter")
    await keys.reach(page.get_by_role("tab", name="Payload"))
    await keys.press("Enter")
    await keys.see("System prompt")


@task("Approve the third of five calls")
async def _(keys: Keys, page: Any) -> None:
    await keys.open("Ship five parcels")
    await page.locator(".approval").nth(4).wait_for()
    await keys.press("w", "w", "w", "Control+Enter")
    await page.locator(".tag").get_by_text("of 4").first.wait_for()


@task("Deny a call, with a note")
async def _(keys: Keys, page: Any) -> None:
    await keys.open("Ship a parcel to Mars")
    await page.locator(".approval").wait_for()
    await keys.press("w")
    await keys.reach(page.get_by_label("Note for the agent, if you deny"))
    await keys.write("too far")
    await keys.reach(page.get_by_role("button", name="Deny"))
    await keys.press("Enter")
    await keys.see("Done.")


@task("Change an argument, and approve")
async def _(keys: Keys, page: Any) -> None:
    await keys.open("Ship a parcel to Bonn")
    await page.locator(".approval").wait_for()
    await keys.press("w")
    await keys.reach(page.get_by_label("pieces"))
    await keys.press("Control+a")
    await keys.write("2")
    await keys.press("Control+Enter")
    await keys.see("shipped 2 to Bonn")


@task("Answer a question with a form")
async def _(keys: Keys, page: Any) -> None:
    await keys.open("Book a seat")
    await page.locator(".approval").wait_for()
    await keys.press("w")
    await keys.reach(page.get_by_label("row"))
    await keys.press("Control+a")
    await keys.write("7")
    await keys.press("Control+Enter")
    await keys.see("booked row 7")


@task("Stop a run that works")
async def _(keys: Keys, page: Any) -> None:
    await keys.open("Watch the oven")
    await page.get_by_role("button", name="Interrupt", exact=True).wait_for()
    await keys.press("i")
    await page.locator("main h1 .status").get_by_text("Interrupted").wait_for()


@task("Continue a run that was stopped")
async def _(keys: Keys, page: Any) -> None:
    await keys.open("Paint the fence")
    await page.get_by_role("button", name="Resume").wait_for()
    await keys.press("r")
    await keys.see("I did it: Paint the fence.")


@task("Retry a run that failed")
async def _(keys: Keys, page: Any) -> None:
    await keys.open("Translate the letter")
    await page.get_by_role("button", name="Retry").wait_for()
    await keys.press("r")
    await keys.see("I did it: Translate the letter.")


@task("Begin a chat, and read the answer")
async def _(keys: Keys, page: Any) -> None:
    await keys.press("n")
    await page.wait_for_function("() => document.activeElement.id === 'composer'")
    await keys.write("Sing a song.")
    await keys.press("Enter")
    await keys.see("I did it: Sing a song.")


@task("Ask again with other words")
async def _(keys: Keys, page: Any) -> None:
    await keys.open("Count to ten")
    await keys.reach(page.get_by_role("button", name="Edit").first)
    await keys.press("Enter")
    field = page.locator(".item.user textarea")
    await field.wait_for()
    await keys.reach(field)
    await keys.press("Control+a")
    await keys.write("Count to six.")
    await keys.reach(page.get_by_role("button", name="Send in a branch"))
    await keys.press("Enter")
    await keys.see("I did it: Count to six.")


@task("Branch a session, and compare")
async def _(keys: Keys, page: Any) -> None:
    await keys.open("Explain the bill")
    await page.get_by_role("button", name="Branch", exact=True).wait_for()
    await keys.press("b")
    await page.get_by_role("dialog").wait_for()
    await keys.write("Look again.")
    await keys.reach(page.get_by_role("button", name="Branch and compare"))
    await keys.press("Enter")
    await page.locator(".step-pairs").get_by_text("Only B has step 3").wait_for()


@task("Compare two runs of a session")
async def _(keys: Keys, page: Any) -> None:
    await keys.open("Count to ten")
    await page.get_by_role("link", name="Compare with…").wait_for()
    await keys.press("c")
    choice = page.locator(".choices a").filter(has_text="Run 1")
    await keys.reach(choice)
    await keys.press("Enter")
    await page.locator(".words del").get_by_text("twenty").first.wait_for()


@task("List what the keyboard can do")
async def _(keys: Keys, page: Any) -> None:
    await keys.press("?")
    await page.get_by_role("dialog").get_by_text("Go to the next call that waits").wait_for()
    await keys.press("Escape")


@dataclass(frozen=True, slots=True)
class Done:
    words: str
    pressed: int
    """The keys, without those of the texts."""
    typed: int
    """The letters of the texts."""
    seconds: float


async def carry_out(browser: Watched, words: str) -> Done:
    """Carry out a task in a new tab. Raises if a step cannot be done by keyboard."""
    page = await browser.page()
    await page.locator(".row").first.wait_for()
    await go(page, "")
    keys, began = Keys(page), time.monotonic()
    await TASKS[words](keys, page)
    done = Done(words, keys.pressed, keys.typed, time.monotonic() - began)
    await page.close()
    return done
