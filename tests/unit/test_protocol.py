"""The WebSocket protocol: valid requests, refused requests, and errors that the client receives."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from helix.core.errors import (
    AgentAlreadyRunningError,
    AgentNotFoundError,
    BudgetExceededError,
    CallerError,
    CannotResumeError,
    DefinitionError,
    FileMissingError,
    HelixError,
    InvalidInputError,
    ModelError,
    NotAuthenticatedError,
    ProtocolError,
    QueueFullError,
    SessionNotFoundError,
    StoreError,
)
from helix.core.handles import SessionState
from helix.core.json import dumps
from helix.core.protocol import (
    MAX_REQUEST_BYTES,
    error_reply,
    parse_request,
    reply,
    request,
    request_tags,
)
from helix.core.refusals import INTERNAL, RemoteError, error_of, refusal_of
from helix.core.replies import REPLIES, protocol_json_schema
from helix.core.requests import ACTIONS, AnyRequest
from helix.core.run_requests import Run
from helix.core.session_replies import ListedSession
from helix.gateway.gateway import ACTS

EXAMPLES: dict[str, dict[str, Any]] = {
    "authenticate": {"token": "t"},
    "run": {"agent": "a", "message": "hi"},
    "resume": {"session_id": "s", "mode": "with_message", "message": "go on"},
    "retry": {"session_id": "s", "mode": "from_start"},
    "interrupt": {"session_id": "s", "run_id": "r", "reason": "enough"},
    "withdraw": {"session_id": "s", "queued_id": "q"},
    "abort": {"session_id": "s"},
    "answer": {"session_id": "s", "tool_call_id": "call_0", "approved": False, "data": [1], "reason": "no"},
    "report_call": {"token": "call.x.y", "error": "no"},
    "subscribe": {"session_id": "s", "after": 3},
    "unsubscribe": {"stream_id": "s"},
    "get_session": {"session_id": "s", "messages": 10, "before": 5, "snapshot": True, "run_id": "r"},
    "list_sessions": {"limit": 5, "after": "x"},
    "list_checkpoints": {"session_id": "s"},
    "get_checkpoint": {"session_id": "s", "checkpoint_id": "c"},
    "diff_checkpoints": {"session_id": "s", "before": "c", "offset": 2},
    "compare": {"session_id": "s", "run_id": "r", "other_session_id": "t", "other_run_id": "q"},
    "get_step": {"session_id": "s", "step": 3, "run_id": "r"},
    "get_context": {"session_id": "s", "step": 3, "run_id": "r"},
    "get_cost": {"session_id": "s"},
    "get_executions": {"session_id": "s", "run_id": "r"},
    "get_logs": {"session_id": "s", "run_id": "r", "since": 1.5, "until": 9.5, "after": "call_model x", "limit": 5},
    "get_budgets": {"session_id": "s"},
    "change_budget": {"budget": "global/day/micros", "limit": 2.5},
    "get_usage": {"user": "ada", "hours": 24},
    "get_fleet": {"limit": 3, "after": "a", "decisions": 9},
    "list_agents": {"limit": 3},
    "read_stream": {"session_id": "s", "after": 7},
    "read_rows": {"session_id": "s", "stream": True, "after": "s#1"},
    "compact": {"session_id": "s", "focus": "rows"},
    "rename": {"session_id": "s", "title": "Kettles"},
    "change_tags": {"session_id": "s", "add": ["north"], "remove": ["south"]},
    "upload": {"sha256": "0" * 64, "size": 1, "media_type": "text/csv", "name": "a.csv", "session_id": "s"},
    "finish_upload": {"sha256": "0" * 64},
    "get_file": {"session_id": "s", "sha256": "0" * 64},
    "branch": {"session_id": "s", "checkpoint_id": "c", "target": "t"},
    "clone": {"session_id": "s", "message_index": 0, "key": "k"},
    "delete": {"session_id": "s"},
    "ping": {},
}


def body(**fields: Any) -> str:
    return json.dumps({"v": 1, "id": "r1", **fields})


def test_every_action_has_a_model_and_an_example() -> None:
    assert set(EXAMPLES) == ACTIONS and len(get_args(AnyRequest)) == 39


@pytest.mark.parametrize("action", sorted(EXAMPLES))
def test_a_request_is_read(action: str) -> None:
    read = parse_request(request(action, "r1", EXAMPLES[action]))
    assert read.action == action and read.id == "r1"
    for name, value in EXAMPLES[action].items():
        assert getattr(read, name) == value


@pytest.mark.parametrize("action", sorted(EXAMPLES))
def test_the_schema_accepts_the_request_and_refuses_an_unknown_field(action: str) -> None:
    schema = protocol_json_schema()
    here = {**schema["properties"]["requests"]["properties"][action], "$defs": schema["$defs"]}
    validator = Draft202012Validator(here)
    validator.validate(json.loads(body(action=action, **EXAMPLES[action])))
    assert not validator.is_valid(json.loads(body(action=action, **EXAMPLES[action], surprise=1)))


def test_the_schema_has_every_action_and_its_reply() -> None:
    schema = protocol_json_schema()
    Draft202012Validator.check_schema(schema)
    assert set(REPLIES) == ACTIONS == {*schema["properties"]["requests"]["properties"]}
    assert set(ListedSession.model_fields) == {*SessionState.model_fields, "title"} - {
        "custom_state",
        "output",
        "inbox",
    }


@pytest.mark.parametrize("action", sorted(EXAMPLES))
def test_an_unknown_field_is_refused_by_name(action: str) -> None:
    with pytest.raises(ProtocolError) as raised:
        parse_request(body(action=action, **EXAMPLES[action], surprise=1))
    assert raised.value.field == "surprise"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "body"),
        ("no json", "body"),
        ("[]", "body"),
        ('"text"', "body"),
        ("[" * 100_000, "body"),
        ('{"v":1,"action":"ping","id":"r","x":NaN}', "body"),
        ('{"v":' + "9" * 5000 + "}", "body"),
        ("x" * (MAX_REQUEST_BYTES + 1), "body"),
        (b"\xff\xfe", "body"),
        ("{}", "v"),
        ('{"v":2,"action":"ping","id":"r"}', "v"),
        ('{"v":true,"action":"ping","id":"r"}', "v"),
        ('{"v":"1","action":"ping","id":"r"}', "v"),
        (body(), "action"),
        (body(action="fly"), "action"),
        (body(action=["ping"]), "action"),
        ('{"v":1,"action":"ping"}', "id"),
        ('{"v":1,"action":"ping","id":""}', "id"),
        ('{"v":1,"action":"ping","id":7}', "id"),
        ('{"v":1,"action":"ping","id":"' + "x" * 65 + '"}', "id"),
        (body(action="run", agent="a", message=""), "message"),
        (body(action="run", agent="", message="x"), "agent"),
        (body(action="run", agent="a", message="x", session_id="no good"), "session_id"),
        (body(action="run", agent="a", message="x", session_id="\ud800"), "session_id"),
        (body(action="run", agent="a", message="x", state=[]), "state"),
        (body(action="run", agent="a", message="x", settings={"top_p": 2}), "settings.top_p"),
        (body(action="run", agent="a", message="x", settings={"temperature": 1}), "settings"),
        (body(action="run", agent="a", message="x", tags=["x"] * 51), "tags"),
        (body(action="run", agent="a", message="x", tags=[1]), "tags.0"),
        (body(action="run", agent="a"), None),
        (body(action="run", agent="a", message="x", input={}), None),
        (body(action="subscribe", session_id="s", after=-1), "after"),
        (body(action="subscribe", after=1), None),
        (body(action="subscribe", session_id="s", stream_id="s"), None),
        (body(action="resume", session_id="s", mode="with_confirmation"), "mode"),
        (body(action="list_sessions", limit=101), "limit"),
        (body(action="get_session", session_id="s", messages=101), "messages"),
        (body(action="answer", session_id="s"), "tool_call_id"),
        (body(action="answer", session_id="s", tool_call_id="c", arguments=[1]), "arguments"),
        (body(action="get_usage", hours=169), "hours"),
        (body(action="get_usage", hours=0), "hours"),
        (body(action="get_fleet", decisions=101), "decisions"),
        (body(action="change_budget", budget="b", limit=0), "limit"),
        (body(action="get_session", session_id="x" * 257), "session_id"),
        (body(action="get_session", session_id="s", run_id="x" * 257), "run_id"),
        (body(action="abort", session_id="s", run_id="\U0001f600" * 500), "run_id"),
        (body(action="get_step", session_id="s", step=0), "step"),
        (body(action="get_step", session_id="s"), "step"),
        (body(action="get_context", session_id="s", step=0), "step"),
        (body(action="compact", session_id="s", focus="x" * 1001), "focus"),
        (body(action="rename", session_id="s", title="x" * 1001), "title"),
        (body(action="change_tags", session_id="s", add=[""]), "add.0"),
        (body(action="change_tags", session_id="s", remove=["x"] * 51), "remove"),
        (body(action="upload", sha256="0" * 63, size=1), "sha256"),
        (body(action="upload", sha256="0" * 64, size=-1), "size"),
        (body(action="get_file", session_id="s", sha256="A" * 64), "sha256"),
        (body(action="diff_checkpoints", session_id="s"), "before"),
        (body(action="diff_checkpoints", session_id="s", before="c", limit=101), "limit"),
        (body(action="list_agents", limit=0), "limit"),
        (body(action="abort", session_id="s", reason="x" * 2001), "reason"),
    ],
)
def test_what_is_no_request_is_refused_by_field(text: str | bytes, field: str | None) -> None:
    with pytest.raises(ProtocolError) as raised:
        parse_request(text)
    assert raised.value.field == field
    assert len(str(raised.value)) < 500


def test_a_refusal_repeats_nothing_of_what_was_sent() -> None:
    secret = "my very secret prompt"
    for fields in ({"message": [secret]}, {"message": "x", "state": secret}, {"message": "x", "mode": secret}):
        with pytest.raises(ProtocolError) as raised:
            parse_request(body(action="run", agent="a", **fields))
        assert secret not in str(raised.value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
    )
)
def test_nothing_that_is_json_breaks_the_reader(value: Any) -> None:
    for text in (
        json.dumps(value),
        body(action="run", agent=value, message=value),
        body(action=value, id=value),
    ):
        try:
            parse_request(text)
        except ProtocolError as error:
            error_reply(*request_tags(text), refusal_of(error))


@given(st.binary(max_size=200))
def test_nothing_that_is_bytes_breaks_the_reader(data: bytes) -> None:
    assert request_tags(data) == (None, None)
    with pytest.raises(ProtocolError):
        parse_request(data)


def test_the_tags_of_what_is_refused_are_echoed_where_they_are_good() -> None:
    assert request_tags(body(action="run")) == ("r1", "run")
    assert request_tags(body(action="fly")) == ("r1", None)
    assert request_tags('{"id":"no good","action":"run"}') == (None, "run")
    assert request_tags("[]") == (None, None)


def test_the_client_learns_that_a_request_is_too_long_before_it_sends_it() -> None:
    with pytest.raises(ProtocolError, match="limit"):
        request("run", "r1", {"agent": "a", "message": "é" * (MAX_REQUEST_BYTES // 2)})
    request("run", "r1", {"agent": "a", "message": "é" * (MAX_REQUEST_BYTES // 2 - 100)})


def test_what_is_sent_is_versioned_and_names_the_request() -> None:
    assert json.loads(reply("r1", "ping", {"now": 1})) == {
        "v": 1, "type": "reply", "id": "r1", "action": "ping", "result": {"now": 1}
    }  # fmt: skip
    told = json.loads(error_reply("r1", "run", refusal_of(SessionNotFoundError("s"))))
    assert (told["type"], told["id"], told["action"], told["error"]["code"]) == (
        "error",
        "r1",
        "run",
        "session_not_found",
    )


def test_state_may_be_anything_that_is_an_object() -> None:
    read = parse_request(body(action="run", agent="a", message="x", state={"a": [1, None]}))
    assert isinstance(read, Run) and read.state == {"a": [1, None]}


# --- errors -------------------------------------------------------------------------------------------------------------


def _subclasses(cls: type[HelixError]) -> list[type[HelixError]]:
    return [cls, *(found for sub in cls.__subclasses__() for found in _subclasses(sub))]


def _made_of_a_message(cls: type[HelixError]) -> bool:
    return not any("__init__" in vars(base) for base in cls.__mro__ if base.__module__.startswith("helix"))


ERRORS = [
    FileMissingError("0" * 64, "a.png"),
    FileMissingError("0" * 64),
    AgentAlreadyRunningError("s", "r"),
    AgentAlreadyRunningError("s"),
    SessionNotFoundError("s"),
    CannotResumeError("it is completed", "completed"),
    ProtocolError("after: too small", "after"),
    ProtocolError("no object"),
    BudgetExceededError("the budget of team a is spent"),
    QueueFullError("support", 1000, 1000),
    *(cls("say so") for cls in _subclasses(CallerError) if _made_of_a_message(cls) and "code" in vars(cls)),
]


def test_a_code_is_that_of_the_class_that_defines_it() -> None:
    """The code belongs to that class whatever was imported first. Subclasses that inherit it do not take it over."""
    code = (
        "import helix.engine.history, helix.runtime.importing\n"
        "from helix.core.refusals import error_of\n"
        "print(*(type(error_of({'code': code})).__name__ for code in ('invalid_input', 'store_error')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=110)
    assert done.stdout == "InvalidInputError StoreError\n", done.stderr


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: f"{type(error).__name__}")
def test_an_error_of_the_caller_arrives_as_it_was(error: HelixError) -> None:
    arrived = error_of(json.loads(dumps(refusal_of(error))))
    assert type(arrived) is type(error) and str(arrived) == str(error)
    assert vars(arrived) == vars(error)


@pytest.mark.parametrize(
    ("error", "code", "recoverable"),
    [
        (StoreError("table helix-dev-sessions, arn:aws:..."), "store_error", True),
        (DefinitionError("agent 'a'", "tools", "secret place"), "invalid_definition", False),
        (ModelError("provider says: prompt ...", retryable=True), "model_error", True),
        (ValueError("prompt"), INTERNAL, True),
        (KeyError("/home/somebody"), INTERNAL, True),
    ],
)
def test_what_is_not_the_callers_fault_says_its_code_only(error: Exception, code: str, recoverable: bool) -> None:
    refusal = refusal_of(error)
    assert (refusal["code"], refusal["recoverable"], refusal["details"]) == (code, recoverable, {})
    assert str(error.args[0]) not in str(refusal["message"])
    arrived = error_of(refusal)
    assert isinstance(arrived, StoreError) if code == "store_error" else isinstance(arrived, RemoteError)


def test_an_unknown_code_is_a_remote_error() -> None:
    arrived = error_of({"code": "from_the_future", "message": "?", "recoverable": False})
    assert isinstance(arrived, RemoteError)
    assert (arrived.remote_code, arrived.recoverable) == ("from_the_future", False)
    assert isinstance(error_of({}), RemoteError)


def test_what_can_be_tried_again_says_so() -> None:
    again = {type(e).__name__: refusal_of(e)["recoverable"] for e in (*ERRORS, NotAuthenticatedError("x"))}
    assert (
        again["QueueFullError"]
        and again["AgentAlreadyRunningError"]
        and again["NotAuthenticatedError"]
        and again["StaleStateError"]
    )
    assert not again["SessionNotFoundError"] and not again["InvalidInputError"]


def test_half_characters_in_a_message_do_not_break_the_answer() -> None:
    error_reply("r1", "run", refusal_of(AgentNotFoundError("no agent '\ud800'")))
    error_reply("r1", "run", refusal_of(InvalidInputError("x" * 10_000)))


def test_every_request_is_acted_on() -> None:
    assert set(ACTS) == set(get_args(AnyRequest))
