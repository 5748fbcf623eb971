"""Converts texts to vectors with any embedding model that litellm can call.

Law: a call returns a vector for each text, in order, or one classified error. All usage is counted, including that of
unusable responses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from helix.adapters.models.catalog import Prices
from helix.adapters.models.failures import classify, failure
from helix.adapters.models.litellm import litellm_usage, load_litellm
from helix.adapters.system import SystemClock
from helix.core.json import JsonObject
from helix.core.usage import Usage
from helix.ports.clock import Clock


class LiteLLMEmbedding:
    """An embedding model. `await embedding(texts)` returns their vectors.

    Keys and addresses come from each provider's own variables, or from `options` (`api_key`, `api_base`, `dimensions`,
    ...). `timeout_s` bounds one call. `spent`: the total usage of all calls.

    Raises `ModelError`, with the codes of a model call's errors; `retryable` says whether it may succeed later.
    OpenAI's own client retries twice before that, and litellm cannot turn this off.
    """

    def __init__(
        self,
        model: str,
        *,
        options: JsonObject | None = None,
        prices: Prices = MappingProxyType({}),
        timeout_s: float = 60,
        clock: Clock | None = None,
    ) -> None:
        self.model = model
        self.spent = Usage()
        self._options = dict(options or {})
        self._prices = dict(prices)
        self._timeout_s = timeout_s
        self._clock: Clock = clock or SystemClock()

    async def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        if not texts:
            return []
        litellm: Any = await asyncio.to_thread(load_litellm)
        arguments = {"encoding_format": "float", **self._options}
        secrets = [value for name, value in self._options.items() if isinstance(value, str) and "key" in name]
        try:
            provider = litellm.get_llm_provider(self.model)[1]
            async with asyncio.timeout(self._timeout_s) as limit:
                answer = await litellm.aembedding(
                    model=self.model,
                    input=list(texts),
                    timeout=self._timeout_s,
                    num_retries=0,
                    max_retries=0,
                    drop_params=True,
                    **arguments,
                )
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                raise failure(self.model, "timeout", f"no vectors within {self._timeout_s:g} s").error() from error
            raise classify(error, self.model, now=self._clock.now(), secrets=secrets).error() from error
        self.spent += litellm_usage(litellm, self.model, provider, getattr(answer, "usage", None), self._prices)
        rows = sorted(answer.data, key=lambda row: int(_read_field(row, "index")))
        if len(rows) != len(texts):
            problem = f"the provider gave {len(rows)} vectors for {len(texts)} texts"
            raise failure(self.model, "model_error", problem).error()
        return [[float(x) for x in _read_field(row, "embedding")] for row in rows]


def _read_field(row: Any, name: str) -> Any:
    """Return a field of a row. litellm returns mappings for some providers, objects for others."""
    return row[name] if isinstance(row, dict) else getattr(row, name)
