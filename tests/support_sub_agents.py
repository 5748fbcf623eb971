"""A boss and its children, for tests of sub-agents: the agents, their answers, and the child's session."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from tests.support_run import Text, a_tool, agent, call, calls

from helix import Agent, ToolContext, create_sub_agent_tool


class Found(BaseModel):
    fact: str


class Notes(BaseModel):
    lines: list[str] = []


def write(given: Text, ctx: ToolContext[Notes]) -> str:
    ctx.update_state(lambda s: s.lines.append(given.text))
    return "ok"


WRITE = a_tool("write", write, input_schema=Text)


def child(name: str = "finder", **fields: Any) -> Agent[Any, Any]:
    fields.setdefault("tools", [WRITE])
    return agent(name, output_schema=Found, state_schema=Notes, **fields)


def parent(*children: Agent[Any, Any], **fields: Any) -> Agent[Any, Any]:
    tools = [*(create_sub_agent_tool(c, **fields.pop("options", {})) for c in children), WRITE]
    return agent("boss", tools=tools, state_schema=Notes, **fields)


def ask(message: str = "find it", name: str = "finder") -> dict[str, Any]:
    return call(f"subagent__{name}", message=message)


def finish(fact: str) -> dict[str, Any]:
    return calls(call("__finish__", fact=fact))


async def only_child(executor: Any, session_id: str) -> Any:
    (ref,) = await executor.sessions.list_sub_sessions(session_id)
    return ref
