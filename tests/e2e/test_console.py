"""The console of the deployed app in Chromium: what a user does there, and what the page must never do."""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.browser import Watched, browsing, go, serious_problems, shows
from tests.support.cloud_agents.plans import ask, call, fail, finish, plan, say, use
from tests.support.command_line import CommandLine
from tests.support.offline_cloud import CloudForTests, until

from helix.client import HelixClient
from helix.console.server import ConsoleServer, Service
from helix.core.errors import NotAuthenticatedError
from helix.local.cloud import REGION

WAIT_S = 60
BEFORE_CUT, CUTS = 3, 6
HOSTILE = (
    "\u202eevil\u202c <img src=https://evil.example/a.png onerror=alert(1)> <script>alert(2)</script> "
    "[here](javascript:alert(3)) ![i](https://evil.example/b.png) <style>*{display:none}</style>"
)


@pytest.fixture
def user(request: pytest.FixtureRequest) -> str:
    """Return a new user for each test, so that a test does not see the sessions of another."""
    return f"console-{request.node.name[:60].replace('[', '-').replace(']', '')}"


@pytest.fixture
def console(cloud: CloudForTests, user: str) -> Iterator[ConsoleServer]:
    with ConsoleServer(Service(cloud.url, cloud.key(user), "the tests")) as made:
        yield made


@pytest_asyncio.fixture
async def browser(console: ConsoleServer) -> AsyncIterator[Watched]:
    async with browsing(console, viewport={"width": 1280, "height": 800}) as made:
        yield made
        assert made.errors == []


async def finished(client: HelixClient, session_id: str, *statuses: str) -> Any:
    """Wait until the session's run has ended with this status."""
    async with asyncio.timeout(WAIT_S):
        while (state := await client.get_session(session_id)).status not in statuses:
            await asyncio.sleep(0.1)
    return state


def session_of(page: Any) -> str:
    return str(page.url).partition("#/sessions/")[2].split("/")[0]


def stops(cloud: CloudForTests, session_id: str) -> list[Any]:
    return [item for item in cloud.rows("sessions", session_id) if item["sk"]["S"].startswith("x#")]


async def send(page: Any, message: str) -> None:
    await page.locator("#composer:not([disabled])").fill(message)
    await page.keyboard.press("Enter")


async def test_a_chat_with_tools_a_sub_agent_and_edited_arguments(
    cloud: CloudForTests, user: str, browser: Watched
) -> None:
    child = plan(use(call("look", topic="shelves"), text="I look at the shelves."), finish(summary="Shelf 7."))
    page = await browser.page("new/boss")
    asked = use(call("look", topic="kettle"), ask("helper", child), text="I **look** at it.", think="Where can it be?")
    await send(page, plan(asked, use(call("gated", topic="refund 50")), finish(summary="All is well.")))
    form = page.get_by_role("form", name="Approve this call? gated")
    await form.get_by_label("topic").fill("refund 45")
    await form.get_by_role("button", name="Approve").click()
    await shows(page, "All is well.")
    async with cloud.user(user) as client:
        state = await finished(client, session_of(page), "completed")
        told: dict[str, Any] = await client.get_snapshot(state.session_id)
    assert "gated refund 45" in state.custom_state["seen"], "the edited argument was executed"
    edits = [
        message["metadata"]["edited"]
        for message in told["messages"]
        if message["role"] == "tool" and message["metadata"]
    ]
    assert [(edit["by"], edit["arguments"]) for edit in edits] == [(user, {"topic": "refund 45"})]
    assert await page.locator(".prose strong", has_text="look").count() == 1, "Markdown"
    await page.get_by_text("Reasoning").click()
    await shows(page, "Where can it be?")
    for _ in range(2):  # live messages and stored messages are the same
        call_of_helper = page.locator("details.call", has=page.locator(".call-name", has_text="helper")).first
        if await call_of_helper.get_attribute("open") is None:
            await call_of_helper.locator("summary").first.click()
        await call_of_helper.get_by_text("I look at the shelves.", exact=True).wait_for()
        assert await page.locator(".call", has_text="gated").get_by_text("edited").count() > 0
        await page.reload()
        await shows(page, "All is well.")


