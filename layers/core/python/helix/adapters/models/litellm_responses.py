"""OpenAI's Responses API through litellm, which sends the same body and returns the same events."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import httpx

from helix.adapters.models.failures import failure
from helix.adapters.models.file_parts import plain
from helix.adapters.models.openai_api import name_of, provider_of
from helix.adapters.models.openai_exchange import KEYS
from helix.adapters.models.openai_responses import ResponsesExchange
from helix.adapters.models.pricing import Prices
from helix.adapters.models.sdk import Clients
from helix.adapters.models.wire import AttemptFailedError
from helix.ports.model import LLMGenerateInput

_OF_THE_CLIENT = (
    *("api_key", "api_base", "base_url", "api_version", "organization"),
    *("azure_ad_token", "client_id", "client_secret", "tenant_id"),
)
_ITS_OWN = Clients(dict, dict)
"""No clients: litellm has its own."""


class LiteLLMResponses(ResponsesExchange):
    """Implements `Exchange`."""

    def __init__(self, litellm: ModuleType, prices: Prices, request: LLMGenerateInput, model: str) -> None:
        super().__init__(request, model, prices, _ITS_OWN)
        self._litellm = litellm

    @property
    def sent_request(self) -> httpx.Request:
        return httpx.Request("POST", "https://litellm.invalid/responses")

    def connect(self, options: dict[str, Any]) -> dict[str, Any]:
        given = {name: options.pop(name) for name in _OF_THE_CLIENT if name in options}
        keyless = provider_of(self.model) == "openai" and not any(map(os.environ.get, KEYS["openai"]))
        if keyless and not given.get("api_key"):  # litellm would send it without; Azure may use Entra
            raise AttemptFailedError(failure(self.model, "authentication", ""))
        return given

    async def post(self, client: Any, path: str, body: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        own = {"custom_llm_provider": provider_of(self.model), "timeout": self.request.config.timeout_s}
        extra = {name: options[name] for name in ("extra_headers", "extra_query", "extra_body") if name in options}
        asked = {**body, **client, **own, **extra, "model": name_of(self.model), "num_retries": 0, "max_retries": 0}
        whole = plain(asked) if self.files.loaded else asked
        self._stream = await self._litellm.aresponses(**whole)
        self.files.release()

    async def event(self) -> Any:
        try:
            event = await anext(self._stream, None)
        except Exception as error:
            if isinstance(error.__context__, StopAsyncIteration):  # the stream ended; litellm expects one more event
                return None
            raise
        if event is None:
            return None
        data: dict[str, Any] = event.model_dump(mode="json", exclude_none=True, warnings=False)
        response = data.get("response") or {}
        if "input_tokens_details" not in (response.get("usage") or {}):  # missing only in litellm's estimate
            response["usage"] = None
        return data

    async def close(self) -> None:
        if self._stream is not None:
            await self._stream.response.aclose()
