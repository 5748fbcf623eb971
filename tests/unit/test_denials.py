"""Denials by each AWS service that functions use become one typed error with the action and the resource."""

from __future__ import annotations

import asyncio
from typing import Any

import botocore.session
import pytest
from botocore.stub import Stubber

from helix.adapters.aws.blobs import S3Blobs
from helix.adapters.aws.capacity import ProvisionedConcurrency
from helix.adapters.aws.dynamodb import DynamoDBStateStore
from helix.adapters.aws.kinesis import KinesisStreams
from helix.adapters.aws.launcher import StepFunctionsLauncher
from helix.adapters.aws.notifier import SnsNotifier
from helix.adapters.aws.overflow import Overflow
from helix.adapters.system import SystemClock
from helix.core.errors import AccessDeniedError
from helix.core.refusals import error_of, refusal_of
from helix.core.sequencer import StreamRecord
from helix.ports.launcher import Part
from helix.ports.state_store import Key, Put

TABLES = {name: f"stage-{name}" for name in ("sessions", "streams", "control")}
ROW = Key("sessions", "ses", "session")
RECORD = StreamRecord(session_id="ses", run_id="run", turn=1, agent_type="helper", kind="run", mark="started")
MACHINE = "arn:aws:states:eu-west-1:123456789012:stateMachine:stage-{profile}"


def store(client: Any) -> DynamoDBStateStore:
    return DynamoDBStateStore(client, TABLES, clock=SystemClock())  # type: ignore[arg-type]


def clear(client: Any) -> Any:
    return asyncio.to_thread(Overflow(client, "stage-bucket").clear, "ses")


ASKED: dict[str, tuple[str, str, str, Any, str]] = {
    "read": ("dynamodb", "get_item", "AccessDeniedException", lambda c: store(c).get([ROW]), "stage-sessions"),
    "reads": (
        "dynamodb",
        "batch_get_item",
        "AccessDeniedException",
        lambda c: store(c).get([ROW._replace(sort="copying"), ROW]),
        "stage-sessions",
    ),
    "write": (
        "dynamodb",
        "put_item",
        "AccessDeniedException",
        lambda c: store(c).transact("x", [Put(Key("control", "a", "b"), {"v": 1})]),
        "stage-control",
    ),
    "writes": (
        "dynamodb",
        "transact_write_items",
        "AccessDeniedException",
        lambda c: store(c).transact("x", [Put(Key("control", "a", n), {"v": 1}) for n in "bc"]),
        "stage-control",
    ),
    "object": ("s3", "list_objects_v2", "AccessDenied", clear, "stage-bucket"),
    "chunk": (
        "kinesis",
        "put_record",
        "KMSAccessDeniedException",
        lambda c: KinesisStreams(c, "stage-chunks", None, SystemClock()).append("ses", [RECORD]),  # type: ignore[arg-type]
        "stage-chunks",
    ),
    "execution": (
        "stepfunctions",
        "start_execution",
        "AccessDeniedException",
        lambda c: StepFunctionsLauncher(c, MACHINE).start(Part("default", "ses", "run", 1, 1)),
        MACHINE.replace("{profile}", "default"),
    ),
    "notice": (
        "sns",
        "publish",
        "AuthorizationError",
        lambda c: SnsNotifier(c, "arn:aws:sns:eu-west-1:123456789012:stage").publish("x", {}),
        "arn:aws:sns:eu-west-1:123456789012:stage",
    ),
    "capacity": (
        "lambda",
        "put_provisioned_concurrency_config",
        "AccessDeniedException",
        lambda c: ProvisionedConcurrency(c, "stage").set_instances("helper", 1),
        "helix-stage-helper-call_model",
    ),
}


@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
async def test_a_denial_names_the_action_and_the_resource(what: str, named: bool) -> None:
    service, verb, code, ask, resource = ASKED[what]
    client = botocore.session.get_session().create_client(
        service, "eu-west-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    told = "User: arn:u is not authorized to perform: kms:Decrypt on resource: arn:key because no policy allows it"
    with Stubber(client) as stub:
        # only one response: a retry would fail the test
        stub.add_client_error(verb, code, told if named else "Access Denied")
        with pytest.raises(AccessDeniedError) as raised:
            await ask(client)
        stub.assert_no_pending_responses()
    operation = client.meta.method_to_api_mapping[verb]
    expected = ("kms:Decrypt", "arn:key") if named else (f"{operation} ({code})", resource)
    assert (raised.value.action, raised.value.resource) == expected
    assert all(part in str(raised.value) for part in expected)
    client.close()


async def test_a_denied_head_request_names_the_action_that_it_needs() -> None:
    """The response to a HEAD request has no body, so its code is the HTTP status."""
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    client = botocore.session.get_session().create_client("s3", "eu-west-1", **keys)
    with Stubber(client) as stub:
        stub.add_client_error("head_object", "403", "Forbidden")
        with pytest.raises(AccessDeniedError) as raised:
            await S3Blobs(client, "stage-bucket").head("blobs/ada/cat.1", 0)
    assert (raised.value.action, raised.value.resource) == ("s3:GetObject", "stage-bucket/blobs/ada/cat.1")
    client.close()


def test_a_client_learns_of_a_denial_by_its_code_alone() -> None:
    told = refusal_of(AccessDeniedError("dynamodb:PutItem", "stage-sessions"))
    assert told["code"] == "access_denied" and "stage-sessions" not in str(told)
    assert isinstance(error_of(told), AccessDeniedError)
