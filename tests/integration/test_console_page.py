"""The console's page on a store of this machine, in Chromium: what the deployed app does not show by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.browser import Watched, browsing, go, shows
from tests.support_run import Gate, Nothing, a_tool, agent, call, calls

from helix import Agent, LLMConfig, LocalExecutor, ScriptedModel, ToolContext, define_tool
from helix.console.here import serving
from helix.console.server import ConsoleServer
from helix.core.functions import AgentClient
from helix.core.registry import AgentRegistry
from helix.engine.engine import Settings
from helix.fleet.budgets import BudgetManager, TokenPeriod

pytestmark = pytest.mark.slow


class Question(BaseModel):
    question: str


@asynccontextmanager
async def page_of(
    db: str, agents: Sequence[Agent[Any, Any]], plan: Sequence[Any] = (), **settings: Any
) -> AsyncIterator[tuple[Watched, LocalExecutor]]:
    registry = AgentRegistry()
    for one in agents:
        registry.replace(one)
    model = ScriptedModel(list(plan))
    async with LocalExecutor(db, model=model, registry=registry, settings=Settings(**settings)) as executor:
        async with serving(executor, "a test") as service:
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
        await page.get_by_role("alert").get_by_text("pieces is not of type integer").wait_for()
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


async def test_arguments_that_do_not_fit_are_refused_and_the_call_waits_on(tmp_path: Path) -> None:
    async def refund(given: Question, ctx: ToolContext[Any]) -> str:
        return f"refunded {given.question}"

    tool = a_tool("refund", refund, require_approval=True, input_schema=Question)
    plan = [calls(call("refund", question="A7")), "Denied, then."]
    async with page_of(str(tmp_path / "a.db"), [agent("helper", tools=[tool])], plan) as (browser, executor):
        page = await browser.page("new/helper")
        await page.locator("#composer").fill("Hello")
        await page.keyboard.press("Enter")
        box = page.get_by_role("form", name="Approve this call? refund")
        await box.get_by_role("button", name="Edit as JSON").click()
        await box.get_by_label("Arguments as JSON").fill('{"question": 7}')
        await box.get_by_role("button", name="Approve").click()
        await box.get_by_role("alert").wait_for()
        await box.get_by_label("Note for the agent, if you deny").fill("not today")
        await box.get_by_role("button", name="Deny").click()
        await shows(page, "Denied, then.")
        session_id = str(page.url).partition("#/sessions/")[2].split("/")[0]
        messages = (await executor.sessions.get_messages(session_id)).messages
    (result,) = [m for m in messages if m.role == "tool"]
    assert not result.success and "not today" in result.content


async def test_an_unknown_outcome_is_ruled(tmp_path: Path) -> None:
    gate, db = Gate(), str(tmp_path / "a.db")

    async def act(given: Nothing, ctx: ToolContext[Any]) -> str:
        await gate.wait()
        return "acted"

    helper = agent("helper", tools=[a_tool("act", act, on_unknown="ask")])
    executor = LocalExecutor(db, model=ScriptedModel([calls(call("act"))]), settings=Settings(claim_s=1))
    handle = await executor.execute(helper, "Hello")
    await gate.reached()
    await executor.close()
    async with page_of(db, [helper], ["It was done."]) as (browser, _):
        page = await browser.page(f"sessions/{handle.session_id}/chat")
        await page.get_by_role("button", name="Resume").click()
        box = page.get_by_role("form", name="The outcome of this call is unknown act")
        await box.get_by_label("Its result, if you know that it happened").fill("it was sent")
        await box.get_by_role("button", name="It happened, with this result").click()
        await shows(page, "It was done.")
        await page.get_by_text("it was sent").first.wait_for()


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


async def test_two_thousand_steps_are_drawn_in_pieces(tmp_path: Path) -> None:
    async def tick(given: Nothing, ctx: ToolContext[Any]) -> str:
        return "tock"

    helper = agent("helper", tools=[a_tool("tick", tick)], max_steps=None)
    plan = [*[calls(call("tick"))] * 2000, "All are counted."]
    async with page_of(str(tmp_path / "a.db"), [helper], plan) as (browser, executor):
        handle = await executor.execute(helper, "Count")
        assert (await handle.result()).steps == 2001
        page = await browser.page(f"sessions/{handle.session_id}/chat")
        await shows(page, "All are counted.")
        await page.get_by_text("Show earlier").wait_for()
        assert await page.locator(".item").count() < 200
        await go(page, f"sessions/{handle.session_id}/timeline")
        await page.locator("h3", has_text="Step 2001").wait_for()
        assert await page.locator(".step-row").count() <= 100


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
        await page.get_by_role("button", name="Resume").wait_for()
        await shows(page, "The budget is used up")
        await page.keyboard.press("Escape")
        await page.keyboard.press("4")
        await page.locator(".budgets").get_by_text("of 20 tokens").wait_for()
        await budgets.set_budget(5_000, TokenPeriod.TOTAL, "helper")
        await page.get_by_role("button", name="Resume").click()
        await page.locator("#tab-chat").click()
        await shows(page, "A line.")
        await page.locator("#tab-cost").click()
        await page.locator(".budgets").get_by_text("50 tokens of 5,000 tokens").wait_for()
