"""A crash between the transactions of a wide step leaves a step that other workers continue (docs/protocol.md#wide)."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, Field
from tests.support_crash import (
    CONFIG,
    Answer,
    Notes,
    S,
    Sweep,
    call,
    finish,
    fresh,
    gated,
    helper,
    log,
    look,
    model,
    settle,
)

from helix import Agent, LocalExecutor, ToolContext, create_sub_agent_tool, tool
from helix.adapters.models.scripted import Entry
from helix.engine.engine import Settings

NARROW = Settings(stop_poll_s=0.02, calls_at_once=2)


class Cart(BaseModel):
    items: list[str] = Field(default_factory=list, max_length=1)


@tool(on_unknown="skip")
async def once(topic: str, ctx: ToolContext[Notes]) -> str:
    """Look up what is looked up once."""
    log(f"tool start {ctx.session_id} {ctx.tool_call_id}")
    ctx.update_state(lambda notes: notes.seen.append(topic))
    return topic


@tool
async def put(topic: str, ctx: ToolContext[Cart]) -> str:
    """Put it into the cart."""
    log(f"tool start {ctx.session_id} {ctx.tool_call_id}")
    ctx.update_state(lambda cart: cart.items.append(topic))
    return topic


wide = Agent(
    name="wide",
    system_prompt="All at once.",
    tools=[look, once, gated, create_sub_agent_tool(helper)],
    state_schema=Notes,
    output_schema=Answer,
    llm_config=CONFIG,
)


@pytest.fixture(autouse=True)
def fresh_log() -> None:
    fresh()


async def test_tools_and_calls_that_are_refused() -> None:
    names = ["look", "nothing", "look", "once", "look", "nothing", "look"]
    script: list[Entry] = [{"tool_calls": [call(name, topic=str(i)) for i, name in enumerate(names)]}, finish("done")]
    sweep = Sweep(wide, model(wide=script), settings=NARROW)

    async def act(workers: LocalExecutor) -> None:
        await (await workers.execute(wide, "begin", session_id=S)).result()

    await sweep.everywhere(act)
    assert set(sweep.outcomes) == {"completed"}
    found = {tuple(state["seen"]) for state, _ in sweep.states}
    assert found <= {("0", "2", "3", "4", "6"), ("0", "2", "4", "6")}, "the call with the unknown outcome is skipped"


async def test_an_output_among_calls_that_are_refused() -> None:
    script: list[Entry] = [{"tool_calls": [*(call("nothing") for _ in range(5)), call("__finish__", summary="x")]}]
    sweep = Sweep(wide, model(wide=script), settings=NARROW)

    async def act(workers: LocalExecutor) -> None:
        await (await workers.execute(wide, "begin", session_id=S)).result()

    await sweep.everywhere(act)
    assert set(sweep.outcomes) == {"completed"} and all(output["summary"] == "x" for _, output in sweep.states)


async def test_merges_that_are_refused() -> None:
    who = Agent(name="cart", system_prompt="Buy.", tools=[put], state_schema=Cart, llm_config=CONFIG)
    script: list[Entry] = [{"tool_calls": [call("put", topic=str(i)) for i in range(6)]}, "done"]
    sweep = Sweep(who, model(cart=script), settings=NARROW)

    async def act(workers: LocalExecutor) -> None:
        await (await workers.execute(who, "begin", session_id=S)).result()

    await sweep.everywhere(act)
    assert all(state == {"items": ["0"]} for state, _ in sweep.states)


@pytest.mark.slow
@pytest.mark.parametrize("approve", [True, False])
async def test_approvals_and_their_answers(approve: bool) -> None:
    script: list[Entry] = [{"tool_calls": [call("gated", topic=str(i)) for i in range(4)]}, finish("done")]
    sweep = Sweep(wide, model(wide=script), approve=approve, settings=NARROW)

    async def act(workers: LocalExecutor) -> None:
        await (await workers.execute(wide, "begin", session_id=S)).result()
        await settle(workers, wide, S, approve=approve)

    await sweep.everywhere(act)
    assert set(sweep.outcomes) == {"completed"}
    assert all(len(state["seen"]) == (4 if approve else 0) for state, _ in sweep.states)


async def test_a_message_closes_the_step() -> None:
    calls = [call("gated", topic=str(i)) for i in range(5)]
    sweep = Sweep(
        wide, model(wide=[{"tool_calls": [*calls, call("look", topic="y")]}, finish("a"), finish("b")]), settings=NARROW
    )

    async def act(workers: LocalExecutor) -> None:
        await (await workers.execute(wide, "begin", session_id=S)).result()
        await (await workers.resume(wide, S, message="never mind")).result()

    await sweep.everywhere(act)
    assert set(sweep.outcomes) == {"completed"}


@pytest.mark.slow
async def test_sub_agents() -> None:
    script: list[Entry] = [{"tool_calls": [call("subagent__helper", message=str(i)) for i in range(4)]}, finish("done")]
    sweep = Sweep(wide, model(wide=script), settings=NARROW)

    async def act(workers: LocalExecutor) -> None:
        await (await workers.execute(wide, "begin", session_id=S)).result()

    await sweep.everywhere(act)
    assert set(sweep.outcomes) == {"completed"}
