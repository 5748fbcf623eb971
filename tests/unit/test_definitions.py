"""Definitions: what a user writes becomes data, and what is wrong fails at once, naming the field."""

import asyncio
import enum
import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, assert_type

import pytest
from pydantic import BaseModel, Field

from helix.core.agents import Agent, define_agent
from helix.core.config import LLMConfig
from helix.core.context import ToolContext, create_tool_context
from helix.core.errors import AgentNotFoundError, DefinitionError, InvalidInputError
from helix.core.hooks import Hooks
from helix.core.registry import AgentFactoryContext, AgentRegistry, default_registry
from helix.core.resources import ResourceConfig
from helix.core.tools import (
    FINISH_TOOL_NAME,
    Tool,
    create_finish_tool,
    create_sub_agent_tool,
    define_tool,
    is_finish_tool,
    is_sub_agent_tool,
    tool,
)
from helix.core.tracker import create_state_tracker

MODEL = LLMConfig(model="openai/gpt-4o-mini")


class Notes(BaseModel):
    looked_up: list[str] = []


class Answer(BaseModel):
    summary: str
    sources: list[str] = []


class Place(BaseModel):
    city: str
    zip: str = ""


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@tool
async def lookup(topic: str, ctx: ToolContext[Notes]) -> str:
    """Look a topic up."""
    ctx.update_state(lambda notes: notes.looked_up.append(topic))
    return f"{topic}: known"


def agent(**changes: Any) -> Agent[Any, Any]:
    return Agent(**{"name": "researcher", "system_prompt": "Look up.", "llm_config": MODEL, **changes})


def run(tool: Tool[Any], context: ToolContext[Any] | None = None, **arguments: Any) -> Any:
    assert tool.execute is not None
    context = context or create_tool_context(agent_id="ses_1", agent_type="researcher")
    result = tool.execute(tool.input_schema.model_validate(arguments), context)
    return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result


async def _awaited(value: Any) -> Any:
    return await value


# --- tools ------------------------------------------------------------------------------------------------------------


def test_schema_comes_from_the_signature_and_description_from_the_docstring() -> None:
    @tool
    def find(
        query: Annotated[str, Field(description="What to look for.", min_length=2)],
        colour: Colour,
        place: Place | None = None,
        limit: int = Field(default=5, ge=1, description="At most so many."),
        mode: Literal["fast", "slow"] = "fast",
        tags: list[str] = [],  # noqa: B006
    ) -> str:
        """Find things.

        In detail.
        """
        return query

    schema: Any = find.parameters
    assert find.description == "Find things.\n\nIn detail."
    assert schema["required"] == ["query", "colour"]
    assert schema["properties"]["query"] == {"type": "string", "description": "What to look for.", "minLength": 2}
    assert schema["properties"]["limit"]["description"] == "At most so many."
    assert schema["properties"]["mode"]["enum"] == ["fast", "slow"]
    assert schema["$defs"]["Colour"]["enum"] == ["red", "blue"]
    assert schema["additionalProperties"] is False
    assert "title" not in str(schema)


def test_arguments_arrive_as_declared_types() -> None:
    @tool
    def describe(place: Place, colour: Colour, limit: int = 3, *, note: str | None = None) -> str:
        """Describe."""
        return f"{place.city} {colour.name} {limit} {note}"

    assert run(describe, place={"city": "Bern"}, colour="blue") == "Bern BLUE 3 None"
    assert run(describe, place={"city": "Bern"}, colour="red", limit=1, note="x") == "Bern RED 1 x"


@pytest.mark.parametrize("position", ["first", "last", "optional", "annotated", "keyword"])
def test_the_context_is_found_anywhere_and_hidden(position: str) -> None:
    def first(ctx: ToolContext, x: int) -> str:
        return ctx.tool_call_id

    def last(x: int, ctx: ToolContext[Notes]) -> str:
        return ctx.tool_call_id

    def optional(x: int, ctx: ToolContext[Notes] | None = None) -> str:
        assert ctx is not None
        return ctx.tool_call_id

    def annotated(x: int, ctx: Annotated[ToolContext[Notes], "the context"]) -> str:
        return ctx.tool_call_id

    def keyword(x: int, *, ctx: ToolContext[Notes]) -> str:
        return ctx.tool_call_id

    made = tool(description="d")(locals()[position])
    assert list(made.parameters["properties"]) == ["x"]  # type: ignore[arg-type]
    assert run(made, x=1) == "call_test"


