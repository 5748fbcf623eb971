"""Calls that end elsewhere, as the deployed functions serve them on DynamoDB."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import boto3
import pytest
from tests.functions.conftest import ACCOUNT, REGION, Functions
from tests.functions.test_http import Api
from tests.functions.test_run_verbs import ids, steps
from tests.support_run import agent, calls
from tests.support_run import call as a_call

from helix import Agent, CallEndedError, InvalidCallTokenError, ToolContext, tool
from helix.core.elsewhere import CallToken
from helix.core.messages import ToolResultMessage
from helix.core.triggers import Trigger, dump_starts

REPORTS = f"arn:aws:sqs:{REGION}:{ACCOUNT}:helix-dev-trigger-reports"
EVENTS = f"arn:aws:sqs:{REGION}:{ACCOUNT}:helix-dev-triggers"
TRIGGERS = {
    "reports": Trigger(queue=True, calls=True),
    "jobs": Trigger(event={"source": ["my.jobs"]}, calls=True),
}
HOUR = 3600.0


class Shop:
    """A deployed agent whose tool hands its token out, in `tokens`. With `early`, the result comes while the tool runs."""

    def __init__(self, functions: Functions, *, early: Any = None, **options: Any) -> None:
        self.functions, self.tokens = functions, list[str]()

        @tool(later=True, **options)
        async def ship(ctx: ToolContext) -> None:
            """Ship."""
            self.tokens.append(await ctx.later(heartbeat_s=HOUR))
            if early is not None:
                await functions.app.executor.complete_call(self.tokens[0], early)

        self.agent: Agent[Any, Any] = agent("helper", tools=[ship])
        functions.play([calls(a_call("ship")), "Shipped."], self.agent)
        event = functions.sample("call_model")
        functions.claim(self.agent, event)
        self.session_id = ids(event)["session_id"]
        functions.invoke("finish_run", steps(functions, event))

    def results(self) -> list[str]:
        """Execute the run that goes on, and return the results in history."""
        new = self.functions.session(self.session_id)
        assert new.status == "running", "the result started a run"
        place = {"session_id": self.session_id, "run_id": new.run_id}
        told = steps(self.functions, {**self.functions.sample("call_model"), **place, "part": 1, "step": 2})
        self.functions.invoke("finish_run", told)
        assert self.functions.session(self.session_id).status == "completed"
        page = self.functions.app.run(self.functions.app.executor.sessions.get_messages(self.session_id))
        return [message.content for message in page.messages if isinstance(message, ToolResultMessage)]


def post(api: Api, token: str, body: Any = None, how: str = "") -> tuple[int, dict[str, Any]]:
    route = "POST /calls/{token}" + ("/{how}" if how else "")
    event = api.event(route, body, user=None)
    event["pathParameters"] = {"token": token} | ({"how": how} if how else {})
    answer = api.functions.invoke("serve_http", event, left_s=30.0)
    return answer["statusCode"], json.loads(answer["body"])


def test_a_webhook_ends_a_call_once(functions: Functions) -> None:
    shop, api = Shop(functions), Api(functions)
    (token,) = shop.tokens
    runs = len(functions.executions())
    status, beat = post(api, token, how="heartbeat")
    assert status == 200 and beat["expires_at"] > functions.clock.now() + HOUR - 60
    assert post(api, token, {"parcel": 7}) == post(api, token, {"parcel": 7}) == (200, {"expires_at": None})
    assert len(functions.executions()) == runs + 1
    for how, body in (("", {"parcel": 8}), ("fail", {"error": "no"}), ("heartbeat", None)):
        status, refused = post(api, token, body, how)
        assert (status, refused["error"]["code"]) == (409, "call_ended")
    assert shop.results() == ['{"parcel":7}']


def test_a_forged_token_learns_nothing(functions: Functions) -> None:
    shop, api = Shop(functions), Api(functions)
    place = CallToken.parse(shop.tokens[0])
    other = dataclasses.replace(place, secret="0" * 52)
    nowhere = dataclasses.replace(place, session_id="ses_nowhere")
    answers = [post(api, token, {"x": 1}) for token in ("guess", shop.tokens[0][:-1], str(other), str(nowhere))]
    assert {status for status, _ in answers} == {403} and len({json.dumps(body) for _, body in answers}) == 1
    assert functions.session(shop.session_id).status == "paused"


def test_a_result_before_the_tool_has_returned(functions: Functions) -> None:
    shop = Shop(functions, early={"parcel": 7})
    assert functions.session(shop.session_id).status == "completed"
    page = functions.app.run(functions.app.executor.sessions.get_messages(shop.session_id))
    assert '{"parcel":7}' in [message.content for message in page.messages]


def test_a_deployment_in_between(functions: Functions) -> None:
    shop, api = Shop(functions), Api(functions)
    functions.play(["Shipped."], agent("helper"))  # the new code has no such tool
    assert post(api, shop.tokens[0], json.dumps("parcel 7"))[0] == 200
    assert shop.results() == ["parcel 7"]


def test_a_missing_heartbeat(functions: Functions) -> None:
    shop, api = Shop(functions, on_unknown="skip"), Api(functions)
    functions.clock.ahead_s = HOUR - 60
    assert post(api, shop.tokens[0], how="heartbeat")[0] == 200
    functions.clock.ahead_s = HOUR + 60
    functions.invoke("sweep", functions.sample("sweep"))
    assert functions.session(shop.session_id).status == "paused", "a heartbeat came"
    functions.clock.ahead_s = 2 * HOUR + 60
    functions.invoke("sweep", functions.sample("sweep"))
    assert '"status":"unknown"' in shop.results()[0]
    executor = functions.app.executor
    with pytest.raises(CallEndedError):
        functions.app.run(executor.complete_call(shop.tokens[0], "late"))
    functions.app.run(executor.delete(shop.session_id))
    with pytest.raises(InvalidCallTokenError):
        functions.app.run(executor.complete_call(shop.tokens[0], "late"))


@pytest.fixture
def failed(functions: Functions) -> str:
    url: str = boto3.client("sqs").create_queue(QueueName="helix-dev-trigger-failures")["QueueUrl"]
    settings = dataclasses.replace(functions.app.settings, triggers=dump_starts(TRIGGERS), dead_letters=url)
    functions.app.settings = settings
    return url


def deliver(functions: Functions, queue: str, body: Any) -> list[Any]:
    record = {"messageId": "m1", "body": json.dumps(body), "eventSourceARN": queue}
    found: list[Any] = functions.invoke("start_triggered", {"Records": [record]}, left_s=30.0)["batchItemFailures"]
    return found


def dead(url: str) -> list[str]:
    found = boto3.client("sqs").receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"])
    return [each["MessageAttributes"]["error"]["StringValue"] for each in found.get("Messages", [])]


def test_an_event_ends_a_call(functions: Functions, failed: str) -> None:
    shop = Shop(functions)
    detail: dict[str, Any] = {"token": shop.tokens[0], "data": {"parcel": 7}, "more": 1}
    event = {"id": "1", "source": "my.jobs", "detail": detail}
    for _ in range(2):
        assert deliver(functions, EVENTS, {"trigger": "jobs", "event": event}) == []
    assert dead(failed) == []
    late = {**event, "detail": {"token": shop.tokens[0], "error": "no"}}
    assert deliver(functions, EVENTS, {"trigger": "jobs", "event": late}) == []
    assert dead(failed) == ["call_ended"]
    assert shop.results() == ['{"parcel":7}']


def test_a_message_of_a_queue_reports_a_call(functions: Functions, failed: str) -> None:
    shop = Shop(functions)
    assert deliver(functions, REPORTS, {"token": shop.tokens[0], "heartbeat": True}) == []
    assert functions.session(shop.session_id).status == "paused" and dead(failed) == []
    for wrong in ({"token": "guess"}, {}, {"token": shop.tokens[0], "error": "a", "data": 1}):
        assert deliver(functions, REPORTS, wrong) == []
    assert sorted(dead(failed)) == ["invalid_call_token", "invalid_input", "invalid_input"]
    assert deliver(functions, REPORTS, {"token": shop.tokens[0], "error": "no lorry"}) == []
    assert shop.results() == ['{"error":"no lorry"}']
