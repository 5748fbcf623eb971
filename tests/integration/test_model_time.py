"""A model that answers late or never: its time within a delivery, the number of attempts, and the error of its run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.delivery_stage import Stage
from tests.support.model_dialects import OPENAI, STALL, DialectServer, Says
from tests.support_run import a_tool, agent, call, calls

from helix import Allow, Guard, LLMConfig, Replace, ScriptedModel, ToolContext, tool
from helix.adapters.models.adapter import ModelAdapter
from helix.core.context_policy import Context
from helix.core.entries import CallRow
from helix.core.errors import WorkInProgressError
from helix.core.guards import GuardContext
from helix.core.steps import AnyStepResult, ParsedToolCall, TextStepResult, ToolCallsStepResult
from helix.core.usage import Usage
from helix.engine.context import CANCEL_S
from helix.engine.guards.judge import LEFT_S
from helix.engine.steps import ask
from helix.ports.model import LLMGenerateInput
from helix.testing.invariants import check_session, read_tree

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


class Notes(BaseModel):
    seen: int = 0


def looking(ran: list[str], judged: list[str], **fields: Any) -> Any:
    """Return an agent whose tool changes the state and costs something, and whose guard replaces the result."""

    @tool(**fields)
    async def look(ctx: ToolContext[Notes]) -> str:
        """Look."""
        ran.append(ctx.idempotency_key)
        ctx.update_state(lambda notes: setattr(notes, "seen", notes.seen + 1))
        ctx.record_usage(Usage(calls=1, cost_micros=5))
        return "a secret"

    def hide(value: Any, context: GuardContext) -> Replace:
        judged.append(str(value))
        return Replace("nothing")

    return agent("helper", tools=[look], guards=[Guard(name="hide", result=hide, timeout_s=30)], state_schema=Notes)


async def the_call(stage: Stage, event: dict[str, Any]) -> CallRow:
    (tree, *_) = await read_tree(stage.store, event["session_id"])
    assert tree.session is not None
    (row,) = [row for row in tree.history(tree.session.lineage, 3) if isinstance(row, CallRow)]
    return row


@pytest.mark.parametrize("inline", [False, True])
async def test_a_result_whose_guards_have_no_time_is_judged_by_the_next_delivery(inline: bool) -> None:
    """The tool does not run again."""
    ran: list[str] = []
    judged: list[str] = []
    helper = looking(ran, judged, inline=inline)
    stage = Stage([calls(call("look")), "done"], helper)
    told = await stage.begin(helper)
    if not inline:
        told = await stage.deliver("call_model", told)
    with pytest.raises(WorkInProgressError, match="call 'call_0'"):
        await stage.deliver("call_model" if inline else "call_tool", told, left_s=CANCEL_S + 5)
    assert (len(ran), judged) == (1, [])
    row = await the_call(stage, told)
    assert (row.state, row.content, row.by, row.ended_at) == ("approved", "a secret", "tool", None)
    if not inline:
        await stage.deliver("call_tool", told)
    assert (await stage.follow(told))["next"] == "finish"
    assert (len(ran), judged) == (1, ["a secret"])
    row = await the_call(stage, told)
    assert (row.state, row.content, row.by, row.deaths) == ("done", "nothing", "tool", 0)
    assert [(verdict.guard, verdict.verdict) for verdict in row.verdicts] == [("hide", "replace")]
    session = await stage.session(told)
    assert (session.status, session.usage.cost_micros) == ("completed", 5)
    assert await stage.engine.history.state(session) == {"seen": 1}
    await check_session(stage.store, stage.engine.streams, session.session_id)


async def test_guards_that_the_next_delivery_asks_get_the_time_that_is_left() -> None:
    """A stage whose functions have less time than the guards may take must not keep a result forever."""
    ran: list[str] = []
    judged: list[str] = []
    helper = looking(ran, judged)
    stage = Stage([calls(call("look")), "done"], helper)
    told = await stage.deliver("call_model", await stage.begin(helper))
    with pytest.raises(WorkInProgressError):
        await stage.deliver("call_tool", told, left_s=CANCEL_S + 5)
    await stage.deliver("call_tool", told, left_s=CANCEL_S + 5)
    assert (len(ran), judged) == (1, ["a secret"])
    assert (await the_call(stage, told)).content == "nothing"


def allow(value: Any, context: GuardContext) -> Allow:
    return Allow()


@pytest.mark.parametrize(
    ("guard", "seconds"),
    [
        (Guard(input=allow), 0),
        (Guard(input=allow, when="beside"), 10),
        (Guard(result=allow), 0),
        (Guard(output=allow, call=allow, timeout_s=20), 60),
        (Guard(output=allow, timeout_s=60), 120),
        (Guard(output=allow, call=allow, timeout_s=60), 120),
    ],
)
async def test_a_model_call_leaves_the_guards_of_its_answer_their_time(guard: Guard, seconds: float) -> None:
    deaf = Deaf(ToolCallsStepResult(tool_calls=[ParsedToolCall(id="c", name="__finish__", arguments={"seen": 1})]))
    helper = agent("helper", guards=[guard], output_schema=Notes)
    stage = Stage(deaf, helper)
    await stage.deliver("call_model", await stage.begin(helper), left_s=600)
    assert deaf.times == [pytest.approx(600 - CANCEL_S - seconds, abs=1)]
