"""As many agents with resources of their own as a stage should hold."""

from helix import Agent, LLMConfig, default_registry

COUNT = 100

for number in range(COUNT):
    default_registry.register(
        Agent(
            name=f"customer_support_agent_{number:03d}",
            system_prompt="Help.",
            llm_config=LLMConfig(model="openai/gpt-4o-mini"),
            resources={"memory": 2048, "min": 1, "max": 5},
        )
    )
