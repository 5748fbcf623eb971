"""The provider's own prompt cache: the cached beginning of the prompt is the same, byte for byte, in every step and every
run."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from tests.support_litellm import (  # noqa: F401
    CLAUDE,
    TOOL_USE,
    Anthropic,
    anthropic,
    anthropic_events,
    text_block,
    thinking_block,
)
from tests.support_run import Text, World, a_tool, play

from helix import Agent, LiteLLMAdapter, LLMConfig
from helix.adapters.models.litellm import load_litellm

MARK = {"type": "ephemeral"}


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """Import litellm first. It takes seconds, for which no test's timeout is meant."""
    load_litellm()


class Add(Text):
    text: str = ""
    a: int = 0


def caching(sentence: str = "You add.") -> Agent[Any, Any]:
    """Return an agent with several tools and a long schema, built anew each time, as in another process."""
    add = a_tool("add", lambda arguments, _context: {"sum": arguments.a, "é": [1, 2]}, input_schema=Add)
    tools = [add, a_tool("zeta", lambda *_: "z"), a_tool("alpha", lambda *_: "a")]
    return Agent(name="adder", system_prompt=sentence, tools=tools, llm_config=LLMConfig(model=CLAUDE, cache=True))


def step(n: int) -> list[dict[str, Any]]:
    block, deltas = TOOL_USE
    return anthropic_events(
        thinking_block("sig", f"step {n}"), ({**block, "id": f"toolu_{n}"}, deltas), stop="tool_use"
    )


def bare(value: Any) -> Any:
    """Remove the cache marks. Their position moves, and is not part of the cached content."""
    if isinstance(value, dict):
        return {name: bare(item) for name, item in value.items() if name != "cache_control"}
    return [bare(item) for item in value] if isinstance(value, list) else value


def blocks(body: dict[str, Any]) -> list[bytes]:
    """Return the blocks that the provider's cache compares in order: tools, system prompt, messages."""
    found: list[Any] = [*body["tools"], *body["system"]]
    for message in body["messages"]:
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        found += [[message["role"], part] for part in parts]
    return [json.dumps(bare(block), ensure_ascii=False).encode() for block in found]


def marked(body: dict[str, Any]) -> list[int]:
    """Return the positions of the marks among the blocks."""
    found: list[Any] = [*body["tools"], *body["system"]]
    for message in body["messages"]:
        content = message["content"]
        found += [{}] if isinstance(content, str) else content
    return [n for n, block in enumerate(found) if block.get("cache_control") == MARK]


async def test_what_was_marked_is_the_beginning_of_the_next_call(
    quick_world: World,
    anthropic: Anthropic,  # noqa: F811
) -> None:
    """A run has four steps. Each call begins with everything that the previous call marked, and marks its own end."""
    server = anthropic(step(1), step(2), step(3), anthropic_events(text_block("6"), stop="end_turn"))
    _, result, _ = await play(quick_world.executor(LiteLLMAdapter()), caching(), "add")
    assert result.output == "6"
    bodies = [request.json for request in server.requests]
    assert len(bodies) == 4
    for before, after in pairwise(bodies):
        kept = blocks(before)[: marked(before)[-1] + 1]
        assert kept == blocks(before)  # up to its very end
        assert blocks(after)[: len(kept)] == kept
    ends = [len(blocks(body)) - 1 for body in bodies]
    for body, previous, end in zip(bodies, [None, *ends], ends, strict=False):
        tools, system = len(body["tools"]), len(body["system"])
        moving = [end] if previous is None else [previous, end]
        assert marked(body) == [tools - 1, tools + system - 1, *moving]


async def test_the_head_is_the_same_for_every_run(quick_world: World, anthropic: Anthropic) -> None:  # noqa: F811
    """The head is the tools, their order and the system prompt. It is the same in two sessions, with two definitions of the
    agent, and in a second turn."""
    done = anthropic_events(text_block("x"), stop="end_turn")
    server = anthropic(done, done, done)
    executor = quick_world.executor(LiteLLMAdapter())
    first, *_ = await play(executor, caching(), "one")
    await play(quick_world.executor(LiteLLMAdapter()), caching(), "two", user_id="ada")
    await play(executor, caching(), "three", session_id=first.session_id)
    bodies = [request.json for request in server.requests]
    head = marked(bodies[0])[1] + 1
    assert {tuple(blocks(body)[:head]) for body in bodies} == {tuple(blocks(bodies[0])[:head])}
    assert blocks(bodies[2])[: len(blocks(bodies[0]))] == blocks(bodies[0])  # the second turn begins with the first
    assert [tool["name"] for tool in bodies[0]["tools"]] == ["add", "zeta", "alpha"]


async def test_another_prompt_has_another_head(quick_world: World, anthropic: Anthropic) -> None:  # noqa: F811
    done = anthropic_events(text_block("x"), stop="end_turn")
    server = anthropic(done, done)
    for sentence in ("You add.", "You subtract."):
        await play(quick_world.executor(LiteLLMAdapter()), caching(sentence), "go")
    one, two = (blocks(request.json) for request in server.requests)
    assert one[:3] == two[:3] and one[3] != two[3]