async def test_two_tabs_agree(cloud: CloudForTests, user: str, browser: Watched) -> None:
    first = await browser.page("new/talker")
    await send(first, plan(use(call("look", topic="a"), text="I look."), say("Found it.")))
    await shows(first, "Found it.")
    second = await browser.page(f"sessions/{session_of(first)}/chat")
    await shows(second, "Found it.")
    await send(second, plan(use(call("add", amount=2), text="I add."), say("It is two.")))
    texts = []
    for page in (first, second):
        await shows(page, "It is two.")
        await page.locator(".working").wait_for(state="detached")
        texts.append(await page.locator(".items").first.inner_text())
    assert texts[0] == texts[1] and texts[0].count("I add.") == 2, "the message, and the answer"
    async with cloud.user(user) as client:
        assert (await client.get_session(session_of(first))).turn == 2, "one run each"


async def test_interrupt_and_resume(cloud: CloudForTests, user: str, browser: Watched, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    page = await browser.page("new/talker")
    await send(page, plan(use(call("wait", gate=str(gate))), say("The end is here.")))
    await page.locator("#main").focus()
    await page.get_by_role("button", name="Interrupt", exact=True).wait_for()
    async with asyncio.timeout(WAIT_S):
        while not Path(f"{gate}.entered").exists():
            await asyncio.sleep(0.05)
    await page.keyboard.press("i")
    await asyncio.to_thread(until, lambda: stops(cloud, session_of(page)), "stored stop")
    gate.touch()
    await page.get_by_role("button", name="Resume").click()
    await shows(page, "The end is here.")
    async with cloud.user(user) as client:
        assert (await finished(client, session_of(page), "completed")).turn == 2


async def test_retry(cloud: CloudForTests, user: str, browser: Watched, tmp_path: Path) -> None:
    cured = tmp_path / "cured"
    page = await browser.page("new/talker")
    await send(page, plan(use(call("look", topic="a")), fail("broken", unless=str(cured))))
    await page.locator("main").get_by_text("as planned: broken").first.wait_for()
    cured.touch()
    await page.get_by_role("button", name="Retry").click()
    await shows(page, "well again")
    async with cloud.user(user) as client:
        assert (await finished(client, session_of(page), "completed")).turn == 2


async def test_a_branch_from_a_step_and_the_two_beside_each_other(
    cloud: CloudForTests, user: str, browser: Watched
) -> None:
    async with cloud.user(user) as client:
        steps = [use(call("look", topic=topic), text=f"I look at {topic}.") for topic in ("one", "two")]
        handle = await client.run("talker", plan(*steps, say("Both are found.")))
        await handle.result(WAIT_S)
        page = await browser.page(f"sessions/{handle.session_id}/timeline")
        await page.locator(".step-row").first.click()
        await page.get_by_role("button", name="Branch from here, step 1").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("First message").fill(plan(use(call("add", amount=3)), say("Another way.")))
        await dialog.get_by_role("button", name="Branch and compare").click()
        await page.locator(".step-pairs").get_by_text("Another way.", exact=True).first.wait_for()
        origin, branch = page.url.partition("#/compare/")[2].split("/")
        assert origin == handle.session_id
        await finished(client, branch, "completed")
        points: Any = (await client.list_checkpoints(origin))["checkpoints"]
        point = next(one for one in points if one["step"] == 1)
        stored: dict[str, Any] = await client.get_snapshot(branch)
        whole: dict[str, Any] = await client.get_snapshot(origin)
    told = [[m["content"] for m in snapshot["messages"][: point["count"]]] for snapshot in (stored, whole)]
    assert told[0] == told[1]
    await page.get_by_text("1 step is the same").wait_for()
    answer = page.get_by_role("region", name="Answer")
    words = [await answer.locator(f".words {mark}").all_inner_texts() for mark in ("del", "ins")]
    assert words == [["Both are found"], ["Another way"]]
    different = " ".join(await page.locator(".step-pairs .different").all_inner_texts())
    assert "I look at two." in different and "I look at one." not in different
    state = await page.get_by_role("region", name="Differences of the state").inner_text()
    assert "seen.1" in state and "total" in state and "look at" not in state


async def test_a_worker_that_dies_leaves_an_attempt_that_is_shown(
    cloud: CloudForTests, user: str, browser: Watched, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    async with cloud.user(user) as client:
        handle = await client.run("talker", plan(say("These words are said by a worker that dies.", gate=str(gate))))
        page = await browser.page(f"sessions/{handle.session_id}/timeline")
        async with asyncio.timeout(WAIT_S):
            while not Path(f"{gate}.entered").exists():
                await asyncio.sleep(0.05)
        await page.get_by_text("Step 1").wait_for()
        await asyncio.to_thread(cloud.cloud.kill_worker, "call_model")
        gate.touch()
        await page.get_by_text("discarded", exact=True).first.wait_for(timeout=120_000)
        assert (await handle.result(120)).status == "completed"
    await page.locator(".span.committed").first.wait_for()
    await page.locator(".span.discarded").first.click()
    await page.locator(".bought summary").first.click()
    await page.get_by_text("its worker died").first.wait_for()


async def test_hostile_texts_are_texts(cloud: CloudForTests, user: str, browser: Watched) -> None:
    steps = [use(["<b>x</b>\u202e", {"<i>y": HOSTILE}], call("note", key="<u>k", text=HOSTILE), text=HOSTILE)]
    async with cloud.user(user) as client:
        handle = await client.run("talker", plan(*steps, say(HOSTILE)))
        await handle.result(WAIT_S)
        page = await browser.page()
        for view in ("chat", "timeline", "state", "cost"):
            await go(page, f"sessions/{handle.session_id}/{view}")
            await page.locator(f"#tab-{view}[aria-selected=true]").wait_for()
            await page.wait_for_load_state("networkidle")
            await page.wait_for_function("!document.querySelector('main').innerText.includes('Reading…')")
            await page.evaluate("document.querySelectorAll('main details').forEach(one => { one.open = true })")
            shown = await page.locator("main").inner_text()
            assert "\u202e" not in shown
            if view == "chat":
                assert "⟨U+202E⟩evil" in shown and "<script>alert(2)</script>" in shown and "<b>x</b>⟨U+202E⟩" in shown
        tags = "main img, main style, main script, main iframe, main u, main i.x, a[href^=javascript]"
        assert await page.locator(tags).count() == 0
        await go(page, "sessions/%3Cimg%20src=x%20onerror=alert(4)%3E/chat")
        await page.get_by_text("<img src=x onerror=alert(4)>").wait_for()
    browser.errors[:] = [error for error in browser.errors if "404" not in error]


async def test_the_page_asks_nobody_else(cloud: CloudForTests, user: str, browser: Watched) -> None:
    async with cloud.user(user) as client:
        handle = await client.run("talker", plan(use(call("look", topic="a")), say(HOSTILE)))
        await handle.result(WAIT_S)
    page = await browser.page()
    for path in (f"sessions/{handle.session_id}/{view}" for view in ("chat", "timeline", "state", "cost")):
        await go(page, path)
        await page.wait_for_load_state("networkidle")
    own = (f"http://127.0.0.1:{browser.console.port}/", cloud.url)
    assert browser.requests and all(url.startswith(own) for url in browser.requests), browser.requests
    refused = await page.evaluate("fetch('https://evil.example/').then(() => 'went', () => 'refused')")
    styled = await page.evaluate(
        "() => { const s = document.createElement('style'); s.textContent = 'body { color: red }';"
        " document.head.append(s); return getComputedStyle(document.body).color === 'rgb(255, 0, 0)' }"
    )
    assert (refused, styled) == ("refused", False)
    assert not any("code=" in url for url in browser.requests)
    assert "code" not in page.url
    browser.errors[:] = [error for error in browser.errors if "Content Security Policy" not in error]


async def test_a_browser_without_the_code_is_not_signed_in(browser: Watched) -> None:
    page = await browser.context.new_page()
    await page.goto(f"http://127.0.0.1:{browser.console.port}/#/sessions/x/chat")
    await page.get_by_role("heading", name="This browser is not signed in").wait_for()
    await page.goto(f"http://127.0.0.1:{browser.console.port}/#code=WRONGCODE")
    await page.reload()
    await page.get_by_role("heading", name="This browser is not signed in").wait_for()
    assert not any(url.startswith("ws") for url in browser.requests)
    browser.errors[:] = [error for error in browser.errors if "403" not in error]


async def test_the_keyboard_and_its_list(cloud: CloudForTests, user: str, browser: Watched) -> None:
    async with cloud.user(user) as client:
        ids = []
        for text in ("One.", "Two."):
            handle = await client.run("talker", plan(say(text)))
            await handle.result(WAIT_S)
            ids.append(handle.session_id)
    page = await browser.page()
    await page.locator(".row").nth(1).wait_for()
    await page.keyboard.press("?")
    await page.get_by_role("dialog").get_by_text("Branch from the newest checkpoint").wait_for()
    await page.keyboard.press("Escape")
    await page.keyboard.press("j")
    await shows(page, "Two.")
    await page.keyboard.press("j")
    await shows(page, "One.")
    await page.keyboard.press("2")
    await page.locator("#tab-timeline[aria-selected=true]").wait_for()
    await page.keyboard.press("/")
    await page.keyboard.type("no such words")
    await page.get_by_text("No session matches.").wait_for()
    await page.keyboard.press("Escape")
    await page.keyboard.press("n")
    await page.get_by_role("heading", name="Who do you want to talk to?").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_axe_finds_nothing_serious(
    cloud: CloudForTests, user: str, console: ConsoleServer, scheme: Any, width: int
) -> None:
    async with cloud.user(user) as client:
        steps = (use(call("look", topic="a"), text="I look.", think="Hm."), use(call("gated", topic="b")), say("Done."))
        handle = await client.run("talker", plan(*steps))
        await handle.result(WAIT_S)
        branch = await client.branch(handle.session_id)
    views = [f"sessions/{handle.session_id}/{view}" for view in ("chat", "timeline", "state", "cost")]
    async with browsing(console, viewport={"width": width, "height": 800}, color_scheme=scheme) as browser:
        page = await browser.page()
        for path in [*views, f"compare/{handle.session_id}/{branch}", "new", ""]:
            await go(page, path)
            await page.wait_for_load_state("networkidle")
            await page.locator("main:visible, .sidebar:visible").first.wait_for()
            assert await serious_problems(page) == [], path
            wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{path} is wider than {width} px"


async def test_a_socket_that_is_cut_again_and_again_loses_nothing(
    cloud: CloudForTests, user: str, browser: Watched
) -> None:
    cuts: list[int] = []
    closing: list[Any] = []

    def cut(route: Any) -> None:
        """Close the first connection after its third message, in the middle of a text, and each later connection after its
        first message. A page that reconnects slowly receives everything that it missed over the second connection."""
        server, seen, most = route.connect_to_server(), [0], 1 if cuts else BEFORE_CUT

        def received(message: Any) -> None:
            seen[0] += 1
            if seen[0] <= most or len(cuts) == CUTS:
                route.send(message)
            elif seen[0] == most + 1:
                cuts.append(seen[0])
                closing.append(asyncio.ensure_future(route.close(code=3006)))

        server.on_message(received)

    words = " ".join(f"word{n}" for n in range(40))
    page = await browser.context.new_page()
    await page.route_web_socket(cloud.url, cut)
    await page.goto(browser.console.address)
    await page.wait_for_selector(".app")
    await go(page, "new/talker")
    await send(page, plan(use(call("look", topic="a"), text=words), say("All of it came.")))
    await shows(page, "All of it came.")
    await page.locator(".working").wait_for(state="detached")
    live = await page.locator(".items").first.inner_text()
    assert live.count("word39") == 2 and live.count("word20") == 2, "in the message, and in the answer"
    assert len(cuts) > 1, "while it came"
    async with cloud.user(user) as client:
        assert (await client.get_session(session_of(page))).turn == 1, "one run was started"


async def test_a_stage_is_opened_with_a_key_that_ends(cloud: CloudForTests, user: str, tmp_path: Path) -> None:
    async with cloud.user(user) as client:
        handle = await client.run("talker", plan(say("Hello.")))
        await handle.result(WAIT_S)
    credentials = {**cloud.cloud.emulator.credentials.variables, "AWS_DEFAULT_REGION": REGION}
    line = CommandLine(tmp_path, AWS_ENDPOINT_URL=cloud.cloud.emulator.url, **credentials)
    asked = ("console", "--stage", cloud.cloud.stage, "--user", user, "--no-open")
    with line.started(*asked) as command:
        address = (await asyncio.to_thread(command.until, "#code=")).strip()
        place, _, code = address.partition("#code=")
        body = json.dumps({"code": code}).encode()
        request = urllib.request.Request(f"{place}sign-in", body, {"content-type": "application/json"})
        found = json.loads(await asyncio.to_thread(lambda: urllib.request.urlopen(request).read()))
        async with HelixClient(found["url"], found["token"]) as client:
            listed: Any = await client.list_sessions()
            assert [one["session_id"] for one in listed["sessions"]] == [handle.session_id]
            assert (await client.whoami())["operator"] is True
        command.signal(signal.SIGTERM)
        assert await asyncio.to_thread(command.end) == 0
    with pytest.raises(NotAuthenticatedError):
        async with HelixClient(found["url"], found["token"]):
            pass
