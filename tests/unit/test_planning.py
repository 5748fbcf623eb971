"""Planning of the next step from a model's answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, Field
from tests.support_run import Text, a_tool, agent

from helix import create_sub_agent_tool
from helix.core.agents import AnyAgent
from helix.core.call_results import (
    call_error,
    call_value,
    create_sub_agent_result_message,
    create_tool_result_message,
    result_content,
)
from helix.core.entries import CallRow
from helix.core.errors import InvalidInputError
from helix.core.messages import ThinkingContent, ToolCallRequest
from helix.core.planning import (
    MAX_CALLS_PER_STEP,
    AssistantMessagePlan,
    child_message,
    create_assistant_message,
    plan_step_processing,
    step_result_of,
)
from helix.core.steps import (
    ErrorStepResult,
    ParsedSubAgentCall,
    ParsedToolCall,
    StructuredOutputStepResult,
    TextStepResult,
    ToolCallsStepResult,
    storable,
)


class Answer(BaseModel):
    summary: str
    score: int = Field(ge=0)


class Query(BaseModel):
    topic: str
    depth: int = 1


CHILD = create_sub_agent_tool(agent("finder", output_schema=Answer), Query)
WHO: AnyAgent = agent(tools=[a_tool("say", lambda given, ctx: "", input_schema=Text), CHILD], output_schema=Answer)


def calls(*names: str, ids: tuple[str, ...] = (), **arguments: Any) -> ToolCallsStepResult:
    made = [
        ParsedToolCall(id=ids[i] if ids else f"c{i}", name=name, arguments=arguments) for i, name in enumerate(names)
    ]
    return ToolCallsStepResult(tool_calls=made)


def plan(result: Any, *, schema: Any = Answer, used: tuple[str, ...] = ()) -> Any:
    return plan_step_processing(result, output_schema=schema, tools=WHO.find_tool, used_call_ids=used)


def test_text_ends_an_agent_without_output() -> None:
    made = plan(TextStepResult(content="hi", thinking=[ThinkingContent(text="hm")]), schema=None)
    assert made.is_terminal and made.status_update.status == "completed" and not made.missed
    assert made.assistant_message_plan == AssistantMessagePlan("hi", [], [ThinkingContent(text="hm")])


def test_text_misses_the_output_of_an_agent_with_one() -> None:
    made = plan(TextStepResult(content="hi"))
    assert made.missed and not made.is_terminal and made.status_update is None


def test_text_that_goes_on_neither_ends_nor_misses() -> None:
    for schema in (None, Answer):
        made = plan(TextStepResult(content="hi", should_stop=False), schema=schema)
        assert not made.is_terminal and not made.missed and made.assistant_message_plan.content == "hi"


@pytest.mark.parametrize("reason", ["max_tokens", "content_filter", "refusal", "error"])
def test_error_stop_reasons_fail_whatever_the_content(reason: str) -> None:
    for result in (
        TextStepResult(content="half", stop_reason=reason),
        calls("say", text="x").model_copy(update={"stop_reason": reason}),
        StructuredOutputStepResult(output={}, stop_reason=reason),
    ):
        made = plan(result)
        assert made.status_update.status == "failed" and made.status_update.error.code == reason
        assert made.is_terminal and made.assistant_message_plan is None and not made.pending_tool_calls


def test_an_error_result_fails_with_its_code() -> None:
    made = plan(ErrorStepResult(error="no", code="rate_limited"))
    assert (made.status_update.error.code, made.status_update.error.message) == ("rate_limited", "no")


def test_calls_and_children_are_kept_apart_in_the_models_order() -> None:
    result = ToolCallsStepResult(
        tool_calls=[ParsedToolCall(id="a", name="say", arguments={"text": "1"}), ParsedToolCall(id="c", name="nope")],
        sub_agent_calls=[ParsedSubAgentCall(id="b", agent_type="finder", input={"topic": "x"})],
        order=["b", "a", "c"],
    )
    made = plan(result)
    assert [c.id for c in made.assistant_message_plan.tool_calls] == ["b", "a", "c"]
    assert [c.name for c in made.assistant_message_plan.tool_calls] == ["subagent__finder", "say", "nope"]
    assert [c.id for c in made.pending_tool_calls] == ["a"]
    assert [(c.id, c.agent_type) for c in made.pending_sub_agent_calls] == [("b", "finder")]
    assert list(made.resolved) == ["c"] and not made.resolved["c"].success
    assert not made.is_terminal


def test_what_cannot_be_executed_is_settled() -> None:
    malformed = ParsedToolCall(id="m", name="say", malformed='{"text":')
    child = ParsedSubAgentCall(id="s", agent_type="finder", input={"depth": "x"})
    made = plan(ToolCallsStepResult(tool_calls=[malformed, *calls("say").tool_calls], sub_agent_calls=[child]))
    assert set(made.resolved) == {"m", "c0", "s"} and not made.pending_tool_calls and not made.pending_sub_agent_calls
    assert "not a JSON object" in made.resolved["m"].content
    assert "text" in made.resolved["c0"].content and "topic" in made.resolved["s"].content


def test_finish_alone_is_the_end() -> None:
    made = plan(calls("__finish__", summary="ok", score=1))
    assert made.is_terminal and made.output == {"summary": "ok", "score": 1}
    assert json.loads(made.resolved["c0"].content) == {"acknowledged": True}


def test_finish_beside_siblings_waits_for_them() -> None:
    result = ToolCallsStepResult(
        tool_calls=[
            ParsedToolCall(id="f", name="__finish__", arguments={"summary": "ok", "score": 1}),
            ParsedToolCall(id="a", name="say", arguments={"text": "x"}),
        ]
    )
    made = plan(result)
    assert not made.is_terminal and made.status_update is None and made.finish.call_id == "f"
    assert [c.id for c in made.pending_tool_calls] == ["a"]


def test_finish_beside_refused_calls_is_the_end() -> None:
    result = ToolCallsStepResult(
        tool_calls=[
            ParsedToolCall(id="f", name="__finish__", arguments={"summary": "ok", "score": 1}),
            ParsedToolCall(id="a", name="nope"),
        ]
    )
    assert plan(result).is_terminal


def test_the_first_valid_finish_supersedes_the_rest() -> None:
    good, bad = {"summary": "ok", "score": 1}, {"score": -1}
    made = plan(
        ToolCallsStepResult(
            tool_calls=[
                ParsedToolCall(id=f"f{i}", name="__finish__", arguments=a) for i, a in enumerate([bad, good, good, bad])
            ]
        )
    )
    assert made.finish.call_id == "f1" and made.finish.superseded_calls == ["f2", "f3"] and not made.missed
    assert [made.resolved[f"f{i}"].success for i in range(4)] == [False, True, False, False]


def test_an_invalid_finish_is_a_miss() -> None:
    made = plan(calls("__finish__", summary="ok", score=-1))
    assert made.missed and not made.is_terminal and "score" in made.resolved["c0"].content


def test_finish_of_an_agent_without_output_is_an_unknown_tool() -> None:
    made = plan(calls("__finish__", a=1), schema=None)
    assert not made.missed and not made.is_terminal and "no tool '__finish__'" in made.resolved["c0"].content


def test_a_structured_output_is_recorded_as_a_finish_call() -> None:
    made = plan(StructuredOutputStepResult(output={"summary": "ok", "score": 2}))
    (request,) = made.assistant_message_plan.tool_calls
    assert request.name == "__finish__" and made.output == {"summary": "ok", "score": 2} and made.is_terminal
    assert plan(StructuredOutputStepResult(output=[1, 2])).missed


def test_ids_are_made_unique() -> None:
    made = plan(calls(*["say"] * 4, ids=("x", "x", "", "x_2"), text="t"), used=("x", "call"))
    assert [c.id for c in made.assistant_message_plan.tool_calls] == ["x_2", "x_3", "call_2", "x_2_2"]
    assert [c.id for c in made.pending_tool_calls] == ["x_2", "x_3", "call_2", "x_2_2"]


def test_calls_beyond_the_bound_are_failed_ones() -> None:
    made = plan(calls(*["say"] * MAX_CALLS_PER_STEP, "__finish__", "say", text="t"), schema=Answer)
    ids = [c.id for c in made.assistant_message_plan.tool_calls]
    assert [c.id for c in made.pending_tool_calls] == ids[:-2] and list(made.resolved) == ids[-2:]
    assert made.missed and made.finish is None and not made.is_terminal
    assert all(not r.success and "500 calls at most" in r.content for r in made.resolved.values())


def test_calls_beyond_the_bytes_of_an_answer_are_failed_ones_without_their_arguments() -> None:
    made = plan(calls(*["say"] * 6, text="x" * 900_000))
    requests = made.assistant_message_plan.tool_calls
    assert [bool(c.arguments) for c in requests] == [True] * 4 + [False] * 2
    assert list(made.resolved) == [c.id for c in requests[4:]]
    assert all("4000000 bytes at most" in r.content for r in made.resolved.values())


def test_many_calls_with_one_id_take_no_time() -> None:
    made = plan(calls(*["say"] * 20_000, ids=("x",) * 20_000, text="t"))
    ids = [c.id for c in made.assistant_message_plan.tool_calls]
    assert len(set(ids)) == 20_000 and ids[-1] == "x_20000"


def test_a_stored_answer_gives_back_its_step_result() -> None:
    requests = [
        ToolCallRequest(id="a", name="say", arguments={"text": "x"}),
        ToolCallRequest(id="b", name="subagent__finder", arguments={"topic": "y"}),
    ]
    result = step_result_of("hm", requests, "tool_use")
    assert isinstance(result, ToolCallsStepResult) and result.order == ["a", "b"]
    assert result.sub_agent_calls[0].agent_type == "finder" and result.stop_reason == "tool_use"
    assert isinstance(step_result_of("hi", [], None), TextStepResult)


# --- messages -----------------------------------------------------------------------------------------------------


def test_results_as_content() -> None:
    assert result_content("42", True) == "42"
    assert result_content({"a": [1, None, True]}, True) == '{"a":[1,null,true]}'
    assert result_content(None, True) == "null"
    assert result_content(Answer(summary="é", score=1), True) == '{"summary":"é","score":1}'
    assert result_content([Answer(summary="x", score=1)], True) == '[{"summary":"x","score":1}]'
    assert result_content((1, 2), True) == "[1,2]"
    assert result_content("no", False) == '{"error":"no"}'
    for wrong in (object(), {1, 2}, float("nan"), b"x", "\udc80"):
        with pytest.raises(InvalidInputError):
            result_content(wrong, True)
    assert "\ufffd" in result_content("\udc80", False)


def test_a_call_row_tells_its_value_and_error() -> None:
    row = CallRow(call_id="c", tool_name="t", step=1, state="done", content="7", success=True)
    assert call_value(row) == 7 and call_value(row.model_copy(update={"plain": True})) == "7"
    for content, error in (
        ('{"error":"no"}', "no"),
        ('{"status":"unknown","reason":"lost"}', "lost"),
        ("cut", "cut"),
        ("", "failed"),
    ):
        assert call_error(row.model_copy(update={"content": content})) == error


def test_message_builders() -> None:
    message = create_tool_result_message(tool_call_id="c", tool_name="t", result={"a": 1})
    assert (message.role, message.content, message.success) == ("tool", '{"a":1}', True)
    failed = create_sub_agent_result_message(tool_call_id="c", agent_type="finder", error="no", success=False)
    assert (failed.tool_name, failed.content, failed.success) == ("subagent__finder", '{"error":"no"}', False)
    done = create_sub_agent_result_message(tool_call_id="c", agent_type="finder", output={"x": 1})
    assert (done.content, done.success) == ('{"x":1}', True)
    assistant = create_assistant_message(AssistantMessagePlan("hi"), id="m")
    assert (assistant.content, assistant.id) == ("hi", "m")


def test_the_childs_message() -> None:
    assert json.loads(child_message(CHILD, {"topic": "x"})) == {"topic": "x", "depth": 1}
    plain = create_sub_agent_tool(agent("other", output_schema=Answer))
    assert child_message(plain, {"message": "do it"}) == "do it"


def test_results_that_can_be_stored_are_left_alone() -> None:
    result = calls("say", text="fine")
    assert storable(result) is result
    odd = storable(calls("say", text="\ud83d\ude00 \udc80"))
    assert isinstance(odd, ToolCallsStepResult) and odd.tool_calls[0].arguments == {"text": "\U0001f600 \ufffd"}
    nan = storable(
        ToolCallsStepResult(sub_agent_calls=[ParsedSubAgentCall(id="x", agent_type="f", input={"a": [float("inf")]})])
    )
    assert (
        isinstance(nan, ToolCallsStepResult) and nan.sub_agent_calls[0].malformed and not nan.sub_agent_calls[0].input
    )
