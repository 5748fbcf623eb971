"""The chat screen on sessions that other processes, front ends and services use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_cli_everywhere import Service
from tests.support.chat_screen import Here, screen
from tests.support_gateway import executor_of
from tests.support_run import Gate, a_tool, agent, call, calls
from textual.widgets import Button, TextArea

from helix import ScriptedModel, SQLiteStateStore
from helix.cli.chat.answer_form import AnswerForm
from helix.cli.where import Where, link_to
from helix.client import HelixClient
from helix.client.polling import PollingLink
from helix.fleet.budgets import BudgetManager

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("button", "typed", "result"),
    [("Run again", "", "acted"), ("It happened", "it did", "it did"), ("Leave unknown", "", "unknown")],
)
async def test_an_unknown_outcome_is_ruled_where_a_crashed_run_goes_on(
    tmp_path: Path, button: str, typed: str, result: str
) -> None:
    gate = Gate()

    async def act_once(given: Any, ctx: Any) -> str:
        if not gate.times:
            await gate.wait()
        return "acted"

    helper = agent("helper", tools=[a_tool("act", act_once, on_unknown="ask")])
    crashed = executor_of([calls(call("act"))], helper, store=SQLiteStateStore(str(tmp_path / "s.db")))
    handle = await crashed.execute(helper, "Act")
    await gate.reached()
    await crashed.close()
    model = ScriptedModel(["Done."])
    async with executor_of(model, helper, store=SQLiteStateStore(str(tmp_path / "s.db"))) as executor:
        async with screen(executor, session_id=handle.session_id) as s:
            await s.until("its process is gone: /resume")
            await s.type("/resume")
            await s.until("Say what became of act?")
            s.app.query_one(AnswerForm).query_one(TextArea).text = typed
            next(b for b in s.app.query(Button) if str(b.label).startswith(button)).press()
            await s.ended()
            assert result in str(model.requests[-1].messages[-1]) and "Done." in s.text


async def test_runs_of_other_front_ends_are_shown_too_and_budgets_beside_the_cost() -> None:
    executor = executor_of(["First.", "Second."])
    await BudgetManager(executor.store).set_budget(2, "total", unit="usd")
    async with screen(executor) as s:
        await s.type("Mine")
        await s.ended()
        assert "$0.00 of $2.00" in s.text
        await executor.execute(agent("helper"), "Somebody else's", session_id=s.app.session.session_id)
        await s.until("Second.")
        await s.ended()
        assert s.text.index("Mine") < s.text.index("First.") < s.text.index("Somebody else's") < s.text.index("Second.")


async def test_a_quiet_stream_is_read_less_often_until_something_is_started() -> None:
    class Counting(Here):
        reads = 0

        async def act(self, action: str, fields: Any) -> Any:
            self.reads += action == "read_stream"
            return await super().act(action, fields)

    executor = executor_of(["One.", "Two."])
    service = Counting(executor)
    link = PollingLink(service, poll_s=0.01, slowest_s=0.06)
    async with screen(lambda: HelixClient.over(link)) as s:
        await s.type("Go")
        await s.ended()
        await s.until(lambda: link._pause_s == 0.06)
        before = service.reads
        for _ in range(20):
            await s.pilot.pause(0.05)
        assert 1 <= service.reads - before < 40  # 100 without a change
        await s.type("Again")
        await s.until("Two.")


async def test_a_long_session_shows_its_end_and_says_where_the_rest_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helix.cli.chat.blocks.MOST_ITEMS", 4)
    executor = executor_of([f"Answer {number}." for number in range(5)])
    handle = await executor.execute(agent("helper"), "Question 0")
    for number in range(1, 4):
        await handle.result()
        handle = await executor.execute(agent("helper"), f"Question {number}", session_id=handle.session_id)
    await handle.result()
    async with screen(executor, session_id=handle.session_id) as s:
        await s.until("Answer 3.")
        assert "4 earlier: helix show ses_" in s.text and "Question 1" not in s.text and "Question 2" in s.text
        await s.type("Question 4")
        await s.until("6 earlier")
        await s.until("Answer 4.")
        assert "Question 2" not in s.text and "Question 3" in s.text


@pytest.mark.parametrize("option", ["url", "stage"])
async def test_the_screen_at_a_service_and_at_a_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    service = Service(tmp_path / "service.db")
    monkeypatch.setattr("helix.cli.where.aws_client", lambda *_: service)
    where = Where(url=service.url, key=service.key) if option == "url" else Where(stage="there")
    async with screen(lambda: HelixClient.over(link_to(where, quiet_s=1)), "desk") as s:
        await s.type("Please refund order A7")
        await s.until("Approve refund_order?")
        await s.press("ctrl+s")
        await s.until("→ refunded A7")
        await s.ended()
        await s.type("/cost")
        await s.until("in all")
    service.stop()
