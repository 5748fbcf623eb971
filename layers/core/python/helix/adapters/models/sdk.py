"""The common part of the openai and anthropic wires: clients, and a stream of parsed events.

Law: a client belongs to one event loop and one set of credentials, and is kept with its open connections for as long as
the loop lives. The packages' own retries are off. Events are plain JSON, because their typed resources cost half a
second of imports.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from helix.adapters.models.file_forms import Interface
from helix.adapters.models.file_parts import JsonBody, RequestFiles
from helix.adapters.models.pricing import Prices
from helix.adapters.models.wire import NativeExchange, Piece
from helix.core.json import dumps
from helix.ports.model import LLMGenerateInput

NOT_SENT = frozenset(
    {"stream", "stream_options", "num_retries", "max_retries", "timeout", "drop_params", "model", "messages"}
)
"""The provider options that the adapter sets itself, or that have their own settings."""
OPENAIS = frozenset(
    {
        *("audio", "frequency_penalty", "logit_bias", "logprobs", "modalities", "organization", "prediction"),
        *("presence_penalty", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "store"),
        *("top_logprobs", "verbosity"),
    }
)
"""The provider options that only OpenAI's models have."""
_OF_CLOUDS = ("aws_", "vertex_")


def own_options(options: Mapping[str, Any], others: Container[str]) -> dict[str, Any]:
    """Return the provider options for a model. Options that it does not have (`others`) are omitted, because all models
    of a fallback list share them."""
    return {
        name: value
        for name, value in options.items()
        if name not in NOT_SENT and name not in others and not name.startswith(_OF_CLOUDS)
    }


class Clients:
    """One client for each event loop and set of arguments. `connect` creates its HTTP client. The packages' own HTTP
    clients would be left behind by a closed loop, try to close themselves in another one, and fail."""

    def __init__(self, make: Callable[..., Any], connect: Callable[[], Any]) -> None:
        self._make, self._connect = make, connect
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Any]] = WeakKeyDictionary()

    def client(self, **arguments: Any) -> Any:
        for known in self._by_loop.keyrefs():  # a copy, because other threads add theirs
            if (loop := known()) is not None and loop.is_closed():
                self._by_loop.pop(loop, None)  # its open connections keep it alive
        clients = self._by_loop.setdefault(asyncio.get_running_loop(), {})
        key = dumps(arguments)
        if key not in clients:
            clients[key] = self._make(**arguments, http_client=self._connect(), max_retries=0)
        return clients[key]


class SdkExchange(NativeExchange):
    """An exchange over HTTP. `post` sends the request, and `event` returns the events. `interface` is the interface
    that it calls, and `stream_class` the package's `AsyncStream`."""

    interface: Interface

    def __init__(
        self, request: LLMGenerateInput, model: str, prices: Prices, clients: Clients, stream_class: Any
    ) -> None:
        super().__init__(request, model, prices)
        self.clients, self._stream_class = clients, stream_class
        self.files = RequestFiles(request, model, self.interface)
        self._stream: Any = None

    async def post(self, client: Any, path: str, body: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        """Send the request. `options` may hold `extra_headers`, `extra_query` and `extra_body`."""
        headers = dict(options.get("extra_headers") or {})
        whole = {**body, **(options.get("extra_body") or {})}
        files = JsonBody(whole) if self.files.loaded else None
        if files is not None:
            headers["Content-Length"] = str(files.length)
        try:
            self._stream = await client.post(
                path,
                **({"body": whole} if files is None else {"content": files}),
                cast_to=object,
                stream=True,
                stream_cls=self._stream_class[object],
                options={
                    "headers": headers,
                    "params": options.get("extra_query") or {},
                    "timeout": self.request.config.timeout_s,
                },
            )
            self.files.release()
        finally:
            if files is not None:
                files.release()

    @property
    def sent_request(self) -> Any:
        """The request whose response is being read."""
        return self._stream.response.request

    @property
    def headers(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self._stream.response.headers
        return found

    async def event(self) -> Any:
        """Return the next event's JSON, or None at the end."""
        return await anext(self._stream, None)

    async def close(self) -> None:
        if self._stream is not None:
            await self._stream.close()

    @abstractmethod
    def connect(self, options: dict[str, Any]) -> Any:
        """Return the client for these options, and remove the client's own options from `options`."""

    @abstractmethod
    async def form(self) -> dict[str, Any]:
        """Return the request as a batch contains it, without files."""

    @abstractmethod
    def read(self, answer: Mapping[str, Any]) -> Sequence[Piece]:
        """Return the pieces of a whole answer, which did not arrive as a stream. The usage and the finish reason are known
        afterwards."""
