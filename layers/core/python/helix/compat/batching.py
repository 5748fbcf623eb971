"""Requests to models, sent in batches: those of one model together, the urgent first.

Law: every request gets its own answer or its own failure, once. A batch that fails fails the requests it held and no
others; a caller that stops waiting takes only its own request away.
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
    """max_batch_size: requests that one call takes. max_wait_time_ms: how long the oldest waits for company.
    min_batch_size: smaller batches are sent one by one. enable_priority: the higher priority goes first, and requests of
    `priority_boost_threshold` or more do not wait at all. timeout_s: how long one call may take."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_batch_size: int = Field(default=10, ge=1, le=100)
    max_wait_time_ms: float = Field(default=1000, ge=0, allow_inf_nan=False)
    min_batch_size: int = Field(default=2, ge=1, le=100)
    enable_priority: bool = True
    priority_boost_threshold: int = 5
    timeout_s: float = Field(default=DEFAULT_TIMEOUT_S, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _in_order(self) -> BatchConfig:
        if self.min_batch_size > self.max_batch_size:
            raise ValueError(f"min_batch_size {self.min_batch_size} is more than max_batch_size {self.max_batch_size}")
        return self


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """What the caller is given. `messages` is whatever was asked: a conversation, or texts to embed."""

    messages: Any
    model: str
    priority: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)


LLMCaller = Callable[[Sequence[BatchRequest]], Awaitable[Sequence[Any]]]
"""Takes the requests of one model; gives an answer for each, in order. An answer that is an exception fails its request."""


@dataclass(slots=True)
class _Waiting:
    request: BatchRequest
    since: float
    answer: asyncio.Future[Any]


class BatchProcessor:
    """Give it to as many tasks as you like; between `start` and `stop` (or in `async with`) it takes requests."""

    def __init__(self, config: BatchConfig | None = None, llm_caller: LLMCaller | None = None) -> None:
        self.config = config or BatchConfig()
        self._caller = llm_caller
        self._waiting: dict[str, list[_Waiting]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._counts: Counter[str] = Counter()
        self._running = False

    def use(self, llm_caller: LLMCaller) -> BatchProcessor:
        """Whom to call; before `start`."""
        self._caller = llm_caller
        return self

    async def start(self) -> None:
        """Raises `InvalidInputError` where there is nobody to call."""
        if self._caller is None:
            raise InvalidInputError("a BatchProcessor needs an llm_caller: give one, or call use(...)")
        self._running = True

    async def stop(self) -> None:
        """Take no more, send what waits at once, and return when all of it is answered."""
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
        """The caller's answer to this request. Raises what the caller gave or raised for it, `BatchFailedError` where it
        gave nothing or took too long, and `InvalidInputError` before `start` and after `stop`."""
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
            self._forget(item)
            raise

    def get_statistics(self) -> dict[str, Any]:
        """Counts since it was made: requests, calls (`batches` of several, `singles`), failed and cancelled requests, the
        mean size of a call, and what waits now."""
        counts = self._counts
        calls = counts["total_batches"] + counts["total_singles"]
        names = ("total_requests", "total_batches", "total_singles", "failed_requests", "cancelled_requests")
        return {
            **{name: counts[name] for name in names},
            "average_batch_size": counts["sent"] / calls if calls else 0.0,
            "pending_requests": sum(map(len, self._waiting.values())),
            "running": self._running,
        }

    # --- when a batch goes --------------------------------------------------------------------------------------------

    def _wake(self, model: str) -> None:
        """Send at once what fills a batch; let the rest wait until the oldest has waited long enough."""
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
            waiting.sort(key=lambda item: -item.request.priority)  # equals keep their order
        size = self.config.max_batch_size
        for start in range(0, len(waiting), size):
            batch = waiting[start : start + size]
            for part in [[item] for item in batch] if len(batch) < self.config.min_batch_size else [batch]:
                self._send(part)

    def _stop_timer(self, model: str) -> None:
        timer = self._timers.pop(model, None)
        if timer is not None:
            timer.cancel()

    def _forget(self, item: _Waiting) -> None:
        """The caller was cancelled: the request goes, where it was not sent yet."""
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
            # Nobody can tell which answer belongs to whom: one that is wrong is worse than none.
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
    """This process's processor; say whom to call with `use` before its first `start`."""
    return BatchProcessor()
