"""An agent whose tool gives its call to another system."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from tests.support_run import agent, call, calls, eventually

from helix import Agent, ToolContext, tool

GO_ON = "Goes on."


class Orders(BaseModel):
    sent: list[str] = []


def shop(tokens: list[str], *, wait: dict[str, Any] | None = None, **options: Any) -> Agent[Any, Any]:
    """Return an agent with a tool that hands its token out, in `tokens`."""

    @tool(later=True, **options)
    async def ship(text: str, ctx: ToolContext[Orders]) -> None:
        """Ship an order."""
        ctx.update_state(lambda state: state.sent.append(text))
        tokens.append(await ctx.later(**(wait or {})))

    return agent(tools=[ship], state_schema=Orders)


def shipping(*after: Any) -> list[Any]:
    return [calls(call("ship", text="A7")), *(after or (GO_ON,))]


async def rests(executor: Any, session_id: str, *statuses: str) -> Any:
    async def at_rest() -> bool:
        return (await executor.sessions.get(session_id)).status in (statuses or ("completed", "failed"))

    await eventually(at_rest)
    return await executor.sessions.get(session_id)
