"""`serve_http` as an HTTP API calls it: requests and responses for all that a client can do over the socket."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

import boto3
import pytest
from tests.functions.conftest import ACCOUNT, Functions
from tests.functions.test_run_verbs import steps
from tests.support.sample_files import png

from helix import AgentClient
from helix.adapters.memory_blobs import MemoryBlobs
from helix.adapters.system import SystemIds
from helix.core.delivery import Delivery
from helix.core.file_checks import describe
from helix.core.messages import files_of
from helix.core.registry import AgentRegistry
from helix.core.triggers import Trigger, dump_starts
from helix.gateway.authoriser import ApiKeys, Principal
from helix.gateway.lambdas_http import SPARE_S, HttpEvent, serve_http
from helix.runtime.verbs import CallModelEvent, call_model
from helix.services.blob_rows import blob_owner
from helix.services.file_inputs import ReadFile
from helix.services.session_files import SessionFiles

HELLO = {"agent": "helper", "message": "hello"}


class Api:
    """An HTTP client of the function. `ask` sends a request and returns the status and the body."""

    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self.keys = {user: self._key(user) for user in ("ada", "bob")}

    def _key(self, user: str) -> str:
        app = self.functions.app
        return str(app.run(ApiKeys(app.store, app.clock).create(SystemIds(), Principal(user))))

    def event(
        self, route: str, body: Any = None, *, user: str | None = "ada", key: str | None = None, **query: str
    ) -> dict[str, Any]:
        event: dict[str, Any] = self.functions.sample("serve_http")
        del event["headers"]["idempotency-key"], event["headers"]["authorization"], event["body"]
        session = query.pop("session_id", None)
        event |= {"routeKey": route, "queryStringParameters": query or None}
        event |= {"pathParameters": {"session_id": session} if session else None}
        event["headers"] |= {"Authorization": f"Bearer {self.keys[user]}"} if user else {}
        event["headers"] |= {"Idempotency-Key": key} if key else {}
        if body is not None:
            event["body"] = body if isinstance(body, str) else json.dumps(body)
        return event

    def ask(self, route: str, body: Any = None, *, left_s: float = 30.0, **asked: Any) -> tuple[int, dict[str, Any]]:
        answer = self.functions.invoke("serve_http", self.event(route, body, **asked), left_s=left_s)
        assert answer["headers"] == {"content-type": "application/json", "cache-control": "no-store"}
        return answer["statusCode"], json.loads(answer["body"])


@pytest.fixture
def api(functions: Functions) -> Api:
    functions.play([])
    return Api(functions)


def test_a_request_starts_a_run_for_the_user_of_its_token(api: Api) -> None:
    status, found = api.ask("POST /run", HELLO)
    assert status == 202 and found["status"] == "running" and found["turn"] == 1
    assert len(api.functions.executions()) == 1
    assert api.functions.session(found["session_id"]).user_id == "ada"
    place = {"session_id": found["session_id"]}
    status, looked = api.ask("GET /sessions/{session_id}", messages="5", **place)
    assert status == 200 and looked["run"]["run_id"] == found["run_id"] and looked["run"]["status"] == "running"
    assert looked["messages"][0]["content"] == "hello"


def test_a_repeat_under_a_key_gets_the_run_of_the_first(api: Api) -> None:
    once = [api.ask("POST /run", HELLO, key="order-7")[1] for _ in range(2)]
    assert once[0]["run_id"] == once[1]["run_id"] and once[0]["session_id"] == once[1]["session_id"]
    others = [api.ask("POST /run", HELLO)[1], api.ask("POST /run", HELLO, key="order-8")[1]]
    others.append(api.ask("POST /run", HELLO, key="order-7", user="bob")[1])
    assert len({found["run_id"] for found in [once[0], *others]}) == 4 == len(api.functions.executions())


def test_a_crash_between_claim_and_start_leaves_one_run(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    class Died(BaseException):
        pass

    with monkeypatch.context() as patched:

        async def dies(*_: Any, **__: Any) -> Any:
            raise Died

        patched.setattr(type(api.functions.app.executor), "_begin", dies)
        with pytest.raises(Died):
            api.ask("POST /run", HELLO, key="order-7")
    status, found = api.ask("POST /run", HELLO, key="order-7")
    assert status == 202 and api.functions.executions() == []
    api.functions.clock.ahead_s = 120
    api.functions.invoke("sweep", api.functions.sample("sweep"))
    assert len(api.functions.executions()) == 1
    assert api.ask("POST /run", HELLO, key="order-7")[1]["run_id"] == found["run_id"]


def test_nobody_sees_anothers_session(api: Api) -> None:
    mine = api.ask("POST /run", HELLO)[1]["session_id"]
    for route in ("GET /sessions/{session_id}", "GET /sessions/{session_id}/stream"):
        assert api.ask(route, session_id=mine)[0] == 200
        assert api.ask(route, session_id=mine, user=None) == api.ask(route, session_id="x", user=None)
        assert api.ask(route, session_id=mine, user=None)[0] == 401
        status, said = api.ask(route, session_id=mine, user="bob")
        assert status == 404 and said["error"]["code"] == "session_not_found"
    status, said = api.ask("POST /run", {**HELLO, "session_id": mine}, user="bob")
    assert (status, said["error"]["code"]) == (404, "session_not_found")
    assert api.ask("POST /run", HELLO, user=None)[0] == 401


@pytest.mark.parametrize(
    ("body", "status", "code", "message"),
    [
        ("[]", 400, "invalid_input", "the body must be a JSON object"),
        ({**HELLO, "key": "a"}, 400, "invalid_input", "the body has no field 'key': send the header Idempotency-Key"),
        ({**HELLO, "subscribe": True}, 400, "invalid_input", "the body has no field 'subscribe'"),
        ({**HELLO, "tools": [{"name": "map"}]}, 400, "invalid_frontend_tool", "accepts no tools of a front end"),
        ({"message": "hello"}, 400, "invalid_message", "agent"),
        ({**HELLO, "agent": "nobody"}, 404, "agent_not_found", "there is no agent 'nobody' here"),
        ({**HELLO, "session_id": "bob:1"}, 404, "session_not_found", "bob:1"),
    ],
)
def test_what_is_wrong_is_said(api: Api, body: Any, status: int, code: str, message: str) -> None:
    answered, said = api.ask("POST /run", body)
    assert (answered, said["error"]["code"]) == (status, code) and message in said["error"]["message"]
    assert api.functions.executions() == []


LONG = {"3,000 characters": "x" * 3_000, "257 characters": "x" * 257, "other letters": "é" * 20, "a slash": "a/b"}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
def test_an_id_beyond_the_limits_is_refused_by_name(api: Api, text: str) -> None:
    """Every route refuses such a session id or run id, and the error names the field."""
    session = api.ask("POST /run", HELLO)[1]["session_id"]
    asked = [
        ("session_id", api.ask("GET /sessions/{session_id}", session_id=text)),
        ("session_id", api.ask("GET /sessions/{session_id}/stream", session_id=text)),
        ("session_id", api.ask("POST /run", {**HELLO, "session_id": text})),
        ("run_id", api.ask("GET /sessions/{session_id}", session_id=session, run_id=text)),
        ("run_id", api.ask("GET /sessions/{session_id}", session_id=session, run_id=text, wait="1")),
    ]
    for field, (status, said) in asked:
        assert status == 400 and field in said["error"]["message"] and len(said["error"]["message"]) < 500, said
        assert said["error"]["code"] in ("invalid_input", "invalid_message")


def test_a_session_at_work_is_a_conflict(api: Api) -> None:
    session = api.ask("POST /run", HELLO)[1]["session_id"]
    status, said = api.ask("POST /run", {**HELLO, "session_id": session})
    assert (status, said["error"]["code"]) == (409, "agent_already_running")


@pytest.mark.parametrize("query", [{"wait": "26"}, {"wait": "-1"}, {"wait": "soon"}])
def test_a_wait_has_a_limit(api: Api, query: dict[str, Any]) -> None:
    status, said = api.ask("POST /run", HELLO, **query)
    assert status == 400 and "wait must be a whole number from 0 to 25" in said["error"]["message"]
    assert api.functions.executions() == [], "it is refused before anything is started"


def test_the_default_agent_runs_where_the_request_names_none(api: Api) -> None:
    app = api.functions.app
    known = dump_starts({"api": Trigger(http=True, agent="helper")})
    app.settings = dataclasses.replace(app.settings, triggers=known)
    assert api.ask("POST /run", {"message": "hello"})[0] == 202


WAITS = 20
"""Timeout of these tests in seconds. It is shorter than the 25 seconds that their requests may wait."""


@pytest.mark.timeout(WAITS)
def test_a_wait_ends_with_the_run(api: Api) -> None:
    api.functions.play(["Hello to you."])
    app, started = api.functions.app, api.ask("POST /run", HELLO, key="order-7")[1]
    place = {name: started[name] for name in ("session_id", "run_id")}
    event = HttpEvent.model_validate(api.event("POST /run", HELLO, key="order-7", wait="25"))

    async def both() -> tuple[Any, Any]:
        asking = serve_http(app, event, Delivery("http", app.clock.now() + 60))
        working = CallModelEvent.model_validate({**place, "part": 1, "step": 1, "events": 0})
        return await asyncio.gather(asking, call_model(app, working, Delivery("model", app.clock.now() + 60)))

    answer, _ = app.run(both())
    found = json.loads(answer["body"])
    assert answer["statusCode"] == 200 and found["status"] == "completed" and found["run_id"] == started["run_id"]
    status, repeated = api.ask("POST /run", HELLO, key="order-7")
    assert status == 200 and repeated["status"] == "completed" and repeated["run_id"] == started["run_id"]


@pytest.mark.timeout(WAITS)
def test_a_wait_ends_before_the_function_does(api: Api) -> None:
    status, found = api.ask("POST /run", HELLO, left_s=SPARE_S + 0.2, wait="25")
    assert status == 202 and found["status"] == "running"
    assert len(api.functions.executions()) == 1
    place = {"session_id": found["session_id"]}
    assert api.ask("GET /sessions/{session_id}", left_s=SPARE_S + 0.2, wait="25", **place)[0] == 200
    assert api.ask("GET /sessions/{session_id}/stream", left_s=SPARE_S + 0.2, wait="25", after="99", **place)[0] == 200


def test_a_full_line_is_said_and_a_repeat_finds_room(api: Api) -> None:
    app = api.functions.app
    app.run(api.functions.slots.set_limit("helper", 1))
    app.run(api.functions.slots.set_queue("helper", max_queue=1))
    first, second = (api.ask("POST /run", HELLO) for _ in range(2))
    assert first[0] == second[0] == 202 and len(api.functions.executions()) == 1
    status, said = api.ask("POST /run", HELLO, key="order-7")
    assert (status, said["error"]["code"], said["error"]["recoverable"]) == (429, "queue_full", True)
    assert said["error"]["details"] == {"agent_type": "helper", "queued": 1, "limit": 1}
    looked = api.ask("GET /sessions/{session_id}", session_id=second[1]["session_id"])[1]
    assert looked["queued"]["place"] == 1
    app.run(app.executor.abort(app.agents.named("helper"), second[1]["session_id"]))
    status, found = api.ask("POST /run", HELLO, key="order-7")
    assert status == 202 and found["turn"] == 1


def test_a_function_agent_gets_its_parameters(api: Api) -> None:
    client = AgentClient(registry=AgentRegistry())

    @client.agent(name="adder")
    async def adder(a: int, b: int = 1) -> int:
        return a + b

    adding = client.registry.resolve("adder")
    definition = json.dumps({"StartAt": "Done", "States": {"Done": {"Type": "Succeed"}}})
    role = f"arn:aws:iam::{ACCOUNT}:role/machine"  # it has resources, so it has its own state machine
    boto3.client("stepfunctions").create_state_machine(
        name=f"helix-test-{adding.profile}", definition=definition, roleArn=role
    )
    api.functions.play([], adding)
    ended = {}
    for given in ({"a": 2}, {"a": "two"}):
        status, found = api.ask("POST /run", {"agent": "adder", "input": given}, key=json.dumps(given))
        assert status == 202
        place = {name: found[name] for name in ("session_id", "run_id")}
        steps(api.functions, {**place, "part": 1, "step": 1, "events": 0})
        again = api.ask("POST /run", {"agent": "adder", "input": given}, key=json.dumps(given), wait="25")
        assert again[0] == 200 and again[1]["run_id"] == found["run_id"]
        ended[given["a"]] = again[1]
    assert (ended[2]["status"], ended[2]["output"]) == ("completed", 3)
    assert ended["two"]["status"] == "failed" and "parameters of 'adder': a" in ended["two"]["error"], ended["two"]


def test_a_request_names_files_that_its_user_uploaded(api: Api) -> None:
    app, data = api.functions.app, png(6, 4)
    app.engine.files = SessionFiles(app.store, MemoryBlobs(), api.functions.clock, app.ids)
    part = describe(data, name="a.png")
    app.run(app.engine.files.uploads.store(blob_owner("ada", ""), [ReadFile(part, data)]))
    linked = {"kind": "image", "media_type": "image/png", "url": "https://example.com/b.png", "after_text": 5}
    body = {"agent": "helper", "message": "hello", "files": [part.model_dump(mode="json"), linked]}
    once = [api.ask("POST /run", body, key="order-7") for _ in range(2)]
    assert [status for status, _ in once] == [202, 202] and once[0][1]["run_id"] == once[1][1]["run_id"]
    (message,) = app.run(app.executor.sessions.get_messages(once[0][1]["session_id"])).messages
    assert [(file.name, file.width, file.url) for file in files_of([message])] == [
        ("a.png", 6, None),
        (None, None, "https://example.com/b.png"),
    ]
    status, refused = api.ask("POST /run", body, user="bob")
    assert (status, refused["error"]["code"]) == (404, "file_missing")
    status, refused = api.ask("POST /run", {**body, "files": [{**linked, "url": "http://example.com/b.png"}]})
    assert (status, refused["error"]["code"]) == (400, "invalid_file")
