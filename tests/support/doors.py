"""Pages of front ends in Debian's Chromium, on the people's desk: how they are built, and what their user does."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlencode

import httpx
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from tests.support.asgi_server import serving
from tests.support.browser import ROOT, browsing
from tests.support.people_desk import (
    APPROVAL,
    ELSEWHERE,
    GATES,
    GUARD,
    HANDOFF,
    HOTEL,
    OUTPUT,
    PAGE,
    QUESTION,
    SEAT,
    STEER,
    STOP,
    TOKENS,
    Desk,
)
from tests.support_run import eventually

import helix.mcp

SOURCES: Final = ROOT / "tests" / "js" / "doors"
MODULES: Final = (ROOT / "clients" / "js" / "node_modules", ROOT / "tests" / "js" / "node_modules")
SAYS: Final = {
    "steering": STEER,
    "question": QUESTION,
    "approval": APPROVAL,
    "page": PAGE,
    "elsewhere": ELSEWHERE,
    "handoff": HANDOFF,
    "guard": GUARD,
    "output": OUTPUT,
    "stop": STOP,
}


def built(name: str, package: Path, folder: Path) -> Path:
    """Build the page `name`.jsx into the folder, and return the folder. `package`: the packed TypeScript client."""
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True)
    (folder / "node_modules" / "@helix-agents").mkdir(parents=True, exist_ok=True)
    (folder / "node_modules" / "@helix-agents" / "client").symlink_to(package)
    esbuild: list[str | Path] = [
        MODULES[0] / ".bin" / "esbuild",
        f"{name}.jsx",
        "--bundle",
        "--minify",
        "--jsx=automatic",
    ]
    production = '--define:process.env.NODE_ENV="production"'
    paths = {"NODE_PATH": os.pathsep.join(map(str, MODULES))}
    done = subprocess.run(
        [*esbuild, "--format=esm", f"--outfile={name}.js", production],
        cwd=folder,
        env={**os.environ, **paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><link rel="icon" href="data:,"><title>{name}</title>'
    body = (
        f'<link rel="stylesheet" href="style.css"><body><script type="module" src="{name}.js"></script></body></html>'
    )
    (folder / f"{name}.html").write_text(head + body, encoding="utf-8")
    return folder


class Scene:
    """A scene on the page, and what its user does and sees."""

    def __init__(self, tab: Any, desk: Desk, name: str, session: str) -> None:
        self.panel, self.session = tab.locator(f'[data-scene="{name}"]'), session
        self._desk, self._says = desk, SAYS[name]

    async def begin(self) -> Self:
        """Send the message that begins the scene."""
        await self.panel.get_by_role("button", name="Send").click()
        return self

    async def say(self, text: str, button: str) -> None:
        await self.panel.get_by_label("Message").fill(text)
        await self.press(button)

    async def press(self, button: str) -> None:
        await self.panel.get_by_role("button", name=button, exact=True).click()

    async def shows(self, text: str, kind: str = ".items > *") -> None:
        """Wait until an item of the scene has this text."""
        await self.panel.locator(kind).filter(has_text=text).first.wait_for()

    async def at_rest(self) -> list[str]:
        """Return the text of each item once the page reads nothing more."""
        await self.panel.page.locator(f'[data-scene="{await self.name()}"][data-busy="false"]').wait_for()
        return await self.items()

    async def name(self) -> str:
        return str(await self.panel.get_attribute("data-scene"))

    async def items(self) -> list[str]:
        """Return the text of each item, on one line."""
        return [" ".join(text.split()) for text in await self.panel.locator(".items > *").all_inner_texts()]

    async def said(self) -> list[str]:
        """Return what the user said in this session, as the model was given it."""
        messages = (await self._desk.executor.sessions.get_messages(self.session)).messages
        return [message.content for message in messages if message.role == "user"]


class Page:
    """A page with all scenes. `errors` are those that the page did not catch."""

    def __init__(self, tab: Any, desk: Desk, name: str, **asked: str) -> None:
        self.tab, self.desk, self.name, self._asked = tab, desk, name, asked
        self._begins = ""

    async def begin(self, sessions: str) -> None:
        """Open the page on new sessions, whose ids begin with this name."""
        self._begins = sessions
        asked = urlencode({"as": sessions, "socket": self.desk.socket, **self._asked})
        await self.tab.goto(f"{self.desk.url}/{self.name}.html?{asked}")
        await self.tab.locator("section").last.wait_for()

    def scene(self, name: str) -> Scene:
        return Scene(self.tab, self.desk, name, f"{self._begins}-{name}")

    # --- what the user does in each scene, up to the moment that a picture shows ----------------------------------

    async def steer_and_queue(self) -> Scene:
        """Speak to the run while it works: one message steers it, and another one waits for its own turn."""
        scene = await self.scene("steering").begin()
        await scene.shows("search")
        await GATES[scene.session].reached()
        await scene.say(SEAT, "Steer")
        await scene.shows(SEAT, ".user.waits")
        await scene.say(HOTEL, "Queue")
        await scene.shows(HOTEL, ".user.waits")
        return scene

    async def fill_in(self) -> Scene:
        """Fill in the form with a choice and an object, without sending it."""
        scene = await self.scene("question").begin()
        await scene.panel.get_by_label("window").check()
        await scene.panel.get_by_label("Name", exact=True).fill("Ada")
        await scene.panel.get_by_label("Age", exact=True).fill("36")
        return scene

    async def ask_for_approval(self) -> Scene:
        scene = await self.scene("approval").begin()
        await scene.panel.get_by_role("group", name="Approve refund").wait_for()
        return scene

    async def hand_to_another_system(self) -> Scene:
        scene = await self.scene("elsewhere").begin()
        await scene.shows("waits for another system", ".call")
        return scene

    async def report(self, scene: Scene, result: Any) -> None:
        """Report the result of the call that ends elsewhere, as a webhook does."""
        async with httpx.AsyncClient(trust_env=False) as client:
            address = f"{self.desk.url}/agents/calls/{TOKENS[scene.session]}"
            assert (await client.post(address, json=result)).status_code < 300

    async def grow(self) -> Scene:
        """Let the output grow until its second stop is there."""
        scene = await self.scene("output").begin()
        await scene.shows("Munch", ".output")
        return scene

    async def listen(self) -> Scene:
        """Let the story begin."""
        scene = await self.scene("stop").begin()
        await scene.shows("at the end of a long road", ".answer")
        return scene


@asynccontextmanager
async def open_page(desk: Desk, name: str, **asked: str) -> AsyncIterator[Page]:
    """Open the page in a browser. Fail if it logs an error or throws one. `asked`: more of the page's address."""
    async with browsing(None, viewport={"width": 1180, "height": 640}) as browser:
        page = Page(await browser.context.new_page(), desk, name, **asked)
        await page.begin("first")
        yield page
        assert browser.errors == [], browser.errors


