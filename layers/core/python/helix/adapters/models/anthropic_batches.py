"""Anthropic's Message Batches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any, Literal

from helix.adapters.models.wire import RefusedRequestError
from helix.core.json import JsonObject
from helix.ports.batches import BatchStatus

_TIMEOUT_S = 120.0
_SLACK_S = 60.0
"""The difference that is allowed between the provider's clock and this one, in seconds."""
_STATUSES = {"api_error": 500, "overloaded_error": 529}
"""The HTTP statuses of errors that the same request may not meet again."""


class AnthropicBatches:
    """Implements `ProviderBatches`. A batch has no name, so it is recognised by its time, its size and the ids of its
    requests, which are shown once it has ended."""

    def __init__(self, client: Any, model: str) -> None:
        self._batches = client.with_options(timeout=_TIMEOUT_S).messages.batches

    async def send(self, name: str, interface: str, requests: Sequence[tuple[str, JsonObject]]) -> str:
        made = [{"custom_id": call, "params": body} for call, body in requests]
        batch = await self._batches.create(requests=made)
        return str(batch.id)

    async def find(
        self, name: str, calls: Collection[str], since: float, others: Collection[str]
    ) -> str | Literal["unknown"] | None:
        is_unknown = False
        async for batch in self._batches.list(limit=100):  # the newest first
            if batch.created_at.timestamp() < since - _SLACK_S:
                break
            counts = batch.request_counts
            size = counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired
            if batch.id in others or size != len(calls):
                continue
            if batch.processing_status != "ended":
                is_unknown = True
            elif await self._has_any(batch.id, calls):
                return str(batch.id)
        return "unknown" if is_unknown else None

    async def _has_any(self, batch: str, calls: Collection[str]) -> bool:
        async for call, _ in self.answers(batch):
            return call in calls
        return False

    async def look(self, batch: str) -> BatchStatus:
        found = await self._batches.retrieve(batch)
        return BatchStatus(found.processing_status == "ended")

    async def answers(self, batch: str) -> AsyncIterator[tuple[str, JsonObject | BaseException | None]]:
        async for line in await self._batches.results(batch):
            outcome = line.to_dict(mode="json")
            result = outcome["result"]
            match result["type"]:
                case "succeeded":
                    yield outcome["custom_id"], result["message"]
                case "errored":
                    error = (result.get("error") or {}).get("error") or {}
                    yield outcome["custom_id"], RefusedRequestError(_STATUSES.get(str(error.get("type"))), error)
                case _:  # canceled or expired
                    yield outcome["custom_id"], None

    async def cancel(self, batch: str) -> None:
        await self._batches.cancel(batch)
