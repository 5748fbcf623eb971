"""Tests of the assistant with a scripted model. No provider is called, and no part of the engine is mocked."""

import asyncio

from agents import assistant

from helix import LocalExecutor, ScriptedModel


def test_the_assistant_looks_it_up_before_it_answers():
    async def ask():
        call = {"name": "search_facts", "arguments": {"query": "when does it open"}}
        model = ScriptedModel([{"tool_calls": [call]}, "At nine."])
        async with LocalExecutor(":memory:", model=model) as executor:
            handle = await executor.execute(assistant, "When do you open?")
            return await handle.result(timeout_s=10), model

    result, model = asyncio.run(ask())
    assert (result.status, result.text) == ("completed", "At nine.")
    assert "nine" in model.requests[1].messages[-1].content
