"""`helix forget` on a deployed stage also deletes objects in S3, including those that no row names any more."""

from __future__ import annotations

import base64
import datetime
import random
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from tests.functions.conftest import Functions
from tests.support.aws_resources import BUCKET

from helix.adapters.aws.overflow import Overflow
from helix.fleet.forgetting import UserDataDeletion
from helix.ports.state_store import Key
from helix.runtime.tables import open_files, open_objects

STACK = "helix-test"
LARGE = base64.b64encode(random.Random(7).randbytes(450_000)).decode()
"""A value that exceeds an item of DynamoDB even after compression."""


def objects_of(user_session: str) -> list[str]:
    found = boto3.client("s3").list_objects_v2(Bucket=BUCKET).get("Contents", [])
    return [one["Key"] for one in found if user_session in one["Key"]]


def client(service: str) -> Any:
    """Return a client. The one of CloudFormation returns the stage's stack, which names its bucket."""
    made = boto3.client(service)
    if service == "cloudformation":
        stack = {
            "StackName": STACK,
            "CreationTime": datetime.datetime.now(datetime.UTC),
            "StackStatus": "CREATE_COMPLETE",
        }
        outputs = [{"OutputKey": "BucketName", "OutputValue": BUCKET}]
        stub = Stubber(made)
        stub.add_response("describe_stacks", {"Stacks": [{**stack, "Outputs": outputs}]}, {"StackName": STACK})
        stub.activate()
    return made


def forgetting(functions: Functions, user: str) -> UserDataDeletion:
    objects, files = open_objects(client, STACK), open_files(client, STACK)
    return UserDataDeletion(functions.app.store, objects, files, user, functions.app.clock)


def begin(functions: Functions, user: str) -> str:
    app = functions.app
    handle = app.run(app.executor.execute(app.agents.named("helper"), LARGE, user_id=user, session_id=f"{user}-1"))
    app.run(app.executor.abort(app.agents.named("helper"), handle.session_id))
    return str(handle.session_id)


@pytest.mark.slow
def test_objects_of_the_user_go_and_all_others_stay(functions: Functions) -> None:
    functions.play([])
    app, mine, theirs = functions.app, begin(functions, "ada"), begin(functions, "bob")
    found = forgetting(functions, "ada")
    before = app.run(found.find_data())
    assert before.counts()["objects"] == len(objects_of(mine)) > 0
    app.run(found.note(before))
    app.run(found.delete(before))
    assert objects_of(mine), "the session's own deletion removes them, with the rows that name them"
    app.run(app.executor.delete(mine))
    assert objects_of(mine) == []
    # A write was in progress when the session was deleted: its object exists, but no row names it.
    Overflow(boto3.client("s3"), BUCKET).writer(Key("sessions", mine, "m#late"))(b"late")
    late = app.run(found.find_data())
    assert (late.counts()["sessions"], late.counts()["objects"]) == (0, 1), "the note names the session still"
    app.run(found.delete(late))
    assert objects_of(mine) == [] and objects_of(theirs)
