"""Many small requests at once: vectors and one-shot answers, batched.

Law: what comes back is in the order of what was asked, one for each; a text or a prompt that fails, fails alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from helix.adapters.nearest import Embed
from helix.core.config import LLMConfig
from helix.core.errors import InvalidInputError, ModelError
from helix.core.messages import AnyMessage, UserMessage
from helix.core.steps import AnyStepResult, ErrorStepResult
from helix.fleet.batching import BatchConfig, BatchProcessor, BatchRequest, LLMCaller
from helix.ports.model import LLMAdapter, LLMGenerateInput

__all__ = ["BatchedEmbedding", "chat_caller", "complete_many"]

DEFAULT_CONCURRENCY = 10
DAY_S = 86_400.0


class BatchedEmbedding:
    """An embedding function that joins the texts of callers at the same time into one request to the provider.

    Use it in `async with`, and give it wherever an embedding function is wanted. Where the provider refuses a batch, each
    of its texts is tried alone, so that one that it cannot take harms no other.
    """

    def __init__(self, embed: Embed, model: str = "embedding", config: BatchConfig | None = None) -> None:
        self._embed, self._model = embed, model
        self.processor = BatchProcessor(config or BatchConfig(max_batch_size=100, max_wait_time_ms=20), self._batch)

    async def __aenter__(self) -> BatchedEmbedding:
        await self.processor.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.processor.stop()

    async def __call__(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """Raises the first failure, once all are answered."""
        asked = [self.processor.process_request(text, self._model) for text in texts]
        vectors = await asyncio.gather(*asked, return_exceptions=True)
        for vector in vectors:
            if isinstance(vector, BaseException):
                raise vector
        return [vector for vector in vectors if not isinstance(vector, BaseException)]

    async def _batch(self, requests: Sequence[BatchRequest]) -> list[Sequence[float] | Exception]:
        texts = [request.messages for request in requests]
        try:
            return list(await self._embed(texts))
        except ModelError as error:
            if error.retryable or len(texts) == 1:
                return [error] * len(texts)
        return [await self._alone(text) for text in texts]

    async def _alone(self, text: str) -> Sequence[float] | Exception:
        try:
            (vector,) = await self._embed([text])
            return vector
        except ModelError as error:
            return error


def chat_caller(adapter: LLMAdapter, config: LLMConfig, concurrency: int = DEFAULT_CONCURRENCY) -> LLMCaller:
    """For a `BatchProcessor`: asks the model for each conversation of a batch, `concurrency` at a time. A request's `model`
    is asked with the other settings of `config`. Answers are step results, errors included."""
    if concurrency < 1:
        raise InvalidInputError(f"concurrency is {concurrency}: it must be at least 1")
    places = asyncio.Semaphore(concurrency)

    async def ask(request: BatchRequest) -> AnyStepResult:
        settings = config.model_copy(update={"model": request.model})
        async with places:
            return await adapter.generate_step(
                LLMGenerateInput(
                    _conversation(request.messages), [], settings, agent_id="one_shot", agent_type="one_shot"
                )
            )

    async def call(requests: Sequence[BatchRequest]) -> Sequence[AnyStepResult | BaseException]:
        return await asyncio.gather(*map(ask, requests), return_exceptions=True)

    return call


async def complete_many(
    adapter: LLMAdapter,
    prompts: Sequence[str | Sequence[AnyMessage]],
    config: LLMConfig,
    *,
    batch: BatchConfig | None = None,
    concurrency: int = DEFAULT_CONCURRENCY,
) -> list[AnyStepResult]:
    """One answer to each prompt (a text, or a conversation), in order, without a session: nothing is stored, streamed or
    counted against budgets. A prompt that fails is an `ErrorStepResult` in its place."""
    size = min(100, max(1, concurrency))
    # The config bounds each call; a batch is as slow as its slowest.
    sizes = batch or BatchConfig(max_batch_size=size, max_wait_time_ms=0, min_batch_size=1, timeout_s=DAY_S)
    async with BatchProcessor(sizes, chat_caller(adapter, config, concurrency)) as processor:
        asked = [processor.process_request(prompt, config.model) for prompt in prompts]
        answers = await asyncio.gather(*asked, return_exceptions=True)
    return [_result(answer) for answer in answers]


def _conversation(prompt: str | Sequence[AnyMessage]) -> Sequence[AnyMessage]:
    return [UserMessage(content=prompt)] if isinstance(prompt, str) else prompt


def _result(answer: AnyStepResult | BaseException) -> AnyStepResult:
    match answer:
        case ModelError():
            return ErrorStepResult(error=str(answer), code=answer.code, retryable=answer.retryable)
        case Exception():
            return ErrorStepResult(error=f"{type(answer).__name__}: {answer}", code="adapter_failed")
        case BaseException():
            raise answer
        case _:
            return answer
