"""The scripted model's behaviour that tests and benches rely on."""

from typing import Any

import pytest
from pydantic import ValidationError

from helix.adapters.models.scripted import ScriptedModel
from helix.compat import core
from helix.core.config import LLMConfig
from helix.core.errors import InvalidInputError, ModelError, ScriptExhaustedError
from helix.core.messages import AnyMessage, AssistantMessage, ToolCallRequest, UserMessage
from helix.core.steps import (
    ErrorStepResult,
    ParsedSubAgentCall,
    ParsedToolCall,
    StopReason,
    StructuredOutputStepResult,
    TextStepResult,
    ToolCallsStepResult,
)
from helix.core.usage import Usage
from helix.ports.model import LLMGenerateInput, LLMStreamCallbacks

USER = UserMessage(content="hi")


class FakeClock:
    """A clock whose time passes only by sleeping."""

    def __init__(self) -> None:
        self.time = 0.0
        self.naps: list[float] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.time += seconds


def request(*messages: AnyMessage, agent: str = "a", **options: Any) -> LLMGenerateInput:
    return LLMGenerateInput(
        messages=messages or (USER,),
        tools=[],
        config=LLMConfig(model="m"),
        agent_id="ses_1",
        agent_type=agent,
        **options,
    )


def listener() -> tuple[list[tuple[str, Any]], LLMStreamCallbacks]:
    heard: list[tuple[str, Any]] = []

    async def on_thinking(content: str, complete: bool) -> None:
        heard.append(("block" if complete else "thinking", content))

    return heard, LLMStreamCallbacks(
        on_text_delta=lambda delta: heard.append(("text", delta)),
        on_thinking=on_thinking,
        on_tool_call=lambda call: heard.append(("call", call.name)),
        on_error=lambda error: heard.append(("error", str(error))),
    )


async def test_entries_of_every_form() -> None:
    model = ScriptedModel(
        [
            "plain",
            {"type": "text", "content": "typed"},
            TextStepResult(content="a model", usage=Usage(prompt_tokens=3, calls=1)),
            {"tool_calls": [{"name": "search", "arguments": {"q": "x"}}, {"id": "mine", "name": "read"}]},
            {"type": "structured_output", "output": {"summary": "s"}},
            {"error": "overloaded", "retryable": True, "code": "overloaded", "retry_after_s": 2},
            lambda asked: f"heard {asked.messages[-1].content}",
        ]
    )
    results = [await model.generate_step(request()) for _ in range(7)]
    text, typed, as_model, calls, output, error, computed = results
    assert isinstance(text, TextStepResult) and text.content == "plain"
    assert (text.stop_reason, text.model, text.usage) == (StopReason.END_TURN, "scripted", Usage(calls=1))
    assert isinstance(typed, TextStepResult) and typed.content == "typed"
    assert as_model.usage.prompt_tokens == 3
    assert isinstance(calls, ToolCallsStepResult) and calls.stop_reason == StopReason.TOOL_USE
    assert calls.tool_calls == [
        ParsedToolCall(id="call_0", name="search", arguments={"q": "x"}),
        ParsedToolCall(id="mine", name="read"),
    ]
    assert isinstance(output, StructuredOutputStepResult) and output.output == {"summary": "s"}
    assert isinstance(error, ErrorStepResult) and error.retryable and error.code == "overloaded"
    assert error.stop_reason == StopReason.ERROR and error.retry_after_s == 2
    assert isinstance(computed, TextStepResult) and computed.content == "heard hi"
    assert core.MockLLMAdapter is ScriptedModel


async def test_sub_agent_calls_are_told_apart_in_the_models_order() -> None:
    model = ScriptedModel(
        [{"tool_calls": [{"name": "subagent__checker", "arguments": {"claim": "c"}}, {"name": "search"}]}]
    )
    heard, callbacks = listener()
    result = await model.generate_step(request(callbacks=callbacks))
    assert isinstance(result, ToolCallsStepResult)
    assert result.sub_agent_calls == [ParsedSubAgentCall(id="call_0", agent_type="checker", input={"claim": "c"})]
    assert [call.id for call in result.tool_calls] == ["call_1"]
    assert result.order == ["call_0", "call_1"]
    assert heard == [("call", "subagent__checker"), ("call", "search")]


async def test_callbacks_fire_like_a_providers() -> None:
    heard, callbacks = listener()
    model = ScriptedModel(
        [
            {"content": "I will look it up.", "thinking": "Let me see", "tool_calls": [{"name": "search"}]},
            {"error": "gone"},
        ],
        delta_chars=8,
    )
    await model.generate_step(request(callbacks=callbacks))
    assert heard == [
        ("thinking", "Let me s"),
        ("thinking", "ee"),
        ("block", "Let me see"),
        ("text", "I will l"),
        ("text", "ook it u"),
        ("text", "p."),
        ("call", "search"),
    ]
    heard.clear()
    await model.generate_step(request(callbacks=callbacks))
    assert heard == [("error", "gone")]


