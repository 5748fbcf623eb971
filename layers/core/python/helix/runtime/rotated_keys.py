"""A model whose keys are kept in secrets, which may be rotated while this process lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from helix.core.config import LLMConfig
from helix.core.steps import AnyStepResult, ErrorStepResult
from helix.ports.model import BaseAdapter, LLMGenerateInput


class RotatedKeys(BaseAdapter):
    """An adapter around `model`. If the provider refuses the key, `refresh` reads the keys again and returns whether
    one has changed. In that case the model is called once more."""

    def __init__(self, model: BaseAdapter, refresh: Callable[[], bool]) -> None:
        self._model, self._refresh = model, refresh
        self.repeats_failures = model.repeats_failures

    def configured(self, config: LLMConfig) -> LLMConfig:
        return self._model.configured(config)

    def prepare(self, config: LLMConfig) -> None:
        self._model.prepare(config)

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        result = await self._model.generate_step(request)
        refused = isinstance(result, ErrorStepResult) and result.code == "authentication"
        if not (refused and await asyncio.to_thread(self._refresh)):
            return result
        again = await self._model.generate_step(request)
        return again.model_copy(update={"usage": result.usage + again.usage})
