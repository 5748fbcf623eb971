"""Questions of tools on the screen of `helix chat`."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.chat_screen import screen
from tests.support_gateway import executor_of
from tests.support_run import agent, call, calls
from textual.widgets import Input, TextArea

from helix import Question, ScriptedModel, ToolContext, tool
from helix.cli.chat.answer_form import AnswerForm

pytestmark = pytest.mark.slow


class Order(BaseModel):
    size: str
    count: int


@tool
async def book(ctx: ToolContext) -> str:
    """Book."""
    seat = await ctx.ask(Question("Which seat?", choices=["window", "aisle"]))
    order, note = await ctx.ask(Question("Which meal?", schema=Order), Question("A note?"))
    return f"{seat}, {order.count} {order.size}, {note}"


def areas(s: Any) -> list[TextArea]:
    return list(s.app.query_one(AnswerForm).query(TextArea))


async def test_each_question_has_a_field_and_a_wrong_answer_stays_in_it() -> None:
    model = ScriptedModel([calls(call("book")), "Booked."])
    async with screen(executor_of(model, agent("helper", tools=[book]))) as s:
        await s.type("Book, please")
        await s.until("one of: window, aisle")
        areas(s)[0].text = "roof"
        await s.press("ctrl+s")
        await s.until("must be one of 'window', 'aisle'")
        assert areas(s)[0].text == "roof"
        areas(s)[0].text = "aisle"
        await s.press("ctrl+s")
        await s.until("Which meal?")
        assert "count: integer" in s.text and "A note?" in s.text
        await s.until(lambda: s.app.focused in areas(s))
        areas(s)[0].text, areas(s)[1].text = '{"size": "large", "count": 2}', "42"
        await s.press("ctrl+s")
        await s.ended()
        assert "aisle, 2 large, 42" in str(model.requests[-1]) and "Booked." in s.text


async def test_questions_that_are_not_answered_have_a_reason() -> None:
    model = ScriptedModel([calls(call("book")), "Then not."])
    async with screen(executor_of(model, agent("helper", tools=[book]))) as s:
        await s.type("Book, please")
        await s.until("Which seat?")
        s.app.query_one(Input).value = "not today"
        await s.until(lambda: isinstance(s.app.focused, TextArea))
        await s.press("tab", "tab", "tab", "enter")
        await s.ended()
        assert "denied: not today" in str(model.requests[-1])
