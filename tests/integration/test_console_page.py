"""The console's page on a store of this machine, in Chromium: what a test on the deployed app does not cover."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.browser import Watched, browsing, go, shows
from tests.support_run import Gate, Nothing, a_tool, agent, call, calls

from helix import Agent, LLMConfig, LocalExecutor, ScriptedModel, ToolContext, define_tool
from helix.console.here import OneToken, serve_console
from helix.console.server import ConsoleServer, Service
from helix.core.functions import AgentClient
from helix.core.periods import TokenPeriod
from helix.core.registry import AgentRegistry
from helix.engine.engine import Settings
from helix.fleet.budgets import BudgetManager
from helix.gateway.loopback import LoopbackGateway

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


class Question(BaseModel):
    question: str


@asynccontextmanager
async def page_of(
    db: str, agents: Sequence[Agent[Any, Any]], plan: Any = (), **settings: Any
) -> AsyncIterator[tuple[Watched, LocalExecutor]]:
    registry = AgentRegistry()
    for one in agents:
        registry.replace(one)
    model = plan if hasattr(plan, "generate_step") else ScriptedModel(list(plan))
    async with LocalExecutor(db, model=model, registry=registry, settings=Settings(**settings)) as executor:
        async with serve_console(executor, "a test") as service:
            with ConsoleServer(service) as console:
                async with browsing(console, viewport={"width": 1000, "height": 800}) as browser:
                    yield browser, executor
                    assert browser.errors == []


async def test_a_function_agent_has_a_form(tmp_path: Path) -> None:
    registry = AgentRegistry()

    @AgentClient(registry=registry).agent("quote")
    async def quote(item: str, pieces: int = 1) -> str:
        """What it costs."""
        return f"{pieces} {item}: {pieces * 3} dollars"

    async with page_of(str(tmp_path / "a.db"), [registry.resolve("quote")]) as (browser, _):
        page = await browser.page("new/quote")
        await page.get_by_label("item").fill("screws")
        await page.get_by_label("pieces").fill("many")
        await page.get_by_role("button", name="Run", exact=True).click()
        await page.get_by_role("alert").get_by_text("pieces: must be of type integer").wait_for()
        await page.get_by_label("pieces").fill("4")
        await page.get_by_role("button", name="Run", exact=True).click()
        await shows(page, "4 screws: 12 dollars")


async def test_a_client_gives_its_result_and_a_refused_one_is_said(tmp_path: Path) -> None:
    form = define_tool(name="form", description="Ask.", input_schema=Question, execute="client")
    plan = [calls(call("form", question="Which colour?")), "Blue it is."]
    async with page_of(str(tmp_path / "a.db"), [agent("helper", tools=[form])], plan) as (browser, executor):
        page = await browser.page("new/helper")
        await page.locator("#composer").fill("Hello")
        await page.keyboard.press("Enter")
        box = page.get_by_role("form", name="This call waits for your result form")
        await box.get_by_label("Result, as text or JSON").fill('{"colour": "blue"}')
        await box.get_by_role("button", name="Send the result").click()
        await shows(page, "Blue it is.")
        session_id = str(page.url).partition("#/sessions/")[2].split("/")[0]
        messages = (await executor.sessions.get_messages(session_id)).messages
    assert [m.content for m in messages if m.role == "tool"] == ['{"colour":"blue"}']


async def test_a_store_without_agents_is_shown_and_nothing_runs(tmp_path: Path) -> None:
    db = str(tmp_path / "a.db")
    async with LocalExecutor(db, model=ScriptedModel(["Good morning."])) as executor:
        handle = await executor.execute(agent("helper"), "Hello", user_id="ada")
        await handle.result()
    async with page_of(db, []) as (browser, executor):
        page = await browser.page()
        await page.get_by_text("Hello").first.click()
        await shows(page, "Good morning.")
        await page.locator("#composer").fill("More")
        await page.keyboard.press("Enter")
        await page.get_by_role("alert").get_by_text("helper").wait_for()
        assert (await executor.sessions.get(handle.session_id)).turn == 1


STEPS = 320


async def test_a_long_session_is_read_and_drawn_in_pieces(tmp_path: Path) -> None:
    async def tick(given: Nothing, ctx: ToolContext[Any]) -> str:
        return "tock"

    helper = agent("helper", tools=[a_tool("tick", tick)], max_steps=None)
    plan = [*[calls(call("tick"))] * STEPS, "All are counted."]
    async with page_of(str(tmp_path / "a.db"), [helper], plan) as (browser, executor):
        handle = await executor.execute(helper, "Count")
        assert (await handle.result()).steps == STEPS + 1
        page = await browser.page(f"sessions/{handle.session_id}/chat")
        await shows(page, "All are counted.")
        await page.locator(".earlier").wait_for(state="attached")
        assert await page.locator(".item").count() < 200
        scroller = page.locator(".scroller")
        before = await page.locator(".item.step").count()
        await scroller.evaluate("box => { box.scrollTop = 500 }")
        await page.locator(".item.step").nth(before + 20).wait_for(state="attached")
        await scroller.focus()
        await page.keyboard.press("Home")
        await page.locator(".item.user").get_by_text("Count").wait_for()
        await page.locator(".earlier").wait_for(state="detached")
        assert await page.locator(".call-state.done").count() == STEPS, "results meet their calls on another page"
        await go(page, f"sessions/{handle.session_id}/timeline")
        await page.locator(".step-row", has_text=f"Step {STEPS + 1}").wait_for()
        assert await page.locator(".trace-row").count() <= 100


async def test_a_link_to_an_old_call_reads_back_to_it(tmp_path: Path) -> None:
    async def tick(given: Nothing, ctx: ToolContext[Any]) -> str:
        return "tock"

    helper = agent("helper", tools=[a_tool("tick", tick)], max_steps=None)
    plan = [*[calls(call("tick"))] * 120, "All are counted."]
    async with page_of(str(tmp_path / "a.db"), [helper], plan) as (browser, executor):
        handle = await executor.execute(helper, "Count")
        await handle.result()
        page = await browser.context.new_page()
        await page.goto(f"{browser.console.address}/sessions/{handle.session_id}/chat/call_3")
        await page.locator("#call-call_3[open]").get_by_text("tock").wait_for()


async def test_a_list_is_read_as_one_scrolls_and_searched_by_the_service(tmp_path: Path) -> None:
    sessions = 260
    async with page_of(str(tmp_path / "a.db"), [], ["Good morning."] * sessions) as (browser, executor):
        for n in range(sessions):
            await (await executor.execute(agent("helper"), f"Question {n:04}")).result()
        page = await browser.page()
        await page.locator(".row").filter(has_text=f"Question {sessions - 1:04}").wait_for()
        assert await page.locator(".row").count() < 100, "only those around the screen are drawn"
        await page.locator("#search").fill("0007")
        await page.locator(".row").filter(has_text="Question 0007").wait_for()
        assert await page.locator(".row").count() == 1
        await page.get_by_role("button", name="Failed", exact=True).click()
        await page.get_by_text("No session matches.").wait_for()
        await page.get_by_role("button", name="All", exact=True).click()
        await page.locator("#search").fill("")
        await page.locator(".row").filter(has_text=f"Question {sessions - 1:04}").wait_for()
        async with asyncio.timeout(30):
            while await page.locator(".row").filter(has_text="Question 0000").count() == 0:
                await page.locator(".sessions").evaluate("box => { box.scrollTop = box.scrollHeight }")
                await asyncio.sleep(0.05)
        last = page.locator(".sessions li").last
        assert await last.get_attribute("aria-posinset") == await last.get_attribute("aria-setsize") == str(sessions)


async def test_a_dialog_is_closed_by_its_button(tmp_path: Path) -> None:
    async with page_of(str(tmp_path / "a.db"), [agent("helper")]) as (browser, _):
        page = await browser.page()
        await page.get_by_role("button", name="Keyboard").click()
        await page.get_by_role("dialog").get_by_role("button", name="Close").click()
        await page.get_by_role("dialog").wait_for(state="detached")


async def test_a_budget_that_is_used_up_is_raised_and_the_run_goes_on(tmp_path: Path) -> None:
    answer = {"content": "A line.", "usage": {"prompt_tokens": 40, "completion_tokens": 10, "cost_micros": 12}}
    poet = agent("helper", llm_config=LLMConfig(model="scripted", max_output_tokens=100), on_budget="pause")
    async with page_of(str(tmp_path / "a.db"), [poet], [answer]) as (browser, executor):
        budgets = BudgetManager(executor.store)
        budgets.attach(executor.engine)
        await budgets.set_budget(20, TokenPeriod.TOTAL, "helper")
        page = await browser.page("new/helper")
        await page.locator("#composer").fill("Write.")
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Resume", exact=True).wait_for()
        await shows(page, "The budget is used up")
        await page.keyboard.press("Escape")
        await page.keyboard.press("4")
        await page.locator(".budgets").get_by_text("of 20 tokens").wait_for()
        await budgets.set_budget(5_000, TokenPeriod.TOTAL, "helper")
        await page.get_by_role("button", name="Resume", exact=True).click()
        await page.locator("#tab-chat").click()
        await shows(page, "A line.")
        await page.locator("#tab-cost").click()
        await page.locator(".budgets").get_by_text("50 tokens of 5,000 tokens").wait_for()


class Forwarder:
    """A port that leads to the current service, so that one may stop and another may replace it. With `is_mute`, what the
    service sends is lost. What either side sends takes `delay_s`."""

    def __init__(self) -> None:
        self.target, self.is_mute, self._writers = 0, False, set[asyncio.StreamWriter]()
        self.delay_s = 0.0

    async def __aenter__(self) -> Forwarder:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        self._server.close()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        for writer in self._writers:
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(OSError):
            there, to_there = await asyncio.open_connection("127.0.0.1", self.target)
            self._writers.add(to_there)
            await asyncio.gather(_pump(reader, to_there, self._passes), _pump(there, writer, self._comes_back))
        writer.close()

    async def _passes(self) -> bool:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        return True

    async def _comes_back(self) -> bool:
        return await self._passes() and not self.is_mute


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: Callable[[], Awaitable[bool]]
) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            if await passes():
                writer.write(data)
                await writer.drain()
    writer.close()


async def test_a_service_that_is_killed_and_comes_again_loses_nothing(tmp_path: Path) -> None:
    gate, db = Gate(), str(tmp_path / "a.db")

    async def work(given: Nothing, ctx: ToolContext[Any]) -> str:
        if gate.times == 0:
            await gate.wait()
        return "worked"

    helper = agent("helper", tools=[a_tool("work", work)])
    registry = AgentRegistry()
    registry.replace(helper)

    @asynccontextmanager
    async def service(*plan: Any) -> AsyncIterator[None]:
        settings = Settings(claim_s=1)
        async with LocalExecutor(db, model=ScriptedModel(list(plan)), registry=registry, settings=settings) as executor:
            authoriser = OneToken(executor.engine.clock, "token")
            async with LoopbackGateway(executor, authoriser=authoriser, operator=True) as served:
                forwarder.target = int(served.url.rpartition(":")[2])
                yield
                forwarder.cut()

    async with Forwarder() as forwarder:
        with ConsoleServer(Service(forwarder.url, "token", "a test", ["helper"])) as console:
            async with browsing(console, viewport={"width": 1000, "height": 800}) as browser:
                async with service(calls(call("work"), content="I begin.")):
                    page = await browser.page("new/helper")
                    await page.locator("#composer").fill("Hello")
                    await page.keyboard.press("Enter")
                    await shows(page, "I begin.")
                    await gate.reached()
                async with service("All is done."):
                    await page.get_by_role("button", name="Resume", exact=True).click()
                    await shows(page, "All is done.")
                    await page.locator(".working").wait_for(state="detached")
                    live = await page.locator(".items").inner_text()
                    await page.reload()
                    await shows(page, "All is done.")
                    stored = await page.locator(".items").inner_text()
        seen_only_live = ("The worker died.", "attempt 2")
        lines = [line for line in live.splitlines() if line and not line.startswith(seen_only_live)]
        assert lines == [line for line in stored.splitlines() if line], (
            "empty lines depend on whether Markdown is loaded"
        )
        assert "The worker died." in live and live.count("I begin.") == live.count("All is done.") == 1


async def test_a_branch_from_every_checkpoint_is_what_helix_show_says(tmp_path: Path) -> None:
    db = str(tmp_path / "a.db")

    async def look(given: Question, ctx: ToolContext[Any]) -> str:
        return f"seen {given.question}"

    helper = agent("helper", tools=[a_tool("look", look, input_schema=Question)])
    plan = [calls(call("look", question="one"), content="I look at it."), "It is found.", "You are welcome."]
    async with page_of(db, [helper], plan) as (browser, executor):
        handle = await executor.execute(helper, "Look")
        await handle.result()
        await (await executor.execute(helper, "Thanks", session_id=handle.session_id)).result()
        points = (await executor.sessions.list_checkpoints(handle.session_id)).items
        whole = await shown(db, handle.session_id)
        assert len(points) >= 5
        for point in points:
            page = await browser.page(f"sessions/{handle.session_id}/timeline")
            await page.get_by_text("All stored checkpoints").click()
            await page.get_by_role("button", name=f"Branch from checkpoint {point.id}").click()
            await page.get_by_role("dialog").get_by_role("button", name="Branch", exact=True).click()
            await page.wait_for_function("id => !location.hash.includes(id)", arg=handle.session_id)
            branch = str(page.url).partition("#/sessions/")[2].split("/")[0]
            stored = await shown(db, branch)
            assert stored == whole[: point.count]
            said = [text for role, text in stored if role != "tool" and text]
            items = page.locator(".item.user, .item.step")
            if stored:
                await items.filter(has_text=said[-1]).last.wait_for()
            texts = [" ".join((await item.inner_text()).split()) for item in await items.all()]
            assert len(texts) == sum(role != "tool" for role, _ in stored), (point.id, texts)
            assert all(part in text for part, text in zip(said, texts, strict=True)), (point.id, texts)
            assert "".join(texts).count("look question=") == sum(role == "tool" for role, _ in stored)
            await page.close()


async def shown(db: str, session_id: str) -> list[tuple[str, str]]:
    """Return the role and the content of each message, as `helix show` prints them."""
    command = [sys.executable, "-m", "helix.cli", "show", session_id, "--db", db, "--json"]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    return [(message["role"], message["content"] or "") for message in json.loads(done.stdout)["messages"]]


async def test_an_answer_that_is_stopped_stays_and_says_so(tmp_path: Path) -> None:
    plan: list[Any] = [{"content": "Once upon a time there was a bee in a garden.", "delta_delay_s": 0.5}, "Of bees."]
    async with page_of(str(tmp_path / "a.db"), [agent("poet", keep_partial=True)], plan) as (browser, executor):
        page = await browser.page("new/poet")
        await page.locator("#composer").fill("Tell me.")
        await page.keyboard.press("Enter")
        await shows(page, "Once upon a")
        session_id = str(page.url).partition("#/sessions/")[2].split("/")[0]
        assert await executor.interrupt(session_id)
        await shows(page, "Stopped here.")
        await page.reload()
        await shows(page, "Stopped here.")
        await page.locator("#composer").fill("Of what?")
        await page.keyboard.press("Enter")
        await shows(page, "Of bees.")
        assert await page.get_by_text("Stopped here.").count() == 1
