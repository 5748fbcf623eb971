"""Vectors and one-shot answers in batches, over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from helix import LiteLLMAdapter, LLMConfig, ModelError, ScriptedModel
from helix.adapters.models.embedding import LiteLLMEmbedding
from helix.core.errors import InvalidInputError
from helix.core.messages import SystemMessage, UserMessage
from helix.core.steps import ErrorStepResult, TextStepResult
from helix.fleet.batching import BatchConfig, BatchProcessor
from helix.fleet.cache import CacheStrategy, create_cache
from helix.fleet.one_shot import BatchedEmbedding, chat_caller, complete_many
from helix.testing.openai_server import HttpFailure, ModelAnswer, OpenAIServer, word_vector

EMBEDDING = "openai/text-embedding-3-small"
CHAT = "openai/gpt-4o-mini"


def embed(text: str) -> Any:
    if text == "bad":
        return HttpFailure(status=400, message="this text is not taken")
    return HttpFailure(status=429, retry_after_s=0.01) if text == "busy" else word_vector(text)


def echo(body: dict[str, Any]) -> Any:
    said = body["messages"][-1]["content"]
    return HttpFailure(status=400, message="no") if said == "bad" else ModelAnswer(text=said.upper())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    with OpenAIServer(echo, embed=embed) as made:
        for name, value in made.environment().items():
            monkeypatch.setenv(name, value)
        yield made


async def test_vectors_of_texts(server: OpenAIServer) -> None:
    """In order, and what they used is counted at list price: 200,000 words at 0.02 dollars a million."""
    embedding = LiteLLMEmbedding(EMBEDDING)
    assert await embedding([]) == [] and server.requests == []
    assert await embedding(["a b", "c"]) == [word_vector("a b"), word_vector("c")]
    assert (embedding.spent.prompt_tokens, embedding.spent.calls) == (3, 1)
    await embedding(["word " * 200_000])
    assert embedding.spent.cost_micros == 4_000 and embedding.spent.priced


async def test_failures_of_vectors_are_classified(server: OpenAIServer) -> None:
    for text, retryable in (("bad", False), ("busy", True)):
        with pytest.raises(ModelError) as error:
            await LiteLLMEmbedding(EMBEDDING)([text])
        assert error.value.retryable is retryable and EMBEDDING in str(error.value)
    with pytest.raises(ModelError, match="nobody/knows-me"):
        await LiteLLMEmbedding("nobody/knows-me")(["a"])


async def test_callers_at_once_share_a_request(server: OpenAIServer) -> None:
    async with BatchedEmbedding(LiteLLMEmbedding(EMBEDDING)) as embedding:
        vectors = await asyncio.gather(embedding(["a"]), embedding(["b", "c"]), embedding([]))
    assert vectors == [[word_vector("a")], [word_vector("b"), word_vector("c")], []]
    assert [request.json["input"] for request in server.requests] == [["a", "b", "c"]]


async def test_a_text_that_is_refused_fails_alone(server: OpenAIServer) -> None:
    """The batch is refused as a whole, so its texts are tried one by one; where the provider is busy, they are not."""
    async with BatchedEmbedding(LiteLLMEmbedding(EMBEDDING)) as embedding:
        a, bad, b = await asyncio.gather(embedding(["a"]), embedding(["bad"]), embedding(["b"]), return_exceptions=True)
        assert (a, b) == ([word_vector("a")], [word_vector("b")]) and isinstance(bad, ModelError)
        assert len(server.requests) == 4
        busy = await asyncio.gather(embedding(["busy"]), embedding(["c"]), return_exceptions=True)
        assert all(isinstance(error, ModelError) and error.retryable for error in busy)
        assert {tuple(request.json["input"]) for request in server.requests[4:]} == {("busy", "c")}


async def test_a_semantic_cache_with_real_vectors(server: OpenAIServer) -> None:
    async with BatchedEmbedding(LiteLLMEmbedding(EMBEDDING), config=BatchConfig(max_wait_time_ms=1)) as embedding:
        cache = create_cache(strategy=CacheStrategy.SEMANTIC, embedding=embedding, threshold=0.9)
        await cache.set([{"role": "user", "content": "the capital of France"}], "gpt-4", "Paris")
        assert await cache.get([{"role": "user", "content": "France, the capital of?"}], "gpt-4") == "Paris"
        assert await cache.get([{"role": "user", "content": "the rivers of Spain"}], "gpt-4") is None


async def test_many_answers_in_order(server: OpenAIServer) -> None:
    """One that fails is an error in its place."""
    prompts = ["a", [SystemMessage(content="Shout."), UserMessage(content="b")], "bad", "c"]
    results = await complete_many(LiteLLMAdapter(), prompts, LLMConfig(model=CHAT), concurrency=2)
    assert [result.content for result in results if isinstance(result, TextStepResult)] == ["A", "B", "C"]
    assert isinstance(results[2], ErrorStepResult) and results[2].code == "bad_request"
    assert await complete_many(LiteLLMAdapter(), [], LLMConfig(model=CHAT)) == []


async def test_no_more_at_once_than_asked_for() -> None:
    at_once = most = 0

    async def answer(request: Any) -> str:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        for _ in range(5):
            await asyncio.sleep(0)
        at_once -= 1
        return "x"

    model = ScriptedModel([answer], repeat=True)
    results = await complete_many(model, ["p"] * 25, LLMConfig(model="m"), concurrency=4)
    assert len(results) == 25 and most == 4
    with pytest.raises(InvalidInputError, match="concurrency"):
        await complete_many(model, ["p"], LLMConfig(model="m"), concurrency=0)


async def test_what_an_adapter_raises_is_an_error_in_its_place() -> None:
    def answer(request: Any) -> Any:
        said = request.messages[-1].content
        return {"error": ValueError("broken"), "model": ModelError("away", retryable=True)}.get(said, "fine")

    results = await complete_many(ScriptedModel([answer], repeat=True), ["error", "model", "x"], LLMConfig(model="m"))
    assert [getattr(result, "code", None) for result in results] == ["adapter_failed", "model_error", None]
    assert results[1].retryable  # type: ignore[union-attr]


async def test_a_processor_for_chats(server: OpenAIServer) -> None:
    """As the sources show it: requests of several models, each with its own answer."""
    caller = chat_caller(LiteLLMAdapter(), LLMConfig(model=CHAT))
    async with BatchProcessor(BatchConfig(max_batch_size=2), caller) as processor:
        asked = [processor.process_request(text, model) for text in "ab" for model in (CHAT, "openai/gpt-4o")]
        results = await asyncio.gather(*asked)
    assert [result.content for result in results] == ["A", "A", "B", "B"]
    assert sorted(request.json["model"] for request in server.requests) == ["gpt-4o"] * 2 + ["gpt-4o-mini"] * 2
