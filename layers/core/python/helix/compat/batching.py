"""Batches model requests by model, with urgent requests first.

Law: every request gets exactly one answer or error. A failed batch fails only its own requests. A caller that stops waiting
removes only its own request.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from helix.core.errors import BatchFailedError, InvalidInputError

DEFAULT_TIMEOUT_S = 60.0


class BatchConfig(BaseModel):
    """The settings of a `BatchProcessor`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_batch_size: int = Field(default=10, ge=1, le=100)
    """The maximum number of requests in one call."""
    max_wait_time_ms: float = Field(default=1000, ge=0, allow_inf_nan=False)
    """The maximum time in milliseconds that the oldest request waits for others to join its batch."""
    min_batch_size: int = Field(default=2, ge=1, le=100)
    """The minimum batch size. Requests of a smaller batch are sent one by one."""
    enable_priority: bool = True
    """Whether requests with a higher priority are sent first."""
    priority_boost_threshold: int = 5
    """The priority from which requests are sent without waiting, if `enable_priority` is set."""
    timeout_s: float = Field(default=DEFAULT_TIMEOUT_S, gt=0, allow_inf_nan=False)
    """The timeout of one call, in seconds."""

    @model_validator(mode="after")
    def _in_order(self) -> BatchConfig:
        if self.min_batch_size > self.max_batch_size:
            raise ValueError(f"min_batch_size {self.min_batch_size} is more than max_batch_size {self.max_batch_size}")
        return self


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """A request, as the `llm_caller` receives it."""

    messages: Any
    """The content to send: a conversation, or texts to embed."""
    model: str
    """The model to call. All requests of one call have the same model."""
    priority: int = 0
    """The priority. Higher ones are sent first."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The other arguments of `process_request`."""


LLMCaller = Callable[[Sequence[BatchRequest]], Awaitable[Sequence[Any]]]
"""A function that takes requests for one model and returns an answer for each, in order. An exception in place of an answer
fails only that request."""


@dataclass(slots=True)
class _Waiting:
    request: BatchRequest
    """The request to send."""
    since: float
    """The arrival time, on the event loop's clock."""
    answer: asyncio.Future[Any]
    """The future that its caller awaits."""


