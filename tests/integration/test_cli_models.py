"""The models of the command line: a provider's traffic (litellm, HTTP and SSE on loopback), and the demonstration model."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.command_line import CommandLine

from helix.testing.openai_server import HttpFailure, ModelAnswer, ModelToolCall, OpenAIServer, ReactiveModel


@pytest.mark.slow  # each process imports litellm
@pytest.mark.timeout(300)
def test_a_failure_a_retry_a_sub_agent_and_an_approval_over_http(tmp_path: Path) -> None:
    script: list[ModelAnswer | HttpFailure | str | ReactiveModel] = [
        HttpFailure(status=401, message="no such key"),
        ModelAnswer(
            text="I hand it on.", tool_calls=[ModelToolCall("subagent__desk", {"task": "refund B2"}, id="boss_1")]
        ),
        ModelAnswer(reasoning="Money.", tool_calls=[ModelToolCall("refund_order", {"order": "B2"}, id="desk_1")]),
        ModelAnswer(tool_calls=[ModelToolCall("__finish__", {"summary": "B2 is refunded"}, id="desk_2")]),
        ModelAnswer(text="All done."),
    ]
    with OpenAIServer(script) as server:
        helix = CommandLine(tmp_path, **server.environment())
        failed = helix.process("run", "agents.py:boss", "Refund B2", "--session", "b", "--json")
        assert (failed.code, failed.result["status"]) == (3, "failed"), failed
        assert "set the provider's API key" in failed.result["error"] and "no such key" not in failed.result["error"]

        asked = helix.process("retry", "agents.py:boss", "b", "--model", "openai/gpt-4.1", "--json")
        assert (asked.code, asked.result["status"]) == (4, "paused"), asked

        done = helix.process("resume", "agents.py:boss", "b", "--approve", "desk_1", "--model", "openai/gpt-4.1")
        assert done.code == 0, done
    text = "".join(c["delta"] for c in asked.chunks if c["type"] == "text_delta" and c["agent_type"] == "boss")
    assert text == "I hand it on."
    assert "Money." in [c["content"] for c in asked.chunks if c["type"] == "thinking" and c["is_complete"]]
    usages = [c["usage"] for c in asked.chunks if c["type"] == "step_committed"]
    assert [(usage["prompt_tokens"], usage["priced"]) for usage in usages] == [(10, True)] * 2
    seen = [
        "boss · openai/gpt-4.1 · helix.db",
        "← refunded B2",
        '← desk completed: {summary: "B2 is refunded"}',
        "All done.",
    ]
    assert [words for words in seen if words not in done.out] == []
    assert "--model openai/gpt-4.1" in done.out  # the printed commands for the next step name the same model
    assert "demonstration" not in failed.err + asked.err + done.out
    assert [request.json["model"] for request in server.requests] == ["gpt-4o-mini", *["gpt-4.1"] * 4]


def test_the_demonstration_model_says_what_it_is_and_why_it_plays(tmp_path: Path) -> None:
    helix = CommandLine(tmp_path)
    done = helix("run", "agents.py:talker", "Hello there")
    assert "The demonstration model plays, because OPENAI_API_KEY is not set" in done.out
    asked_for = helix("run", "agents.py:talker", "Hello there", "--model", "demo", environment={"OPENAI_API_KEY": "x"})
    assert asked_for.code == 0
    assert "you asked for it" in asked_for.out
    in_json = helix("run", "agents.py:talker", "Hello there", "--json")
    assert "demonstration" in in_json.err
