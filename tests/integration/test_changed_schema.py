"""A changed state schema refuses the stored state. The run fails with a named error, and continues once the schema is
repaired."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import BaseModel
from tests.support_run import a_tool, agent, call, calls

from helix import Agent, LocalExecutor, ScriptedModel, ToolContext


class Text(BaseModel):
    order: str = ""


class Number(BaseModel):
    order: int = 0


def shop(schema: type[BaseModel], prompt: str | Callable[[BaseModel], str] = "Work.") -> Agent:
    def note(arguments: BaseModel, ctx: ToolContext[Text]) -> str:
        ctx.update_state(lambda state: setattr(state, "order", "A7"))
        return "noted"

    return agent("shop", tools=[a_tool("note", note)], state_schema=schema, system_prompt=prompt)


@pytest.mark.parametrize("prompt", ["Work.", lambda state: f"The order is {state.order!r}."], ids=["tool", "prompt"])
async def test_the_run_names_the_field_and_a_retry_completes_it(prompt: str | Callable[[BaseModel], str]) -> None:
    model = ScriptedModel([calls(call("note")), "one", calls(call("note")), "two", "three"])
    async with LocalExecutor(":memory:", model=model) as executor:
        first = await executor.execute(shop(Text), "go")
        assert (await first.result()).status == "completed"
        broken = await executor.execute(shop(Number, prompt), "go on", session_id=first.session_id)
        failed = await broken.result()
        assert failed.status == "failed" and failed.error is not None
        assert "the stored state does not fit the state schema of agent 'shop'" in failed.error
        assert "order: Input should be a valid integer" in failed.error
        again = await executor.retry(shop(Text), first.session_id)
        assert (await again.result()).status == "completed"
