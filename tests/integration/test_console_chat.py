"""The chat of the console's page: titles, deletion, saved pages, diagrams, the lightbox, examples and the first agent."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_console_page import page_of
from tests.integration.test_show_html import Reader, played
from tests.support.browser import go, serious_problems, shows
from tests.support.command_line import CommandLine
from tests.support.sample_files import png
from tests.support_run import Gate, agent, gated

from helix import create_sub_agent_tool
from helix.core.steps import AnyStepResult, TextStepResult
from helix.ports.model import LLMGenerateInput

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

FLOW = "flowchart TD\n  A[Question] -->|asks| B{Known?}\n  B -->|yes| C[Answer]\n  B -->|no| D[(Search)] --> C"
EVIL = 'flowchart TD\n  A["<img src=x onerror=alert(1)> <script>alert(2)</script>"] --> B\n  style A fill:url(https://evil.test/a)'


def listing(text: str) -> str:
    return f"```mermaid\n{text}\n```\n"


async def menu(page: Any, name: str) -> None:
    await page.get_by_role("button", name="More actions").click()
    await page.get_by_role("menu", name="Session").get_by_role("menuitem", name=name).click()


async def clean(page: Any) -> None:
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        assert await serious_problems(page) == []


async def test_a_session_is_renamed_while_it_runs_and_deleted(tmp_path: Path) -> None:
    gate = Gate()
    async with page_of(str(tmp_path / "a.db"), [agent("helper")], [gated(gate, "Done.")]) as (browser, executor):
        page = await browser.page("new/helper")
        await page.locator("#composer").fill("Where is the kettle?")
        await page.keyboard.press("Enter")
        await gate.reached()
        await page.wait_for_function("() => location.hash.startsWith('#/sessions/')")
        session_id = str(page.url).partition("#/sessions/")[2].split("/")[0]
        await page.get_by_role("button", name="More actions").focus()
        await page.keyboard.press("Enter")
        await page.locator("[role=menuitem]:focus").get_by_text("Rename").wait_for()
        await clean(page)
        await page.keyboard.press("ArrowUp")
        await page.locator("[role=menuitem]:focus").get_by_text("Delete").wait_for()
        await page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        await dialog.get_by_text("This cannot be undone.").wait_for()
        await dialog.get_by_text("The session runs. Interrupt or abort its run first.").wait_for()
        assert await dialog.get_by_role("button", name="Delete for good").is_disabled()
        await clean(page)
        await page.keyboard.press("Escape")
        await dialog.wait_for(state="detached")
        await menu(page, "Rename")
        field = dialog.get_by_label("Title")
        assert await field.input_value() == "Where is the kettle?"
        await field.fill("  All  about kettles ")
        await clean(page)
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", level=1, name="All about kettles").wait_for()
        await page.locator(".row-title").get_by_text("All about kettles").wait_for()
        assert await page.title() == "All about kettles · Helix"
        gate.open()
        await shows(page, "Done.")
        await page.locator(".working").wait_for(state="detached")
        assert (await executor.sessions.get(session_id)).title == "All about kettles"
        await page.keyboard.press("Control+K")
        await page.get_by_role("combobox").fill("rename the")
        await page.keyboard.press("Enter")
        await field.fill("")
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", level=1, name="Where is the kettle?").wait_for()
        await menu(page, "Delete")
        await dialog.get_by_role("button", name="Delete for good").click()
        await page.locator(".newchat").wait_for()
        await page.locator(".row").wait_for(state="detached")
        assert await executor.sessions.load(session_id) is None


def after(loading: asyncio.Event) -> Any:
    """Return a handler of a request that is answered only when the event is set."""

    async def handle(route: Any) -> None:
        await loading.wait()
        await route.continue_()

    return handle


async def test_keys_before_a_dialog_is_loaded_are_no_shortcuts(tmp_path: Path) -> None:
    """What a person types is a name to find or a title. As shortcuts, `i` would stop the run and `n` leave the session."""
    gate = Gate()
    async with page_of(str(tmp_path / "a.db"), [agent("helper")], [gated(gate, "Done.")]) as (browser, executor):
        session_id = (await executor.execute(agent("helper"), "Where is the kettle?")).session_id
        await gate.reached()
        page = await browser.page(f"sessions/{session_id}/chat")
        await page.get_by_role("button", name="Interrupt", exact=True).wait_for()
        for key, dialog in (("Control+K", "palette"), ("t", "sessionmenu")):
            loading = asyncio.Event()
            await page.route(f"**/console-{dialog}.js", after(loading))
            await page.keyboard.press(key)
            await page.keyboard.type("ind")
            await page.get_by_role("dialog").get_by_text("Opening…").wait_for()
            loading.set()
            await page.get_by_role("dialog").locator("input").wait_for()
            await page.keyboard.press("Escape")
            await page.get_by_role("dialog").wait_for(state="detached")
        assert f"sessions/{session_id}/chat" in page.url
        assert (await executor.sessions.get(session_id)).status == "running"
        gate.open()
        await shows(page, "Done.")


def told(page: Reader) -> list[str]:
    """Return the texts of a page, without what differs between its two writers: when and by whom it was made, and marks of
    characters that are not shown."""
    text = re.sub(r"Made .{20,30} by (helix \S+|the Helix console)\.", "", page.text())
    return re.sub(r"⟨U\+[0-9A-F]{4}⟩|[␀-␤\ufffd]", " ", text).split()


async def test_a_saved_page_is_that_of_the_command(tmp_path: Path) -> None:
    db = str(tmp_path / "s.db")
    await played(tmp_path / "s.db")
    async with page_of(db, []) as (browser, executor):
        await executor.rename("evil", "The <b>evil</b> one")
        page = await browser.page("sessions/evil/chat")
        await page.locator(".item").first.wait_for()
        async with page.expect_download() as saving:
            await menu(page, "Save as a page")
        download = await saving.value
        assert download.suggested_filename == "evil.html"
        saved = Reader(Path(await download.path()).read_text("utf-8"))
    done = await asyncio.to_thread(CommandLine(tmp_path), "show", "evil", "--db", "s.db", "--html", "evil.html")
    assert done.code == 0, done
    written = Reader((tmp_path / "evil.html").read_text("utf-8"))
    assert told(saved) == told(written)
    assert [tag for tag, _ in saved.elements] == [tag for tag, _ in written.elements]
    assert [attributes.get("class") for _, attributes in saved.elements] == [
        attributes.get("class") for _, attributes in written.elements
    ]
    policies = [[one["content"] for _, one in page.elements if "http-equiv" in one] for page in (saved, written)]
    assert policies[0] == policies[1]


async def test_a_browser_without_digests_says_that_it_cannot_save_a_page(tmp_path: Path) -> None:
    """A page over plain HTTP from another machine has no `crypto.subtle`."""
    insecure = "Object.defineProperty(window, 'isSecureContext', { value: false })"
    absent = "Object.defineProperty(crypto, 'subtle', { value: undefined })"
    async with page_of(str(tmp_path / "a.db"), [agent("helper")], ["Hello."]) as (browser, executor):
        handle = await executor.execute(agent("helper"), "Hello")
        await handle.result()
        await browser.context.add_init_script(f"{insecure}; {absent}")
        page = await browser.page(f"sessions/{handle.session_id}/chat")
        await page.locator(".item.step").wait_for()
        await menu(page, "Save as a page")
        await page.get_by_role("alert").get_by_text("saves a session as a page only over HTTPS").wait_for()
        await go(page, f"sessions/{handle.session_id}/timeline")
        await page.locator(".run-row").click()
        facts = page.locator(".trace-detail .facts")
        await facts.get_by_text("Took").wait_for()
        assert not await facts.get_by_text("Trace").count()


async def test_a_diagram_is_drawn_on_demand_and_loads_nothing(tmp_path: Path) -> None:
    text = "\n".join(
        [
            listing(FLOW),
            listing(EVIL),
            listing("pie title Costs\n  a: 1"),
            listing("flowchart TD\n" + "  A-->B\n" * 4000),
        ]
    )
    async with page_of(str(tmp_path / "a.db"), [agent("helper")], [text]) as (browser, _):
        page = await browser.page("new/helper")
        await page.locator("#composer").fill("Draw it")
        await page.keyboard.press("Enter")
        await page.locator(".listing").nth(3).wait_for()
        await page.locator(".working").wait_for(state="detached")
        assert not any("diagram" in url for url in browser.requests), "nothing of it is loaded before"
        buttons = page.get_by_role("button", name="Draw diagram")
        await buttons.nth(0).click()
        image = page.get_by_role("img", name="Diagram: flowchart TD")
        await image.wait_for()
        width, height = await image.evaluate("one => [one.naturalWidth, one.naturalHeight]")
        assert width > 80 and height > 150
        light = await image.get_attribute("src")
        await page.emulate_media(color_scheme="dark")
        await page.wait_for_function("src => document.querySelector('.diagram img').src !== src", arg=light)
        await clean(page)
        await page.locator(".diagram").click()
        await page.get_by_role("dialog", name="Picture").get_by_role("img", name="Image Diagram").wait_for()
        await page.keyboard.press("Escape")
        await page.get_by_role("button", name="Show code").click()
        await page.locator(".diagram").wait_for(state="detached")
        await buttons.nth(1).click()
        await page.locator(".diagram img").wait_for()
        await buttons.nth(1).click()
        await page.get_by_role("alert").get_by_text("Not drawn: Invalid mermaid header").wait_for()
        await buttons.nth(2).click()
        await page.get_by_role("alert").get_by_text("Not drawn: the diagram has more than 20,000 characters").wait_for()
        await clean(page)
        assert not any("evil" in url or "googleapis" in url for url in browser.requests)
        assert await page.locator("img[src=x]").count() == 0


async def test_what_draws_diagrams_cannot_be_loaded_and_then_can(tmp_path: Path) -> None:
    async with page_of(str(tmp_path / "a.db"), [agent("helper")], [listing(FLOW)]) as (browser, _):
        await browser.context.route("**/console-diagram.js", lambda route: route.abort())
        page = await browser.page("new/helper")
        await page.locator("#composer").fill("Draw it")
        await page.keyboard.press("Enter")
        button = page.get_by_role("button", name="Draw diagram")
        await button.wait_for()
        await page.locator(".working").wait_for(state="detached")
        await button.click()
        await page.get_by_role("alert").get_by_text("Not drawn: the page could not load what draws it").wait_for()
        assert all("console-diagram.js" in error for error in browser.errors)
        browser.errors.clear()
        await browser.context.unroute("**/console-diagram.js")
        await button.click()
        await page.get_by_role("img", name="Diagram: flowchart TD").wait_for()
        assert await page.locator(".diagram-problem").count() == 0


async def test_a_diagram_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    dense = "\n".join(f"  n{a} --> n{b}" for a in range(70) for b in range(70) if (a * 7 + b * 3) % 5 == 0)
    async with page_of(str(tmp_path / "a.db"), [agent("helper")], [listing(f"flowchart TD\n{dense}")]) as (browser, _):
        page = await browser.page("new/helper")
        await page.locator("#composer").fill("Draw it")
        await page.keyboard.press("Enter")
        await page.locator(".listing").wait_for()
        await page.locator(".working").wait_for(state="detached")
        await page.get_by_role("button", name="Draw diagram").click()
        await page.locator("#composer").fill("The page works meanwhile")
        await page.get_by_role("alert").get_by_text("Not drawn: it takes longer than 8 s").wait_for()
        assert await page.get_by_role("button", name="Draw diagram").is_enabled()


class Typist:
    """A model that writes a text, and ends its answer once the gate is open."""

    def __init__(self, text: str, gate: Gate) -> None:
        self.text, self.gate = text, gate

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        assert request.callbacks.on_text_delta is not None
        for start in range(0, len(self.text), 500):
            if (waiting := request.callbacks.on_text_delta(self.text[start : start + 500])) is not None:
                await waiting
        await self.gate.wait()
        return TextStepResult(content=self.text)


async def test_a_long_listing_grows_as_one_and_gets_its_colours_at_its_end(tmp_path: Path) -> None:
    gate, code = Gate(), "for place in places:\n    print(place)\n" * 200
    typist = Typist(f"Here it is:\n\n```python\n{code}", gate)
    async with page_of(str(tmp_path / "a.db"), [agent("helper")], typist) as (browser, _):
        page = await browser.page("new/helper")
        await page.locator("#composer").fill("Write it")
        await page.keyboard.press("Enter")
        whole = "length => document.querySelector('.prose pre')?.textContent.length >= length"
        await page.wait_for_function(whole, arg=len(code))
        assert await page.locator(".listing-head span").all_inner_texts() == ["python"], "it is no bare text meanwhile"
        assert await page.locator(".prose p").all_inner_texts() == ["Here it is:"]
        assert await page.locator(".hljs-keyword").count() == 0
        gate.open()
        await page.locator(".hljs-keyword").first.wait_for()
        assert await page.locator(".listing code").text_content() == code
        assert await page.locator(".prose p").all_inner_texts() == ["Here it is:"]


async def test_the_lightbox_shows_one_picture_after_the_other(tmp_path: Path) -> None:
    async with page_of(str(tmp_path / "a.db"), [agent("helper")], ["Seen."]) as (browser, _):
        page = await browser.page("new/helper")
        names = ["one.png", "two.png", "three.png"]
        files: list[Any] = [
            {"name": name, "mimeType": "image/png", "buffer": png(40 + 20 * n, 30)} for n, name in enumerate(names)
        ]
        await page.get_by_label("Files to attach").set_input_files(files)
        await page.get_by_text("3 files attached.").wait_for()
        await page.get_by_role("button", name="Enlarge two.png").click()
        box = page.get_by_role("dialog", name="Picture")
        await box.get_by_role("img", name="Image two.png").wait_for()
        await page.keyboard.press("Escape")
        await box.wait_for(state="detached")
        await page.locator("#composer").fill("Look")
        await page.keyboard.press("Enter")
        await shows(page, "Seen.")
        opener = page.get_by_role("button", name="Enlarge image one.png")
        await opener.focus()
        await page.keyboard.press("Enter")
        await box.get_by_role("img", name="Image one.png").wait_for()
        await box.get_by_text("1 of 3").wait_for()
        await clean(page)
        for key, name in (
            ("ArrowRight", names[1]),
            ("End", names[2]),
            ("ArrowRight", names[2]),
            ("ArrowLeft", names[1]),
        ):
            await page.keyboard.press(key)
            await box.get_by_role("img", name=f"Image {name}").wait_for()
        for _ in range(8):  # the focus stays in the dialog
            await page.keyboard.press("Tab")
            assert await page.evaluate(
                "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
            )
        async with page.expect_download() as saving:
            await box.get_by_role("button", name="Download").click()
        assert (await saving.value).suggested_filename == "two.png"
        await page.set_viewport_size({"width": 390, "height": 740})
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await page.keyboard.press("Escape")
        await box.wait_for(state="detached")
        assert await opener.evaluate("one => one === document.activeElement"), "the focus returns"


async def test_a_new_chat_begins_with_the_first_agent_and_its_examples(tmp_path: Path) -> None:
    below = agent("a-helper")
    desk = agent(
        "desk", tools=[create_sub_agent_tool(below)], examples=["Where is the <b>kettle</b>?", "And the cups?"]
    )
    async with page_of(str(tmp_path / "a.db"), [below, desk, agent("b-other")], ["In the hall.", "Other."]) as (
        browser,
        _,
    ):
        page = await browser.page("new")
        chosen = page.locator(".agent[aria-current=true]")
        await chosen.get_by_text("desk").wait_for()
        await clean(page)
        await page.get_by_role("button", name="Where is the <b>kettle</b>?").click()
        assert await page.locator("#composer").input_value() == "Where is the <b>kettle</b>?"
        assert await page.evaluate("document.activeElement.id") == "composer"
        await page.get_by_role("region", name="Examples").wait_for(state="detached")
        await page.keyboard.press("Enter")
        await shows(page, "In the hall.")
        await go(page, "new/b-other")
        await page.locator("#composer").fill("Hello")
        await page.keyboard.press("Enter")
        await shows(page, "Other.")
        await go(page, "new")
        await chosen.get_by_text("b-other").wait_for()
        await page.get_by_role("img", name="Connected").wait_for()
