"""Delivery of reports, with retries, a circuit breaker and a buffer for undelivered reports.

Law: errors never reach the measured code, and no buffer grows without limit. Only 5xx, 429 and broken connections are
retried. A report that the platform rejects permanently is dropped and counted.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx

from helix._log import get_logger
from helix.core.json import JsonObject
from helix.ports.clock import Clock

RETRIES, RETRY_S, MAX_WAIT_S = 3, 1.0, 60.0
BREAKER_FAILURES, BREAKER_S = 5, 60.0
MAX_BATCHES = 100
MAX_BYTES = 10 * 1024 * 1024
TIMEOUT = httpx.Timeout(10.0, connect=5.0)
Outcome = Literal["sent", "refused", "failed"]

logger = get_logger("helix.reporter")


@dataclass(slots=True)
class Poster:
    """Delivers payloads to one URL. A circuit breaker opens after `BREAKER_FAILURES` consecutive failures. After
    `BREAKER_S` seconds it lets one attempt through, which closes it or reopens it for the same time."""

    url: str
    """The URL to which reports are posted."""
    headers: Mapping[str, str]
    """The headers of each report."""
    client: httpx.AsyncClient | None
    """The HTTP client. None: it is created at the first delivery."""
    clock: Clock
    """The clock for waits and for the circuit breaker."""
    max_bytes: int = MAX_BYTES
    """The maximum size of a request body, in bytes."""
    counts: Counter[str] = field(default_factory=Counter)
    """The number of batches that were `sent`, `refused` or `dropped` (lost), and of `retries`."""
    unsent: deque[JsonObject] = field(default_factory=deque)
    """The undelivered payloads, oldest first, at most `MAX_BATCHES`."""
    failures: int = 0
    """The number of consecutive failed deliveries."""
    opened_at: float | None = None
    """The time when the circuit breaker opened, in Unix seconds. None: it is closed."""

    @property
    def circuit(self) -> Literal["closed", "open", "half-open"]:
        if self.opened_at is None:
            return "closed"
        return "half-open" if self.clock.now() - self.opened_at >= BREAKER_S else "open"

    async def deliver(self, payload: JsonObject) -> None:
        """Deliver the buffered payloads, oldest first, then this one. Undelivered payloads stay in the buffer. Only one
        call may be active at a time."""
        waiting = deque([*self.unsent, *split(payload, self.max_bytes)])
        self.unsent.clear()
        try:
            while waiting and self.circuit != "open":
                outcome = await self._send(waiting[0])
                if outcome == "failed":
                    self.failures += 1
                    if self.opened_at is not None or self.failures >= BREAKER_FAILURES:
                        self.opened_at = self.clock.now()
                    return
                self.failures, self.opened_at = 0, None
                self.counts[outcome] += 1
                waiting.popleft()
        finally:  # also when cancelled, because it may not have been sent
            self.unsent.extend(waiting)
            while len(self.unsent) > MAX_BATCHES:  # keep the newest
                self.unsent.popleft()
                self.counts["dropped"] += 1

    async def close(self) -> None:
        """Close the client. A later delivery opens it again."""
        client, self.client = self.client, None
        if client is not None:
            await client.aclose()

    async def _send(self, payload: JsonObject) -> Outcome:
        body, problem = encode(payload), ""
        client = self.client = self.client or httpx.AsyncClient()
        for attempt in range(RETRIES + 1):
            wait = min(RETRY_S * 2**attempt, MAX_WAIT_S)
            try:
                response = await client.post(self.url, content=body, headers=dict(self.headers), timeout=TIMEOUT)
            except httpx.HTTPError as error:
                problem = f"{type(error).__name__}: {error}"
            else:
                if response.is_success:
                    return "sent"
                problem = f"status {response.status_code}"
                if response.status_code == 429:
                    asked = response.headers.get("retry-after", "")  # dates are not supported
                    wait = min(float(asked) if asked.isdecimal() else wait * 2, MAX_WAIT_S)
                elif response.status_code < 500:
                    logger.warning("a report was refused and dropped: %s", problem)
                    return "refused"
            if attempt < RETRIES:
                self.counts["retries"] += 1
                await self.clock.sleep(wait)
        logger.warning("a report was not delivered and is kept: %s", problem)
        return "failed"


def encode(payload: JsonObject) -> bytes:
    return json.dumps(payload, separators=(",", ":"), allow_nan=False).encode()


def split(payload: JsonObject, max_bytes: int) -> list[JsonObject]:
    """Split the payload into parts of at most `max_bytes`. Totals and health stay in the first part. A single larger
    request is sent unchanged, and the platform accepts or rejects it."""
    requests: Any = payload["requests"]
    if len(encode(payload)) <= max_bytes or len(requests) < 2:
        return [payload]
    half = len(requests) // 2
    first: JsonObject = {**payload, "requests": requests[:half]}
    second: JsonObject = {**payload, "requests": requests[half:], "health": None, "aggregated": {}}
    return [*split(first, max_bytes), *split(second, max_bytes)]
