"""The console's filters, saved views, actions on several sessions, and the page of what runs now, in Chromium."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_console_page import page_of
from tests.support.browser import Watched, browsing, go, serious_problems
from tests.support_run import Gate, a_tool, agent, call, calls, gated

from helix import LocalExecutor, ScriptedModel
from helix.console.here import serve_console
from helix.console.server import ConsoleServer
from helix.core.registry import AgentRegistry
from helix.sessions import search

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


@asynccontextmanager
async def desk(*script: Any, scheme: Any = "light") -> AsyncIterator[tuple[Watched, LocalExecutor, Gate]]:
    """Five sessions: two completed, one failed, one that waits for an approval, and one that runs until the gate opens."""
    gate = Gate()
    pay = a_tool("pay", lambda given, ctx: "paid", require_approval=True)
    clerk, helper = agent("clerk", tools=[pay]), agent("helper")
    registry = AgentRegistry()
    registry.register(clerk)
    registry.register(helper)
    plan = ["Hello.", "Hi.", ValueError("no"), calls(call("pay")), gated(gate, "Done at last."), *script]
    async with LocalExecutor(":memory:", model=ScriptedModel(plan), registry=registry) as executor:
        for n, (who, text, tags) in enumerate(
            [(helper, "First of north", ["north"]), (helper, "Second of south", ["south"]), (helper, "It fails", [])]
        ):
            await (await executor.execute(who, text, session_id=f"s{n}", tags=tags)).result()
        await (await executor.execute(clerk, "Pay the bill", session_id="s3")).result()
        await executor.execute(helper, "Work on", session_id="s4")
        await gate.reached()
        async with serve_console(executor, "the tests") as service:
            with ConsoleServer(service) as console:
                options = {"viewport": {"width": 1100, "height": 900}, "color_scheme": scheme}
                async with browsing(console, **options) as browser:
                    yield browser, executor, gate
                    assert browser.errors == []
        gate.open()


async def titles(page: Any, *expected: str) -> None:
    """Wait until the list has exactly these sessions."""
    await page.wait_for_function(
        "wanted => JSON.stringify([...document.querySelectorAll('.row-title')].map(e => e.textContent)) == wanted",
        arg=_json(expected),
    )


def _json(texts: tuple[str, ...]) -> str:
    return "[" + ",".join(f'"{text}"' for text in texts) + "]"


ALL = ("Work on", "Pay the bill", "It fails", "Second of south", "First of north")


async def test_filters_are_in_the_address_and_views_are_saved() -> None:
    async with desk() as (browser, _, _gate):
        page = await browser.page()
        await titles(page, *ALL)
        await page.keyboard.press("v")
        panel = page.get_by_role("region", name="Filters")
        await panel.get_by_label("Tag").select_option(label="north (1)")
        await titles(page, "First of north")
        assert page.url.endswith("#/?tag=north")
        await page.locator(".row").click()
        await page.locator("#composer").wait_for()
        assert page.url.endswith("#/sessions/s0/chat?tag=north"), "links keep the filters"
        await page.reload()
        await titles(page, "First of north")
        await page.keyboard.press("v")
        await panel.get_by_label("Name of the view").fill("The north")
        await panel.get_by_role("button", name="Save view").click()
        await page.get_by_role("list", name="Filters in use").get_by_role("button", name="Tag: north").click()
        await titles(page, *ALL)
        await panel.get_by_label("Tool").select_option(label="pay (1)")
        await titles(page, "Pay the bill")
        await page.go_back()
        await titles(page, *ALL)
        await page.get_by_role("button", name="Failed", exact=True).click()
        await titles(page, "It fails")
        assert page.url.endswith("?status=failed")
        await page.reload()
        await titles(page, "It fails")
        await page.keyboard.press("v")
        await page.get_by_role("list", name="Saved views").get_by_role("button", name="The north", exact=True).click()
        await titles(page, "First of north")
        await panel.get_by_role("button", name="Clear all").click()
        await page.locator("#search").fill("OF south")
        await titles(page, "Second of south")
        assert page.url.endswith("?text=OF+south")
        await go(page, "?status=nonsense")
        await page.locator(".sidebar").get_by_role("alert").get_by_text("status").first.wait_for()


async def test_several_sessions_are_stopped_and_deleted_each_with_its_result() -> None:
    async with desk() as (browser, executor, _):
        page = await browser.page()
        await titles(page, *ALL)
        await page.keyboard.press("s")
        await page.get_by_role("checkbox", name="Select Work on").check()
        await page.get_by_role("checkbox", name="Select It fails").check()
        bulk = page.get_by_role("region", name="Selected sessions")
        await bulk.get_by_text("2 sessions selected").wait_for()
        await bulk.get_by_role("button", name="Delete").click()
        dialog = page.get_by_role("dialog", name="Delete 2 sessions?")
        assert await executor.sessions.exists("s2"), "nothing is deleted before it is confirmed"
        await dialog.get_by_role("button", name="Delete").click()
        await dialog.get_by_text("2 of 2 done, 1 refused").wait_for()
        rows = dialog.get_by_role("listitem")
        assert "Deleted" in await rows.filter(has_text="It fails").inner_text()
        assert "running" in await rows.filter(has_text="Work on").inner_text()
        await dialog.get_by_role("button", name="Close").last.click()
        await titles(page, "Work on", "Pay the bill", "Second of south", "First of north")
        assert not await executor.sessions.exists("s2") and await executor.sessions.exists("s4")
        await bulk.get_by_text("1 session selected").wait_for()
        await bulk.get_by_role("button", name="Stop").click()
        dialog = page.get_by_role("dialog", name="Stop 1 session?")
        await dialog.get_by_role("button", name="Stop").click()
        await dialog.get_by_text("Asked to stop").wait_for()
        await dialog.get_by_role("button", name="Close").last.click()
        await page.get_by_role("button", name="Interrupted", exact=True).click()
        await titles(page, "Work on")


async def test_several_sessions_are_tagged_by_keyboard_alone() -> None:
    async with desk() as (browser, executor, _):
        page = await browser.page()
        await titles(page, *ALL)
        await executor.change_tags("s1", add=[f"t{n}" for n in range(49)])
        await page.keyboard.press("s")
        for title in ("Work on", "Second of south", "First of north"):
            await page.get_by_role("checkbox", name=f"Select {title}").press("Space")
        bulk = page.get_by_role("region", name="Selected sessions")
        await bulk.get_by_role("button", name="Tag").press("Enter")
        dialog = page.get_by_role("dialog", name="Change the tags of 3 sessions")
        await page.keyboard.type(" urgent")
        await page.keyboard.press("Tab")
        await page.keyboard.type("north")
        await dialog.get_by_role("button", name="Tag").press("Enter")
        await dialog.get_by_text("3 of 3 done, 1 refused").wait_for()
        rows = dialog.get_by_role("listitem")
        assert "the limit is 50" in await rows.filter(has_text="Second of south").inner_text()
        assert "urgent" in await rows.filter(has_text="Work on").inner_text()
        assert "north" not in await rows.filter(has_text="First of north").locator(".quiet").inner_text()
        await page.keyboard.press("Escape")
        assert (await executor.sessions.get("s0")).tags == ["urgent"] == (await executor.sessions.get("s4")).tags
        await bulk.get_by_text("3 sessions selected").wait_for()
        await bulk.get_by_role("button", name="Tag").press("Enter")
        await dialog.get_by_label("Remove this tag").select_option(label="urgent (2)")
        assert await serious_problems(page) == []
        await page.keyboard.press("Escape")
        await go(page, "?tag=urgent")
        await titles(page, "Work on", "First of north")


async def test_an_action_on_several_sessions_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, reached, goes_on = list[str](), asyncio.Event(), asyncio.Event()

    async def slow(self: LocalExecutor, session_id: str, **changes: Any) -> list[str]:
        begun.append(session_id)
        if len(begun) == 4:  # as many as are under way at once
            reached.set()
        await goes_on.wait()
        return await change(self, session_id, **changes)

    change = LocalExecutor.change_tags
    monkeypatch.setattr(LocalExecutor, "change_tags", slow)
    async with desk() as (browser, executor, _):
        page = await browser.page()
        await titles(page, *ALL)
        await page.keyboard.press("s")
        await page.get_by_role("button", name="Select the 5 listed").click()
        await page.get_by_role("region", name="Selected sessions").get_by_role("button", name="Tag").click()
        await page.keyboard.type("late")
        await page.keyboard.press("Enter")
        await reached.wait()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("button", name="Stop here").click()
        goes_on.set()
        await dialog.get_by_text("Stopped: the others are as they were").wait_for()
        tagged = [f"s{n}" for n in range(5) if "late" in (await executor.sessions.get(f"s{n}")).tags]
        assert sorted(begun) == tagged and len(tagged) == 4


async def test_what_runs_now_is_shown_and_kept_fresh() -> None:
    async with desk() as (browser, _, gate):
        page = await browser.page()
        await page.locator(".row").first.wait_for()
        await page.keyboard.press("l")
        await page.get_by_text("1 running, 1 waiting for a person").wait_for()
        assert await page.title() == "Running now · Helix"
        table = page.get_by_role("region", name="Sessions that run or wait")
        running = table.get_by_role("row").filter(has_text="Work on")
        await running.get_by_text("Running", exact=True).wait_for()
        elapsed = await running.locator(".number").last.inner_text()
        await page.wait_for_function(
            "old => document.querySelector('main tbody .number:last-child').textContent != old", arg=elapsed
        )
        await table.get_by_role("row").filter(has_text="Pay the bill").get_by_text("Waiting", exact=True).wait_for()
        display = "getComputedStyle(document.querySelector('.fleet-view')).display"
        assert await page.evaluate(display) == "flex", "the rules of the view are here without those of the fleet"
        gate.open()
        await page.get_by_text("0 running, 1 waiting for a person").wait_for()
        await table.get_by_role("link", name="Pay the bill").click()
        await page.get_by_role("form", name="Approve this call? pay").wait_for()


async def test_a_list_is_read_on_behind_pages_without_a_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"ENTRIES": 10, "PAGE": 1, "LOOKS": 1}.items():  # a request searches ten sessions
        monkeypatch.setattr(search, name, size)
    helper = agent("helper")
    async with page_of(str(tmp_path / "a.db"), [helper], ["Hello."] * 68) as (browser, executor):
        for n in range(68):
            tags = [] if 3 <= n < 43 else ["north"]
            await (await executor.execute(helper, f"Number {n}", session_id=f"s{n:03}", tags=tags)).result()
        page = await browser.page("?tag=north")
        await page.locator(".row-title").get_by_text("Number 0", exact=True).wait_for()
        assert await page.locator(".row").count() == 28
        assert not await page.locator(".sessions").get_by_text("Reading…").count()


async def test_what_runs_now_is_searched_for_in_the_newest_sessions_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in {"ENTRIES": 3, "FEWEST": 1, "PAGE": 1, "LOOKS": 1}.items():
        monkeypatch.setattr(search, name, size)
    helper, looks = agent("helper"), list[str]()
    async with page_of(str(tmp_path / "a.db"), [helper], ["Hello."] * 12) as (browser, executor):
        for n in range(12):
            await (await executor.execute(helper, f"Number {n}", session_id=f"s{n:03}")).result()

        async def counted(sessions: Any, users: Any, request: Any) -> Any:
            if request.status == "running":
                looks.append(request.after or "")
            return await search.find_sessions(sessions, users, request)

        monkeypatch.setattr("helix.gateway.reads.find_sessions", counted)
        page = await browser.page("live")
        await page.get_by_text("At least 0 running, 0 waiting for a person").wait_for()
        await page.get_by_text("Only the newest sessions were searched.").wait_for()
        assert not await page.get_by_text("Nothing runs or waits now.").count()
        await page.wait_for_timeout(7_000)
        assert len(looks) == 2 and looks[0] == "" != looks[1], "two pages, and no further look within 7 s"


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_nothing_is_a_problem_for_people_with_disabilities(scheme: str) -> None:
    async with desk(scheme=scheme) as (browser, _, _gate):
        page = await browser.page("?agent=helper&cost_to=5")
        await titles(page, "Work on", "It fails", "Second of south", "First of north")
        await page.keyboard.press("v")
        await page.get_by_role("region", name="Filters").get_by_label("Tag").wait_for()
        await page.keyboard.press("s")
        await page.get_by_role("checkbox").first.check()
        assert await serious_problems(page) == []
        await page.get_by_role("region", name="Selected sessions").get_by_role("button", name="Stop").click()
        await page.get_by_role("dialog").get_by_text("It can be resumed").wait_for()
        assert await serious_problems(page) == []
        await page.keyboard.press("Escape")
        await go(page, "live")
        await page.get_by_text("1 running, 1 waiting").wait_for()
        assert await serious_problems(page) == []
        await page.keyboard.press("?")
        await page.get_by_role("dialog").get_by_text("Filters and saved views").wait_for()
        assert await serious_problems(page) == []
