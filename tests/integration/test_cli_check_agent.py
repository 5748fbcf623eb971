"""`helix check AGENT`: which tools are strict, why the others are not, and settings that a model refuses."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.command_line import CommandLine

SHOP = '''
from typing import Any
from pydantic import BaseModel
from helix import Agent, LLMConfig, create_sub_agent_tool, tool

class Answer(BaseModel):
    text: str

class Task(BaseModel):
    task: str

@tool
async def refund(order: str) -> str:
    """Refund an order."""
    return order

@tool
async def search(filters: dict[str, Any]) -> str:
    """Search."""
    return "none"

@tool(strict=False)
async def look() -> str:
    """Look."""
    return "seen"

nova = Agent(name="nova", system_prompt="Help.", tools=[refund], model="bedrock/us.amazon.nova-pro-v1:0")
desk = Agent(name="desk", system_prompt="Help.", output_schema=Answer, model="openai/gpt-4o-mini",
             tools=[refund, search, look, create_sub_agent_tool(nova, Task, description="Ask.")])
wrong = Agent(name="wrong", system_prompt="Help.", tools=[refund],
              llm_config=LLMConfig(model="openai/o3", parallel_tool_calls=False))
'''


def test_it_prints_for_each_tool_whether_it_is_strict_and_why_not(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    helix = CommandLine(tmp_path)
    done = helix("check", "shop.py:desk")
    assert done.code == 0, done
    assert [line.strip() for line in done.out.splitlines()] == [
        "desk · openai/gpt-4o-mini",
        "strict      refund",
        "not strict  search: its schema is not closed: 'filters' may have any properties",
        "not strict  look: strict=False",
        "strict      subagent__nova",
        "strict      __finish__",
        "nova · bedrock/us.amazon.nova-pro-v1:0",
        "not strict  refund: the model does not constrain arguments, or Helix does not know that it does",
    ]
    first = json.loads(helix("check", "shop.py:desk", "--json").out.splitlines()[0])
    assert first == {"agent": "desk", "model": "openai/gpt-4o-mini", "tool": "refund", "strict": True, "reason": ""}


def test_a_setting_that_the_model_refuses_fails(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    done = CommandLine(tmp_path)("check", "shop.py:wrong")
    assert done.code != 0
    assert (
        "agent 'wrong': llm_config: parallel_tool_calls: 'openai/o3' does not support this setting: leave it out"
        in done.err
    )
