"""A model that answers late or never: its time within a delivery, the number of attempts, and the error of its run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.delivery_stage import Stage
from tests.support.model_dialects import OPENAI, STALL, DialectServer, Says
from tests.support_run import a_tool, agent, call, calls

from helix import Allow, Guard, LLMConfig, ScriptedModel
from helix.adapters.models.adapter import ModelAdapter
from helix.core.context_policy import Context
from helix.core.errors import WorkInProgressError
from helix.core.guards import GuardContext
from helix.core.steps import AnyStepResult, ParsedToolCall, TextStepResult, ToolCallsStepResult
from helix.engine.context import CANCEL_S
from helix.engine.guards.judge import LEFT_S
from helix.engine.steps import ask
from helix.ports.model import LLMGenerateInput

SHORT_S = 0.3
LATE = [{"content": "late", "delay_s": 3600}]
LOOK = a_tool("look", lambda given, ctx: "seen")


class Deaf:
    """An adapter that ignores its deadline. `times` is the time left that each request had."""

    def __init__(self, *answers: AnyStepResult) -> None:
        self.times: list[float | None] = []
        self._answers = list(answers)

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        self.times.append(request.timeout_s)
        if self._answers:
            return self._answers.pop(0)
        await asyncio.Event().wait()
        raise AssertionError


async def refuse(stage: Stage, event: dict[str, Any]) -> None:
    """Check that a delivery leaves the step to the next one."""
    with pytest.raises(WorkInProgressError, match="its model call"):
        await stage.deliver("call_model", event, left_s=CANCEL_S + SHORT_S)


@pytest.mark.parametrize("deaf", [False, True])
async def test_a_model_that_never_answers_is_asked_three_times(deaf: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt has all the time of a delivery, whether its adapter respects the deadline or not."""
    monkeypatch.setattr(ask, "GRACE_S", 0.1)
    helper = agent("helper")
    silent, late = Deaf(), ScriptedModel(LATE, repeat=True, record=True)
    stage = Stage(silent if deaf else late, helper)
    event = await stage.begin(helper)
    await refuse(stage, event)
    await refuse(stage, event)
    claim = (await stage.session(event)).claim
    assert claim is not None and (claim.attempt, claim.late) == (2, 2)
    told = await stage.deliver("call_model", event, left_s=CANCEL_S + SHORT_S)
    assert told["next"] == "finish"
    session = await stage.session(event)
    assert session.status == "failed" and session.error is not None
    assert session.error.code == "model_timed_out" and "in 3 attempts" in session.error.message
    times = silent.times if deaf else [asked.timeout_s for asked in late.requests]
    assert len(times) == 3 and all(seconds is not None and 0 < seconds <= SHORT_S for seconds in times)


async def test_a_released_claim_lets_the_next_delivery_ask_at_once() -> None:
    helper = agent("helper")
    stage = Stage([*LATE, "in time"], helper)
    event = await stage.begin(helper)
    await refuse(stage, event)
    assert (await stage.deliver("call_model", event))["next"] == "finish"
    assert (await stage.session(event)).status == "completed"


async def test_each_step_and_each_run_counts_anew() -> None:
    helper = agent("helper", tools=[LOOK])
    stage = Stage([*LATE * 2, calls(call("look")), *LATE * 3, *LATE * 2, "in time"], helper)
    event = await stage.begin(helper)
    await refuse(stage, event)
    await refuse(stage, event)
    told = await stage.deliver("call_model", event)
    await stage.deliver("call_tool", told)
    await refuse(stage, told)
    await refuse(stage, told)
    assert (await stage.deliver("call_model", told, left_s=CANCEL_S + SHORT_S))["next"] == "finish"
    assert (await stage.session(event)).status == "failed"
    await stage.executor.retry(helper, event["session_id"])
    again = {**event, "run_id": stage.held.starts[-1].run_id, "step": stage.held.starts[-1].step}
    await refuse(stage, again)
    await refuse(stage, again)
    assert (await stage.follow(again))["next"] == "finish"
    assert (await stage.session(event)).status == "completed"


