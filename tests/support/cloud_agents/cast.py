"""Agents of the e2e tests.

`talker` talks, uses every tool and answers in text; `helper` and `boss` have an output; `boss` asks `helper` and `deputy`,
who asks `helper` in turn; `brief` may take two steps; `changing` is another one in each edition; `roomy` has functions and
a state machine of its own.
"""

from __future__ import annotations

import os

from helix.core.agents import Agent, AnyAgent
from helix.core.config import LLMConfig
from helix.core.context import ToolContext
from helix.core.tools import create_sub_agent_tool, tool

from .tools import ALL, TOOL_S, Answer, Notes

EDITION = "CLOUD_AGENTS_EDITION"
"""Variable of the functions' environment: a deployment that sets it deploys another `changing`."""
CONFIG = LLMConfig(model="planned")


def _agent(name: str, **fields: object) -> AnyAgent:
    given = {"system_prompt": f"You are {name}.", "tools": ALL, "state_schema": Notes, "llm_config": CONFIG, **fields}
    return Agent(name=name, **given)  # type: ignore[arg-type]


def changing(edition: str) -> AnyAgent:
    @tool(timeout_s=TOOL_S)
    async def edited(ctx: ToolContext[Notes]) -> str:
        """Tell the edition."""
        ctx.update_state(lambda notes: notes.seen.append(f"edition {edition}"))
        return f"edition {edition}"

    return _agent("changing", system_prompt=f"You are edition {edition}.", tools=[*ALL, edited])


talker = _agent("talker", max_steps=None)
brief = _agent("brief", max_steps=2)
roomy = _agent("roomy", resources={"memory": 2048})
helper = _agent("helper", output_schema=Answer)
deputy = _agent("deputy", output_schema=Answer, tools=[*ALL, create_sub_agent_tool(helper, timeout_s=120)])
boss = _agent(
    "boss",
    output_schema=Answer,
    tools=[*ALL, create_sub_agent_tool(helper, timeout_s=120), create_sub_agent_tool(deputy, timeout_s=120)],
)

CAST = (talker, brief, roomy, boss, changing(os.environ.get(EDITION, "1")))
