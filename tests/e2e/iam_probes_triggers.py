"""Probes of the functions that start runs for events and for HTTP requests. Both claim a run as a client's message does."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from tests.e2e.iam_bench import LARGE, USER, Bench, Json, Prepare, probe
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.cloud_agents.tools import noise

from helix.engine.runs.ends import fail_run

TRIGGERS: dict[str, Any] = {
    agent: {"agent": agent, "queue": True, "user": USER, "session": "{session}", "prompt": "{message}"}
    for agent in ("talker", "roomy", "chief", "boss")
} | {"api": {"http": True}}
VERBS = ("start_triggered", "serve_http")
NEVER = plan(say("Never said."))


def starting(**rights: str) -> Callable[[Callable[[Bench], Awaitable[Json]]], Prepare]:
    """Register a probe for both functions. `prepare` returns the agent, the session and the message."""

    def add(prepare: Callable[[Bench], Awaitable[Json]]) -> Prepare:
        async def of_event(bench: Bench) -> Json:
            return event_of(bench, await prepare(bench))

        async def of_request(bench: Bench) -> Json:
            return request_of(bench, await prepare(bench))

        for verb, made in zip(VERBS, (of_event, of_request), strict=True):
            made.__name__ = f"{prepare.__name__}_by_{verb}"
            probe(verb, **rights)(made)
        return prepare

    return add


def event_of(bench: Bench, asked: Json) -> Json:
    body = {"session": asked["session_id"].removeprefix(f"{USER}:"), "message": asked["message"]}
    return record_of(bench, asked["agent"], json.dumps(body))


def record_of(bench: Bench, trigger: str, body: str) -> Json:
    queue = f"arn:aws:sqs:us-east-1:000000000000:helix-test-trigger-{trigger}"
    return {"Records": [{"messageId": bench.fresh(), "body": body, "eventSourceARN": queue}]}


def request_of(bench: Bench, body: Json) -> Json:
    headers = {"authorization": f"Bearer {bench.cloud.key(USER)}", "idempotency-key": bench.fresh()}
    given = {"routeKey": "POST /run", "headers": headers, "requestContext": {"requestId": "r1"}}
    return {**given, "body": json.dumps(body)}


def asked(session_id: str, agent: str = "talker", message: str = NEVER) -> Json:
    return {"agent": agent, "session_id": session_id, "message": message}


@starting(
    sessions="BatchGetItem GetItem Query PutItem ConditionCheckItem",
    control="PutItem",
    streams="GetItem Query PutItem",
    chunks="PutRecord",
    machines="StartExecution",
)
async def a_start(bench: Bench) -> Json:
    return asked(bench.fresh())


@starting(control="BatchGetItem ConditionCheckItem")
async def a_start_that_waits(bench: Bench) -> Json:
    return asked(bench.fresh(), "chief")


@starting(objects="GetObject")
async def a_start_with_a_large_state(bench: Bench) -> Json:
    return asked(await _large(bench))


async def _large(bench: Bench) -> str:
    place = await bench.ended(state={"notes": {"before": noise(LARGE)}})
    await bench.finished(place)
    return place.session_id


@probe("start_triggered", objects="PutObject")
async def an_event_with_a_large_message(bench: Bench) -> Json:
    return event_of(bench, asked(bench.fresh(), message=plan(say(noise(LARGE)))))


@probe("serve_http", objects="PutObject")
async def a_request_that_changes_a_large_state(bench: Bench) -> Json:
    return request_of(bench, asked(await _large(bench)) | {"state": {"total": 1}})


@starting(sessions="UpdateItem", control="GetItem Query UpdateItem DeleteItem")
async def a_start_behind_an_open_end(bench: Bench) -> Json:
    """The previous run has ended, and its worker died before the effects, so the run still holds its slot."""
    return asked((await bench.ended(agent="roomy")).session_id, "roomy")


@starting(sessions="DeleteItem", tokens="SendTaskSuccess")
async def a_start_behind_a_sub_agent(bench: Bench) -> Json:
    """A sub-agent still works for a run whose execution was stopped, and the new message abandons it."""
    above, _, _ = await bench.child(use(call("look", topic="x")))
    await fail_run(bench.engine, bench.app.agents.named("boss"), above, bench.delivery())
    return asked(above.session_id, "boss")


@probe("start_triggered", failures="SendMessage")
async def an_event_that_starts_nothing(bench: Bench) -> Json:
    return record_of(bench, "talker", "no JSON")
