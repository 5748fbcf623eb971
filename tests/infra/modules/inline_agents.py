"""An agent whose tool is executed in the function that calls its model."""

from helix import Agent, LLMConfig, default_registry, tool


@tool(inline=True)
async def glance(topic: str) -> str:
    """Look a topic up."""
    return topic


default_registry.register(
    Agent(name="glancer", system_prompt="Look.", llm_config=LLMConfig(model="openai/gpt-4o-mini"), tools=[glance])
)