async def play_mcp(page: Page) -> tuple[Scene, Scene]:
    """Play what an MCP client can do, up to two forms that are filled in: of the questions, and of the approval."""
    for name, text in {"handoff": "You paid 84.50 euros.", "output": "Dinner at the harbour"}.items():
        await (await page.scene(name).begin()).shows(text)
    elsewhere = await page.scene("elsewhere").begin()
    await eventually(lambda: waits(page.desk, elsewhere.session, "paused"))
    await page.report(elsewhere, "parcel 4711")
    await elsewhere.shows("A7 is on its way.")
    story = await page.scene("stop").begin()
    await eventually(lambda: tells(page.desk, story.session))
    await story.press("Stop")
    await story.shows("The call was cancelled.")
    question = await page.fill_in()
    approval = await page.scene("approval").begin()
    await approval.panel.get_by_label("Approve").check()
    return question, approval


async def waits(desk: Desk, session: str, status: str) -> bool:
    state = await desk.executor.engine.history.session(session)
    return state is not None and state.status == status


async def tells(desk: Desk, session: str) -> bool:
    """Return whether the story has begun."""
    return any("text_delta" in str(message.chunk) for message in await desk.executor.streams.read(session))


@asynccontextmanager
async def mcp_served(desk: Desk) -> AsyncIterator[str]:
    """Serve the agent to MCP clients, also to pages of the desk's address, which is another origin. Yield the address."""
    pages = [desk.url]
    cors = Middleware(
        CORSMiddleware,
        allow_origins=pages,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=["mcp-session-id"],
    )
    route = Route("/mcp", helix.mcp.app(desk.executor, origins=pages))
    async with serving(Starlette(routes=[route], middleware=[cors])) as url:
        yield f"{url}/mcp"
