"""A page with an unmodified `useChat` on a deployed agent, in Debian's Chromium, by Playwright."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Self
from urllib.parse import urlencode

import pytest
from tests.support.browser import CHROMIUM, ROOT

CLIENT = ROOT / "clients" / "js"
SOURCE = ROOT / "tests" / "js" / "page" / "page.mjs"
PATIENCE_MS, LOOK_MS = 60_000, 20
AT_REST = "() => window.reconnected && ['ready', 'error'].includes(window.chat?.status)"
"""Statuses of a chat at rest. A page that loads is also `ready` before it reads its run again (`page.mjs`)."""
SHOWS = "text => JSON.stringify(window.chat?.messages.findLast(one => one.role === 'assistant') ?? '').includes(text)"
Messages = list[dict[str, Any]]


def built(package: Path, folder: Path) -> Path:
    """Build the page's file with the packed client in `package`, and return it."""
    modules = folder / "node_modules"
    (modules / "@helix-agents").mkdir(parents=True)
    (modules / "@helix-agents" / "client").symlink_to(package)
    for name in ("ai", "@ai-sdk", "react", "react-dom"):
        (modules / name).symlink_to(CLIENT / "node_modules" / name)
    shutil.copy(SOURCE, folder)
    esbuild = CLIENT / "node_modules" / ".bin" / "esbuild"
    bundle: list[str | Path] = [esbuild, SOURCE.name, "--bundle", "--minify", "--format=iife", "--outfile=page.js"]
    subprocess.run([*bundle, '--define:process.env.NODE_ENV="production"'], cwd=folder, check=True, capture_output=True)
    file = folder / "page.html"
    file.write_text('<!doctype html><meta charset="utf-8"><body><script src="page.js"></script></body>')
    return file


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the folder, and yield its address. The app accepts no sockets of pages that are files."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


class ChatPage:
    """A tab of the browser. `errors` are the page's uncaught errors."""

    def __init__(self, tab: Any, address: str) -> None:
        self._tab, self._address = tab, address
        self.errors: list[str] = []
        tab.on("pageerror", lambda error: self.errors.append(str(error)))

    async def open(self, url: str, token: str, chat: str, *, agent: str = "talker", tools: str = "") -> Self:
        """Open the chat with its messages, and wait until they have been loaded. `tools`: whether the page has its own."""
        asked = urlencode({"url": url, "token": token, "chat": chat, "agent": agent, "tools": tools})
        await self._tab.goto(f"{self._address}?{asked}")
        await self._until("() => window.chat !== undefined")
        return self

    async def reload(self) -> None:
        await self._tab.reload()
        await self._until("() => window.chat !== undefined")

    async def title(self) -> str:
        """Return the title of the page."""
        return str(await self._tab.title())

    async def load(self) -> None:
        """Reload the chat's messages."""
        await self._tab.evaluate("() => window.load()")

    async def say(self, text: str, **body: str) -> None:
        """Send a message without waiting for the answer."""
        await self._tab.evaluate("([text, body]) => void window.chat.sendMessage({ text }, { body })", [text, body])

    async def call(self, name: str, given: Any = None) -> None:
        """Call a function of `useChat`."""
        await self._tab.evaluate("([name, given]) => void window.chat[name](given ?? undefined)", [name, given])

    async def shows(self, text: str) -> None:
        """Wait until the last answer has this text."""
        await self._until(SHOWS, text)

    async def at_rest(self) -> Messages:
        """Return the messages once nothing is streamed any more."""
        await self._until(AT_REST)
        return await self.messages()

    async def answered(self, text: str) -> Messages:
        """Return the messages once the last answer has this text and is complete."""
        await self.shows(text)
        return await self.at_rest()

    async def messages(self) -> Messages:
        """Return the messages as the page shows them."""
        _, _, messages = await self._shown()
        return messages

    async def status(self) -> tuple[str, str | None]:
        """Return the status, and the error if there is one."""
        status, error, _ = await self._shown()
        return status, error

    async def _until(self, condition: str, given: Any = None) -> None:
        from playwright.async_api import TimeoutError

        try:
            await self._tab.wait_for_function(condition, arg=given, polling=LOOK_MS)
        except TimeoutError as error:
            shown = await self._tab.evaluate("() => document.querySelector('pre')?.textContent ?? 'nothing'")
            raise AssertionError(f"{condition} {given or ''}: the page shows {shown}, {self.errors}") from error

    async def _shown(self) -> tuple[str, str | None, Messages]:
        status, error, messages = await self._tab.evaluate(
            "() => JSON.parse(document.querySelector('pre').textContent)"
        )
        return status, error, messages


class Tabs:
    def __init__(self, context: Any, address: str) -> None:
        self._context, self._address = context, address
        self._made: list[ChatPage] = []

    async def new(self) -> ChatPage:
        page = ChatPage(await self._context.new_page(), self._address)
        self._made.append(page)
        return page

    def errors(self) -> list[str]:
        return [error for page in self._made for error in page.errors]


@asynccontextmanager
async def chatting(file: Path) -> AsyncIterator[Tabs]:
    """Open a browser whose tabs show this page. Fail if one of them throws."""
    playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on the path: apt-get install chromium")
    async with playwright.async_playwright() as running:
        browser = await running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            context = await browser.new_context()
            context.set_default_timeout(PATIENCE_MS)
            with served(file.parent) as address:
                tabs = Tabs(context, f"{address}/{file.name}")
                yield tabs
            assert tabs.errors() == []
        finally:
            await browser.close()


def texts(message: dict[str, Any]) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")
