"""The command line with a real provider's traffic: litellm, HTTP and SSE against a server on loopback."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.command_line import CommandLine

from helix.testing.openai_server import HttpFailure, ModelAnswer, ModelToolCall, OpenAIServer

pytestmark = pytest.mark.slow


def test_a_run_with_tools_a_sub_agent_and_an_approval_over_http(tmp_path: Path) -> None:
    script = [
        ModelAnswer(
            text="I hand it on.", tool_calls=[ModelToolCall("subagent__desk", {"task": "refund B2"}, id="boss_1")]
        ),
        ModelAnswer(reasoning="Money.", tool_calls=[ModelToolCall("refund_order", {"order": "B2"}, id="desk_1")]),
        ModelAnswer(tool_calls=[ModelToolCall("__finish__", {"summary": "B2 is refunded"}, id="desk_2")]),
        ModelAnswer(text="All done."),
    ]
    with OpenAIServer(script) as server:
        helix = CommandLine(tmp_path, **server.environment())
        asked = helix.process("run", "agents.py:boss", "Refund B2", "--session", "b", "--json")
        assert (asked.code, asked.result["status"]) == (4, "paused"), asked
        done = helix.process("resume", "agents.py:boss", "b", "--approve", "desk_1", "--json")
        assert (done.code, done.result["output"]) == (0, "All done."), done
    assert "demonstration" not in asked.err + done.err
    text = "".join(c["delta"] for c in asked.chunks if c["type"] == "text_delta" and c["agent_type"] == "boss")
    assert text == "I hand it on."
    assert "Money." in [c["content"] for c in asked.chunks if c["type"] == "thinking" and c["is_complete"]]
    told = [c["result"] for c in done.chunks if c["type"] == "tool_end"]
    assert told == ["refunded B2", {"summary": "B2 is refunded"}]
    usages = [c["usage"] for c in asked.chunks if c["type"] == "step_committed"]
    assert [(usage["prompt_tokens"], usage["priced"]) for usage in usages] == [(10, True)] * 2
    assert [request.json["model"] for request in server.requests] == ["gpt-4o-mini"] * 4


def test_another_model_for_all_agents_and_a_provider_that_fails(tmp_path: Path) -> None:
    with OpenAIServer([HttpFailure(status=401, message="no such key"), "Good morning."]) as server:
        helix = CommandLine(tmp_path, **server.environment())
        arguments = ["agents.py:talker", "Hello there", "--session", "t", "--model", "openai/gpt-4.1", "--json"]
        failed = helix.process("run", *arguments)
        assert failed.code == 3, failed
        assert "no such key" in failed.result["error"]
        done = helix.process("retry", "agents.py:talker", "t", "--model", "openai/gpt-4.1")
        assert done.code == 0, done
    assert "talker · openai/gpt-4.1 · helix.db" in done.out
    assert "Good morning." in done.out
    assert "--model openai/gpt-4.1" in done.out  # the commands to go on with name the same model
    assert [request.json["model"] for request in server.requests] == ["gpt-4.1"] * 2
