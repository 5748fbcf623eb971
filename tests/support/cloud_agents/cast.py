"""Agents of the e2e tests.

`talker` uses every tool and answers in text. All tools of `swift` are inline, and it keeps cut answers. `helper` and
`boss` have an output. `boss` asks `helper` and `deputy`, who asks `helper` in turn, as does `chief`. `brief` may take
two steps, and `thrifty` answers with 200 tokens at most. `mindful` caches its answers. `routed` asks the faster of
two models while the prompt fits and there is money. The results of `tidy` are cleared, and the history of `terse` is
summarised. Guards judge what `careful` does and says, and the results of `watched`, and those of `shielded`
ask a guardrail of Amazon Bedrock. `changing` differs in each edition. `roomy` has its own
functions and state machine, and so has `crew`, whose limit changes,
and soon. `front` hands over to `roomy`, who hands back.
"""

from __future__ import annotations

import os
from typing import Any

from helix.core.agents import Agent, AnyAgent
from helix.core.caching import ResponseCacheConfig
from helix.core.config import LLMConfig
from helix.core.context import ToolContext
from helix.core.context_policy import Context
from helix.core.guards import Guard, GuardContext
from helix.core.handoffs import Handoff
from helix.core.routes import Route, RouteOption
from helix.core.tools import create_sub_agent_tool, tool
from helix.core.verdicts import Allow, AnyVerdict, Ask, Block, Replace
from helix.guards import BedrockGuardrail

from .crashes import started
from .tools import ALL, TOOL_S, Answer, Notes

EDITION = "CLOUD_AGENTS_EDITION"
"""The variable of the functions' environment that selects the edition of `changing`."""
INLINE = "CLOUD_AGENTS_INLINE"
"""The variable of call_model's environment that makes all tools of all agents inline."""
CONFIG = LLMConfig(model="planned")
AGAIN = LLMConfig(model="planned", temperature=0.0, response_cache=ResponseCacheConfig())
QUICKER, CHEAPER = "gpt-4", "gpt-4o-mini"
"""Models with windows of 8,192 and 128,000 tokens in litellm's table, which also says which of them is more expensive."""
TWO = [RouteOption(model=QUICKER, latency_ms=1), RouteOption(model=CHEAPER, latency_ms=1_000)]
ROUTE = Route(models=TWO, prefer="speed", degrade_at="warning")
DEEP = 5
"""The length of the line at which `crew` gets a higher limit. Policies and alarms use it as their threshold."""
QUICK = {"scale_up_cooldown": 10, "scale_down_cooldown": 30, "oscillation_lock": 0}
SOON = {"queue_depth_threshold": DEEP, "scale_down_step": 3, **QUICK}
CREW: dict[str, Any] = {"min": 1, "max": 4, "scaling": SOON}


def _agent(name: str, **fields: object) -> AnyAgent:
    given = {"system_prompt": f"You are {name}.", "tools": ALL, "state_schema": Notes, "llm_config": CONFIG}
    given |= {"inline_tools": bool(os.environ.get(INLINE)), **fields}
    return Agent(name=name, **given)  # type: ignore[arg-type]


def changing(edition: str) -> AnyAgent:
    @tool(timeout_s=TOOL_S)
    async def edited(ctx: ToolContext[Notes]) -> str:
        """Tell the edition."""
        ctx.update_state(lambda notes: notes.seen.append(f"edition {edition}"))
        return f"edition {edition}"

    return _agent("changing", system_prompt=f"You are edition {edition}.", tools=[*ALL, edited])


def watch_calls(arguments: dict[str, Any], context: GuardContext) -> AnyVerdict:
    if context.tool_name == "boom":
        return Block("it is not allowed")
    if context.tool_name == "look" and arguments["topic"] == "secret":
        return Replace({"topic": "public"})
    return Ask("it is much") if context.tool_name == "add" and arguments["amount"] > 100 else Allow()


def watch_results(value: Any, context: GuardContext) -> AnyVerdict:
    started(context.session_id, f"guard of {context.call_id}")
    return Replace(str(value).replace("1234", "****")) if "1234" in str(value) else Allow()


def watch_output(text: str, context: GuardContext) -> AnyVerdict:
    return Replace(text.replace("1234", "****")) if "1234" in text else Allow()


talker = _agent("talker", max_steps=None, frontend_tools=True)
swift = _agent("swift", inline_tools=True, keep_partial=True)
brief = _agent("brief", max_steps=2)
roomy = _agent("roomy", resources={"memory": 2048, "max": 100}, handoffs=["front"])  # no test has that many at once
front = _agent("front", handoffs=[Handoff(roomy, when="Always.")])
thrifty = _agent("thrifty", tools=[], llm_config=LLMConfig(model="planned", max_output_tokens=200, max_retries=0))
crew = _agent("crew", resources=CREW)
mindful = _agent("mindful", llm_config=AGAIN)
routed = _agent("routed", tools=[], llm_config=LLMConfig(model=ROUTE, max_output_tokens=200))
helper = _agent("helper", output_schema=Answer)
deputy = _agent("deputy", output_schema=Answer, tools=[*ALL, create_sub_agent_tool(helper, timeout_s=120)])
boss = _agent(
    "boss",
    output_schema=Answer,
    tools=[*ALL, create_sub_agent_tool(helper, timeout_s=120), create_sub_agent_tool(deputy, timeout_s=120)],
)
tidy = _agent("tidy", context=Context(window=20_000, keep_steps=1))
terse = _agent("terse", context=Context(window=20_000, keep_steps=1, clear_at=None, summariser="same"))
WATCH = Guard(call=watch_calls, result=watch_results, output=watch_output, hold="step")
watched = _agent("watched", guards=[Guard(result=watch_results, timeout_s=1)])
careful = _agent("careful", guards=[WATCH], frontend_tools=["show_map"])
GUARDRAIL = BedrockGuardrail("absent", "1")
"""A guardrail that the account does not have, so each call of it fails, with or without the right to apply it."""
shielded = _agent(
    "shielded",
    guards=[Guard(name="calls", call=GUARDRAIL, tools=["add"]), Guard(name="results", result=GUARDRAIL)],
)
chief = _agent("chief", output_schema=Answer, tools=[*ALL, create_sub_agent_tool(helper, timeout_s=600)])

CAST = (
    talker,
    swift,
    brief,
    roomy,
    front,
    crew,
    thrifty,
    mindful,
    routed,
    tidy,
    terse,
    careful,
    watched,
    shielded,
    boss,
    chief,
    changing(os.environ.get(EDITION, "1")),
)
