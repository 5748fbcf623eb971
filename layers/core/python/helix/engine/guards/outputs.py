"""Guards of calls and outputs: they judge the model's answer before it is stored.

Law: nothing of a refused answer is in history, and none of its calls starts. Readers get held text only once it was
judged; text that they already have is taken back before the answer is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from helix.core.guards import Guard, is_judge
from helix.core.json import JsonValue, dumps
from helix.core.judged_plan import failed_plan, first_ending, with_calls, with_output, with_text
from helix.core.messages import ToolCallRequest, UserMessage
from helix.core.planning import StepProcessingPlan, refuse_call
from helix.core.prompt import show_input
from helix.core.usage import Usage
from helix.core.verdicts import Block, Verdict, describe_change, stored_verdict
from helix.engine.answer_facts import answer_parts
from helix.engine.context import RunContext
from helix.engine.facts import AnswerWithheld, OutputReceived
from helix.engine.guards.inputs import check_text, is_held, with_usage
from helix.engine.guards.judge import Judged, judge, make_guard_context
from helix.engine.guards.judge_agent import MAX_CALLS
from helix.engine.observers import show
from helix.engine.steps.ask import ModelAnswer


async def judge_answer(run: RunContext, answer: ModelAnswer, messages: Sequence[UserMessage]) -> ModelAnswer:
    """Return the answer with the plan that its guards allow, and with their verdicts. Its chunks are in the log.
    `messages`: the user's messages before the answer."""
    result, made = answer.result, answer.plan
    assert result is not None and made is not None
    if made.assistant_message_plan is None:
        return answer
    said = [show_input(message, answer.verdicts).content for message in messages]
    plan, text = await _judge_text(run, made, said)
    plan, output = await _judge_output(run, plan, said)
    calls = await _judge_calls(run, plan, said)
    plan = with_calls(plan, {call_id: refused for call_id, judged in calls.items() if (refused := judged.refused)})
    found = [*text, *output, *calls.values()]
    verdicts = [verdict for judged in found for verdict in judged.verdicts]
    if (ending := first_ending(verdicts)) is not None:
        plan = failed_plan(ending)
    _show_text(run, made, plan, next((v for v in verdicts if v.on == "output" and v.verdict != "allow"), None))
    await run.stream.flush()
    usage = sum((judged.usage for judged in found), Usage())
    return replace(answer, result=with_usage(result, usage), plan=plan, verdicts=[*answer.verdicts, *verdicts])


async def _judge_text(
    run: RunContext, plan: StepProcessingPlan, said: list[str]
) -> tuple[StepProcessingPlan, list[Judged]]:
    message = plan.assistant_message_plan
    assert message is not None
    if not message.content:
        return plan, []
    context = make_guard_context(run, "output", run.session.step + 1, user_messages=tuple(said))
    judged = await judge(run, context, message.content, check_text)
    if judged.refused is not None:
        return with_text(plan, None), [judged]
    return with_text(plan, str(judged.value)) if judged.replaced else plan, [judged]


async def _judge_output(
    run: RunContext, plan: StepProcessingPlan, said: list[str]
) -> tuple[StepProcessingPlan, list[Judged]]:
    schema = run.agent.output_schema
    if plan.finish is None or schema is None:
        return plan, []
    context = make_guard_context(run, "output", run.session.step + 1, user_messages=tuple(said))
    judged = await judge(run, context, plan.finish.output, schema.model_validate)
    changed = judged.replaced or judged.refused is not None
    return with_output(plan, judged.value, judged.refused) if changed else plan, [judged]


async def _judge_calls(run: RunContext, plan: StepProcessingPlan, said: list[str]) -> dict[str, Judged]:
    """Judge each call that would be executed, all at once."""
    message = plan.assistant_message_plan
    if message is None or not any(guard.call is not None for guard in run.agent.guards):
        return {}
    executed = {call.id for call in plan.pending_tool_calls} | {call.id for call in plan.pending_sub_agent_calls}
    executed |= {plan.handoff.call_id} if plan.handoff is not None else set()
    requests = [request for request in message.tool_calls if request.id in executed]
    costly = [request.id for request in requests if _agent_for(run, request) is not None]
    beyond = set(costly[MAX_CALLS:])
    within = [request for request in requests if request.id not in beyond]
    judged = await asyncio.gather(*(_judge_call(run, request, said) for request in within))
    found = {request.id: one for request, one in zip(within, judged, strict=True)}
    return found | {request.id: _refuse_unjudged(run, request) for request in requests if request.id in beyond}


def _agent_for(run: RunContext, request: ToolCallRequest) -> Guard | None:
    """Return the first guard that asks an agent about this call, or None."""
    return next((g for g in run.agent.guards if g.judges("call", request.name) and is_judge(g.call)), None)


def _refuse_unjudged(run: RunContext, request: ToolCallRequest) -> Judged:
    """Block a call beyond those that a judge accepts. The step's reservation does not cover it."""
    guard = _agent_for(run, request)
    assert guard is not None
    verdict = Block(f"an agent judges {MAX_CALLS} calls of one answer at most")
    return Judged(request.arguments, [stored_verdict(guard.name, "call", request.id, request.arguments, verdict)])


async def _judge_call(run: RunContext, request: ToolCallRequest, said: list[str]) -> Judged:
    def check(arguments: JsonValue) -> None:
        if not isinstance(arguments, dict):
            raise TypeError("the arguments must be a JSON object")
        if (refused := refuse_call(request.model_copy(update={"arguments": arguments}), run.find_tool)) is not None:
            raise ValueError(refused.content)

    fields = {"tool_name": request.name, "call_id": request.id, "user_messages": tuple(said)}
    context = make_guard_context(run, "call", run.session.step + 1, **fields)
    judged = await judge(run, context, request.arguments, check)
    tool = run.find_tool(request.name)
    if tool is not None and tool.kind in ("client", "handoff"):  # no person approves such a call before it takes effect
        kind = "a call of a client's tool" if tool.kind == "client" else "a handoff"
        judged.verdicts = [
            v.model_copy(update={"verdict": "block", "reason": f"{kind} cannot wait: {v.reason}"})
            if v.verdict == "ask"
            else v
            for v in judged.verdicts
        ]
    return judged


def _show_text(run: RunContext, made: StepProcessingPlan, plan: StepProcessingPlan, cause: Verdict | None) -> None:
    """Show held parts of the answer, or take back what readers have if guards changed the text or the output. `cause`: the
    first verdict that changed one of them."""
    claim = run.session.claim
    assert claim is not None and made.assistant_message_plan is not None
    before, after = made.assistant_message_plan, plan.assistant_message_plan
    held = is_held(run)
    changed = after is None or after.content != before.content or plan.finish != made.finish
    if changed and not held:
        reason = "a guard refused a call" if cause is None else describe_change(cause)
        show(run, AnswerWithheld(claim, reason))
    if after is None or not (held or changed):
        return
    for part in answer_parts(claim, after):
        show(run, part)
    if plan.finish is not None:
        output = next(call for call in after.tool_calls if call.id == plan.finish.call_id)
        show(run, OutputReceived(claim, dumps(output.arguments)))