def test_context_changes_state() -> None:
    tracker = create_state_tracker({}, schema=Notes)
    context = create_tool_context(agent_id="ses_1", agent_type="researcher", state_tracker=tracker)
    assert run(lookup, context, topic="helix") == "helix: known"
    assert tracker.get_state().looked_up == ["helix"]
    assert tracker.get_patches()


def test_postponed_annotations_and_local_classes() -> None:
    class Local(BaseModel):
        n: int

    def twice(local: "Local", ctx: "ToolContext[Notes]") -> "int":
        """Twice."""
        return local.n * 2

    assert run(tool(twice), local={"n": 4}) == 8

    @tool(name="again")
    def decorated(local: "Local") -> "int":
        """Again."""
        return local.n

    assert run(decorated, local={"n": 4}) == 4


def test_names_that_pydantic_reserves() -> None:
    @tool
    def convert(json: str, copy: bool, schema: int, model_dump: str, _private: str, register: str = "r") -> str:
        """Convert."""
        return f"{json} {copy} {schema} {model_dump} {_private} {register}"

    properties: Any = convert.parameters["properties"]
    assert list(properties) == ["json", "copy", "schema", "model_dump", "_private", "register"]
    assert run(convert, json="{}", copy=True, schema=1, model_dump="m", _private="p") == "{} True 1 m p r"


