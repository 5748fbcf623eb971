"""The agents of this project. Agents that are registered here are deployed, and `helix run NAME` finds them."""

from helix import Agent, LLMConfig, default_registry, tool

FACTS = {
    "opening hours": "The shop opens at nine and closes at six.",
    "address": "The shop is at 12 Harbour Street.",
}


@tool
def search_facts(query: str) -> list[str]:
    """Find what is known about the query."""
    words = query.lower().split()
    return [f"{topic}: {fact}" for topic, fact in FACTS.items() if any(word[:4] in topic + fact for word in words)]


assistant = Agent(
    name="assistant",
    description="Answers questions about the shop.",
    system_prompt="Answer in one sentence. Look it up first.",
    tools=[search_facts],
    llm_config=LLMConfig(model="openai/gpt-4o-mini"),
)

default_registry.register(assistant)
