"""Definitions of tools: a function becomes a tool, and a mistake fails at once and names the field."""

import asyncio
import dataclasses
import enum
import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from tests.support_definitions import Answer, Notes, Place, agent, lookup, plain, plain_async

from helix.core.context import ToolContext, create_tool_context
from helix.core.errors import DefinitionError, InvalidInputError
from helix.core.tools import (
    FINISH_TOOL_NAME,
    Tool,
    ToolOptions,
    create_finish_tool,
    create_sub_agent_tool,
    define_tool,
    is_finish_tool,
    is_sub_agent_tool,
    tool,
)
from helix.core.tracker import create_state_tracker

GUIDE = Path(__file__).parents[2] / "docs/guide/tools.md"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


def run(tool: Tool[Any], context: ToolContext[Any] | None = None, **arguments: Any) -> Any:
    assert tool.execute is not None
    context = context or create_tool_context(agent_id="ses_1", agent_type="researcher")
    result = tool.execute(tool.input_schema.model_validate(arguments), context)
    return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result


async def _awaited(value: Any) -> Any:
    return await value


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
        (plain, {"retry_timeouts": True}, "retry_timeouts"),
        (plain, {"retry_timeouts": True, "retries": 1, "on_unknown": "ask"}, "retry_timeouts"),
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


def test_context_refuses_what_a_stream_cannot_carry() -> None:
    context = create_tool_context(agent_id="ses_1", agent_type="a")
    for name, data in (("", 1), ("big", "x" * 100_001), ("odd", float("nan"))):
        with pytest.raises(InvalidInputError):
            context.emit(name, data)
    assert context.agent_id == context.session_id == "ses_1"


def test_every_option_can_be_given_is_checked_and_is_in_the_guide() -> None:
    own = {"name", "description", "input_schema", "execute", "kind", "agent", "hands_to", "function", "parameters"}
    own |= {"uses_deps"}
    options = {field.name for field in dataclasses.fields(Tool)} - own
    assert set(ToolOptions.__annotations__) == options
    section = GUIDE.read_text("utf-8").partition("## Options\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == options
    for option in options:
        wrong: dict[str, Any] = {option: object()}
        with pytest.raises(DefinitionError) as caught:
            tool(**wrong)(plain)
        assert caught.value.field == option
