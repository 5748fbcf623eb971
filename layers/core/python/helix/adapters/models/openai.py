"""OpenAI's models, and those of every server that supports Chat Completions, through the openai package."""

from __future__ import annotations

from functools import partial
from typing import Any

from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from helix.adapters.models.decompression import BOUNDED
from helix.adapters.models.openai_api import api_of
from helix.adapters.models.openai_batches import OpenAIBatches
from helix.adapters.models.openai_chat import ChatExchange
from helix.adapters.models.openai_exchange import OpenAIExchange
from helix.adapters.models.openai_responses import ResponsesExchange
from helix.adapters.models.pricing import Prices
from helix.adapters.models.sdk import Clients
from helix.ports.model import LLMGenerateInput


class OpenAIWire:
    """Implements `Wire`."""

    def __init__(self, prices: Prices) -> None:
        self._prices, self._clients = prices, Clients(AsyncOpenAI, partial(DefaultAsyncHttpxClient, **BOUNDED))

    def exchange(self, request: LLMGenerateInput, model: str) -> OpenAIExchange:
        kind = ResponsesExchange if api_of(model, request.config) == "responses" else ChatExchange
        return kind(request, model, self._prices, self._clients)

    def batches(self, client: Any, model: str) -> OpenAIBatches:
        return OpenAIBatches(client, model)
