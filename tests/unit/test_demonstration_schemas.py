"""The demonstration model with any schema: outputs and calls are valid, and every run ends."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from tests.support_demonstration import Answer, Hit, Run, agent, read_page, search_pages

from helix.core.tools import tool


class Node(BaseModel):
    name: str
    children: list["Node"] = []


class Odd(BaseModel):
    node: Node
    either: int | str
    maybe: Answer | None
    pair: tuple[int, str]
    mapping: dict[str, int]
    level: Literal[1, 2, 3]
    flag: bool
    day: Annotated[str, Field(json_schema_extra={"format": "date"})]
    short: Annotated[str, Field(max_length=5)]
    padded: Annotated[str, Field(min_length=40)]
    many: Annotated[list[Hit], Field(min_length=2)]
    rating: Annotated[int, Field(ge=1, le=5)]
    ratio: Annotated[float, Field(gt=0, lt=1)]


@pytest.mark.parametrize("question", ["When does a lease lapse?", "nothing known", "7"])
async def test_odd_output_schemas_are_filled_validly(question: str) -> None:
    made = await Run(agent(tools=[search_pages, read_page], output_schema=Odd)).ask(question)
    assert isinstance(made, Odd) and len(made.many) >= 2


NAMES = st.sampled_from(
    ["search", "read_file", "get_user", "note", "delete_all", "lookup", "calculate", "listThings", "ask", "x1"]
)
TYPES: dict[str, Any] = {"str": str, "int": int, "float": float, "bool": bool, "list": list[str], "model": Hit}


def offered(name: str, types: Sequence[str], result: Any) -> Any:
    def function(**values: Any) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    parameters = [
        inspect.Parameter(f"p{i}_{kind}", inspect.Parameter.KEYWORD_ONLY, annotation=TYPES[kind])
        for i, kind in enumerate(types)
    ]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in parameters}
    return tool(name=name, description=f"{name} about leases")(function)


RESULTS: st.SearchStrategy[Any] = st.one_of(
    st.just(OSError("down")),
    st.text(max_size=200),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=60),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["path", "text", "id", "x"]), inner)
        ),
        max_leaves=8,
    ),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(NAMES, st.lists(st.sampled_from(sorted(TYPES)), max_size=3), RESULTS),
        max_size=5,
        unique_by=lambda t: t[0],
    ),
    st.text(max_size=80),
    st.booleans(),
)
def test_it_always_ends_with_valid_calls(
    tools: list[tuple[str, list[str], Any]], question: str, structured: bool
) -> None:
    made = agent(tools=[offered(*t) for t in tools], output_schema=Answer if structured else None)
    run = Run(made)
    execute: Callable[..., Any] = run.execute

    async def checked(name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        found = made.find_tool(name)
        assert found is not None
        found.input_schema.model_validate(arguments)
        return await execute(name, arguments)

    run.execute = checked  # type: ignore[method-assign]
    asyncio.run(run.ask(f"lease {question}"))
    for name in {name for name, _ in run.called}:
        assert sum(name == called for called, _ in run.called) <= 2
