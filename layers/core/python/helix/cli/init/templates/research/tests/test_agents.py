"""Tests of the researcher with a scripted model. No provider is called, and no part of the engine is mocked."""

import asyncio

from agents import researcher

from helix import LocalExecutor, ScriptedModel


def test_a_reader_reads_before_the_researcher_reports():
    async def ask():
        reading = {"answer": "They form a cluster.", "pages": ["bees"]}
        report = {"summary": "Bees stay awake.", "sources": ["bees"]}
        script = [
            {"tool_calls": [{"name": "subagent__reader", "arguments": {"question": "What do bees do in winter?"}}]},
            {"tool_calls": [{"name": "search_library", "arguments": {"query": "bees in winter"}}]},
            {"tool_calls": [{"name": "__finish__", "arguments": reading}]},
            {"tool_calls": [{"name": "__finish__", "arguments": report}]},
        ]
        model = ScriptedModel(script)
        async with LocalExecutor(":memory:", model=model) as executor:
            handle = await executor.execute(researcher, "What happens to bees in winter?")
            return await handle.result(timeout_s=10), model

    result, model = asyncio.run(ask())
    assert result.status == "completed" and result.output.sources == ["bees"]
    assert "cluster around the queen" in model.requests[2].messages[-1].content
