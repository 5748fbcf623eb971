"""Guards of results: they judge what a tool returned before it is stored.

Law: a refused result keeps nothing that the tool returned but its verdict. The tool has run, so its effects stay.
"""

from __future__ import annotations

from dataclasses import replace

from helix.core.call_results import parsed_content, result_content
from helix.core.json import JsonValue, dumps, loads
from helix.core.judged_plan import blocked_result
from helix.core.usage import Usage
from helix.core.verdicts import Place, Verdict
from helix.engine.calls.runner import ToolOutcome, checked_result
from helix.engine.claims.liveness import Claim
from helix.engine.context import RunContext
from helix.engine.facts import ToolCall
from helix.engine.guards.judge import LEFT_S, judge, make_guard_context


def has_time(run: RunContext, call: ToolCall, outcome: ToolOutcome) -> bool:
    """Return whether this delivery has as much time left as the guards of the outcome may take."""
    most_s = sum(
        guard.timeout_s
        for place in _places(call, outcome)
        for guard in run.agent.guards
        if guard.judges(place, call.tool.name)
    )
    return most_s == 0 or run.now() + most_s <= run.delivery.deadline - LEFT_S


def _places(call: ToolCall, outcome: ToolOutcome) -> tuple[Place, ...]:
    return ("result", "output") if call.tool.finish_with and outcome.success else ("result",)


async def judge_result(
    run: RunContext, call: ToolCall, claim: Claim, outcome: ToolOutcome
) -> tuple[ToolOutcome, list[Verdict]]:
    """Return what the guards allow of the outcome, and their verdicts. With `finish_with`, the result is also judged as
    an output. Raises `LostClaimError` if another worker has the call."""

    def content_of(value: JsonValue) -> tuple[str, bool]:
        if outcome.success:
            return checked_result(run.agent, call.tool, value)
        return result_content(value, True), isinstance(value, str)

    value: JsonValue = outcome.content if outcome.plain else parsed_content(outcome.content)
    verdicts: list[Verdict] = []
    usage = outcome.usage
    for place in _places(call, outcome):
        arguments = loads(dumps(call.request.arguments))  # a guard may change what it is given
        names = {"tool_name": call.tool.name, "call_id": call.row.call_id, "arguments": arguments}
        context = make_guard_context(run, place, call.row.step, **names)
        judged = await judge(run, context, value, content_of, claim=claim)
        verdicts += judged.verdicts
        usage = usage if judged.usage == Usage() else (usage or Usage()) + judged.usage
        if (refused := judged.refused) is not None:
            return ToolOutcome(blocked_result(refused).content, False, fatal=refused.ends_run, usage=usage), verdicts
        if judged.replaced:
            value = judged.value
            content, plain = content_of(value)
            outcome = replace(outcome, content=content, plain=plain)
    return replace(outcome, usage=usage), verdicts
