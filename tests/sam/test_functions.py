"""Every function in Lambda's runtime image with its sample events: its response and the rows that it leaves."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.docs.documents import ROOT
from tests.sam.sam_local import Sam, Stage
from tests.support.offline_cloud import until
from websockets.sync.client import ClientConnection, connect

from helix.adapters.aws.dynamodb import DynamoDBStateStore
from helix.adapters.system import SystemClock
from helix.gateway.connections import Connections
from helix.infra.samples import ORPHAN
from helix.services.segments import SegmentStreams

PATIENCE_S = 60.0
CONNECTION = "UZoFFcOZliACHcg="
COUNTERS = ("session_id", "run_id", "part", "step", "events")


def sample(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((ROOT / "events" / f"{name}.json").read_text(encoding="utf-8"))
    return read


def messages(stage: Stage, session_id: str) -> list[str]:
    rows = stage.rows("sessions", session_id)
    return [row["kind"] for row in rows if row["sk"].startswith("m#")]


def ended(stage: Stage, session_id: str) -> Callable[[], bool]:
    return lambda: stage.row("sessions", session_id, "session")["status"] == "completed"


def store_of(stage: Stage) -> DynamoDBStateStore:
    tables = {name: f"helix-dev-{name}" for name in ("sessions", "streams", "control")}
    return DynamoDBStateStore(stage.client("dynamodb"), tables, clock=SystemClock())  # type: ignore[arg-type]


def open_socket(stage: Stage) -> tuple[ClientConnection, str]:
    """Open a socket to the stage, and return it with API Gateway's id of the connection."""
    key = sample("ws_authorize")["headers"]["Authorization"]
    socket = connect(stage.sockets, additional_headers={"Authorization": key})
    (name,) = {row["pk"].removeprefix("conn#") for row in stage.rows("streams", "conn#")}
    return socket, name


def heard(socket: ClientConnection, type_: str) -> dict[str, Any]:
    """Return the next frame of that type. Others are skipped, because a client that starts a run also gets its stream."""
    while True:
        told: dict[str, Any] = json.loads(socket.recv(timeout=PATIENCE_S))
        if told["type"] == type_:
            return told


# --- runs ----------------------------------------------------------------------------------------------------------------


def test_a_run_goes_from_function_to_function(sam: Sam, stage: Stage) -> None:
    """The samples form one run: each function's response is the next function's event, as in the state machine."""
    first = sample("call_model")
    bought = sam.invoke("helix-dev-call_model", "call_model").result
    assert bought == sample("call_tool")
    assert messages(stage, first["session_id"]) == ["user", "assistant"]

    assert sam.invoke("helix-dev-call_tool", "call_tool").result == {"call": "done"}
    call = stage.row("sessions", first["session_id"], "m#000000#00000002")
    assert (call["call_id"], call["state"], call["tool_name"]) == ("call_0", "done", "search_handbook")
    assert "Damaged goods are replaced" in call["content"]

    handed = sam.invoke("helix-dev-call_model", "call_tool").result
    asked = sample("start_run")
    assert {name: asked[name] for name in asked if name != "token"}.items() <= handed.items()
    assert sam.invoke("helix-dev-start_run", "start_run").result == {"call": "waits"}
    children = {r["pk"] for r in stage.rows("sessions") if r.get("agent_type") == "colleague" and r["sk"] == "session"}
    (child,) = children
    until(ended(stage, child), "end of the sub-agent, which the stage runs itself")

    assert sam.invoke("helix-dev-call_model", {key: handed[key] for key in COUNTERS}).result == sample("finish_run")
    assert stage.run(first)["status"] == "completed" and stage.run(first).get("effects") != "done"
    told = {"session_id": first["session_id"], "run_id": first["run_id"]}
    assert sam.invoke("helix-dev-finish_run", "finish_run").result == told
    assert stage.run(first)["effects"] == "done"
    assert not [row for row in stage.rows("control", "open-runs#") if row["sk"] == first["run_id"]]


@pytest.mark.parametrize("event", ["fail_run", "fail_run_status"])
def test_a_run_whose_execution_ended_fails(sam: Sam, stage: Stage, event: str) -> None:
    about = sample(event)
    about = json.loads(about["detail"]["input"]) if "detail" in about else about
    assert stage.run(about)["status"] == "running"
    told = {"session_id": about["session_id"], "run_id": about["run_id"]}
    assert sam.invoke("helix-dev-fail_run", event).result == told
    assert stage.run(about)["status"] == "failed"
    assert stage.row("sessions", about["session_id"], "session")["status"] == "failed"


def test_a_sweep_starts_what_was_never_started(sam: Sam, stage: Stage) -> None:
    session_id, run_id = ORPHAN
    swept = sam.invoke("helix-dev-sweep", "sweep").result
    assert swept["started"] >= 1 and set(swept) <= {"started", "young"} and sum(swept.values()) == 4
    machine = stage.variables["HELIX_MACHINE"].format(profile="default")
    listed = stage.client("stepfunctions").list_executions(stateMachineArn=machine)["executions"]
    assert run_id in {execution["name"] for execution in listed}
    until(ended(stage, session_id), "end of the run that was started")


