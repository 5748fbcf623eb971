"""Planning for any answer is pure, gives every call exactly one fate, and makes ids unique in the session."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.support_run import Text, a_tool, agent

from helix import create_sub_agent_tool
from helix.core.entries import AssistantRow, CallRow
from helix.core.folding import decide_next
from helix.core.planning import plan_step_processing
from helix.core.steps import ParsedSubAgentCall, ParsedToolCall, ToolCallsStepResult


class Answer(BaseModel):
    text: str


WHO = agent(
    tools=[
        a_tool("say", lambda given, ctx: "", input_schema=Text),
        create_sub_agent_tool(agent("finder", output_schema=Answer)),
    ],
    output_schema=Answer,
)
IDS = st.sampled_from(["", "call", "call_2", "x", "x_2", "x_3", "y"])
ARGUMENTS = st.sampled_from([{}, {"text": "t"}, {"text": 5}, {"message": "m"}, {"other": []}])
TOOL_CALLS = st.builds(
    ParsedToolCall,
    id=IDS,
    name=st.sampled_from(["say", "say", "__finish__", "nope", "subagent__finder"]),
    arguments=ARGUMENTS,
    malformed=st.sampled_from([None, None, "{"]),
)
CHILD_CALLS = st.builds(ParsedSubAgentCall, id=IDS, agent_type=st.sampled_from(["finder", "nobody"]), input=ARGUMENTS)


@st.composite
def results(draw: st.DrawFn) -> ToolCallsStepResult:
    tools = draw(st.lists(TOOL_CALLS, max_size=40))
    children = draw(st.lists(CHILD_CALLS, max_size=40))
    ids = [c.id for c in tools] + [c.id for c in children]
    order = draw(st.one_of(st.just([]), st.permutations(ids), st.lists(IDS, max_size=5)))
    return ToolCallsStepResult(tool_calls=tools, sub_agent_calls=children, order=order)


def plan(result: ToolCallsStepResult, used: set[str], schema: Any = Answer) -> Any:
    return plan_step_processing(result, output_schema=schema, tools=WHO.find_tool, used_call_ids=used)


@given(results(), st.sets(IDS), st.booleans())
def test_every_call_has_exactly_one_fate(result: ToolCallsStepResult, used: set[str], with_output: bool) -> None:
    before = result.model_dump()
    made = plan(result, used, Answer if with_output else None)
    requests = made.assistant_message_plan.tool_calls
    ids = [request.id for request in requests]
    assert len(set(ids)) == len(ids) and not set(ids) & used and all(ids)
    fates = [*(c.id for c in made.pending_tool_calls), *(c.id for c in made.pending_sub_agent_calls), *made.resolved]
    assert sorted(fates) == sorted(ids)
    asked = len(result.tool_calls) + len(result.sub_agent_calls)
    assert len(ids) == asked
    names = [c.name for c in result.tool_calls] + [f"subagent__{c.agent_type}" for c in result.sub_agent_calls]
    assert all(request.name in names for request in requests)
    assert result.model_dump() == before and plan(result, used, Answer if with_output else None) == made


@given(results(), st.sets(IDS))
def test_the_end_is_an_output_and_nothing_left_to_do(result: ToolCallsStepResult, used: set[str]) -> None:
    made = plan(result, used)
    assert made.is_terminal == (
        made.finish is not None and not made.pending_tool_calls and not made.pending_sub_agent_calls
    )
    assert not (made.missed and made.finish is not None)
    acknowledged = [s for s in made.resolved.values() if s.success]
    assert len(acknowledged) == (1 if made.finish else 0)


@given(
    results(),
    st.integers(1, 60),
    st.integers(0, 4),
    st.lists(st.booleans(), min_size=64, max_size=64),
    st.booleans(),
)
def test_every_fold_decides_and_runs_end(
    result: ToolCallsStepResult, run_steps: int, misses: int, outcomes: list[bool], with_output: bool
) -> None:
    """No run exceeds the limit of misses, nor that of steps plus misses."""
    who = WHO if with_output else agent(tools=WHO.tools)
    made = plan_step_processing(result, output_schema=who.output_schema, tools=who.find_tool, used_call_ids=())
    assert made.assistant_message_plan is not None
    requests = made.assistant_message_plan.tool_calls
    row = AssistantRow(
        run_id="r",
        step=1,
        attempt=1,
        attempt_id="a",
        tool_calls=requests,
        finish={"output": made.finish.output} if made.finish else None,
    )
    calls = [
        CallRow(call_id=c.id, tool_name=c.name, step=1, state="done", content="x", success=ok, by="tool")
        for c, ok in zip(requests, outcomes, strict=False)
    ]
    misses += 1 if made.missed else 0
    decided = decide_next(who, row, calls, run_steps=run_steps, misses=misses, max_steps=who.max_steps)
    if decided.forced:
        assert who.output_schema is not None
    if made.finish is not None:
        assert decided.move == "completed" and decided.output == made.finish.output
    elif made.missed:
        assert (decided.move == "failed") == (misses > who.max_completion_retries)
    elif run_steps > (who.max_steps or 0) + misses:
        assert decided.move == "failed"
