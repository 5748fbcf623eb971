"""Changes of the state that are valid one by one but not together. The later call fails, and the state stays valid."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field, model_validator
from tests.support_run import Text, World, a_tool, agent, call, calls, history, of_type, play, result_of, results

from helix import ToolContext
from helix.core.entries import CallRow
from helix.core.folding import merge_calls
from helix.core.json import MAX_STATE_BYTES, JsonObject
from helix.testing.invariants import check_session


class Cart(BaseModel):
    items: list[str] = Field(default_factory=list, max_length=2)
    left: str = ""
    right: str = ""

    @model_validator(mode="after")
    def _one_side(self) -> Cart:
        if self.left and self.right:
            raise ValueError("left and right exclude each other")
        return self


def add(given: Text, ctx: ToolContext[Cart]) -> str:
    ctx.update_state(lambda cart: cart.items.append(given.text))
    return f"added {given.text}"


def choose(given: Text, ctx: ToolContext[Cart]) -> str:
    ctx.update_state(lambda cart: setattr(cart, given.text, "yes"))
    return f"chose {given.text}"


TOOLS = [a_tool("add", add, input_schema=Text), a_tool("choose", choose, input_schema=Text)]
BUY = calls(*(call("add", text=text) for text in ("tea", "milk", "bread")), call("choose", text="left"))


async def test_the_later_call_fails_and_the_model_sees_it(world: World) -> None:
    script = [BUY, calls(call("choose", text="right"), call("add", text="salt")), "done"]
    executor = world.executor(script)
    handle, result, chunks = await play(executor, agent(tools=TOOLS, state_schema=Cart))
    assert result.output == "done"
    assert (await handle.get_state()).custom_state == {"items": ["tea", "milk"], "left": "yes", "right": ""}
    seen = results(await history(executor, handle.session_id))
    assert [text.startswith("{") for text in seen] == [False, False, True, False, True, True]
    assert "changes of the state were dropped" in seen[2] and "items" in seen[2] and "at most 2" in seen[2]
    assert "exclude each other" in seen[4]  # a tool that reads the state raises this error itself
    warnings = [warning for chunk in of_type(chunks, "state_patch") for warning in chunk.warnings]
    assert len(warnings) == 1 and warnings[0].startswith("call 2 failed")
    await check_session(executor.store, executor.streams, handle.session_id, at_rest=True)


async def test_a_refused_call_ends_no_run(quick_world: World) -> None:
    """`finish_with` counts only if the call's changes are accepted."""
    deliver = a_tool("deliver", add, input_schema=Text, finish_with=True)
    script = [calls(*(call("add", text=text) for text in "ab"), call("deliver", text="c")), "gave up"]
    executor = quick_world.executor(script)
    handle, result, _ = await play(executor, agent(tools=[*TOOLS, deliver], state_schema=Cart))
    assert result.output == "gave up"
    assert (await handle.get_state()).custom_state["items"] == ["a", "b"]


async def test_a_state_that_only_the_merge_makes_too_large(quick_world: World) -> None:
    def fill(given: Text, ctx: ToolContext[Any]) -> str:
        ctx.update_state(lambda state: state.update({given.text: "x" * (MAX_STATE_BYTES // 2)}))
        return "filled"

    fills = calls(call("fill", text="a"), call("fill", text="b"))
    executor = quick_world.executor([fills, "done"])
    handle, result, _ = await play(executor, agent(tools=[a_tool("fill", fill, input_schema=Text)]))
    assert result.output == "done" and list((await handle.get_state()).custom_state) == ["a"]
    assert f"the limit is {MAX_STATE_BYTES}" in results(await history(executor, handle.session_id))[1]


async def test_a_step_that_a_new_message_closes_is_merged_by_the_same_rule(world: World) -> None:
    ask = a_tool("ask", "client")
    script = [{"tool_calls": [*BUY["tool_calls"], call("ask")]}, "done"]
    executor = world.executor(script)
    who = agent(tools=[*TOOLS, ask], state_schema=Cart)
    handle, result, _ = await play(executor, who)
    assert result.status == "paused"
    again = await executor.resume(who, handle.session_id, message="Never mind.")
    assert (await result_of(again)).output == "done"
    assert (await handle.get_state()).custom_state == {"items": ["tea", "milk"], "left": "yes", "right": ""}
    assert "were dropped" in results(await history(executor, handle.session_id))[2]
    await check_session(executor.store, executor.streams, handle.session_id, at_rest=True)


def test_the_fold_depends_on_the_order_of_the_calls_only() -> None:
    """Whichever worker folds the step, and however often, the state and the failed calls are the same. Folding the result
    again changes nothing."""
    who = agent(tools=TOOLS, state_schema=Cart)
    base: JsonObject = {"items": ["a"], "left": "", "right": ""}
    rows = [
        CallRow(
            call_id=name, tool_name="add", step=1, state="done", success=True, content=name, by="tool", patches=[patch]
        )
        for name, patch in {
            "1": {"op": "add", "path": "/items/-", "value": "b"},
            "2": {"op": "replace", "path": "/left", "value": "yes"},
            "3": {"op": "add", "path": "/items/-", "value": "c"},
            "4": {"op": "replace", "path": "/right", "value": "yes"},
            "5": {"op": "replace", "path": "/nowhere/at/all", "value": 1},
        }.items()
    ]
    merged = merge_calls(who, base, rows)
    assert merged.state == {"items": ["a", "b"], "left": "yes", "right": ""}
    assert [place for place, _ in merged.refused] == [2, 3, 4]
    assert all(row.by == "merge" and not row.success and not row.patches for _, row in merged.refused)
    assert merge_calls(who, base, rows) == merged
    again = merge_calls(who, base, merged.calls)
    assert (again.state, again.patches, again.calls, again.refused) == (merged.state, merged.patches, merged.calls, [])
