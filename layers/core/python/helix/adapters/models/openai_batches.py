"""OpenAI's Batch API: a file of requests, a batch of the file, and files with the outcomes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any, Literal

from helix.adapters.models.wire import RefusedRequestError
from helix.core.json import JsonObject, dumps
from helix.core.rows import ErrorInfo
from helix.ports.batches import BatchStatus

_ENDPOINTS: dict[str, Literal["/v1/responses", "/v1/chat/completions"]] = {
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
}
_NAME = "helix"
"""The field of a batch's metadata with its name."""
_ENDED = ("completed", "expired", "cancelled")
_TIMEOUT_S = 120.0
_SLACK_S = 60.0
"""The difference that is allowed between the provider's clock and this one, in seconds."""
_LATER = frozenset({"token_limit_exceeded", "rate_limit_exceeded", "server_error"})
"""The codes of refused batches that the provider may accept later."""
_NOT_EXECUTED = frozenset({"batch_expired", "batch_cancelled"})


class OpenAIBatches:
    """Implements `ProviderBatches`."""

    def __init__(self, client: Any, model: str) -> None:
        client = client.with_options(timeout=_TIMEOUT_S)
        self._batches, self._files, self._model = client.batches, client.files, model

    async def send(self, name: str, interface: str, requests: Sequence[tuple[str, JsonObject]]) -> str:
        endpoint = _ENDPOINTS[interface]
        lines = [
            dumps({"custom_id": call, "method": "POST", "url": endpoint, "body": body}) + "\n"
            for call, body in requests
        ]
        file = await self._files.create(file=(f"{name}.jsonl", "".join(lines).encode()), purpose="batch")
        batch = await self._batches.create(
            input_file_id=file.id, endpoint=endpoint, completion_window="24h", metadata={_NAME: name}
        )
        return str(batch.id)

    async def find(
        self, name: str, calls: Collection[str], since: float, others: Collection[str]
    ) -> str | Literal["unknown"] | None:
        async for batch in self._batches.list(limit=100):  # the newest first
            if (batch.metadata or {}).get(_NAME) == name:
                return str(batch.id)
            if batch.created_at < since - _SLACK_S:
                break
        return None

    async def look(self, batch: str) -> BatchStatus:
        found = await self._batches.retrieve(batch)
        if found.status != "failed":
            return BatchStatus(found.status in _ENDED)
        problems = (found.errors.data if found.errors is not None else None) or []
        code = next((problem.code for problem in problems if problem.code), "batch_failed")
        said = "; ".join(problem.message or "" for problem in problems[:3])
        message = f"model {self._model!r}: the provider refused the batch ({code}): {said}"
        return BatchStatus(True, ErrorInfo(code=code, message=message, recoverable=code in _LATER))

    async def answers(self, batch: str) -> AsyncIterator[tuple[str, JsonObject | BaseException | None]]:
        found = await self._batches.retrieve(batch)
        for file in (found.output_file_id, found.error_file_id):
            if file is None:
                continue
            async with self._files.with_streaming_response.content(file) as response:
                async for line in response.iter_lines():
                    if line.strip():
                        outcome = json.loads(line)
                        yield outcome["custom_id"], _outcome(outcome)

    async def cancel(self, batch: str) -> None:
        await self._batches.cancel(batch)


def _outcome(line: Mapping[str, Any]) -> JsonObject | BaseException | None:
    """Return the answer or the error of a line. None: the request was not executed."""
    response, error = line.get("response"), line.get("error")
    if response is None:
        error = error or {}
        return None if error.get("code") in _NOT_EXECUTED else RefusedRequestError(None, error)
    body: dict[str, Any] = response.get("body") or {}
    if response.get("status_code") == 200:
        return body
    return RefusedRequestError(int(response.get("status_code") or 500), body.get("error") or {})
