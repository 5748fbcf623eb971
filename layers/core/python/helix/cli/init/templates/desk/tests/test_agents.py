"""Tests of the desk agent with a scripted model. No provider is called, and no part of the engine is mocked."""

import asyncio

from agents import desk

from helix import LocalExecutor, ScriptedModel

ANSWER = {"summary": "Within 30 days.", "sources": ["returns"]}


def test_the_desk_looks_it_up_before_it_answers():
    async def ask():
        script = [
            {"tool_calls": [{"name": "search_handbook", "arguments": {"query": "return goods"}}]},
            {"tool_calls": [{"name": "__finish__", "arguments": ANSWER}]},
        ]
        model = ScriptedModel(script)
        async with LocalExecutor(":memory:", model=model) as executor:
            handle = await executor.execute(desk, "Can I return it?")
            return await handle.result(timeout_s=10), model

    result, model = asyncio.run(ask())
    assert result.status == "completed" and result.output.sources == ["returns"]
    assert "30 days" in model.requests[1].messages[-1].content


def test_a_refund_waits_for_a_person():
    async def ask():
        model = ScriptedModel([{"tool_calls": [{"name": "refund_order", "arguments": {"order": "A-17"}}]}])
        async with LocalExecutor(":memory:", model=model) as executor:
            handle = await executor.execute(desk, "Refund order A-17.")
            return await handle.result(timeout_s=10)

    assert asyncio.run(ask()).status == "paused"
