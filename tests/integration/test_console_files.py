"""Files in the console, in Chromium: attached by choosing, pasting and dropping, and shown in the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.browser import Watched, browsing, serious_problems, shows
from tests.support.console_files import PageFiles
from tests.support.sample_files import pdf, png
from tests.support_run import a_tool, agent, call, calls

from helix import Document, Image, LocalExecutor, ScriptedModel
from helix.console.here import serve_console
from helix.console.server import ConsoleServer
from helix.core.messages import AnyMessage, UserMessage
from helix.core.registry import AgentRegistry

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]
HOSTILE = "<img src=x onerror=alert(1)>\u202egnp.png"
"""A name with markup and a mark that changes the direction of writing."""


@asynccontextmanager
async def page_of(
    folder: Path, plan: Any, tools: Any = (), **options: Any
) -> AsyncIterator[tuple[Watched, LocalExecutor, PageFiles]]:
    registry = AgentRegistry()
    registry.replace(agent("desk", tools=list(tools)))
    async with LocalExecutor(folder / "a.db", model=ScriptedModel(plan), registry=registry) as executor:
        async with serve_console(executor, "a test") as service:
            with ConsoleServer(service) as console:
                async with browsing(console, viewport={"width": 1000, "height": 800}, **options) as browser:
                    files = PageFiles(browser)
                    await files.start()
                    yield browser, executor, files
                    assert browser.errors == []


def chosen(name: str, data: bytes, kind: str = "") -> dict[str, Any]:
    return {"name": name, "mimeType": kind, "buffer": data}


async def choose(page: Any, *files: dict[str, Any]) -> None:
    await page.get_by_label("Files to attach").set_input_files(list(files))


async def attached(page: Any, count: str) -> None:
    await page.locator(".composer [role=status]").get_by_text(f"{count} attached.").wait_for(state="attached")


async def messages_of(page: Any, executor: LocalExecutor) -> list[AnyMessage]:
    session_id = str(page.url).partition("#/sessions/")[2].split("/")[0]
    return list((await executor.sessions.get_messages(session_id)).messages)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_files_are_sent_with_a_message_and_shown_in_the_conversation(tmp_path: Path, scheme: str) -> None:
    scan = a_tool(
        "scan", lambda given, ctx: ["The label:", Image(png(30, 20), name="label.png"), Document(pdf(3), name="a.pdf")]
    )
    plan = [calls(call("scan")), "It is dented."]
    async with page_of(tmp_path, plan, [scan], color_scheme=scheme) as (browser, executor, files):
        page = await browser.page("new/desk")
        await page.locator("#composer").fill("What is damaged? 😀")
        await choose(page, chosen("hall.png", png(8, 6), "image/png"), chosen("notes.txt", b"a note", "text/plain"))
        await attached(page, "2 files")
        chips = page.get_by_role("list", name="Attached files")
        await chips.get_by_text("notes.txt").wait_for()
        await page.wait_for_function("document.querySelector('.chips img').naturalWidth == 8")
        assert await serious_problems(page) == []
        await page.keyboard.press("Enter")
        await shows(page, "It is dented.")
        await chips.wait_for(state="detached")
        asked = page.get_by_role("list", name="Files of the message")
        await asked.get_by_role("img", name="Image hall.png").wait_for()
        await asked.get_by_text("image/png · 8 × 6").wait_for()
        await page.locator(".call > summary").click()
        result = page.get_by_role("list", name="Files of the result of scan")
        await result.get_by_role("img", name="Image label.png").wait_for()
        await result.get_by_text("3 pages").wait_for()
        await page.locator(".preview img").evaluate_all("images => Promise.all(images.map(one => one.decode()))")
        assert await serious_problems(page) == []
        async with page.expect_download() as downloading:
            await asked.get_by_role("button", name="Download notes.txt").click()
        assert (await (await downloading.value).path()).read_bytes() == b"a note"
        (user, *_) = await messages_of(page, executor)
        assert isinstance(user, UserMessage)
        placed = [(file.name, file.after_text) for file in user.files]
        assert placed == [("hall.png", 18), ("notes.txt", 18)], "positions are code points"
        assert [request["size"] for request in files.of("upload")] == [len(png(8, 6)), 6]


async def test_files_are_pasted_and_dropped_and_removed_by_keyboard(tmp_path: Path) -> None:
    paste = """([name, text]) => {
      const data = new DataTransfer();
      if (text) data.setData("text/plain", text);
      data.items.add(new File(["pasted"], name, {type: "text/plain"}));
      const event = new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true});
      return !document.querySelector("#composer").dispatchEvent(event);
    }"""
    drop = """kind => {
      const data = new DataTransfer();
      data.items.add(new File(["dropped"], "dropped.txt", {type: "text/plain"}));
      const event = new DragEvent(kind, {dataTransfer: data, bubbles: true, cancelable: true});
      return !document.querySelector("main").dispatchEvent(event);
    }"""
    async with page_of(tmp_path, ["Read."]) as (browser, executor, _):
        page = await browser.page("new/desk")
        assert await page.evaluate(paste, ["pasted.txt", ""])
        assert not await page.evaluate(paste, ["picture of the text.png", "a table"]), "the text is pasted"
        assert await page.evaluate(drop, "dragover")
        await page.locator(".composer-box.dropping").wait_for()
        assert await page.evaluate(drop, "drop")
        await page.locator(".composer-box.dropping").wait_for(state="detached")
        await attached(page, "2 files")
        await page.get_by_role("button", name="Remove pasted.txt").focus()
        await page.keyboard.press("Enter")
        await attached(page, "1 file")
        assert await page.evaluate("document.activeElement.id") == "composer"
        await page.keyboard.press("Enter")
        await shows(page, "Read.")
        (user, _answer) = await messages_of(page, executor)
        assert isinstance(user, UserMessage)
        assert (user.content, [file.name for file in user.files]) == ("", ["dropped.txt"])


async def test_a_refused_file_says_why_at_its_chip_and_holds_the_message_back(tmp_path: Path) -> None:
    async with page_of(tmp_path, ["Seen."]) as (browser, _executor, files):
        page = await browser.page("new/desk")
        await page.locator("#composer").fill("Look")
        broken = b"\x89PNG\r\n\x1a\n" + b"x" * 40
        await choose(page, chosen("broken.png", broken, "image/png"), chosen("empty.txt", b""))
        chips = page.get_by_role("list", name="Attached files")
        await chips.get_by_role("alert").get_by_text("file 'broken.png' is a damaged image/png").wait_for()
        await chips.get_by_role("alert").get_by_text("file 'empty.txt' is empty").wait_for()
        assert await page.get_by_role("button", name="Send").is_disabled()
        assert await chips.get_by_role("button", name="again").count() == 0, "another attempt would not help"
        assert await serious_problems(page) == []
        await page.get_by_role("button", name="Remove broken.png").click()
        await page.get_by_role("button", name="Remove empty.txt").click()
        await page.keyboard.press("Enter")
        await shows(page, "Seen.")
        assert files.of("run") == [], "the message has no files"


async def test_an_upload_that_failed_is_tried_again(tmp_path: Path) -> None:
    async with page_of(tmp_path, ["Seen."]) as (browser, executor, files):
        page = await browser.page("new/desk")
        files.statuses = [403, 500, 403, 500]
        await choose(page, chosen("a.txt", b"text"))
        alert = page.get_by_role("list", name="Attached files").get_by_role("alert")
        await alert.get_by_text("file 'a.txt' was not uploaded: the store refuses it with status 500").wait_for()
        await page.get_by_role("button", name="Upload a.txt again").click()
        await attached(page, "1 file")
        assert files.uploads == [4] * 5
        await page.locator("#composer").fill("Read it")
        await page.keyboard.press("Enter")
        await shows(page, "Seen.")
        (user, _answer) = await messages_of(page, executor)
        assert isinstance(user, UserMessage) and [file.name for file in user.files] == ["a.txt"]
        refusals = [error for error in browser.errors if "Failed to load resource" in error]
        assert len(refusals) == 4
        browser.errors.clear()


async def test_names_are_text_and_stored_files_outlast_a_reload(tmp_path: Path) -> None:
    async with page_of(tmp_path, ["Seen."]) as (browser, _executor, files):
        page = await browser.page("new/desk")
        await choose(page, chosen(HOSTILE, png(), "image/png"))
        await attached(page, "1 file")
        await page.reload()
        await page.wait_for_selector(".app")
        chip = page.get_by_role("list", name="Attached files")
        await chip.get_by_text("<img src=x onerror=alert(1)>").wait_for()
        await page.locator("#composer").fill("Look")
        await page.keyboard.press("Enter")
        await shows(page, "Seen.")
        shown = page.get_by_role("list", name="Files of the message")
        await shown.get_by_text("<img src=x onerror=alert(1)>").wait_for()
        assert await page.locator("img[src=x]").count() == 0
        assert "\u202e" not in await shown.inner_text()
        (upload,) = files.of("upload")
        (run,) = files.of("run")
        assert upload["session_id"] == run["session_id"], "a caller without a user has one session for both"


async def test_a_message_that_was_not_sent_keeps_its_files(tmp_path: Path) -> None:
    async with page_of(tmp_path, ["Hello.", "Seen."]) as (browser, executor, files):
        handle = await executor.execute(executor.registry.resolve("desk"), "Hi")
        await handle.result()
        page = await browser.page(f"sessions/{handle.session_id}/chat")
        await shows(page, "Hello.")
        await choose(page, chosen("a.txt", b"text"))
        await attached(page, "1 file")
        files.refused = "no room for this message"
        await page.locator("#composer").fill("Read it")
        await page.keyboard.press("Enter")
        unsent = page.get_by_role("region", name="Message that is not sent")
        await unsent.get_by_text("Not sent: no room for this message").wait_for()
        await unsent.get_by_text("a.txt").wait_for()
        await unsent.get_by_role("button", name="Edit").click()
        await attached(page, "1 file")
        files.refused = ""
        await page.keyboard.press("Enter")
        await shows(page, "Seen.")
        assert {request["session_id"] for request in files.requests} == {handle.session_id}
        assert files.uploads == [4]


async def test_removing_a_file_stops_its_upload(tmp_path: Path) -> None:
    async with page_of(tmp_path, ["Seen."]) as (browser, _executor, files):
        page = await browser.page("new/desk")
        files.held = asyncio.Event()
        await choose(page, chosen("slow.txt", b"text"))
        await page.get_by_role("progressbar", name="Upload of slow.txt").wait_for()
        while not files.uploads:
            await asyncio.sleep(0)
        async with page.expect_event("requestfailed") as stopped:
            await page.get_by_role("button", name="Remove slow.txt").click()
        assert (await stopped.value).method == "PUT"
        files.held.set()
        await page.get_by_role("list", name="Attached files").wait_for(state="detached")
        assert files.of("finish_upload") == []
