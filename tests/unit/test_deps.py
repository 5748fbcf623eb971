"""The declaration of dependencies, and their types. What mypy infers is checked with the rest of the tests."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, assert_type

import pytest
from pydantic import BaseModel
from tests.support_run import agent

from helix import DefinitionError, DependencyError, ToolContext, create_tool_context, define_agent, tool


class Notes(BaseModel):
    lines: list[str] = []


class Pool:
    def size(self) -> int:
        return 3


@tool
async def count(ctx: ToolContext[Notes, Pool]) -> int:
    """Count."""
    assert_type(ctx.deps, Pool)
    assert_type(ctx.get_state(), Notes)
    return ctx.deps.size()


@tool
async def note(text: str, ctx: ToolContext[Notes]) -> int:
    """Note."""
    assert_type(ctx.deps, Any)
    return 1


@tool
async def plain(text: str) -> str:
    """Repeat."""
    return text


def test_the_context_is_hidden_from_the_model_with_any_types() -> None:
    assert (count.parameters["properties"], note.parameters["required"]) == ({}, ["text"])
    assert [made.uses_deps for made in (count, note, plain)] == [True, True, False]


async def test_a_unit_test_passes_dependencies_to_a_tool() -> None:
    assert await count(create_tool_context(agent_id="s", agent_type="desk", deps=Pool())) == 3
    with pytest.raises(DependencyError, match="agent 'desk' has no dependencies") as caught:
        await count(create_tool_context(agent_id="s", agent_type="desk"))
    assert caught.value.code == "dependency_failed"


async def test_none_is_a_value_like_any_other() -> None:
    assert create_tool_context(agent_id="s", agent_type="desk", deps=None).deps is None


@asynccontextmanager
async def entered() -> AsyncIterator[Pool]:
    yield Pool()


async def awaited() -> Pool:
    return Pool()


def with_defaults(size: int = 3, *more: int, **options: int) -> Pool:
    return Pool()


def needs(dsn: str) -> Pool:
    return Pool()


def needs_secret(secret: Callable[[str], str], size: int = 3) -> Pool:
    return Pool()


@contextmanager
def synchronous() -> Iterator[Pool]:
    yield Pool()


async def undecorated() -> AsyncIterator[Pool]:
    yield Pool()


@pytest.mark.parametrize(
    "deps", [Pool, entered, awaited, with_defaults, needs_secret, functools.partial(needs, "db"), dict, None]
)
def test_a_function_that_needs_no_arguments_but_secret_is_accepted(deps: Any) -> None:
    assert agent(deps=deps).deps is deps
    assert define_agent(name="a", system_prompt="A.", model="x/y", deps=deps).deps is deps


@pytest.mark.parametrize(
    ("deps", "problem"),
    [
        (Pool(), "not the dependencies themselves"),
        (needs, "requires 'dsn'"),
        (synchronous, "@asynccontextmanager"),
        (undecorated, "@asynccontextmanager"),
    ],
)
def test_anything_else_is_refused_with_its_field(deps: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem) as caught:
        agent(deps=deps)
    assert (caught.value.owner, caught.value.field) == ("agent 'helper'", "deps")


def test_dependencies_do_not_change_the_fingerprint() -> None:
    assert agent(deps=Pool).fingerprint() == agent(deps=entered).fingerprint() == agent().fingerprint()


def test_only_declared_dependencies_can_be_overridden() -> None:
    with pytest.raises(DefinitionError, match="deps: is not declared"), agent().override(deps=Pool()):
        pass