async def test_a_failing_callback_does_not_kill_the_call() -> None:
    def broken(*_: Any) -> None:
        raise OSError("stream store is down")

    model = ScriptedModel([{"content": "text", "thinking": "t", "tool_calls": [{"name": "x"}]}])
    callbacks = LLMStreamCallbacks(broken, broken, broken, broken)
    result = await model.generate_step(request(callbacks=callbacks))
    assert isinstance(result, ToolCallsStepResult) and result.content == "text"


async def test_delays_go_through_the_clock() -> None:
    clock = FakeClock()
    model = ScriptedModel(
        [{"content": "x" * 24, "delay_s": 5}, {"content": "x" * 24, "delta_delay_s": 0.5}, "x"],
        delta_delay_s=0.1,
        clock=clock,
    )
    await model.generate_step(request())
    assert clock.naps == [5, 0.1, 0.1]
    clock.naps.clear()
    await model.generate_step(request())
    assert clock.naps == [0.5, 0.5]


async def test_the_callers_deadline_ends_the_answer() -> None:
    clock = FakeClock()
    heard, callbacks = listener()
    model = ScriptedModel([{"content": "x" * 60, "delay_s": 1, "delta_delay_s": 1}], clock=clock, repeat=True)
    result = await model.generate_step(request(timeout_s=3.5, callbacks=callbacks))
    assert isinstance(result, ErrorStepResult) and result.retryable and result.code == "deadline_exceeded"
    assert clock.time == 3.5 and len(heard) == 2
    assert isinstance(await model.generate_step(request(timeout_s=60)), TextStepResult)


async def test_exceptions_are_raised() -> None:
    model = ScriptedModel([{"raise_": KeyError("k")}, ModelError("down"), lambda _: OSError("later")])
    for kind in (KeyError, ModelError, OSError):
        with pytest.raises(kind):
            await model.generate_step(request())


async def test_routes_by_agent_and_names_it_when_exhausted() -> None:
    model = ScriptedModel({"parent": ["p0", "p1"], "child": ["c0"]})
    told = [await model.generate_step(request(agent=name)) for name in ("parent", "child", "parent")]
    assert [t.content for t in told if isinstance(t, TextStepResult)] == ["p0", "c0", "p1"]
    with pytest.raises(ScriptExhaustedError, match="agent 'child' asked for answer 2, and its script has 1"):
        await model.generate_step(request(agent="child"))
    with pytest.raises(ScriptExhaustedError, match="agent 'stranger' asked for answer 1, and its script has 0"):
        await model.generate_step(request(agent="stranger"))


async def test_by_position_a_new_process_goes_on() -> None:
    script: list[Any] = [{"tool_calls": [{"name": "a"}]}, {"tool_calls": [{"name": "b"}]}, "done"]
    conversation: list[AnyMessage] = [USER]
    for expected in ("call_0", "call_1", None):
        for _ in range(2):  # asking again gives the same answer, also in another process
            result = await ScriptedModel(script, by="position").generate_step(request(*conversation))
        if isinstance(result, ToolCallsStepResult):
            assert result.tool_calls[0].id == expected
            calls = [ToolCallRequest(id=c.id, name=c.name) for c in result.tool_calls]
            conversation.append(AssistantMessage(tool_calls=calls))
        else:
            assert expected is None
    conversation.append(AssistantMessage(content="done"))
    with pytest.raises(ScriptExhaustedError):
        await ScriptedModel(script, by="position").generate_step(request(*conversation))


async def test_repeat_cycles_and_requests_are_recorded() -> None:
    model = ScriptedModel(["a", "b"], repeat=True)
    told = [await model.generate_step(request()) for _ in range(5)]
    assert [t.content for t in told if isinstance(t, TextStepResult)] == ["a", "b", "a", "b", "a"]
    assert len(model.requests) == 5 and model.requests[0].messages == (USER,)
    silent = ScriptedModel(["a"], record=False)
    await silent.generate_step(request())
    assert silent.requests == []


def test_wrong_scripts_fail_when_made() -> None:
    wrong: list[Any] = [{"text": "no such key"}, {"type": "text", "content": "x", "delay": 1}, {"tool_calls": [{}]}, 3]
    for entry in wrong:
        with pytest.raises(ValidationError):
            ScriptedModel([entry])
        with pytest.raises(ValidationError):
            ScriptedModel({"a": [entry]})
    for options in ({"by": "turn"}, {"delta_chars": 0}):
        with pytest.raises(InvalidInputError):
            ScriptedModel([], **options)
