"""Embeddings of texts, over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from helix import ModelError
from helix.adapters.models.embedding import LiteLLMEmbedding
from helix.compat.cache import create_cache
from helix.core.caching import CacheStrategy
from helix.testing.openai_server import HttpFailure, OpenAIServer, word_vector

EMBEDDING = "openai/text-embedding-3-small"


def embed(text: str) -> Any:
    if text == "bad":
        return HttpFailure(status=400, message="this text is not taken")
    return HttpFailure(status=429, retry_after_s=0.01) if text == "busy" else word_vector(text)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    with OpenAIServer([], embed=embed) as made:
        for name, value in made.environment().items():
            monkeypatch.setenv(name, value)
        yield made


async def test_vectors_of_texts(server: OpenAIServer) -> None:
    """The vectors are in order, and their usage is counted at list price: 200,000 words at 0.02 dollars per million."""
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


async def test_a_semantic_cache_with_real_vectors(server: OpenAIServer) -> None:
    cache = create_cache(strategy=CacheStrategy.SEMANTIC, embedding=LiteLLMEmbedding(EMBEDDING), threshold=0.9)
    await cache.set([{"role": "user", "content": "the capital of France"}], "gpt-4", "Paris")
    assert await cache.get([{"role": "user", "content": "France, the capital of?"}], "gpt-4") == "Paris"
    assert await cache.get([{"role": "user", "content": "the rivers of Spain"}], "gpt-4") is None
