"""A run with a real client over HTTP on loopback: throttled, retried, answered by a fallback. The measures agree with its
rows."""

from __future__ import annotations

from tests import support_litellm
from tests.support_litellm import MODEL, FakeClock, Serve
from tests.support_measures import Heard
from tests.support_run import World, a_tool, agent, play

from helix import LLMConfig
from helix.adapters.models.litellm import LiteLLMAdapter
from helix.services.session_calls import session_calls
from helix.services.usage_counters import agent_scope, read_totals
from helix.testing.openai_server import HttpFailure, ModelAnswer, ModelToolCall, ModelUsage

serve = support_litellm.serve
OTHER = "openai/gpt-4o"


async def test_a_run_over_http(serve: Serve, quick_world: World) -> None:
    serve(
        HttpFailure(status=429, retry_after_s=1),
        ModelAnswer(tool_calls=[ModelToolCall("look")], usage=ModelUsage(1000, 500, cached_tokens=400)),
        HttpFailure(status=401, code="invalid_api_key"),
        ModelAnswer(text="found", usage=ModelUsage(2000, 100)),
    )
    who = agent(
        "helper",
        tools=[a_tool("look", lambda _, __: "found")],
        llm_config=LLMConfig(model=MODEL, fallbacks=[OTHER]),
    )
    heard = Heard()
    executor = quick_world.executor(LiteLLMAdapter(clock=FakeClock()), metrics=heard)
    handle, result, _ = await play(executor, who, user_id="ada")
    assert result.status == "completed"

    # 600 * .15 + 400 * .075 + 500 * .6 = 420 micro-dollars; 2000 * 2.5 + 100 * 10 = 6000
    first, second = await session_calls(executor.store, handle.session_id)
    assert (first.model, first.usage.cost_micros, first.outcome) == (MODEL, 420, "answered")
    assert (second.model, second.usage.cost_micros, second.outcome) == (OTHER, 6000, "answered")

    told = heard.with_("ModelCalls")
    assert [m.details["model"] for m in told] == [MODEL, OTHER]
    assert [m.values["ModelThrottles"] for m in told] == [1, 0]
    assert heard.total("ModelErrors") == 0, "a repeated attempt is not a failed call"
    assert [round(m.values["CostUsd"] * 1e6) for m in told] == [420, 6000]
    assert [(m.values["InputTokens"], m.values["OutputTokens"]) for m in told] == [(1000, 500), (2000, 100)]
    assert heard.total("CachedTokens") == 400
    assert all(0 < m.values["TimeToFirstToken"] <= m.values["ModelLatency"] for m in told), "tool calls stream too"

    totals = {row.model: row for row in await read_totals(executor.store, agent_scope("helper"))}
    assert {model: (row.micros, row.calls, row.runs) for model, row in totals.items()} == {
        MODEL: (420, 1, 1),
        OTHER: (6000, 1, 0),
    }
