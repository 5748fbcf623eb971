"""The functions of the WebSocket API with events of API Gateway. moto replaces AWS, and a loopback server the sockets."""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from moto import mock_aws
from tests.support.aws_resources import make_tables, tables
from tests.support.management_api import ManagementApi
from tests.support_run import agent

from helix.adapters.system import SystemIds
from helix.core.errors import InvalidInputError
from helix.core.protocol import request
from helix.core.registry import default_registry
from helix.gateway.authoriser import ApiKeys, Principal
from helix.gateway.connections import Connections
from helix.runtime.cloud import Application, application

ROOT = Path(__file__).parents[2]
REGION, MACHINE = "eu-central-1", "arn:aws:states:eu-central-1:123456789012:stateMachine:helix-test-"
CONTEXT = SimpleNamespace(aws_request_id="request", get_remaining_time_in_millis=lambda: 29_000)
CONNECTION = "UZoFFcOZliACHcg="
Handler = Callable[[Any, Any], Any]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def sample(name: str) -> Any:
    return json.loads((ROOT / "events" / f"{name}.json").read_text())


def function(name: str) -> Handler:
    spec = importlib.util.spec_from_file_location(name, ROOT / "functions" / name / "handler.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    handler: Handler = module.handler
    return handler


@pytest.fixture
def api() -> Iterator[ManagementApi]:
    with ManagementApi() as made:
        made.frames[CONNECTION] = []
        made.open.add(CONNECTION)
        yield made


@pytest.fixture
def deploy(monkeypatch: pytest.MonkeyPatch, api: ManagementApi) -> Iterator[Callable[..., Application]]:
    """A function that makes the application of this process with additional environment variables."""
    made: list[Application] = []

    def deployed(**environment: str) -> Application:
        names = tables()
        given = {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "NO_PROXY": "127.0.0.1",
            "HELIX_SESSIONS_TABLE": names["sessions"],
            "HELIX_STREAMS_TABLE": names["streams"],
            "HELIX_CONTROL_TABLE": names["control"],
            "HELIX_CHUNKS": "test-chunks",
            "HELIX_MACHINE": MACHINE + "{profile}",
            "HELIX_SOCKETS": api.url,
            "HELIX_AGENTS": "json",  # a module that registers nothing: the test registers the agent itself
            **environment,
        }
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        application.cache_clear()
        make_tables(boto3.client("dynamodb"))
        boto3.client("kinesis").create_stream(StreamName="test-chunks", ShardCount=1)
        definition = {"StartAt": "Done", "States": {"Done": {"Type": "Succeed"}}}
        role = "arn:aws:iam::123456789012:role/machine"
        boto3.client("stepfunctions").create_state_machine(
            name="helix-test-default", definition=json.dumps(definition), roleArn=role
        )
        made.append(application())
        return made[-1]

    default_registry.register(agent("desk"))
    with mock_aws():
        yield deployed
        for app in made:
            app._runner.close()
            if "sockets" in vars(app):
                app.sockets.close()  # type: ignore[attr-defined]
            for client in app._clients.values():
                client.close()
    default_registry.clear()
    application.cache_clear()


def key_of(app: Application, user: str = "ada", tenant: str | None = None, *, operator: bool = False) -> str:
    keys = ApiKeys(app.store, app.clock)
    return app.run(keys.create(SystemIds(), Principal(user, tenant), operator=operator))


def connected(app: Application) -> Any:
    return app.run(Connections(app.store, app.clock).get(CONNECTION))


def said(api: ManagementApi) -> list[dict[str, Any]]:
    frames, api.frames[CONNECTION] = api.frames[CONNECTION], []
    return [json.loads(frame) for frame in frames]


# --- ws_authorize -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", ["ws_authorize", "ws_authorize_browser"])
def test_a_valid_key_is_let_in_with_its_principal(deploy: Any, event: str) -> None:
    app = deploy()
    handler, sent = function("ws_authorize"), sample(event)
    denied = handler(sent, CONTEXT)
    (statement,) = denied["policyDocument"]["Statement"]
    assert statement == {"Action": "execute-api:Invoke", "Effect": "Deny", "Resource": sent["methodArn"]}
    assert denied["context"] == {}
    key = key_of(app, tenant="acme")
    text = json.dumps(sent).replace("helix_01KA8ZQ3V4A2B3C4D5E6F7G8H9_0123456789ABCDEFGHJKMNPQRSTVWXYZ", key)
    allowed = handler(json.loads(text), CONTEXT)
    (statement,) = allowed["policyDocument"]["Statement"]
    assert (statement["Effect"], statement["Resource"]) == ("Allow", sent["methodArn"])
    assert (allowed["principalId"], allowed["context"]["principal"]) == ("acme/ada", "acme/ada")
    assert float(allowed["context"]["expires_at"]) > app.clock.now() + 3600
    assert key not in json.dumps(allowed) and "operator" not in allowed["context"]
    text = json.dumps(sent).replace(
        "helix_01KA8ZQ3V4A2B3C4D5E6F7G8H9_0123456789ABCDEFGHJKMNPQRSTVWXYZ", key_of(app, operator=True)
    )
    assert handler(json.loads(text), CONTEXT)["context"]["operator"] == "true"


def listen(monkeypatch: Any) -> io.StringIO:
    """Capture what functions log from now on. Their logger otherwise writes to the output of the process's first test."""
    log = io.StringIO()
    monkeypatch.setattr(logging.getLogger("helix").handlers[0], "stream", log)
    return log


def test_what_is_logged_has_no_token(deploy: Any, monkeypatch: Any) -> None:
    deploy()
    handler, log = function("ws_authorize"), listen(monkeypatch)
    handler(sample("ws_authorize"), CONTEXT)
    out = log.getvalue()
    assert "helix_01KA8" not in out and '"$connect: not_authenticated"' in out


def test_without_headers_nobody_is_let_in_and_without_an_arn_it_is_no_event(deploy: Any) -> None:
    deploy()
    handler = function("ws_authorize")
    sent = {**sample("ws_authorize"), "headers": None}
    assert handler(sent, CONTEXT)["policyDocument"]["Statement"][0]["Effect"] == "Deny"
    with pytest.raises(InvalidInputError, match="methodArn"):
        handler({}, CONTEXT)


def test_jwt_needs_to_know_where_the_keys_are(deploy: Any) -> None:
    deploy(HELIX_AUTH="jwt")
    with pytest.raises(InvalidInputError, match="HELIX_JWKS_URL"):
        function("ws_authorize")(sample("ws_authorize"), CONTEXT)


# --- ws_connect and ws_disconnect ---------------------------------------------------------------------------------------


def test_who_was_let_in_has_a_connection_until_it_ends(deploy: Any) -> None:
    app = deploy()
    answer = function("ws_connect")(sample("ws_connect"), CONTEXT)
    assert answer == {"statusCode": 200, "headers": {"Sec-WebSocket-Protocol": "helix.v1"}}
    found = connected(app)
    assert found.principal == "ada" and 7000 < found.expires_at - app.clock.now() < 8000
    app.run(Connections(app.store, app.clock).subscribe(CONNECTION, "s"))
    assert function("ws_disconnect")(sample("ws_disconnect"), CONTEXT) == {"statusCode": 200}
    assert connected(app) is None
    assert app.run(Connections(app.store, app.clock).subscribers("s")) == []
    assert function("ws_disconnect")(sample("ws_disconnect"), CONTEXT) == {"statusCode": 200}


@pytest.mark.parametrize(("said", "operator"), [({}, False), ({"operator": "true"}, True)])
def test_an_operators_key_gives_its_connection_the_right(deploy: Any, said: Any, operator: bool) -> None:
    app = deploy()
    event = sample("ws_connect")
    event["requestContext"]["authorizer"] |= said
    function("ws_connect")(event, CONTEXT)
    assert connected(app).operator is operator


@pytest.mark.parametrize("authorizer", [None, {}, {"principal": "ada"}, {"principal": "ada", "expires_at": "12"}])
def test_without_the_authorisers_word_the_handshake_is_refused(deploy: Any, authorizer: Any) -> None:
    app = deploy()
    event = sample("ws_connect")
    event["requestContext"]["authorizer"] = authorizer
    assert function("ws_connect")(event, CONTEXT) == {"statusCode": 401}
    assert connected(app) is None


def test_where_nobody_is_asked_a_connection_is_nobodys(deploy: Any) -> None:
    app = deploy(HELIX_AUTH="none")
    event = sample("ws_connect")
    del event["requestContext"]["authorizer"], event["headers"]["Sec-WebSocket-Protocol"]
    assert function("ws_connect")(event, CONTEXT) == {"statusCode": 200}
    assert connected(app).principal is None


# --- ws_message ---------------------------------------------------------------------------------------------------------


def test_a_run_is_claimed_started_once_and_answered_on_its_connection(deploy: Any, api: ManagementApi) -> None:
    app = deploy()
    function("ws_connect")(sample("ws_connect"), CONTEXT)
    handler = function("ws_message")
    assert handler(sample("ws_message"), CONTEXT) == {"statusCode": 200}
    (answer,) = said(api)
    assert (answer["type"], answer["id"], answer["result"]["turn"]) == ("reply", "req_1", 1)
    place = answer["result"]
    state = app.run(app.executor.sessions.get(place["session_id"]))
    assert (state.user_id, state.status, state.current_run_id) == ("ada", "running", place["run_id"])
    handler(sample("ws_message"), CONTEXT)  # the network delivers it twice
    assert said(api)[0]["result"] == place
    (execution,) = boto3.client("stepfunctions").list_executions(stateMachineArn=MACHINE + "default")["executions"]
    assert execution["name"].startswith(place["run_id"])


def test_messages_of_all_kinds_are_answered(deploy: Any, api: ManagementApi, monkeypatch: Any) -> None:
    deploy()
    connect, handler, log = function("ws_connect"), function("ws_message"), listen(monkeypatch)
    handler(sample("ws_message_ping"), CONTEXT)
    assert said(api)[0]["error"]["code"] == "not_authenticated"
    connect(sample("ws_connect"), CONTEXT)
    handler(sample("ws_message_ping"), CONTEXT)
    assert said(api)[0]["result"]["now"] > 0
    event = sample("ws_message_ping")
    for body, encoded in (("no json", False), (None, False), ("%%%", True), (base64.b64encode(b"\xff").decode(), True)):
        handler({**event, "body": body, "isBase64Encoded": encoded}, CONTEXT)
        assert said(api)[0]["error"]["code"] == "invalid_message"
    binary = base64.b64encode(event["body"].encode()).decode()
    handler({**event, "body": binary, "isBase64Encoded": True}, CONTEXT)
    assert said(api)[0]["type"] == "reply"
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    noted = [(line["level"], line["message"]) for line in lines if line["message"].startswith("ping: ")]
    assert noted[0] == ("WARNING", "ping: not_authenticated") and noted[-1] == ("INFO", "ping: ok")


def test_the_logs_have_ids_and_no_content(deploy: Any, api: ManagementApi, monkeypatch: Any) -> None:
    deploy(HELIX_LOG="DEBUG")
    function("ws_connect")(sample("ws_connect"), CONTEXT)
    handler, log = function("ws_message"), listen(monkeypatch)
    event = sample("ws_message")
    body = {**json.loads(event["body"]), "agent": "nobody", "message": "my secret"}
    handler({**event, "body": json.dumps(body)}, CONTEXT)
    out = log.getvalue()
    assert said(api)[0]["error"]["code"] == "agent_not_found"
    assert "secret" not in out and CONNECTION in out and "req_1" in out


def test_agents_that_cannot_be_imported_are_one_error_here_and_one_there(
    deploy: Any, api: ManagementApi, monkeypatch: Any, tmp_path: Path
) -> None:
    (tmp_path / "broken_agents.py").write_text("import helix\nimport nowhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    deploy(HELIX_AGENTS="broken_agents")
    function("ws_connect")(sample("ws_connect"), CONTEXT)
    handler, log = function("ws_message"), listen(monkeypatch)
    assert handler(sample("ws_message"), CONTEXT) == {"statusCode": 200}
    (told,) = said(api)
    assert (told["type"], told["id"], told["error"]["code"]) == ("error", "req_1", "invalid_definition")
    (line,) = [line for line in log.getvalue().splitlines() if '"level":"INFO"' not in line]
    problem = f"ModuleNotFoundError: No module named 'nowhere' ({tmp_path / 'broken_agents.py'}:2)"
    assert json.loads(line)["message"] == f"the agents: module 'broken_agents': it cannot be imported: {problem}"


def test_an_operator_who_may_invoke_the_function_sees_the_sessions_of_all(deploy: Any, api: ManagementApi) -> None:
    deploy()
    function("ws_connect")(sample("ws_connect"), CONTEXT)
    handler = function("ws_message")
    handler(sample("ws_message"), CONTEXT)
    (begun,) = said(api)
    session_id = begun["result"]["session_id"]

    def ask(action: str, **fields: Any) -> Any:
        answer = handler({"operator": request(action, "r1", fields)}, CONTEXT)
        assert answer["statusCode"] == 200 and said(api) == []
        return json.loads(answer["body"])

    (listed,) = ask("list_sessions", status="running")["result"]["sessions"]
    assert (listed["session_id"], listed["user_id"]) == (session_id, "ada")
    assert ask("list_sessions", user="bob")["result"]["sessions"] == []
    assert [sort for sort, _ in ask("read_rows", session_id=session_id)["result"]["rows"]][-1] == "session"
    cost = ask("get_cost", session_id=session_id)["result"]
    assert "Lambda" in cost["services"] and cost["usd"] == pytest.approx(sum(line["usd"] for line in cost["lines"]))
    assert ask("get_budgets", session_id=session_id)["result"]["budgets"] == []
    assert ask("get_usage", user="ada")["result"]["user"] == "ada"
    assert ask("get_usage")["error"]["code"] == "invalid_input"
    assert ask("interrupt", session_id=session_id)["result"] == {"interrupted": True}
    assert ask("delete", session_id="nothing")["error"]["code"] == "session_not_found"
    assert ask("nonsense")["error"]["code"] == "invalid_message"
    for event in ({}, {**sample("ws_message_ping"), "operator": request("ping", "r1", {})}):
        with pytest.raises(InvalidInputError, match="and not both"):
            handler(event, CONTEXT)


def test_a_user_lists_their_own_sessions_only(deploy: Any, api: ManagementApi) -> None:
    deploy()
    function("ws_connect")(sample("ws_connect"), CONTEXT)
    event = sample("ws_message_ping")
    for user, code in (("ada", None), ("bob", "invalid_input")):
        function("ws_message")({**event, "body": request("list_sessions", "r1", {"user": user})}, CONTEXT)
        assert said(api)[0].get("error", {}).get("code") == code


def test_a_connection_that_is_gone_is_forgotten(deploy: Any, api: ManagementApi) -> None:
    app = deploy()
    function("ws_connect")(sample("ws_connect"), CONTEXT)
    api.open.discard(CONNECTION)
    assert function("ws_message")(sample("ws_message_ping"), CONTEXT) == {"statusCode": 200}
    assert connected(app) is None
