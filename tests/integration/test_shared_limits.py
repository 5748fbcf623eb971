"""Limits of models that all workers share: who waits where, and what a crash or a second delivery costs."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.delivery_stage import Json, Stage
from tests.support.model_dialects import OPENAI, DialectServer, Fails, Says
from tests.support.state_machine import Machines, StateMachine
from tests.support_run import agent

from helix import LLMConfig, LocalExecutor, MemoryStateStore, ScriptedModel
from helix.adapters.models.adapter import ModelAdapter
from helix.core.agents import AnyAgent
from helix.core.errors import InvalidInputError
from helix.core.model_limits import MICROS_A_SECOND, Limit, ReportedLimit, parse_limits, reported_limit
from helix.core.steps import ErrorStepResult
from helix.engine.writing import at_version, session_put
from helix.services.model_limits import CallLimits, ModelLimits, cell_key
from helix.testing.clocks import SetClock
from helix.testing.invariants import check_session
from helix.testing.loopback_server import LoopbackServer, RecordedRequest, Responder

MODEL, FALLBACK = "openai/gpt-4o-mini", "openai/gpt-4o"
TWO = {MODEL: Limit(requests=2)}
SPACING_S = 60 / 2 / 0.97


def caller(name: str = "caller", **fields: Any) -> AnyAgent:
    return agent(name, llm_config=LLMConfig(model=MODEL, **fields))


def limited_stage(script: Any, who: AnyAgent) -> Stage:
    stage = Stage(script, who)
    stage.engine.limits = ModelLimits(stage.store, stage.clock, TWO)
    return stage


async def deliver(stage: Stage, event: Json) -> Json:
    """Deliver as the state machine does, which can wait."""
    return await stage.deliver("call_model", {**event, "waits": True})


async def turns_taken(stage: Stage) -> float:
    """Return for how many seconds from now the model has no free turn."""
    (cell,) = await stage.store.get([cell_key(MODEL)])
    return 0.0 if cell is None else cell["requests_at"] / MICROS_A_SECOND - stage.clock.now()


# --- where a call waits ----------------------------------------------------------------------------------------------


async def test_a_function_ends_and_the_state_machine_waits() -> None:
    """The second call has no turn for half a minute. Its function ends at once without a claim, a reservation or a
    request. When the wait is over, the turn is still its own."""
    who = caller()
    stage = limited_stage(["one", "two"], who)
    assert (await deliver(stage, await stage.begin(who)))["next"] == "finish"
    event = await stage.begin(who)
    told = await deliver(stage, event)
    assert (told["next"], told["step"]) == ("wait", event["step"]) and 28 <= told["seconds"] <= 31
    session = await stage.session(event)
    assert session.claim is None and not session.blocks and len(stage.model.requests) == 1
    taken = await turns_taken(stage)
    assert (await deliver(stage, told))["next"] == "wait", "it came too early"
    assert abs(await turns_taken(stage) - taken) < 5, "a second delivery took another turn"
    stage.clock.ahead_s += told["seconds"] + 1
    assert (await deliver(stage, told))["next"] == "finish"
    assert (await stage.session(event)).status == "completed" and len(stage.model.requests) == 2
    await check_session(stage.store, stage.engine.streams, event["session_id"])


async def test_an_execution_of_an_earlier_version_is_never_asked_to_wait() -> None:
    """Its state machine has no such state. The function waits as before."""
    who = caller()
    stage = limited_stage(["one", "two"], who)
    stage.engine.limits = ModelLimits(stage.store, stage.clock, {MODEL: Limit(requests=1_000)})
    await stage.engine.limits.take(MODEL, lambda: 0)
    await stage.engine.limits.pause(MODEL, 3)
    event = await stage.begin(who)
    assert (await deliver(stage, event))["next"] == "wait"
    assert (await stage.deliver("call_model", event))["next"] == "finish"


async def test_all_runs_of_a_burst_have_their_turn() -> None:
    """The real definition plays five runs at once. No function lasts for long, and the calls are apart as the limit
    wants."""
    who, clock = caller(), SetClock(1_800_000_000.0)
    stage = Stage(ScriptedModel(["fine"], repeat=True, record=True), who, clock=clock, stop_poll_s=3_600)
    stage.engine.limits = ModelLimits(stage.store, clock, TWO)
    asked, waited = list[float](), list[float]()

    async def invoke(verb: str, payload: Json) -> Json:
        before, requests = clock.now(), len(stage.model.requests)
        told = await stage.deliver(verb, payload, left_s=900)
        waited.append(clock.now() - before)
        asked.extend([before] * (len(stage.model.requests) - requests))
        return told

    stage.engine.launcher = machines = Machines(StateMachine(invoke, wait=clock.sleep))
    for _ in range(5):
        await stage.executor.execute(who, "go")
    ended = asyncio.ensure_future(machines.ended())
    while not ended.done():
        await asyncio.sleep(0.005)
        clock.advance(1)
    assert {execution.status for execution in machines.executions.values()} == {"SUCCEEDED"}
    assert len(asked) == 5 and max(waited) <= 2
    asked.sort()
    assert all(abs(at - asked[0] - n * SPACING_S) <= 3 for n, at in enumerate(asked)), asked


async def test_a_retry_that_must_wait_for_long_leaves_the_function() -> None:
    """The provider asks for 20 s. The attempt's row and usage are kept, the claim is returned, and the next delivery asks
    again when the time has come."""
    busy = ErrorStepResult(error="slow down", code="rate_limited", retryable=True, retry_after_s=20)
    who = caller()
    stage = Stage([busy, "fine"], who)
    event = await stage.begin(who)
    told = await deliver(stage, event)
    assert told["next"] == "wait" and 19 <= told["seconds"] <= 22
    session = await stage.session(event)
    assert session.claim is None and session.status == "running"
    await check_session(stage.store, stage.engine.streams, event["session_id"])
    assert (await deliver(stage, told))["next"] == "wait"
    stage.clock.ahead_s += told["seconds"] + 1
    assert (await deliver(stage, told))["next"] == "finish"
    assert (await stage.session(event)).status == "completed"


async def test_a_worker_that_dies_with_its_turn_costs_one_turn() -> None:
    """Its request may have reached the provider, so the next delivery takes a turn of its own, and only one."""
    who = caller()
    stage = limited_stage(["one", {"content": "late", "delay_s": 3600}, "two"], who)
    stage.engine.limits = ModelLimits(stage.store, stage.clock, {MODEL: Limit(requests=60)})
    event = await stage.begin(who)
    assert (await deliver(stage, event))["next"] == "finish"
    event = await stage.begin(who)
    dead = asyncio.ensure_future(deliver(stage, event))
    while len(stage.model.requests) < 2:
        await asyncio.sleep(0.01)
    taken = await turns_taken(stage)
    session = await stage.session(event)
    assert session.claim is not None
    held = session.claim.model_copy(update={"deadline": stage.clock.now() - 1})
    new = session.model_copy(update={"claim": held, "version": session.version + 1})
    await stage.store.transact("expire", [session_put(new, at_version(session))])
    assert (await deliver(stage, event))["next"] == "finish"
    assert await turns_taken(stage) - taken < 1.1
    assert (await stage.session(event)).status == "completed"
    dead.cancel()
    await asyncio.gather(dead, return_exceptions=True)


async def test_a_stored_turn_of_a_fallback_is_found_although_the_model_is_asked_first() -> None:
    """Neither has a turn for over a minute, so the call takes one of the fallback. A later delivery, for which the model
    has one soon, uses that turn."""
    who = caller(fallbacks=[FALLBACK])
    stage = Stage(ScriptedModel(["fine"], repeat=True, record=True), who)
    stage.engine.clock = stage.clock = SetClock(stage.clock.now())
    limits = {MODEL: Limit(requests=1), FALLBACK: Limit(requests=2)}
    stage.engine.limits = ModelLimits(stage.store, stage.clock, limits)
    stage.model.repeats_failures = True  # as an adapter that asks fallbacks itself
    for _ in range(4):  # the model's turns and the fallback's first ones are gone
        for model in limits:
            await stage.engine.limits.take(model, lambda: 0, most_s=75)
    event = await stage.begin(who)
    told, taken = await deliver(stage, event), await turns_taken(stage) + stage.clock.now()
    waits = 0
    while told["next"] == "wait":
        waits += 1
        stage.clock.advance(told["seconds"] + 1)
        told = await deliver(stage, told)
    assert told["next"] == "finish" and waits == 2
    assert await turns_taken(stage) + stage.clock.now() == taken, "a turn of the model was taken too"
    assert [request.config.model for request in stage.model.requests] == [FALLBACK]


async def test_a_learned_limit_that_has_ended_costs_no_write() -> None:
    store, clock = MemoryStateStore(), SetClock(1_000_000.0)
    limits = ModelLimits(store, clock)
    await limits.learn(MODEL, ReportedLimit(Limit(tokens=1000), low=True))
    await CallLimits(limits, tokens=lambda: 500, learns=True).turn(MODEL)
    (before,) = await store.get([cell_key(MODEL)])
    clock.advance(3600)
    call = CallLimits(limits, tokens=lambda: 500, learns=True)
    await call.turn(MODEL)
    await call.tried(MODEL, used=10)
    assert (await store.get([cell_key(MODEL)])) == [before]


async def test_retries_end_also_when_they_wait_outside() -> None:
    busy = ErrorStepResult(error="slow down", code="rate_limited", retryable=True, retry_after_s=20)
    who = caller(max_retries=2)
    stage = Stage(ScriptedModel([busy], repeat=True, record=True), who)
    told = event = await stage.begin(who)
    waits = 0
    stage.engine.clock = stage.clock = clock = SetClock(stage.clock.now())
    stage.engine.limits = ModelLimits(stage.store, clock)
    while True:
        delivery = asyncio.ensure_future(deliver(stage, told))
        while not delivery.done():
            await asyncio.sleep(0.005)
            clock.advance(1)
        told = await delivery
        if told["next"] != "wait":
            break
        waits += 1
        clock.advance(told["seconds"])
    session = await stage.session(event)
    assert session.error is not None and session.error.code == "rate_limited"
    assert (waits, len(stage.model.requests)) == (2, 3)


# --- in a process ----------------------------------------------------------------------------------------------------


async def test_executors_of_one_store_share_a_limit(tmp_path: Path) -> None:
    """Two executors make four requests at once. The later ones start when the limit allows it."""
    store, limits = tmp_path / "helix.db", {MODEL: {"requests": 30}}
    model = ScriptedModel(["fine"], repeat=True, record=True)
    loop = asyncio.get_running_loop()
    async with LocalExecutor(store, model=model, limits=limits) as one:
        async with LocalExecutor(store, model=model, limits=limits) as other:
            begun = loop.time()
            handles = [await each.execute(caller(), "go") for each in (one, other, one, other)]
            assert {(await handle.result()).status for handle in handles} == {"completed"}
            assert loop.time() - begun > 60 / 30 - 0.1


async def granted(executor: LocalExecutor) -> Any:
    """Return the time until which turns are granted."""
    (cell,) = await executor.store.get([cell_key(MODEL)])
    assert cell is not None
    return cell["requests_at"]


async def test_a_wait_ends_with_an_interrupt() -> None:
    async with LocalExecutor(
        ":memory:", model=ScriptedModel(["x"], repeat=True), limits={MODEL: {"requests": 1}}
    ) as ex:
        assert (await (await ex.execute(caller(), "go")).result()).status == "completed"
        first = await granted(ex)
        handle = await ex.execute(caller(), "go")
        while await granted(ex) == first:  # until the call waits for its turn
            await asyncio.sleep(0.005)
        await handle.interrupt()
        assert (await asyncio.wait_for(handle.result(), 20)).status == "interrupted"


# --- what providers report -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "limit", "low"),
    [
        (
            {
                "x-ratelimit-limit-requests": "500",
                "x-ratelimit-remaining-requests": "499",
                "x-ratelimit-limit-tokens": "200000",
                "x-ratelimit-remaining-tokens": "90000",
            },
            Limit(500, 200_000),
            True,
        ),
        (
            {"anthropic-ratelimit-requests-limit": "50", "anthropic-ratelimit-requests-remaining": "49"},
            Limit(50),
            False,
        ),
        ({"x-ratelimit-limit-requests": "0", "x-ratelimit-limit-tokens": "many"}, None, False),
        ({}, None, False),
    ],
)
def test_a_limit_is_read_from_headers(headers: dict[str, str], limit: Limit | None, low: bool) -> None:
    found = reported_limit(headers)
    assert (None if found is None else found.limit, found is not None and found.low) == (limit, low)


async def test_a_refusal_and_its_headers_are_shared(tmp_path: Path) -> None:
    """One process is refused. The others neither ask again before the time is up nor faster than the limit allows."""
    asked = list[float]()
    ok: list[dict[str, Any]] = [{"delta": {"content": "hi"}}, {"delta": {}, "finish_reason": "stop"}]

    async def answer(_: RecordedRequest, responder: Responder) -> None:
        asked.append(time.monotonic())
        if len(asked) == 1:
            headers = {"retry-after": "2", "x-ratelimit-limit-requests": "20", "x-ratelimit-remaining-requests": "0"}
            await responder.send_json(429, {"error": {"message": "slow down"}}, headers)
            return
        await responder.start(200, {"content-type": "text/event-stream"})
        for choice in ok:
            await responder.send(f"data: {json.dumps({'choices': [{'index': 0, **choice}]})}\n\n".encode())
        await responder.send(b"data: [DONE]\n\n")
        await responder.end()

    with LoopbackServer(answer) as server:
        options = {"api_base": f"{server.origin}/v1", "api_key": "test"}
        who = caller(api="chat", adapter="native", provider_options=options)
        async with LocalExecutor(tmp_path / "helix.db", model=ModelAdapter()) as one:
            first = await one.execute(who, "go")
            while not asked:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.5)
            async with LocalExecutor(tmp_path / "helix.db", model=ModelAdapter()) as other:
                second = await other.execute(who, "go")
                assert {(await each.result()).status for each in (first, second)} == {"completed"}
    assert len(asked) == 3 and asked[1] - asked[0] >= 2 and asked[2] - asked[1] > 1.5, asked


# --- fallbacks -------------------------------------------------------------------------------------------------------


async def test_a_fallback_that_works_is_kept_for_a_while(tmp_path: Path) -> None:
    """The first model is dead. The next run asks the fallback at once, also in another process."""
    down = Fails(401, "authentication_error", "dead")
    server = DialectServer(OPENAI, [down, *[Says("hi", stop="end_turn")] * 3]).start()
    try:
        who = caller(fallbacks=[FALLBACK], provider_options=OPENAI.options(server.origin))
        for _ in range(2):
            async with LocalExecutor(tmp_path / "helix.db", model=ModelAdapter()) as executor:
                assert (await (await executor.execute(who, "go")).result()).status == "completed"
        assert [asked.json["model"] for asked in server.requests] == ["gpt-4o-mini", "gpt-4o", "gpt-4o"]
    finally:
        server.stop()


async def test_a_request_that_was_refused_for_its_content_says_nothing_of_its_model(tmp_path: Path) -> None:
    refused = Fails(400, "invalid_request_error", "no")
    server = DialectServer(OPENAI, [refused, *[Says("hi", stop="end_turn")] * 3]).start()
    try:
        who = caller(fallbacks=[FALLBACK], provider_options=OPENAI.options(server.origin))
        async with LocalExecutor(tmp_path / "helix.db", model=ModelAdapter()) as executor:
            for _ in range(2):
                assert (await (await executor.execute(who, "go")).result()).status == "completed"
        assert [asked.json["model"] for asked in server.requests] == ["gpt-4o-mini", "gpt-4o", "gpt-4o-mini"]
    finally:
        server.stop()


# --- declarations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ([], "must be a table of models"),
        ({MODEL: 5}, "must be a table with requests or tokens"),
        ({MODEL: {}}, "has no limit"),
        ({MODEL: {"request": 5}}, "unknown key 'request'.*did you mean 'requests'"),
        ({MODEL: {"requests": 0}}, "must be a whole number"),
        ({MODEL: {"tokens": True}}, "must be a whole number"),
        ({MODEL: {"tokens": 1.5}}, "must be a whole number"),
    ],
)
def test_an_invalid_limit_is_named(table: Any, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        parse_limits(table)