async def test_a_provider_that_accepts_and_stays_silent_leaves_its_fallback_time() -> None:
    """The defaults are 600 s per attempt and three retries."""
    server = DialectServer(OPENAI, [Says("x", fault=STALL, after=0), Says("hi", stop="end_turn")]).start()
    try:
        options = OPENAI.options(server.origin)
        config = LLMConfig(model="openai/gpt-4o-mini", fallbacks=["openai/gpt-4o"], provider_options=options)
        helper = agent("helper", llm_config=config)
        adapter = ModelAdapter()
        adapter.prepare(config)  # as a function does before its first delivery
        stage = Stage(adapter, helper)
        event = await stage.begin(helper)
        assert (await stage.deliver("call_model", event, left_s=CANCEL_S + 4))["next"] == "finish"
        assert (await stage.run(event)).status == "completed"
        assert [asked.json["model"] for asked in server.requests] == ["gpt-4o-mini", "gpt-4o"]
        assert await asyncio.to_thread(server.requests[0].disconnected.wait, 10)
    finally:
        server.stop()


async def test_a_delivery_without_time_asks_nobody_and_counts_nothing() -> None:
    helper = agent("helper")
    stage = Stage(["in time"], helper)
    event = await stage.begin(helper)
    with pytest.raises(WorkInProgressError):
        await stage.deliver("call_model", event, left_s=CANCEL_S)
    claim = (await stage.session(event)).claim
    assert claim is not None and claim.late == 0 and not stage.model.requests
    assert (await stage.deliver("call_model", event))["next"] == "finish"


async def test_a_process_that_nobody_ends_bounds_no_call() -> None:
    deaf = Deaf(TextStepResult(content="done"))
    helper = agent("helper")
    stage = Stage(deaf, helper)
    event = await stage.begin(helper)
    await stage.deliver("call_model", event, left_s=float("inf"))
    assert deaf.times == [None]


class SilentSummary:
    """A model that looks three things up, and never answers when it is asked for a summary."""

    def __init__(self) -> None:
        self.summaries = self.steps = 0

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        if request.tool_choice == "none":
            self.summaries += 1
            await asyncio.Event().wait()
        self.steps += 1
        if self.steps == 5:
            return TextStepResult(content="done")
        return ToolCallsStepResult(tool_calls=[ParsedToolCall(id=f"call_{self.steps}", name="look", arguments={})])


async def test_a_summary_that_never_comes_back_is_given_up_after_three_attempts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run goes on without the summary. The last attempt used all the time of its delivery."""
    monkeypatch.setattr(ask, "GRACE_S", 0.1)
    look = a_tool("look", lambda given, ctx: "A pump moves water. " * 100)
    context = Context(window=1_500, clear_at=None, summariser="same", keep_steps=1)
    helper, model = agent("helper", tools=[look], context=context), SilentSummary()
    stage = Stage(model, helper)
    told, refused = await stage.begin(helper), 0
    for _ in range(12):
        try:
            told = await stage.deliver("call_model", told, left_s=CANCEL_S + SHORT_S)
        except WorkInProgressError:
            refused += 1
            continue
        if told["next"] == "finish":
            break
        await stage.deliver("call_tool", told)
    session = await stage.session(told)
    assert (session.status, refused, model.summaries) == ("completed", 3, 3)
    assert session.step == 5 and session.context.failed == 4


async def test_a_guard_of_inputs_without_time_is_asked_by_the_next_delivery() -> None:
    """A guard that is slower than its own timeout blocks at once."""
    asked: list[str] = []

    async def slow(text: str, context: GuardContext) -> Allow:
        asked.append(text)
        if len(asked) < 3:
            await asyncio.Event().wait()
        return Allow()

    helper = agent("helper", guards=[Guard(name="slow", input=slow, timeout_s=5)])
    stage = Stage(["in time"], helper)
    event = await stage.begin(helper)
    for attempt in (1, 2):
        with pytest.raises(WorkInProgressError, match="guard 'slow'"):
            await stage.deliver("call_model", event, left_s=LEFT_S + SHORT_S)
        claim = (await stage.session(event)).claim
        assert claim is not None and (claim.attempt, claim.late) == (attempt, attempt) and not stage.model.requests
    assert (await stage.deliver("call_model", event))["next"] == "finish"
    assert (await stage.session(event)).status == "completed" and len(asked) == 3
