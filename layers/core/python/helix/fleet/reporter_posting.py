"""Posting reports: tries again, gives a platform that is down time to come back, and keeps what it could not deliver.

Law: nothing here raises to whoever is measured, and nothing grows without bound. Only 5xx, 429 and a broken connection
are tried again; what the platform refuses for good is dropped, and counted.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx

from helix.core.json import JsonObject
from helix.ports.clock import Clock

RETRIES = 3
RETRY_S = 1.0
MAX_WAIT_S = 60.0
BREAKER_FAILURES = 5
BREAKER_S = 60.0
KEPT_BATCHES = 100
MAX_BYTES = 10 * 1024 * 1024
TIMEOUT = httpx.Timeout(10.0, connect=5.0)
Told = Literal["sent", "refused", "failed"]

logger = logging.getLogger("helix.reporter")


@dataclass(slots=True)
class Breaker:
    """Opens after `BREAKER_FAILURES` failures in a row; after `BREAKER_S` seconds one try is let through: it closes the
    breaker, or opens it for as long again."""

    clock: Clock
    failures: int = 0
    opened_at: float | None = None
    trying: bool = False

    @property
    def state(self) -> Literal["closed", "open", "half-open"]:
        if self.opened_at is None:
            return "closed"
        return "half-open" if self.clock.now() - self.opened_at >= BREAKER_S else "open"

    def admits(self) -> bool:
        """Whether a delivery may be tried now. A half-open breaker admits one at a time."""
        if self.state == "closed":
            return True
        if self.state == "half-open" and not self.trying:
            self.trying = True
            return True
        return False

    def succeeded(self) -> None:
        self.failures, self.opened_at, self.trying = 0, None, False

    def failed(self) -> None:
        self.failures += 1
        if self.trying or self.failures >= BREAKER_FAILURES:
            self.opened_at = self.clock.now()
        self.trying = False


@dataclass(slots=True)
class Posted:
    """Counts since the reporter was made; `dropped` batches are lost."""

    batches: int = 0
    failed: int = 0
    refused: int = 0
    dropped: int = 0
    retries: int = 0


@dataclass(slots=True)
class Poster:
    """Delivers payloads to one address. `client` is the caller's to close. `max_bytes` bounds a request's body."""

    url: str
    headers: Mapping[str, str]
    client: httpx.AsyncClient
    clock: Clock
    max_bytes: int = MAX_BYTES
    breaker: Breaker = field(init=False)
    counts: Posted = field(default_factory=Posted)
    kept: deque[JsonObject] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.breaker = Breaker(self.clock)

    async def deliver(self, payload: JsonObject) -> None:
        """Deliver what was kept, oldest first, then this. What cannot be delivered now is kept for the next time."""
        waiting = [*self.kept, *split(payload, self.max_bytes)]
        self.kept.clear()
        for place, one in enumerate(waiting):
            if not self.breaker.admits():
                self._keep(waiting[place:])
                return
            try:
                told = await self._send(one)
            except asyncio.CancelledError:  # perhaps it was not sent
                self.breaker.trying = False
                self._keep(waiting[place:])
                raise
            if told == "failed":
                self.counts.failed += 1
                self.breaker.failed()
                self._keep(waiting[place:])
                return
            self.breaker.succeeded()
            if told == "refused":
                self.counts.refused += 1
            else:
                self.counts.batches += 1

    def _keep(self, payloads: list[JsonObject]) -> None:
        """The newest: what is old tells least of how things are."""
        self.kept.extend(payloads)
        while len(self.kept) > KEPT_BATCHES:
            self.kept.popleft()
            self.counts.dropped += 1

    async def _send(self, payload: JsonObject) -> Told:
        body = encode(payload)
        for attempt in range(RETRIES + 1):
            wait = min(RETRY_S * 2**attempt, MAX_WAIT_S)
            try:
                response = await self.client.post(self.url, content=body, headers=dict(self.headers), timeout=TIMEOUT)
            except httpx.HTTPError as error:
                problem = f"{type(error).__name__}: {error}"
            else:
                if response.is_success:
                    return "sent"
                problem = f"status {response.status_code}"
                if response.status_code == 429:
                    wait = min(_retry_after(response) or wait * 2, MAX_WAIT_S)
                elif response.status_code < 500:
                    logger.warning("a report was refused and dropped: %s", problem)
                    return "refused"
            if attempt < RETRIES:
                self.counts.retries += 1
                await self.clock.sleep(wait)
        logger.warning("a report was not delivered and is kept: %s", problem)
        return "failed"


def encode(payload: JsonObject) -> bytes:
    return json.dumps(payload, separators=(",", ":"), allow_nan=False).encode()


def split(payload: JsonObject, max_bytes: int) -> list[JsonObject]:
    """The payload in parts that are not larger; sums and health stay with the first. A single request that is larger is
    sent as it is: the platform says what it thinks of it."""
    requests: Any = payload["requests"]
    if len(encode(payload)) <= max_bytes or len(requests) < 2:
        return [payload]
    half = len(requests) // 2
    first: JsonObject = {**payload, "requests": requests[:half]}
    second: JsonObject = {**payload, "requests": requests[half:], "health": None, "aggregated": {}}
    return [*split(first, max_bytes), *split(second, max_bytes)]


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds that the platform asks for; dates are not understood."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else None