class BatchProcessor:
    """A batch processor that any number of tasks may share. It accepts requests between `start` and `stop`, or inside
    `async with`."""

    def __init__(self, config: BatchConfig | None = None, llm_caller: LLMCaller | None = None) -> None:
        self.config = config or BatchConfig()
        self._caller = llm_caller
        self._waiting: dict[str, list[_Waiting]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._counts: Counter[str] = Counter()
        self._running = False

    def use(self, llm_caller: LLMCaller) -> BatchProcessor:
        """Set the function that calls the model. Call it before `start`."""
        self._caller = llm_caller
        return self

    async def start(self) -> None:
        """Accept requests from now on. Raises `InvalidInputError` without an `llm_caller`."""
        if self._caller is None:
            raise InvalidInputError("a BatchProcessor needs an llm_caller: give one, or call use(...)")
        self._running = True

    async def stop(self) -> None:
        """Stop accepting requests, send the waiting ones at once, and return when all have an answer."""
        self._running = False
        for model in list(self._waiting):
            self._flush(model)
        while self._calls:
            await asyncio.gather(*self._calls, return_exceptions=True)

    async def __aenter__(self) -> BatchProcessor:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def process_request(self, messages: Any, model: str, priority: int = 0, **parameters: Any) -> Any:
        """Return the answer of `llm_caller` to this request. Raises the error that `llm_caller` returned or raised for it.
        Raises `BatchFailedError` if it returned no answer or timed out, and `InvalidInputError` before `start` and after
        `stop`."""
        if not self._running:
            raise InvalidInputError("the BatchProcessor is not running: call start() first")
        loop = asyncio.get_running_loop()
        request = BatchRequest(messages, model, priority, parameters)
        item = _Waiting(request, loop.time(), loop.create_future())
        self._counts["total_requests"] += 1
        if self.config.enable_priority and priority >= self.config.priority_boost_threshold:
            self._send([item])
        else:
            self._waiting.setdefault(model, []).append(item)
            self._wake(model)
        try:
            return await item.answer
        except asyncio.CancelledError:
            self._remove_request(item)
            raise

    def get_statistics(self) -> dict[str, Any]:
        """Return counts since the processor was created: requests, calls (`batches` of several, `singles`), failed and
        cancelled requests, the mean size of a call, and the number of waiting requests."""
        counts = self._counts
        calls = counts["total_batches"] + counts["total_singles"]
        names = ("total_requests", "total_batches", "total_singles", "failed_requests", "cancelled_requests")
        return {
            **{name: counts[name] for name in names},
            "average_batch_size": counts["sent"] / calls if calls else 0.0,
            "pending_requests": sum(map(len, self._waiting.values())),
            "running": self._running,
        }

    # --- when to send a batch -----------------------------------------------------------------------------------------

    def _wake(self, model: str) -> None:
        """Send a full batch at once. Otherwise schedule it for when the oldest request has waited long enough."""
        waiting = self._waiting.get(model, [])
        if len(waiting) >= self.config.max_batch_size:
            self._flush(model)
        elif waiting and model not in self._timers:
            due = waiting[0].since + self.config.max_wait_time_ms / 1000
            self._timers[model] = asyncio.get_running_loop().call_at(due, self._flush, model)

    def _flush(self, model: str) -> None:
        self._stop_timer(model)
        waiting = self._waiting.pop(model, [])
        if self.config.enable_priority:
            waiting.sort(key=lambda item: -item.request.priority)  # a stable sort: equals keep their order
        size = self.config.max_batch_size
        for start in range(0, len(waiting), size):
            batch = waiting[start : start + size]
            for part in [[item] for item in batch] if len(batch) < self.config.min_batch_size else [batch]:
                self._send(part)

    def _stop_timer(self, model: str) -> None:
        timer = self._timers.pop(model, None)
        if timer is not None:
            timer.cancel()

    def _remove_request(self, item: _Waiting) -> None:
        """Remove the request of a cancelled caller, unless it was already sent."""
        self._counts["cancelled_requests"] += 1
        model = item.request.model
        waiting = self._waiting.get(model, [])
        if item not in waiting:
            return
        waiting.remove(item)
        self._stop_timer(model)
        if waiting:
            self._wake(model)
        else:
            del self._waiting[model]

    # --- one call -----------------------------------------------------------------------------------------------------

    def _send(self, batch: list[_Waiting]) -> None:
        task = asyncio.get_running_loop().create_task(self._call(batch), name="helix:batch")
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _call(self, batch: list[_Waiting]) -> None:
        assert self._caller is not None
        self._counts.update({"total_singles" if len(batch) == 1 else "total_batches": 1, "sent": len(batch)})
        try:
            async with asyncio.timeout(self.config.timeout_s) as limit:
                answers = list(await self._caller([item.request for item in batch]))
        except asyncio.CancelledError:
            for item in batch:
                item.answer.cancel()
            raise
        except Exception as error:
            late = isinstance(error, TimeoutError) and limit.expired()
            problem = f"no answer within {self.config.timeout_s:g} s"
            answers = [BatchFailedError(problem, retryable=True) if late else error] * len(batch)
        if len(answers) != len(batch):
            # The answers cannot be matched to requests, and a wrong answer is worse than a failure.
            problem = f"the caller gave {len(answers)} answers to {len(batch)} requests"
            answers = [BatchFailedError(problem)] * len(batch)
        for item, answer in zip(batch, answers, strict=True):
            failed = isinstance(answer, BaseException)
            self._counts["failed_requests"] += failed
            if not item.answer.done():
                (item.answer.set_exception if failed else item.answer.set_result)(answer)


RequestBatcher = BatchProcessor


@cache
def get_batch_processor() -> BatchProcessor:
    """Return the process-wide processor. Set its `llm_caller` with `use` before the first `start`."""
    return BatchProcessor()
