"""An agent whose sub-agent has a tool that another system ends."""

from pydantic import BaseModel

from helix import Agent, LLMConfig, ToolContext, create_sub_agent_tool, default_registry, tool

MODEL = LLMConfig(model="openai/gpt-4o-mini")


class Report(BaseModel):
    text: str


@tool(later=True)
async def ship(ctx: ToolContext) -> None:
    """Ship."""
    await ctx.later()


clerk = Agent(name="clerk", system_prompt="Ship.", llm_config=MODEL, output_schema=Report, tools=[ship])
default_registry.register(
    Agent(name="boss", system_prompt="Delegate.", llm_config=MODEL, tools=[create_sub_agent_tool(clerk)])
)
