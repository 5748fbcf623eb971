"""Definitions of agents and their resources: a mistake fails at once and names the field, and types follow from schemas."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, assert_type

import pytest
from pydantic import BaseModel, Field, ValidationError
from tests.support_definitions import MODEL, Answer, Notes, Place, agent, lookup, plain, plain_async

from helix.core.agents import Agent, define_agent
from helix.core.context import ToolContext, create_tool_context
from helix.core.errors import DefinitionError
from helix.core.hooks import Hooks
from helix.core.resources import ResourceConfig
from helix.core.tools import Tool, create_finish_tool, create_sub_agent_tool, define_tool
from helix.core.tracker import create_state_tracker

# --- agents -----------------------------------------------------------------------------------------------------------


class NoDefault(BaseModel):
    must: str


class Explodes(BaseModel):
    x: int = Field(default_factory=lambda: 1 // 0)


async def async_prompt(state: Any) -> str:
    return "prompt"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "has space"}, "name"),
        ({"name": "double__underscore"}, "name"),
        ({"name": "line\n"}, "name"),
        ({"name": 3}, "name"),
        ({"description": None}, "description"),
        ({"system_prompt": "  "}, "system_prompt"),
        ({"system_prompt": None}, "system_prompt"),
        ({"system_prompt": async_prompt}, "system_prompt"),
        ({"llm_config": None}, "llm_config"),
        ({"llm_config": {"model": "x"}}, "llm_config"),
        ({"llm_config": async_prompt}, "llm_config"),
        ({"max_steps": 0}, "max_steps"),
        ({"max_steps": "5"}, "max_steps"),
        ({"max_steps": True}, "max_steps"),
        ({"max_completion_retries": -1}, "max_completion_retries"),
        ({"max_completion_retries": None}, "max_completion_retries"),
        ({"on_budget": "stop"}, "on_budget"),
        ({"array_delta_mode": "x"}, "array_delta_mode"),
        ({"stop_when": 3}, "stop_when"),
        ({"stop_when": async_prompt}, "stop_when"),
        ({"state_schema": dict}, "state_schema"),
        ({"state_schema": Notes()}, "state_schema"),
        ({"state_schema": NoDefault}, "state_schema"),
        ({"state_schema": Explodes}, "state_schema"),
        ({"output_schema": "Answer"}, "output_schema"),
        ({"tools": lookup}, "tools"),
        ({"tools": "lookup"}, "tools"),
        ({"tools": [plain]}, "tools[0]"),
        ({"tools": [lookup, lookup]}, "tools[1]"),
        ({"tools": [create_finish_tool(Answer)]}, "tools[0]"),
        ({"hooks": 3}, "hooks"),
        ({"hooks": {"on_start": plain}}, "hooks.on_start"),
        ({"hooks": {"on_message": 3}}, "hooks.on_message"),
        ({"hooks": Hooks(on_message=[plain, None])}, "hooks.on_message"),  # type: ignore[arg-type]
        ({"function": plain}, "function"),
        ({"resources": {"cpus": 1}}, "resources.cpus"),
        ({"resources": 3}, "resources"),
    ],
)
def test_a_wrong_agent_names_the_field(changes: dict[str, Any], field: str) -> None:
    for make in (agent, lambda **c: define_agent(**{"name": "a", "system_prompt": "p", "llm_config": MODEL, **c})):
        with pytest.raises(DefinitionError) as caught:
            make(**changes)
        assert caught.value.field == field


def test_define_agent_knows_its_fields() -> None:
    with pytest.raises(DefinitionError, match="prompt: no such field; the fields are name, system_prompt"):
        define_agent(name="a", prompt="p")
    with pytest.raises(DefinitionError, match="name: is missing"):
        define_agent(system_prompt="p")


def test_an_agent_in_a_list_of_tools_is_told_what_to_do() -> None:
    with pytest.raises(DefinitionError, match="wrap it in create_sub_agent_tool"):
        agent(tools=[agent(name="child", output_schema=Answer)])


def test_examples_are_a_few_short_messages() -> None:
    made = agent(examples=["Where is the kettle?", "And the cups?"])
    assert made.examples == ("Where is the kettle?", "And the cups?")
    assert made.fingerprint() == agent().fingerprint(), "the model does not see them"
    for given in ("one text", [""], [" \n"], ["x" * 501], ["x"] * 9, [3]):
        with pytest.raises(
            DefinitionError, match="examples: must be a list of at most 8 texts, each of 1 to 500 characters"
        ):
            agent(examples=given)


def test_state_defaults_are_json() -> None:
    assert agent(state_schema=Notes).initial_state() == {"looked_up": []}
    assert agent().initial_state() == {}


def test_finish_tool_comes_from_the_output_schema() -> None:
    assert agent().finish_tool is None
    made = agent(output_schema=Answer)
    assert made.finish_tool is not None and made.finish_tool is made.finish_tool
    assert made.finish_tool.parameters["required"] == ["summary"]
    assert agent(tools=[lookup]).find_tool("lookup") is lookup


def test_sub_agents() -> None:
    leaf = agent(name="leaf", output_schema=Answer)
    middle = agent(name="middle", output_schema=Answer, tools=[create_sub_agent_tool(leaf)])
    root = agent(name="root", tools=[create_sub_agent_tool(middle), create_sub_agent_tool(leaf)])
    assert root.find_agent("leaf") is leaf and root.find_agent("root") is root and root.find_agent("x") is None
    assert create_sub_agent_tool(agent(name="texts")).name == "subagent__texts"
    with pytest.raises(DefinitionError, match="agent"):
        create_sub_agent_tool(lookup)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError) as caught:
        create_sub_agent_tool(agent(name="x" * 60, output_schema=Answer))
    assert caught.value.field == "name"


def test_two_agents_of_one_name_in_a_tree_are_refused() -> None:
    one, other = agent(name="same", output_schema=Answer), agent(name="same", output_schema=Answer)
    inner = agent(name="inner", output_schema=Answer, tools=[create_sub_agent_tool(other)])
    for name, tools in (
        ("root", [create_sub_agent_tool(one), create_sub_agent_tool(inner)]),
        ("same", [create_sub_agent_tool(one)]),
    ):
        with pytest.raises(DefinitionError, match="two agents in this tree are named 'same'") as caught:
            agent(name=name, tools=tools)
        assert caught.value.field == "tools"


def test_the_fingerprint_follows_what_the_model_is_told() -> None:
    base = agent(tools=[lookup])
    assert base.fingerprint() == agent(tools=[lookup]).fingerprint()
    for changed in (
        agent(),
        agent(tools=[lookup], system_prompt="Other."),
        agent(tools=[lookup], output_schema=Answer),
    ):
        assert changed.fingerprint() != base.fingerprint()
    assert replace(base, max_steps=3).fingerprint() == base.fingerprint()


def test_hooks_become_chains() -> None:
    made = agent(hooks={"on_message": plain, "before_tool": [plain, plain_async], "after_tool": None})
    assert isinstance(made.hooks, Hooks)
    chains: dict[str, Any] = dict(made.hooks)
    assert chains["on_message"] == (plain,)
    assert made.hooks.named("on_message") == chains["on_message"]
    assert chains["before_tool"] == (plain, plain_async)
    assert chains["after_tool"] == chains["on_agent_start"] == ()


# --- resources --------------------------------------------------------------------------------------------------------


def test_resources_in_long_and_short() -> None:
    config = ResourceConfig.of({"min": 2, "max": 10, "cpu": 2.0, "memory": 512, "health_interval": 15}, "agent")
    assert config == ResourceConfig(
        min_instances=2, max_instances=10, cpu_limit=2.0, memory_limit_mb=512, health_check_interval=15
    )
    assert ResourceConfig().auto_start is False
    assert agent(resources={"min": 2, "max": 3}).resources["min_instances"] == 2


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"replicas": 3}, "helix.replicas"),
        ({"min": 1, "min_instances": 1}, "helix.min_instances"),
        ({"cpu_limit": 1, "cpu": 1}, "helix.cpu"),
        ({"min": 5, "max": 2}, "helix.min"),
        ({"min_instances": 2}, "helix.min_instances"),
        ({"max": 0}, "helix.max"),
        ({"cpu": 0.05}, "helix.cpu"),
        ({"cpu": 33}, "helix.cpu"),
        ({"memory": 63}, "helix.memory"),
        ({"startup_timeout": 4}, "helix.startup_timeout"),
        ({"shutdown_timeout": "30"}, "helix.shutdown_timeout"),
        ({"health_interval": 1}, "helix.health_interval"),
        ({"auto_start": "no"}, "helix.auto_start"),
        ({"min": True}, "helix.min"),
        (["min"], "helix"),
    ],
)
def test_wrong_resources_name_the_key_as_it_was_spelled(given: Any, field: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        ResourceConfig.of(given, "agent 'a'")
    assert caught.value.field == field


def test_a_minimum_above_the_maximum_is_refused_wherever_it_is_given() -> None:
    with pytest.raises(ValidationError, match="min_instances 3 is more than max_instances 1"):
        ResourceConfig(min_instances=3, max_instances=1)
    assert ResourceConfig(min_instances=3).max_instances == 3
    with pytest.raises(DefinitionError, match="min_instances 5 is more than max_instances 2"):
        ResourceConfig.of({"min": 5, "max": 2}, "agent 'a'")


# --- types ------------------------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    typed = Agent(name="a", system_prompt="p", llm_config=MODEL, state_schema=Notes, output_schema=Answer)
    assert_type(typed, Agent[Notes, Answer])
    half = Agent(name="a", system_prompt="p", llm_config=MODEL, output_schema=Answer)
    assert_type(half, Agent[Any, Answer])
    bare = Agent(name="a", system_prompt="p", llm_config=MODEL)
    assert_type(bare, Agent[Any, Any])
    assert_type(lookup, Tool[BaseModel])
    assert_type(
        define_tool(name="t", description="d", input_schema=Place, execute=lambda place, ctx: place.city), Tool[Place]
    )
    context_of_notes = create_tool_context(agent_id="s", agent_type="a", state_tracker=create_state_tracker(Notes()))
    assert_type(context_of_notes, ToolContext[Notes])
    assert_type(context_of_notes.get_state(), Notes)
