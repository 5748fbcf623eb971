"""The operator's console against the deployed app: the fleet, a budget that stops a run, and the trace of a run."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.e2e.cloud_executor import AdminApplication
from tests.support.browser import Watched, axe, browsing, go, shows
from tests.support.cloud_agents.plans import ask, call, finish, plan, say, use
from tests.support.offline_cloud import CloudForTests, until

from helix.client import HelixClient
from helix.console.server import ConsoleServer, Service
from helix.core.errors import NotAllowedError
from helix.core.spans import trace_id
from helix.fleet.budgets import BudgetManager

WAIT_S = 60
LOOKS, LOOK_S = 20, 0.2
DURATION = re.compile(r"\d[\d.]* (ms|s)$|\d+ min \d+ s$")


@pytest.fixture
def user(request: pytest.FixtureRequest) -> str:
    return f"operator-{request.node.name[:60]}"


@pytest.fixture
def key(cloud: CloudForTests, user: str) -> str:
    return cloud.cloud.create_key(user, operator=True)


@asynccontextmanager
async def opened(cloud: CloudForTests, key: str, **options: Any) -> AsyncIterator[Watched]:
    options.setdefault("viewport", {"width": 1280, "height": 800})
    with ConsoleServer(Service(cloud.url, key, "the tests")) as console:
        async with browsing(console, **options) as browser:
            yield browser
            assert browser.errors == []


async def moved(cloud: CloudForTests, client: HelixClient) -> Any:
    """Wait for a decision of `govern` about `roomy`. It has no runs, so each quiet minute lowers its limit."""
    handle = None
    while True:
        for _ in range(LOOKS):
            found: Any = await client.get_fleet(agent="roomy")
            decided = [one for one in found["agents"][0]["decisions"] if one["rule"] == "quiet" and one["applied"]]
            if decided:
                return decided[0]
            if handle is None:
                break
            await asyncio.sleep(LOOK_S)
        handle = handle or await client.run("roomy", plan(say("Well.")))
        assert (await handle.result(WAIT_S)).status == "completed"
        cloud.cloud.tick()


async def test_a_scale_decision_appears_with_its_reason(cloud: CloudForTests, user: str, key: str) -> None:
    async with HelixClient(cloud.url, key) as client:
        decision = await moved(cloud, client)
        async with opened(cloud, key) as browser:
            page = await browser.page()
            await page.get_by_role("link", name="Fleet").wait_for()
            await page.keyboard.press("?")
            await page.get_by_role("dialog").get_by_text("Fleet, for operators").wait_for()
            await page.keyboard.press("Escape")
            await page.keyboard.press("f")
            await page.get_by_role("heading", name="Fleet").wait_for()
            await page.get_by_text("Accepts runs").wait_for()
            await page.get_by_role("link", name="roomy", exact=True).click()
            why = page.get_by_role("region", name="Why the limit moved: roomy")
            row = why.locator(".decision").filter(has_text=f"{decision['before']} → {decision['after']}").first
            said = await row.inner_text()
            assert decision["reason"] in said and "quiet" in said and "lowered" in said, said
            assert decision["trigger"] in said
            assert page.url.endswith("#/fleet/roomy"), "an address of its own"
    async with opened(cloud, cloud.key(user)) as browser:
        page = await browser.page("fleet")
        await page.get_by_role("heading", name="The fleet is for operators").wait_for()
        assert await page.get_by_role("link", name="Fleet").count() == 0
        await page.keyboard.press("?")
        assert await page.get_by_role("dialog").get_by_text("Fleet, for operators").count() == 0


async def paused(cloud: CloudForTests, client: HelixClient, user: str, message: str) -> str:
    """Create a session whose run was stopped by a budget of the user."""
    budgets = BudgetManager(AdminApplication(cloud).store)
    await budgets.set_budget(5, "total", tenant=user, on_exceeded="pause")
    handle = await client.run("thrifty", message)
    assert (await handle.result(WAIT_S)).completion_reason == "budget_exceeded"
    return handle.session_id


async def test_a_budget_that_is_reached_raised_and_the_run_that_goes_on(
    cloud: CloudForTests, user: str, key: str
) -> None:
    name = f"tenant:{user}/total/tokens"
    async with HelixClient(cloud.url, key) as client:
        session = await paused(cloud, client, user, plan(say("Paid later.")))
        async with opened(cloud, cloud.key(user)) as browser:
            page = await browser.page(f"sessions/{session}/cost")
            await page.get_by_role("button", name=f"Change limit of {name}").click()
            await page.get_by_text(f"helix fleet set-budget AMOUNT total --tenant '{user}' --unit tokens").wait_for()
        async with opened(cloud, key) as browser:
            page = await browser.page(f"sessions/{session}/cost")
            await page.get_by_text("A budget stopped this run.").wait_for()
            await page.get_by_role("button", name=f"Change limit of {name}").press("Enter")
            field = page.get_by_label("Tokens in all")
            assert await field.input_value() == "10", "twice as much"
            await field.fill("100000")
            await page.keyboard.press("Enter")
            await page.get_by_text("The budget has room again.").wait_for()
            await page.get_by_text("of 100,000 tokens").wait_for()
            await page.get_by_role("button", name="Resume the run").click()
            await page.locator(".bar").get_by_text("Completed").wait_for()
            await go(page, f"sessions/{session}/chat")
            await shows(page, "Paid later.")
        assert (await client.get_session(session)).turn == 2


async def test_the_trace_shows_each_call_with_its_duration(cloud: CloudForTests, user: str, key: str) -> None:
    child = plan(use(call("look", topic="shelves"), text="I look at the shelves."), finish(summary="Shelf 7."))
    asked = use(call("look", topic="kettle"), ask("helper", child), text="I look at it.")
    async with HelixClient(cloud.url, key) as client, opened(cloud, key) as browser:
        handle = await client.run("boss", plan(asked, finish(summary="All is well.")))
        assert (await handle.result(WAIT_S)).status == "completed"
        page = await browser.page(f"sessions/{handle.session_id}/timeline")
        run = page.locator(".run-row")
        await run.get_by_text("Completed").wait_for()
        await run.click()
        await page.get_by_text(trace_id(handle.run_id), exact=True).wait_for()
        spans = page.locator(".step-row, .span")
        found = [
            (await span.locator(".span-name").inner_text(), await span.locator(".span-figures").inner_text())
            for span in await spans.all()
        ]
        assert all(DURATION.search(took) for _, took in found), found
        names = [" ".join(name.split()) for name, _ in found]
        assert sum(name.startswith("answer planned") for name in names) == 4, "two of each agent"
        assert sum(name.startswith("Step 1") for name in names) == 2
        helper = next(name for name in names if name.startswith("helper"))
        assert "sub-agent · 2 steps" in helper
        model = await page.locator(".span.model").first.inner_text()
        assert re.search(r"\d+ in, \d+ out", model) and "first words after" in model
        calls: Any = (await client.get_step(handle.session_id, 1))["calls"]
        look = next(one["call_id"] for one in calls if one["tool_name"] == "look")
        await go(page, f"sessions/{handle.session_id}/timeline/{look}")
        await page.locator(".span.target").click()
        await page.locator(".trace-detail").get_by_role("link", name="look").click()
        await page.locator("#tab-chat[aria-selected=true]").wait_for()
        assert page.url.endswith(f"/chat/{look}")


async def test_the_log_of_a_run_is_shown_to_operators_only(cloud: CloudForTests, user: str, key: str) -> None:
    async with HelixClient(cloud.url, key) as client:
        handle = await client.run("talker", plan(use(call("look", topic="kettle")), say("Shelf 7.")))
        assert (await handle.result(WAIT_S)).status == "completed"
        await asyncio.to_thread(until, lambda: cloud.executions(handle.session_id, status="SUCCEEDED"), "the end")
        found, after = list[Any](), None
        while True:
            page: Any = await client.ask("get_logs", {"session_id": handle.session_id, "limit": 1, "after": after})
            found += page["lines"]
            if (after := page["cursor"]) is None:
                break
        assert {line["function"] for line in found} >= {"call_model", "call_tool", "finish_run"}
        assert len({(line["at"], line["function"], line["text"]) for line in found}) > 3
    async with opened(cloud, key) as browser:
        page = await browser.page(f"sessions/{handle.session_id}/timeline")
        await page.locator(".run-row").click()
        await page.get_by_role("button", name="Show log lines").click()
        rows = page.get_by_label("Log lines").get_by_role("listitem")
        await rows.filter(has_text="call_tool").first.wait_for()
        assert await rows.count() >= len(found)
    with pytest.raises(NotAllowedError):
        async with HelixClient(cloud.url, cloud.key(user)) as client:
            await client.ask("get_logs", {"session_id": handle.session_id})
    async with opened(cloud, cloud.key(user)) as browser:
        page = await browser.page(f"sessions/{handle.session_id}/timeline")
        await page.locator(".run-row").click()
        await page.locator(".trace-detail").get_by_text(handle.run_id, exact=True).wait_for()
        assert await page.get_by_role("button", name="Show log lines").count() == 0


async def test_axe_finds_nothing_serious_for_an_operator(cloud: CloudForTests, user: str, key: str) -> None:
    script = axe()
    async with HelixClient(cloud.url, key) as client:
        await moved(cloud, client)
        session = await paused(cloud, client, user, plan(say("Never said.")))
    views = {"fleet": ".fleet-agent", "fleet/roomy": ".decision", f"sessions/{session}/cost": ".stopped"}
    async with opened(cloud, key) as browser:
        page = await browser.page()
        for path, part in views.items():
            await go(page, path)
            await page.locator(part).first.wait_for()
            if path.endswith("cost"):
                await page.get_by_role("button", name="Change limit").first.click()
            await page.evaluate(script)
            for width, scheme in ((1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")):
                await page.set_viewport_size({"width": width, "height": 800})
                await page.emulate_media(color_scheme=scheme)
                found = await page.evaluate("axe.run().then(r => r.violations)")
                serious = [one for one in found if one["impact"] in ("serious", "critical")]
                bad = [(one["id"], one["nodes"][0]["html"][:200]) for one in serious]
                assert bad == [], (path, width, scheme)
                wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, f"{path} is wider than {width} px"
