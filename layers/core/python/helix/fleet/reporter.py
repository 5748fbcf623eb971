"""Reports of an agent's requests and health to an HTTP endpoint of the user's choice.

Law: nothing is sent unless a deployment, a key and an address were given: there is no default address. Measuring waits
for no network: reports are buffered, the oldest dropped when the buffer is full. A function must `flush` before it
returns: nothing in the background survives a freeze.

    POST {url}/api/v1/agents/{deployment}/metrics
    {"deployment_id", "agent_id", "timestamp", "requests": [...], "health": {...} | null, "aggregated": {...}}
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
from collections import deque
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx

from helix._version import __version__
from helix.adapters.system import SystemClock
from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject
from helix.fleet.reporter_posting import MAX_BYTES, Poster
from helix.fleet.reporter_settings import (
    API_KEY,
    DEPLOYMENT_ID,
    MAX_BUFFER,
    PLATFORM_URL,
    ReporterSettings,
    read_reporter_settings,
)
from helix.ports.clock import Clock

logger = logging.getLogger("helix.reporter")


class AgentReporter:
    """`start` sends in the background until `stop`; without an address all of it counts locally and sends nothing.
    `client` is the reporter's own unless one is given, which the caller closes."""

    def __init__(
        self,
        settings: ReporterSettings,
        *,
        clock: Clock | None = None,
        client: httpx.AsyncClient | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.settings = settings
        self._clock = clock or SystemClock()
        self._given, self._client = client, client
        self._max_bytes = max_bytes
        self._buffer: deque[JsonObject] = deque()
        self._dropped = 0
        self._health: JsonObject | None = None
        self._period, self._ever = _Sums(), _Sums()
        self._poster: Poster | None = None
        self._task: asyncio.Task[None] | None = None
        self._full = asyncio.Event()
        self._sending = asyncio.Lock()

    @property
    def running(self) -> bool:
        return self._task is not None

    async def start(self) -> None:
        """Send from now on. Does nothing, and says why, where something is missing or it is switched off."""
        if self._task is not None:
            return
        if not self.settings.configured:
            logger.warning("the reporter sends nothing: it needs %s, %s and %s", DEPLOYMENT_ID, API_KEY, PLATFORM_URL)
            return
        self._task = asyncio.get_running_loop().create_task(self._run(), name="helix:reporter")

    async def stop(self) -> None:
        """Send what is left, and end. What the platform does not take now is lost."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await self.flush()
        self._poster = None
        if self._client is not None and self._given is None:
            await self._client.aclose()
            self._client = None

    async def report_request(
        self,
        input_tokens: int,
        output_tokens: int,
        latency_ms: float,
        model: str,
        success: bool,
        cost: float | None = None,
        error_type: str | None = None,
    ) -> None:
        """One model call, as it ended. `cost` in US dollars."""
        if not all(0 <= number < math.inf for number in (input_tokens, output_tokens, latency_ms, cost or 0)):
            raise InvalidInputError("a report has a number that is negative or not finite")
        if len(self._buffer) >= MAX_BUFFER:
            self._buffer.popleft()
            self._dropped += 1
        self._buffer.append(
            {
                "timestamp": self._clock.now(),
                "input_tokens": input_tokens,
                "output_tokens": output_tokens,
                "latency_ms": latency_ms,
                "model": model,
                "success": success,
                "cost": cost or 0.0,
                "error_type": error_type,
            }
        )
        for sums in (self._period, self._ever):
            sums.add(input_tokens, output_tokens, latency_ms, model, success, cost or 0.0)
        if len(self._buffer) >= self.settings.batch_size:
            self._full.set()

    async def report_health(self, status: str = "healthy", active_requests: int = 0, queue_depth: int = 0) -> None:
        """How the agent is: `healthy`, `degraded` or `unhealthy`. The last word of a period is sent."""
        if status not in ("healthy", "degraded", "unhealthy"):
            raise InvalidInputError(f"status is {status!r}: use healthy, degraded or unhealthy")
        self._health = {
            "timestamp": self._clock.now(),
            "status": status,
            "active_requests": active_requests,
            "queue_depth": queue_depth,
            **_load(),
        }

    async def flush(self) -> None:
        """Send all that is buffered now, `batch_size` requests at a time."""
        if not self.settings.configured:
            return
        async with self._sending:
            poster = self._open()
            while self._buffer or self._health is not None or poster.kept:
                requests = [self._buffer.popleft() for _ in range(min(len(self._buffer), self.settings.batch_size))]
                health, self._health = self._health, None
                sums, self._period = self._period, _Sums()
                kept = len(poster.kept)
                await poster.deliver(self._payload(requests, health, sums))
                if len(poster.kept) > kept or (poster.kept and not self._buffer):
                    return  # the platform is not there: what is left comes with the next flush
            self._full.clear()

    def get_local_stats(self) -> dict[str, Any]:
        """What was reported since the reporter was made, and what became of it."""
        poster = self._poster
        return {
            **self._ever.told(),
            "buffered": len(self._buffer),
            "dropped": self._dropped,
            "running": self.running,
            "configured": self.settings.configured,
            "batches_sent": poster.counts.batches if poster else 0,
            "batches_kept": len(poster.kept) if poster else 0,
            "batches_refused": poster.counts.refused if poster else 0,
            "batches_dropped": poster.counts.dropped if poster else 0,
            "retries": poster.counts.retries if poster else 0,
            "circuit": poster.breaker.state if poster else "closed",
        }

    async def _run(self) -> None:
        while True:
            waits = {
                asyncio.ensure_future(self._clock.sleep(self.settings.flush_interval)),
                asyncio.ensure_future(self._full.wait()),
            }
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
                await asyncio.gather(*waits, return_exceptions=True)
            self._full.clear()
            await self.flush()

    def _open(self) -> Poster:
        if self._poster is None:
            settings = self.settings
            if self._client is None:
                self._client = httpx.AsyncClient()
            headers = {
                "Authorization": f"Bearer {settings.api_key}",
                "Content-Type": "application/json",
                "X-Helix-Deployment-ID": settings.deployment_id,
                "User-Agent": f"helix/{__version__}",
            }
            place = f"{settings.url.rstrip('/')}/api/v1/agents/{quote(settings.deployment_id, safe='')}/metrics"
            self._poster = Poster(place, headers, self._client, self._clock, self._max_bytes)
        return self._poster

    def _payload(self, requests: list[JsonObject], health: JsonObject | None, sums: _Sums) -> JsonObject:
        settings = self.settings
        service = {"name": settings.service_name, "version": settings.service_version}
        payload: JsonObject = {
            "deployment_id": settings.deployment_id,
            "agent_id": settings.agent_id,
            "timestamp": self._clock.now(),
            "requests": list(requests),
            "health": health,
            "aggregated": sums.told(),
        }
        return payload if not settings.service_name else {**payload, "service": dict(service)}


class _Sums:
    """Requests added up."""

    def __init__(self) -> None:
        self.requests = self.failed = self.input_tokens = self.output_tokens = 0
        self.latency_ms = self.cost = self.least_ms = self.most_ms = 0.0
        self.models: dict[str, int] = {}

    def add(
        self, input_tokens: int, output_tokens: int, latency_ms: float, model: str, success: bool, cost: float
    ) -> None:
        self.least_ms = latency_ms if self.requests == 0 else min(self.least_ms, latency_ms)
        self.most_ms = max(self.most_ms, latency_ms)
        self.requests += 1
        self.failed += not success
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens
        self.latency_ms += latency_ms
        self.cost += cost
        self.models[model] = self.models.get(model, 0) + 1

    def told(self) -> JsonObject:
        return {
            "total_requests": self.requests,
            "successful_requests": self.requests - self.failed,
            "failed_requests": self.failed,
            "total_input_tokens": self.input_tokens,
            "total_output_tokens": self.output_tokens,
            "avg_latency_ms": self.latency_ms / self.requests if self.requests else 0.0,
            "min_latency_ms": self.least_ms,
            "max_latency_ms": self.most_ms,
            "total_cost": self.cost,
            "models": dict(self.models),
        }


def _load() -> JsonObject:
    """Of the machine, where psutil is installed; percent."""
    try:
        import psutil
    except ImportError:
        return {}
    return {"cpu_percent": psutil.cpu_percent(interval=None), "memory_percent": psutil.virtual_memory().percent}


_reporters: list[AgentReporter] = []
"""This process's reporter, if it has one."""


async def init_agent_reporter(
    deployment_id: str | None = None,
    api_key: str | None = None,
    flush_interval: float | None = None,
    batch_size: int | None = None,
    *,
    url: str | None = None,
    enabled: bool | None = None,
    agent_id: str | None = None,
    clock: Clock | None = None,
    environment: Mapping[str, str] | None = None,
) -> AgentReporter:
    """Make and start this process's reporter; one that there was is stopped first. An argument wins over its variable
    (`HELIX_DEPLOYMENT_ID`, `HELIX_API_KEY`, `HELIX_PLATFORM_URL`, `HELIX_METRICS_INTERVAL`, ...)."""
    settings = read_reporter_settings(
        os.environ if environment is None else environment,
        deployment_id=deployment_id,
        api_key=api_key,
        flush_interval=flush_interval,
        batch_size=batch_size,
        url=url,
        enabled=enabled,
        agent_id=agent_id,
    )
    await shutdown_agent_reporter()
    reporter = AgentReporter(settings, clock=clock)
    _reporters.append(reporter)
    await reporter.start()
    return reporter


def get_agent_reporter() -> AgentReporter:
    """This process's reporter. Raises `InvalidInputError` before `init_agent_reporter`."""
    if not _reporters:
        raise InvalidInputError("there is no reporter: call init_agent_reporter first")
    return _reporters[-1]


async def shutdown_agent_reporter() -> None:
    """Stop this process's reporter, sending what is left. Nothing where there is none."""
    while _reporters:
        await _reporters.pop().stop()
