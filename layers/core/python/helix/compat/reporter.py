"""Reports an agent's requests and health to an HTTP endpoint of the user's choice.

Law: nothing is sent unless a deployment, a key and a URL are configured; there is no default URL. Recording a request never
waits for the network. Reports are buffered, and the oldest are dropped when the buffer is full. A Lambda function must
`flush` before it returns, because background work stops when the environment is frozen.

    POST {url}/api/v1/agents/{deployment}/metrics
    {"deployment_id", "agent_id", "timestamp", "requests": [...], "health": {...} | null, "aggregated": {...}}
"""

from __future__ import annotations

import asyncio
import math
import os
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from helix._log import get_logger
from helix._version import __version__
from helix.adapters.system import SystemClock
from helix.compat.reporter_posting import MAX_BYTES, Poster
from helix.compat.reporter_settings import MAX_BUFFER, VARIABLES, ReporterSettings, read_reporter_settings
from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject
from helix.ports.clock import Clock
from helix.workers.tasks import end_tasks, first_of

logger = get_logger("helix.reporter")


class AgentReporter:
    """A reporter that sends in the background between `start` and `stop`. Without a URL it only counts locally."""

    def __init__(self, settings: ReporterSettings, *, clock: Clock | None = None, max_bytes: int = MAX_BYTES) -> None:
        self.settings, self._clock = settings, clock or SystemClock()
        headers = {
            "Authorization": f"Bearer {settings.api_key}",
            "Content-Type": "application/json",
            "X-Helix-Deployment-ID": settings.deployment_id,
            "User-Agent": f"helix/{__version__}",
        }
        place = f"{settings.url.rstrip('/')}/api/v1/agents/{quote(settings.deployment_id, safe='')}/metrics"
        self._poster = Poster(place, headers, None, self._clock, max_bytes)
        self._buffer: deque[JsonObject] = deque()
        self._dropped = 0
        self._health: JsonObject | None = None
        self._period, self._ever = _Sums(), _Sums()
        self._task: asyncio.Task[None] | None = None
        self._full = asyncio.Event()
        self._sending = asyncio.Lock()

    @property
    def running(self) -> bool:
        return self._task is not None

    async def start(self) -> None:
        """Start sending. If a required setting is missing or the reporter is disabled, only log the reason."""
        if self._task is None and not self.settings.configured:
            logger.warning("the reporter sends nothing: it needs %s, %s and %s", *list(VARIABLES.values())[:3])
        elif self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="helix:reporter")

    async def stop(self) -> None:
        """Send the remaining reports and stop. Reports that the platform does not accept now are lost."""
        task, self._task = self._task, None
        if task is not None:
            await end_tasks(task)
            await self.flush()
        await self._poster.close()

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
        """Report a completed model call. `cost` is in US dollars."""
        request: JsonObject = {
            "timestamp": self._clock.now(),
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "latency_ms": latency_ms,
            "model": model,
            "success": success,
            "cost": cost or 0.0,
            "error_type": error_type,
        }
        _check_numbers(input_tokens, output_tokens, latency_ms, cost or 0)
        if len(self._buffer) >= MAX_BUFFER:
            self._buffer.popleft()
            self._dropped += 1
        self._buffer.append(request)
        self._period.add(request)
        self._ever.add(request)
        if len(self._buffer) >= self.settings.batch_size:
            self._full.set()

    async def report_health(self, status: str = "healthy", active_requests: int = 0, queue_depth: int = 0) -> None:
        """Report the agent's health: `healthy`, `degraded` or `unhealthy`. Only the last report of a period is sent."""
        if status not in ("healthy", "degraded", "unhealthy"):
            raise InvalidInputError(f"status is {status!r}: use healthy, degraded or unhealthy")
        _check_numbers(active_requests, queue_depth)
        load = {"active_requests": active_requests, "queue_depth": queue_depth, **_load()}
        self._health = {"timestamp": self._clock.now(), "status": status, **load}

    async def flush(self) -> None:
        """Send everything that is buffered, `batch_size` requests at a time."""
        if not self.settings.configured:
            return
        poster = self._poster
        async with self._sending:
            while self._buffer or self._health is not None or poster.unsent:
                requests = [self._buffer.popleft() for _ in range(min(len(self._buffer), self.settings.batch_size))]
                health, self._health = self._health, None
                sums, self._period = self._period, _Sums()
                unsent = len(poster.unsent)
                await poster.deliver(self._payload(requests, health, sums))
                if len(poster.unsent) > unsent or (poster.unsent and not self._buffer):
                    return  # the platform does not respond; the next flush sends the rest
            self._full.clear()

    def get_local_stats(self) -> dict[str, Any]:
        """Return the totals since the reporter was created, and the outcomes of its reports."""
        poster = self._poster
        return {
            **self._ever.summary(),
            "buffered": len(self._buffer),
            "dropped": self._dropped,
            "running": self.running,
            "configured": self.settings.configured,
            "batches_kept": len(poster.unsent),
            **{f"batches_{outcome}": poster.counts[outcome] for outcome in ("sent", "refused", "dropped")},
            "retries": poster.counts["retries"],
            "circuit": poster.circuit,
        }

    async def _run(self) -> None:
        while True:
            await first_of(self._full.wait(), self._clock.sleep(self.settings.flush_interval))
            self._full.clear()
            await self.flush()

    def _payload(self, requests: list[JsonObject], health: JsonObject | None, sums: _Sums) -> JsonObject:
        settings = self.settings
        payload: JsonObject = {
            "deployment_id": settings.deployment_id,
            "agent_id": settings.agent_id,
            "timestamp": self._clock.now(),
            "requests": list(requests),
            "health": health,
            "aggregated": sums.summary(),
        }
        if settings.service_name:
            payload["service"] = {"name": settings.service_name, "version": settings.service_version}
        return payload


