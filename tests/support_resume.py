"""Helpers that tests of stopping and resuming share: a log in the state, a tool that writes it, and an interrupted run."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from tests.support_run import Gate, Text, a_tool

from helix import Agent, LocalExecutor, ToolContext
from helix.core.handles import AgentExecutionHandle


class Log(BaseModel):
    lines: list[str] = []


def writer(name: str = "write", **fields: Any) -> Any:
    def write(given: Text, ctx: ToolContext[Log]) -> str:
        ctx.update_state(lambda s: s.lines.append(given.text))
        return f"wrote {given.text}"

    return a_tool(name, write, input_schema=Text, **fields)


async def interrupted_in_model(
    executor: LocalExecutor, who: Agent[Any, Any], gate: Gate, **options: Any
) -> AgentExecutionHandle[Any]:
    handle = await executor.execute(who, "go", **options)
    await gate.reached()
    assert await handle.interrupt("enough", wait=True)
    gate.open()
    return handle
