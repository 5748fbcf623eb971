"""A model whose keys are kept in secrets, which may be rotated while this process lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from helix.core.steps import AnyStepResult, ErrorStepResult
from helix.ports.model import LLMAdapter, LLMGenerateInput


class RotatedKeys:
    """An adapter around `model`. If the provider refuses the key, `refresh` reads the keys again and returns whether
    one has changed. In that case the model is called once more."""

    def __init__(self, model: LLMAdapter, refresh: Callable[[], bool]) -> None:
        self._model, self._refresh = model, refresh

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        result = await self._model.generate_step(request)
        refused = isinstance(result, ErrorStepResult) and result.code == "authentication"
        if not (refused and await asyncio.to_thread(self._refresh)):
            return result
        again = await self._model.generate_step(request)
        return again.model_copy(update={"usage": result.usage + again.usage})
