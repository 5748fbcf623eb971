"""Agents of the e2e tests.

`talker` talks, uses every tool and answers in text; all tools of `swift` are inline; `helper` and `boss` have an output;
`boss` asks `helper` and `deputy`, who asks `helper` in turn, and so does `chief`; `brief` may take two steps; `thrifty`
says 200 tokens at most; `mindful` gives an answer again; `routed` asks the quicker of two models, while it fits and there
is money; `changing` is another one in each edition; `roomy` has functions and a state machine of its own, and so has
`crew`, whose limit moves, and soon.
"""

from __future__ import annotations

import os
from typing import Any

from helix.core.agents import Agent, AnyAgent
from helix.core.caching import ResponseCacheConfig
from helix.core.config import LLMConfig
from helix.core.context import ToolContext
from helix.core.routes import Route, RouteOption
from helix.core.tools import create_sub_agent_tool, tool

from .tools import ALL, TOOL_S, Answer, Notes

EDITION = "CLOUD_AGENTS_EDITION"
"""Variable of the functions' environment: a deployment that sets it deploys another `changing`."""
INLINE = "CLOUD_AGENTS_INLINE"
"""Variable of call_model's environment: all tools of all agents are inline."""
CONFIG = LLMConfig(model="planned")
AGAIN = LLMConfig(model="planned", temperature=0.0, response_cache=ResponseCacheConfig())
QUICKER, CHEAPER = "gpt-4", "gpt-4o-mini"
"""Windows of 8,192 and 128,000 tokens, by litellm's table; and it says which of them costs more."""
TWO = [RouteOption(model=QUICKER, latency_ms=1), RouteOption(model=CHEAPER, latency_ms=1_000)]
ROUTE = Route(models=TWO, prefer="speed", degrade_at="warning")
DEEP = 5
"""So many wait before `crew` gets more room: what policies and alarms begin with."""
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


talker = _agent("talker", max_steps=None)
swift = _agent("swift", inline_tools=True)
brief = _agent("brief", max_steps=2)
roomy = _agent("roomy", resources={"memory": 2048, "max": 100})  # of which no test has so many at once
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
chief = _agent("chief", output_schema=Answer, tools=[*ALL, create_sub_agent_tool(helper, timeout_s=600)])

CAST = (
    talker,
    swift,
    brief,
    roomy,
    crew,
    thrifty,
    mindful,
    routed,
    boss,
    chief,
    changing(os.environ.get(EDITION, "1")),
)
