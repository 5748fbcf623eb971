"""Sessions in which several models think. Each model is sent only its own reasoning, and no session is refused forever.

The servers refuse what the providers refuse: another model's signature, a turn of calls that does not begin with thinking,
and another model's encrypted reasoning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.support.model_dialects import ANTHROPIC, DialectServer, Entry, Fails, Says
from tests.support.responses_dialect import RESPONSES

from helix import Agent, LLMConfig, LocalExecutor, tool
from helix.services import model_limits
from helix.testing.loopback_server import RecordedRequest

SONNET, OPUS, GPT = "anthropic/claude-sonnet-4-5", "anthropic/claude-opus-4-5", "openai/gpt-5.6"
THINKING = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
DOWN = Fails(500, "api_error", "InternalServerException")


@tool
async def look(topic: str) -> str:
    """Look something up."""
    return f"all about {topic}"


def thinks(model: str, *, calls: bool = False, text: str = "Done.") -> Says:
    """Return an answer with reasoning that only `model` can read."""
    sealed = f"{model.partition('/')[2]}:sealed"
    asked = (("call_1", "look", '{"topic": "rain"}'),) if calls else ()
    return Says(text, thoughts=(("hm", sealed),), calls=asked, stop="tool_use" if calls else "end_turn")


def foreign(body: dict[str, Any], sealed: str) -> bool:
    return not sealed.startswith(f"{body['model']}:")


def refuses_anthropic(request: RecordedRequest) -> Fails | None:
    body = request.json
    turn: list[dict[str, Any]] = []
    for number, message in enumerate(body["messages"]):
        blocks = message["content"]
        if message["role"] == "assistant":
            turn.append(blocks[0])
        elif any(block["type"] != "tool_result" for block in blocks):
            turn = []
        for place, block in enumerate(blocks):
            if block["type"] == "thinking" and foreign(body, block["signature"]):
                return _refused(f"messages.{number}.content.{place}: Invalid `signature` in `thinking` block")
    if "thinking" in body and turn and turn[0]["type"] != "thinking":
        found = turn[0]["type"]
        return _refused(f"messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{found}`.")
    return ANTHROPIC.refuses(request)


def refuses_responses(request: RecordedRequest) -> Fails | None:
    for item in request.json["input"]:
        if item.get("type") == "reasoning" and foreign(request.json, item["encrypted_content"]):
            return _refused(f"The encrypted content for item {item['id']} could not be verified.")
    return RESPONSES.refuses(request)


def _refused(message: str) -> Fails:
    return Fails(400, "invalid_request_error", "", message)


class Providers:
    """Providers whose models `claude` and `gpt` play their scripts."""

    def __init__(self, claude: list[Entry], gpt: list[Entry]) -> None:
        self.claude = DialectServer(replace(ANTHROPIC, refuses=refuses_anthropic), claude)
        self.gpt = DialectServer(replace(RESPONSES, refuses=refuses_responses), gpt)


Start = Callable[..., Providers]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    made: list[Providers] = []

    def begin(*, claude: list[Entry] | None = None, gpt: list[Entry] | None = None) -> Providers:
        providers = Providers(claude or [], gpt or [])
        made.append(providers)
        monkeypatch.delenv("ANTHROPIC_API_BASE", raising=False)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", providers.claude.start().origin)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{providers.gpt.start().origin}/v1")
        for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
            monkeypatch.setenv(name, "test")
        return providers

    yield begin
    for providers in made:
        providers.claude.stop()
        providers.gpt.stop()


def agent(model: str, *fallbacks: str) -> Agent:
    config = LLMConfig(
        model=model, fallbacks=list(fallbacks), max_retries=0, api="responses", provider_options=THINKING
    )
    return Agent(name="thinker", system_prompt="Think.", llm_config=config, tools=[look])


async def answers(executor: LocalExecutor, agent: Agent, *texts: str, session_id: str = "s") -> list[str | None]:
    given = []
    for text in texts:
        result = await (await executor.execute(agent, text, session_id=session_id)).result()
        assert result.status == "completed", result.error
        given.append(result.text)
    return given


def sealed(server: DialectServer) -> list[list[str]]:
    """Return the reasoning that was sent with each request."""
    return [_sealed(request.json) for request in server.requests]


def _sealed(body: dict[str, Any]) -> list[str]:
    if "input" in body:
        return [item["encrypted_content"] for item in body["input"] if item.get("type") == "reasoning"]
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [block["signature"] for block in blocks if block["type"] == "thinking"]


async def test_own_reasoning_goes_back_with_the_results_of_its_calls(start: Start) -> None:
    providers = start(gpt=[thinks(GPT, calls=True), thinks(GPT), thinks(GPT)])
    async with LocalExecutor(":memory:") as executor:
        assert await answers(executor, agent(GPT), "Rain?", "Sure?") == ["Done.", "Done."]
    assert [len(found) for found in sealed(providers.gpt)] == [0, 1, 2]
    items = providers.gpt.requests[1].json["input"]
    assert [item.get("type") or item["role"] for item in items] == [
        *("user", "reasoning", "assistant", "function_call", "function_call_output")
    ]
    assert items[2] == {"role": "assistant", "content": "Done.", "phase": "commentary"}
    assert items[1] == {
        "type": "reasoning",
        "id": "rs_0",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": "gpt-5.6:sealed",
    }


async def test_a_fallback_after_thinking_and_the_first_model_again(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_limits, "AVOIDED_S", 0)  # the first model is tried again at once
    providers = start(claude=[thinks(SONNET, calls=True), DOWN, thinks(SONNET)], gpt=[thinks(GPT)])
    async with LocalExecutor(":memory:") as executor:
        assert await answers(executor, agent(SONNET, GPT), "Rain?", "Sure?") == ["Done.", "Done."]
    assert sealed(providers.gpt) == [[]]
    assert sealed(providers.claude)[-1] == ["claude-sonnet-4-5:sealed"]
    assert "thinking" in providers.claude.requests[-1].json


async def test_a_first_turn_by_the_fallback(start: Start) -> None:
    """Claude continues with calls that it did not think about, so it is not asked to think in this turn."""
    providers = start(claude=[DOWN, Says("It rains.", stop="end_turn"), thinks(SONNET)], gpt=[thinks(GPT, calls=True)])
    async with LocalExecutor(":memory:") as executor:
        assert await answers(executor, agent(SONNET, GPT), "Rain?", "Sure?") == ["It rains.", "Done."]
    assert ["thinking" in request.json for request in providers.claude.requests] == [True, False, True]


@pytest.mark.parametrize("other", [OPUS, GPT])
async def test_a_session_whose_model_changed(start: Start, other: str) -> None:
    here = other == GPT
    providers = start(
        claude=[thinks(SONNET, calls=True), thinks(SONNET), *([] if here else [thinks(OPUS), thinks(OPUS)])],
        gpt=[thinks(GPT), thinks(GPT)] if here else [],
    )
    async with LocalExecutor(":memory:") as executor:
        await answers(executor, agent(SONNET), "Rain?")
        assert await answers(executor, agent(other), "Sure?", "Really?") == ["Done.", "Done."]
    server = providers.gpt if here else providers.claude
    assert [len(found) for found in sealed(server)[-2:]] == [0, 1], "its own comes back"


@pytest.mark.parametrize("model", [SONNET, GPT])
async def test_reasoning_that_its_provider_refuses_is_left_out_from_then_on(start: Start, model: str) -> None:
    """The key that sealed it is gone, as after a year. `retry` of a failed run would meet the same refusal."""
    old = replace(thinks(model, calls=True), thoughts=(("hm", "another key"),))
    script: list[Entry] = [old, thinks(model), thinks(model)]
    providers = start(claude=script if model == SONNET else [], gpt=script if model == GPT else [])
    server = providers.claude if model == SONNET else providers.gpt
    async with LocalExecutor(":memory:") as executor:
        assert await answers(executor, agent(model), "Rain?", "Sure?") == ["Done.", "Done."]
        session = await executor.sessions.get("s")
    assert session is not None
    own = f"{model.partition('/')[2]}:sealed"
    assert sealed(server) == [[], ["another key"], [], [own]]
    if model == SONNET:
        assert ["thinking" in request.json for request in server.requests] == [True, True, False, True]
