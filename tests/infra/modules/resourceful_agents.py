"""Agents for the tests of the infrastructure: one without resources, one with resources, and a sub-agent with resources."""

from pydantic import BaseModel

from helix import Agent, LLMConfig, create_sub_agent_tool, default_registry

MODEL = LLMConfig(model="openai/gpt-4o-mini")


class Report(BaseModel):
    text: str


modest = Agent(name="modest", system_prompt="Help.", llm_config=MODEL)
heavy = Agent(name="heavy", system_prompt="Lift.", llm_config=MODEL, resources={"memory": 3008, "min": 2, "max": 5})
quick = Agent(
    name="quick",
    system_prompt="Hurry.",
    llm_config=MODEL,
    output_schema=Report,
    resources={"cpu": 2, "min": 0, "max": 3},
)
boss = Agent(name="boss", system_prompt="Delegate.", llm_config=MODEL, tools=[create_sub_agent_tool(quick)])

for agent in (modest, heavy, boss):
    default_registry.register(agent)
