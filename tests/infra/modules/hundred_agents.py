"""A hundred agents with long names and resources of their own."""

from helix import Agent, LLMConfig, default_registry

for number in range(100):
    default_registry.register(
        Agent(
            name=f"customer_support_agent_of_department_{number:03d}_eu",
            system_prompt="Help.",
            llm_config=LLMConfig(model="openai/gpt-4o-mini"),
            resources={"memory": 2048, "min": 1, "max": 5},
        )
    )
