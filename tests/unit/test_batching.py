"""Batches of requests: their grouping, their order and their failures."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from helix.compat.batching import BatchConfig, BatchProcessor, BatchRequest, RequestBatcher, get_batch_processor
from helix.core.errors import BatchFailedError, InvalidInputError


class Caller:
    """A model that answers each request with its own message in capitals and stores the batches. Closed, it waits to be
    opened."""

    def __init__(self, *, closed: bool = False) -> None:
        self.batches: list[list[BatchRequest]] = []
        self.open = asyncio.Event()
        self.called = asyncio.Event()
        if not closed:
            self.open.set()

    async def __call__(self, requests: Sequence[BatchRequest]) -> list[Any]:
        self.batches.append(list(requests))
        self.called.set()
        await self.open.wait()
        return [self.answer(request) for request in requests]

    def answer(self, request: BatchRequest) -> Any:
        return request.messages.upper()

    @property
    def told(self) -> list[str]:
        return [" ".join(request.messages for request in batch) for batch in self.batches]


LONG = 60_000


def config(**options: Any) -> BatchConfig:
    return BatchConfig(**{"max_wait_time_ms": LONG, **options})


async def ask(processor: BatchProcessor, *names: str, model: str = "m", **options: Any) -> list[Any]:
    asked = [processor.process_request(name, model, **options) for name in names]
    async with asyncio.timeout(5):
        return await asyncio.gather(*asked, return_exceptions=True)


async def waiting(processor: BatchProcessor, count: int) -> None:
    async with asyncio.timeout(5):
        while processor.get_statistics()["pending_requests"] != count:
            await asyncio.sleep(0)


def test_defaults_and_bounds() -> None:
    made = BatchConfig()
    assert (made.max_batch_size, made.max_wait_time_ms, made.min_batch_size) == (10, 1000, 2)
    assert (made.enable_priority, made.priority_boost_threshold) == (True, 5)
    for bad in ({"max_batch_size": 0}, {"max_batch_size": 101}, {"min_batch_size": 11}, {"max_wait_time_ms": -1}):
        with pytest.raises(ValidationError):
            BatchConfig(**bad)


async def test_a_full_batch_goes_at_once() -> None:
    caller = Caller()
    async with BatchProcessor(config(max_batch_size=3), caller) as processor:
        assert await ask(processor, *"abcdef") == list("ABCDEF")
    assert caller.told == ["a b c", "d e f"]


async def test_the_oldest_waits_no_longer_than_it_may() -> None:
    """An incomplete batch is sent when its oldest request has waited long enough, even if more requests keep coming."""
    caller = Caller()
    async with BatchProcessor(config(max_wait_time_ms=40), caller) as processor:
        async with asyncio.timeout(5):
            tasks = [asyncio.create_task(processor.process_request("a", "m"))]
            while not caller.batches:
                tasks.append(asyncio.create_task(processor.process_request("x", "m")))
                await asyncio.sleep(0.008)
            await asyncio.gather(*tasks)
    assert caller.told[0].startswith("a x")


async def test_models_are_apart() -> None:
    caller = Caller()
    async with BatchProcessor(config(max_batch_size=2), caller) as processor:
        one, two = await asyncio.gather(ask(processor, "a", "b", model="m"), ask(processor, "c", "d", model="n"))
    assert (one, two) == (["A", "B"], ["C", "D"]) and sorted(caller.told) == ["a b", "c d"]
    assert {request.model for request in caller.batches[0]} != {request.model for request in caller.batches[1]}


async def test_too_few_go_one_by_one() -> None:
    caller = Caller()
    async with BatchProcessor(config(min_batch_size=3, max_wait_time_ms=5), caller) as processor:
        assert await ask(processor, "a", "b") == ["A", "B"]
    assert sorted(caller.told) == ["a", "b"]


async def test_the_higher_priority_goes_first() -> None:
    """The sources did not sort batches. Requests of equal priority keep their order."""
    caller = Caller()
    async with BatchProcessor(config(max_batch_size=4), caller) as processor:
        wishes = [("low", 0), ("high", 4), ("low too", 0), ("mid", 2)]
        await asyncio.gather(*(processor.process_request(name, "m", priority) for name, priority in wishes))
    assert caller.told == ["high mid low low too"]
    plain = Caller()
    async with BatchProcessor(config(max_batch_size=2, enable_priority=False), plain) as processor:
        await asyncio.gather(processor.process_request("a", "m", 0), processor.process_request("b", "m", 9))
    assert plain.told == ["a b"]


async def test_the_urgent_do_not_wait() -> None:
    caller = Caller()
    async with BatchProcessor(config(), caller) as processor:
        other = asyncio.create_task(processor.process_request("slow", "m", priority=4))
        assert await ask(processor, "now", priority=5) == ["NOW"]
        assert caller.told == ["now"]
        await waiting(processor, 1)
        await processor.stop()
        assert await other == "SLOW"


# --- failures ---


async def test_one_failure_is_its_own() -> None:
    """The sources failed all requests of a batch if one of them failed."""

    class Picky(Caller):
        def answer(self, request: BatchRequest) -> Any:
            return ValueError("not b") if request.messages == "b" else super().answer(request)

    async with BatchProcessor(config(max_batch_size=3), Picky()) as processor:
        a, b, c = await ask(processor, "a", "b", "c")
    assert (a, c) == ("A", "C") and isinstance(b, ValueError)
    assert processor.get_statistics()["failed_requests"] == 1


async def test_a_batch_that_fails_fails_no_other() -> None:
    class Moody(Caller):
        async def __call__(self, requests: Sequence[BatchRequest]) -> list[Any]:
            answers = await super().__call__(requests)
            if requests[0].messages == "a":
                raise RuntimeError("the provider is away")
            return answers

    async with BatchProcessor(config(max_batch_size=2), Moody()) as processor:
        a, b, c, d = await ask(processor, *"abcd")
    assert isinstance(a, RuntimeError) and isinstance(b, RuntimeError) and (c, d) == ("C", "D")


@pytest.mark.parametrize("cut", [1, 3])
async def test_a_wrong_number_of_answers_answers_nobody(cut: int) -> None:
    """The answers cannot be matched to requests, so that batch fails with a typed error and no other batch does."""

    class Miscounting(Caller):
        async def __call__(self, requests: Sequence[BatchRequest]) -> list[Any]:
            answers = await super().__call__(requests)
            return (answers * 2)[:cut] if requests[0].messages == "a" else answers

    async with BatchProcessor(config(max_batch_size=2), Miscounting()) as processor:
        a, b, c, d = await ask(processor, *"abcd")
    assert isinstance(a, BatchFailedError) and isinstance(b, BatchFailedError) and (c, d) == ("C", "D")
    assert f"{cut} answers to 2 requests" in str(a) and not a.retryable


async def test_a_batch_that_takes_too_long_fails() -> None:
    async with BatchProcessor(config(max_batch_size=2, timeout_s=0.02), Caller(closed=True)) as processor:
        a, b = await ask(processor, "a", "b")
    assert isinstance(a, BatchFailedError) and a.retryable and "0.02 s" in str(b)


async def test_a_timeout_of_the_callers_own_is_its_own() -> None:
    async def late(requests: Sequence[BatchRequest]) -> list[Any]:
        raise TimeoutError("the provider's")

    async with BatchProcessor(config(max_batch_size=1, min_batch_size=1), late) as processor:
        (a,) = await ask(processor, "a")
    assert type(a) is TimeoutError


async def test_who_stops_waiting_harms_no_other() -> None:
    """A request that is cancelled before its batch is sent leaves the batch. Later, its answer is dropped."""
    caller = Caller(closed=True)
    async with BatchProcessor(config(max_batch_size=2), caller) as processor:
        gone = asyncio.create_task(processor.process_request("gone", "m"))
        await waiting(processor, 1)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        assert processor.get_statistics()["pending_requests"] == 0
        stays, leaves = (asyncio.create_task(processor.process_request(name, "m")) for name in ("stays", "leaves"))
        await asyncio.wait_for(caller.called.wait(), 5)
        leaves.cancel()
        caller.open.set()
        assert await stays == "STAYS"
    assert caller.told == ["stays leaves"]
    assert processor.get_statistics()["cancelled_requests"] == 2


async def test_when_the_oldest_leaves_the_next_ones_time_counts() -> None:
    caller = Caller()
    async with BatchProcessor(config(max_wait_time_ms=50), caller) as processor:
        leaves, stays = (asyncio.create_task(processor.process_request(name, "m")) for name in ("leaves", "stays"))
        await waiting(processor, 2)
        leaves.cancel()
        assert await asyncio.wait_for(stays, 5) == "STAYS"
    assert caller.told == ["stays"]


# --- start and stop ---


async def test_leaving_it_sends_what_waits_and_waits_for_the_answers() -> None:
    async with BatchProcessor(config(), Caller()) as processor:
        task = asyncio.create_task(processor.process_request("a", "m"))
        await waiting(processor, 1)
    assert task.result() == "A"


async def test_stopping_sends_what_waits() -> None:
    caller = Caller()
    processor = BatchProcessor(config=config(), llm_caller=caller)
    with pytest.raises(InvalidInputError, match="start"):
        await processor.process_request("a", "m")
    await processor.start()
    tasks = [asyncio.create_task(processor.process_request(name, "m")) for name in "abc"]
    await waiting(processor, 3)
    await processor.stop()
    assert [task.result() for task in tasks] == ["A", "B", "C"] and caller.told == ["a b c"]
    with pytest.raises(InvalidInputError, match="start"):
        await processor.process_request("a", "m")


async def test_statistics() -> None:
    async with BatchProcessor(config(max_batch_size=3), Caller()) as processor:
        await ask(processor, *"abc")
        await ask(processor, "d", priority=9)
        assert processor.get_statistics() == {
            "total_requests": 4,
            "total_batches": 1,
            "total_singles": 1,
            "failed_requests": 0,
            "cancelled_requests": 0,
            "average_batch_size": 2.0,
            "pending_requests": 0,
            "running": True,
        }


async def test_parameters_reach_the_caller() -> None:
    caller = Caller()
    async with BatchProcessor(config(max_batch_size=1, min_batch_size=1), caller) as processor:
        await processor.process_request("a", "m", 3, temperature=0.5)
    assert caller.batches[0][0] == BatchRequest("a", "m", 3, {"temperature": 0.5})


async def test_one_processor_per_process() -> None:
    assert get_batch_processor() is get_batch_processor() and RequestBatcher is BatchProcessor
    with pytest.raises(InvalidInputError, match="llm_caller"):
        await BatchProcessor().start()
    processor = BatchProcessor().use(Caller())
    async with processor:
        assert await ask(processor, "a", priority=5) == ["A"]