def test_methods_partials_wrappers_and_callable_objects() -> None:
    class Shop:
        stock = 3

        def sell(self, count: int) -> int:
            """Sell."""
            return self.stock - count

        async def __call__(self, count: int) -> int:
            return self.stock * count

    def greet(name: str, greeting: str) -> str:
        """Greet."""
        return f"{greeting} {name}"

    def traced(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @tool
    @traced
    async def wrapped(count: int) -> int:
        """Wrapped."""
        return count

    assert run(tool(Shop().sell), count=1) == 2
    assert run(tool(name="shop", description="d")(Shop()), count=2) == 6
    bound = tool(name="greet", description="d")(functools.partial(greet, greeting="hello"))
    assert list(bound.parameters["properties"]) == ["name"]  # type: ignore[arg-type]
    assert run(bound, name="you") == "hello you"
    assert run(wrapped, count=5) == 5


def test_a_tool_can_be_called_like_its_function() -> None:
    @tool
    def double(n: int) -> int:
        """Double."""
        return 2 * n

    assert double(4) == 8
    with pytest.raises(TypeError, match="not made from a function"):
        create_finish_tool(Answer)(1)


def test_one_decorator_for_several_functions() -> None:
    quick = tool(timeout_s=1, description="d")

    def one(x: int) -> Answer:
        return Answer(summary=str(x))

    def two(x: int) -> str:
        return str(x)

    made = [quick(one), quick(two)]
    assert [t.name for t in made] == ["one", "two"]
    assert [t.output_schema for t in made] == [Answer, None]
    assert [t.timeout_s for t in made] == [1, 1]


def test_values_given_as_data_are_not_stripped_of_titles() -> None:
    class Doc(BaseModel):
        title: str
        shape: dict[str, str] = {"title": "kept"}

    @tool
    def write(doc: Doc) -> str:
        """Write."""
        return doc.title

    schema: Any = write.parameters
    assert schema["$defs"]["Doc"]["properties"]["title"] == {"type": "string"}
    assert schema["$defs"]["Doc"]["properties"]["shape"]["default"] == {"title": "kept"}


def test_client_finish_and_sub_agent_tools() -> None:
    client = define_tool(name="ask_user", description="Ask.", input_schema=Place, execute="client")
    assert (client.kind, client.execute) == ("client", None)
    finish = create_finish_tool(Answer)
    assert is_finish_tool(finish.name) and finish.name == FINISH_TOOL_NAME
    child = create_sub_agent_tool(agent(output_schema=Answer, description="Researches."))
    assert is_sub_agent_tool(child.name) and child.name == "subagent__researcher"
    assert child.description == "Researches."
    assert list(child.parameters["properties"]) == ["message"]  # type: ignore[arg-type]
    assert create_sub_agent_tool(agent(output_schema=Answer), Place, description="d").input_schema is Place


def plain(x: int) -> str:
    """Plain."""
    return str(x)


async def plain_async(x: Any) -> bool:
    return bool(x)


def unannotated(x, y: int) -> str:  # type: ignore[no-untyped-def]
    """Unannotated."""
    return str(x)


def variadic(*things: str) -> str:
    """Variadic."""
    return ""


def positional(x: int, /) -> str:
    """Positional."""
    return ""


def impossible(x: int, lock: Callable[[int], int]) -> str:
    """A function is no JSON."""
    return ""


def two_contexts(a: ToolContext, b: ToolContext) -> str:
    """Two."""
    return ""


def unknown_type(x: "Nowhere") -> str:  # type: ignore[name-defined]  # noqa: F821
    """Unknown."""
    return ""


def undocumented(x: int) -> str:
    return str(x)


def yielding(x: int) -> Any:
    """Yields."""
    yield x


class Methods:
    def method(self, x: int) -> str:
        """Unbound."""
        return ""


@pytest.mark.parametrize(
    ("function", "options", "field"),
    [
        (plain, {"name": "no spaces"}, "name"),
        (plain, {"name": "x" * 65}, "name"),
        (plain, {"name": "newline\n"}, "name"),
        (plain, {"name": "__finish__"}, "name"),
        (plain, {"name": "subagent__x"}, "name"),
        (functools.partial(plain), {}, "name"),
        (undocumented, {}, "description"),
        (plain, {"description": 3}, "description"),
        (plain, {"output_schema": dict}, "output_schema"),
        (plain, {"timeout_s": 0}, "timeout_s"),
        (plain, {"timeout_s": "60"}, "timeout_s"),
        (plain, {"timeout_s": None}, "timeout_s"),
        (plain, {"timeout_s": float("nan")}, "timeout_s"),
        (plain, {"on_unknown": "never"}, "on_unknown"),
        (plain, {"retries": -1}, "retries"),
        (plain, {"retries": True}, "retries"),
        (plain, {"retries": 1.5}, "retries"),
        (plain, {"require_approval": "yes"}, "require_approval"),
        (plain, {"require_approval": plain_async}, "require_approval"),
        (plain, {"finish_with": "yes"}, "finish_with"),
        (plain, {"timeout": 3}, "timeout"),
        (unannotated, {}, "x"),
        (variadic, {}, "things"),
        (positional, {}, "x"),
        (impossible, {}, "lock"),
        (two_contexts, {}, "b"),
        (unknown_type, {}, "signature"),
        (yielding, {}, "function"),
        (Methods.method, {}, "self"),
        ("text", {}, "function"),
        (Place, {}, "function"),
        (lookup, {}, "function"),
    ],
)
def test_a_wrong_tool_names_the_field(function: Any, options: dict[str, Any], field: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        tool(**options)(function)
    assert caught.value.field == field
    assert field in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"input_schema": dict}, "input_schema"),
        ({"execute": "server"}, "execute"),
        ({"execute": None}, "execute"),
        ({"execute": "client", "require_approval": True}, "require_approval"),
    ],
)
def test_a_wrong_define_tool_names_the_field(changes: dict[str, Any], field: str) -> None:
    parts: dict[str, Any] = {"name": "t", "description": "d", "input_schema": Place, "execute": plain}
    with pytest.raises(DefinitionError) as caught:
        define_tool(**{**parts, **changes})
    assert caught.value.field == field


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
    with pytest.raises(DefinitionError, match="prompt: no such field; there are name, system_prompt"):
        define_agent(name="a", prompt="p")
    with pytest.raises(DefinitionError, match="name: is missing"):
        define_agent(system_prompt="p")


def test_an_agent_in_a_list_of_tools_is_told_what_to_do() -> None:
    with pytest.raises(DefinitionError, match="wrap it in create_sub_agent_tool"):
        agent(tools=[agent(name="child", output_schema=Answer)])


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
    with pytest.raises(DefinitionError, match="output_schema"):
        create_sub_agent_tool(agent())
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


def test_context_refuses_what_a_stream_cannot_carry() -> None:
    context = create_tool_context(agent_id="ses_1", agent_type="a")
    for name, data in (("", 1), ("big", "x" * 100_001), ("odd", float("nan"))):
        with pytest.raises(InvalidInputError):
            context.emit(name, data)
    assert context.agent_id == context.session_id == "ses_1"


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


# --- registry ---------------------------------------------------------------------------------------------------------


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
