"""The registry returns agents by name, and each name is registered once."""

import pytest
from pydantic import BaseModel
from tests.support_definitions import agent, lookup

from helix import create_sub_agent_tool
from helix.core.errors import AgentNotFoundError, DefinitionError
from helix.core.registry import AgentFactoryContext, AgentRegistry, default_registry


class Found(BaseModel):
    place: str


def test_registry_resolves_by_name() -> None:
    registry = AgentRegistry()
    made = agent()
    registry.register(made)
    registry.register_factory("custom", lambda context: agent(name="custom", description=context.user_id or "nobody"))
    assert registry.resolve("researcher") is made and registry.get("researcher") is made
    assert registry.resolve("custom").description == "nobody"
    assert registry.resolve("custom", AgentFactoryContext(user_id="u1")).description == "u1"
    assert registry.get("custom") is None and registry.has("custom")
    assert registry.registered_types() == ["custom", "researcher"]
    with pytest.raises(
        AgentNotFoundError, match="no agent 'x' is registered in this process; registered: custom, rese"
    ):
        registry.resolve("x")


def test_the_first_agent_is_none_that_another_one_uses() -> None:
    registry = AgentRegistry()
    assert registry.first_root() is None
    below = agent(name="below", output_schema=Found)
    registry.register(below)
    assert registry.first_root() == "below"
    registry.register_factory("made", lambda _: pytest.fail("a list calls no factory"))
    registry.register(agent(name="middle", tools=[create_sub_agent_tool(below)]))
    registry.register(agent(name="desk", handoffs=[registry.resolve("middle")]))
    assert registry.first_root() == "desk", "the first one registered that no other agent uses, whatever its name"
    registry.unregister("desk")
    assert registry.first_root() == "middle"


def test_agents_of_a_factory_are_known_as_such() -> None:
    registry = AgentRegistry()
    registry.register(agent())
    below = agent(name="below", output_schema=Found)
    registry.register_factory("custom", lambda _: agent(name="custom", tools=[create_sub_agent_tool(below)]))
    assert not below.made_by_factory
    assert registry.resolve("custom").made_by_factory and below.made_by_factory
    assert not registry.resolve("researcher").made_by_factory


def test_registry_names_are_given_once() -> None:
    registry = AgentRegistry()
    registry.register(agent())
    with pytest.raises(DefinitionError, match="name: is registered already"):
        registry.register(agent())
    with pytest.raises(DefinitionError, match="name: is registered already"):
        registry.register_factory("researcher", lambda _: agent())
    other = agent(description="other")
    registry.replace(other)
    assert registry.resolve("researcher") is other
    assert registry.unregister("researcher") and not registry.unregister("researcher")
    registry.register(other)
    registry.clear()
    assert registry.registered_types() == []
    with pytest.raises(AgentNotFoundError, match="registered: none"):
        registry.resolve("researcher")


def test_registry_refuses_what_is_no_agent() -> None:
    registry = AgentRegistry()
    with pytest.raises(DefinitionError, match=r"agent: .* is not an Agent"):
        registry.register(lookup)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="factory: must be a function"):
        registry.register_factory("f", 3)  # type: ignore[arg-type]
    registry.register_factory("f", lambda _: agent(name="other"))
    with pytest.raises(DefinitionError, match="factory: must return an agent of that name"):
        registry.resolve("f")
    assert isinstance(default_registry, AgentRegistry)