class _Sums:
    """Totals over requests."""

    def __init__(self) -> None:
        self._totals: Counter[str] = Counter(
            dict.fromkeys(("requests", "input_tokens", "output_tokens", "success", "cost", "latency_ms"), 0)
        )
        self._models: Counter[str] = Counter()
        self._least_ms, self._most_ms = math.inf, 0.0

    def add(self, request: Mapping[str, Any]) -> None:
        latency = request["latency_ms"]
        self._totals.update({name: request.get(name, 1) for name in self._totals})
        self._models[request["model"]] += 1
        self._least_ms, self._most_ms = min(self._least_ms, latency), max(self._most_ms, latency)

    def summary(self) -> JsonObject:
        sums = self._totals
        many, well = sums["requests"], int(sums["success"])
        return {
            "total_requests": many,
            "successful_requests": well,
            "failed_requests": many - well,
            "total_input_tokens": sums["input_tokens"],
            "total_output_tokens": sums["output_tokens"],
            "avg_latency_ms": sums["latency_ms"] / many if many else 0.0,
            "min_latency_ms": self._least_ms if many else 0.0,
            "max_latency_ms": self._most_ms,
            "total_cost": float(sums["cost"]),
            "models": dict(self._models),
        }


def _check_numbers(*numbers: float) -> None:
    if not all(0 <= number < math.inf for number in numbers):
        raise InvalidInputError("a report has a number that is negative or not finite")


def _load() -> JsonObject:
    """Return the machine's load in percent, if psutil is installed."""
    try:
        import psutil
    except ImportError:
        return {}
    return {"cpu_percent": psutil.cpu_percent(interval=None), "memory_percent": psutil.virtual_memory().percent}


_reporters: list[AgentReporter] = []
"""The process-wide reporter, if there is one."""


async def init_agent_reporter(
    deployment_id: str | None = None,
    api_key: str | None = None,
    flush_interval: float | None = None,
    batch_size: int | None = None,
    *,
    clock: Clock | None = None,
    environment: Mapping[str, str] | None = None,
    **settings: Any,
) -> AgentReporter:
    """Create and start the process-wide reporter, after stopping any earlier one. An argument overrides its environment
    variable (`HELIX_DEPLOYMENT_ID`, `HELIX_API_KEY`, `HELIX_PLATFORM_URL`, `HELIX_METRICS_INTERVAL`, ...). settings: `url`,
    `enabled`, `agent_id` and the other fields of `ReporterSettings`."""
    given = {"deployment_id": deployment_id, "api_key": api_key, "flush_interval": flush_interval, **settings}
    read = read_reporter_settings(os.environ if environment is None else environment, batch_size=batch_size, **given)
    await shutdown_agent_reporter()
    _reporters.append(AgentReporter(read, clock=clock))
    await _reporters[-1].start()
    return _reporters[-1]


def get_agent_reporter() -> AgentReporter:
    """Return the process-wide reporter. Raises `InvalidInputError` before `init_agent_reporter`."""
    if not _reporters:
        raise InvalidInputError("there is no reporter: call init_agent_reporter first")
    return _reporters[-1]


async def shutdown_agent_reporter() -> None:
    """Stop the process-wide reporter, if there is one, after sending the remaining reports."""
    while _reporters:
        await _reporters.pop().stop()
