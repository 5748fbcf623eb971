"""The console in Debian's Chromium, through Playwright, and the packages of its sources.

A test is skipped with a reason if there is no Chromium on the path. `.ci/run` installs one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from helix.console.server import ConsoleServer

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "clients" / "console"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE_MS = 60_000


def npm(*arguments: str) -> str:
    """Run npm in the folder of the sources, with the packages of the lock file installed, and return its output. If it
    fails, the error has all of it."""
    modules = SOURCES / "node_modules"
    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build" / "clients-console.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        installed, wanted = modules / ".installed", (SOURCES / "package-lock.json").read_text()
        if not installed.exists() or installed.read_text() != wanted:
            _run("npm", "ci", "--no-audit", "--no-fund")
            installed.write_text(wanted)
        return _run("npm", *arguments) if arguments else ""


def _run(*command: str) -> str:
    done = subprocess.run(command, cwd=SOURCES, env={**os.environ}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def axe() -> str:
    """The script of axe-core."""
    npm()
    return (SOURCES / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


def told(said: Any) -> str:
    """Return an error on the console as its address and text."""
    return f"{said.location['url']}: {said.text}"


class Watched:
    """A browser's context whose pages' requests and errors are recorded."""

    def __init__(self, context: Any, console: ConsoleServer | None) -> None:
        self.context, self._console = context, console
        self.requests: list[str] = []
        self.errors: list[str] = []
        context.on("request", lambda request: self.requests.append(request.url))
        context.on("weberror", lambda error: self.errors.append(str(error.error)))
        context.on("dialog", lambda dialog: self.errors.append(f"a dialog: {dialog.message}"))
        context.on("console", lambda said: self.errors.append(told(said)) if said.type == "error" else None)
        context.set_default_timeout(PATIENCE_MS)

    @property
    def console(self) -> ConsoleServer:
        assert self._console is not None, "a test without one opens its own pages"
        return self._console

    async def page(self, path: str = "") -> Any:
        """A new tab, signed in by the address, at `#/<path>`."""
        page = await self.context.new_page()
        page.on("websocket", lambda socket: self.requests.append(socket.url))
        await page.goto(self.console.address)
        await page.wait_for_selector(".app")
        if path:
            await go(page, path)
        return page


RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


async def problems(page: Any) -> list[Any]:
    """Return all of axe's findings on the current page: the rule, help and elements of each."""
    await page.evaluate(axe())
    run = "rules => axe.run({ runOnly: { type: 'tag', values: rules } }).then(r => r.violations)"
    return [
        (one["id"], one["help"], [node["html"][:200] for node in one["nodes"]])
        for one in await page.evaluate(run, RULES)
    ]


async def serious_problems(page: Any) -> list[Any]:
    """Return axe's serious findings on the current page: the rule, help and elements of each."""
    await page.evaluate(axe())
    found = await page.evaluate("axe.run().then(r => r.violations)")
    bad = [one for one in found if one["impact"] in ("serious", "critical")]
    return [(one["id"], one["help"], [node["html"][:200] for node in one["nodes"]]) for one in bad]


async def go(page: Any, path: str) -> None:
    await page.evaluate("path => { location.hash = '#/' + path }", path)


async def shows(page: Any, text: str) -> None:
    """Wait until an answer on the page has this text."""
    await page.locator("main").locator(".item.step, .item.notice, .output").filter(has_text=text).first.wait_for()


@asynccontextmanager
async def browsing(console: ConsoleServer | None, **options: Any) -> AsyncIterator[Watched]:
    """Open a browser. `options` are those of Playwright's context, such as `viewport` and `color_scheme`."""
    playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on the path: apt-get install chromium")
    async with playwright.async_playwright() as running:
        browser = await running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield Watched(await browser.new_context(**options), console)
        finally:
            await browser.close()