def test_an_agent_s_own_functions_work_too(sam: Sam, stage: Stage) -> None:
    """The agent's functions are in a nested stack and use the stage's layers."""
    answer = sam.invoke("helix-dev-roomy-call_model", "call_model")
    assert answer.result == sample("call_tool")
    assert "Memory Size: 2048 MB" in answer.log
    assert sam.invoke("helix-dev-roomy-call_tool", "call_tool").result == {"call": "done"}
    assert stage.row("sessions", answer.result["session_id"], "m#000000#00000002")["state"] == "done"


# --- sockets -------------------------------------------------------------------------------------------------------------


def test_a_client_comes_asks_and_goes(sam: Sam, stage: Stage) -> None:
    for event in ("ws_authorize", "ws_authorize_browser"):
        policy = sam.invoke("helix-dev-ws_authorize", event).result
        (statement,) = policy["policyDocument"]["Statement"]
        assert (policy["principalId"], statement["Effect"]) == ("ada", "Allow")

    sample_row = f"conn#{CONNECTION}"
    connected = sam.invoke("helix-dev-ws_connect", "ws_connect").result
    assert connected == {"statusCode": 200, "headers": {"Sec-WebSocket-Protocol": "helix.v1"}}
    assert stage.row("streams", sample_row, "connection")["principal"] == "ada"
    assert sam.invoke("helix-dev-ws_disconnect", "ws_disconnect").result == {"statusCode": 200}
    assert stage.rows("streams", sample_row) == []


def test_what_a_client_says_is_done_and_answered_on_its_socket(sam: Sam, stage: Stage) -> None:
    known = {row["pk"] for row in stage.rows("sessions", "ses_")}
    socket, name = open_socket(stage)
    with socket:
        for event in ("ws_message", "ws_message_ping"):
            said = sample(event)
            said["requestContext"]["connectionId"] = name
            assert sam.invoke("helix-dev-ws_message", said).result == {"statusCode": 200}
            asked, reply = json.loads(said["body"]), heard(socket, "reply")
            assert (reply["id"], reply["action"]) == (asked["id"], asked["action"])
            if asked["action"] == "run":
                session_id = reply["result"]["session_id"]
    row = stage.row("sessions", session_id, "session")
    assert session_id not in known and (row["agent_type"], row["user_id"]) == ("desk", "ada")
    until(ended(stage, session_id), "end of the run, which the stage runs itself")


def test_an_answer_to_a_client_that_is_gone_is_dropped_with_its_connection(sam: Sam, stage: Stage) -> None:
    asyncio.run(Connections(store_of(stage), SystemClock()).open(CONNECTION, "ada", SystemClock().now() + 3600))
    assert sam.invoke("helix-dev-ws_message", "ws_message_ping").result == {"statusCode": 200}
    assert stage.rows("streams", f"conn#{CONNECTION}") == []


# --- streams -------------------------------------------------------------------------------------------------------------


def test_chunks_get_into_the_log_and_to_who_watches(sam: Sam, stage: Stage) -> None:
    stream = sample("project_stream")["Records"][0]["kinesis"]["partitionKey"]
    socket, name = open_socket(stage)
    store = store_of(stage)
    asyncio.run(Connections(store, SystemClock()).subscribe(name, stream))
    with socket:
        assert sam.invoke("helix-dev-project_stream", "project_stream").result == {"batchItemFailures": []}
        frame = heard(socket, "messages")
    assert (frame["stream_id"], len(frame["messages"])) == (stream, 6)
    logged = asyncio.run(SegmentStreams(store, clock=SystemClock()).read(stream))
    assert [message.sequence for message in logged] == [1, 2, 3, 4, 5, 6]


def test_a_record_that_cannot_be_read_is_set_aside(sam: Sam, stage: Stage) -> None:
    assert sam.invoke("helix-dev-project_stream", "project_stream_unreadable").result == {"batchItemFailures": []}
    bucket, storage = stage.variables["HELIX_BUCKET"], stage.client("s3")
    (kept,) = storage.list_objects_v2(Bucket=bucket, Prefix="failed/project_stream/")["Contents"]
    assert storage.get_object(Bucket=bucket, Key=kept["Key"])["Body"].read() == b"not a record"


# --- fleet ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", ["govern", "govern_alarm"])
def test_govern_looks_at_the_fleet(sam: Sam, stage: Stage, event: str) -> None:
    """The schedule or an alarm invokes it."""
    assert isinstance(sam.invoke("helix-dev-govern", event).result, dict)


def test_health_says_how_the_stage_is(sam: Sam, stage: Stage) -> None:
    page = sam.invoke("helix-dev-health", "health").result
    assert (page["statusCode"], page["headers"]["content-type"]) == (200, "application/json")
    assert json.loads(page["body"])["checks"]["control table"]["status"] == "healthy"
    figures = sam.invoke("helix-dev-health", "health_metrics").result
    assert figures["statusCode"] == 200 and "helix_uptime_seconds" in figures["body"]


def test_no_function_is_left_out(sam: Sam) -> None:
    """Every function in the template is invoked in a test above."""
    named = set(re.findall(r'invoke\("(helix-dev-[\w-]+)"', Path(__file__).read_text(encoding="utf-8")))
    assert len(named) == 15
    assert named == sam.functions
