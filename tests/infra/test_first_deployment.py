"""A failed first deployment leaves nothing that blocks the second. The tests cover the data stores of production in the
emulator, and the protection that `helix deploy` gives them once the stack is complete."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from tests.infra.templates import Assembly
from tests.support.offline_cloud import until

from helix.cli.cloud.stack import protect_tables, read_stage, release_failed
from helix.local.process import Emulator

REGION = "us-east-1"
STACK = "helix-prod"
HOLD_DATA = ("KMS::Key", "KMS::Alias", "DynamoDB::Table", "S3::Bucket", "Kinesis::Stream", "Logs::LogGroup")

pytestmark = pytest.mark.timeout(400)  # the first test waits for the synthesis


class Account:
    def __init__(self, emulator: Emulator, resources: dict[str, Any]) -> None:
        self._emulator, self.resources = emulator, resources
        self.cloudformation, self.dynamodb = self.client("cloudformation"), self.client("dynamodb")

    def client(self, service: str) -> Any:
        return boto3.client(
            service, endpoint_url=self._emulator.url, region_name=REGION, **self._emulator.credentials.options
        )

    def create(self, **more: Any) -> str:
        """Create the stack with `more` resources, and return its status. Its termination protection is set before its
        creation begins, as by CDK."""
        template = json.dumps({"Resources": {**self.resources, **more}})
        self.cloudformation.create_stack(StackName=STACK, TemplateBody=template, EnableTerminationProtection=True)
        return self.settled()

    def settled(self) -> str:
        """Return the status once nothing is in progress, or `gone` for a stack that does not exist."""
        return until(self._status, "end of what the stack does")

    def _status(self) -> str:
        try:
            (stack,) = self.cloudformation.describe_stacks(StackName=STACK)["Stacks"]
        except ClientError:
            return "gone"
        status = str(stack["StackStatus"])
        return "" if status.endswith("_IN_PROGRESS") else status

    def delete(self) -> str:
        self.cloudformation.delete_stack(StackName=STACK)
        return self.settled()

    def protected(self) -> dict[str, bool]:
        names = self.dynamodb.list_tables()["TableNames"]
        tables = [self.dynamodb.describe_table(TableName=name)["Table"] for name in names]
        return {table["TableName"]: table["DeletionProtectionEnabled"] for table in tables}


@pytest.fixture
def account(production: Assembly, tmp_path: Path) -> Iterator[Account]:
    kinds = {f"AWS::{kind}" for kind in HOLD_DATA}
    held = {id_: r for id_, r in production.main.resources.items() if r["Type"] in kinds}
    emulator = Emulator(tmp_path / "emulator", environment=os.environ)
    emulator.start()
    try:
        yield Account(emulator, held)
    finally:
        emulator.close()


TABLES = {f"helix-prod-{table}" for table in ("sessions", "streams", "control")}


def test_a_second_deployment_succeeds_after_a_failed_first(account: Account) -> None:
    """CDK deletes the stack whose creation failed, and creates it again. Then the data is protected, and stays so."""
    account.client("events").create_event_bus(Name="taken")
    last = {"Type": "AWS::Events::EventBus", "Properties": {"Name": "taken"}, "DependsOn": list(account.resources)}
    assert account.create(Last=last) == "ROLLBACK_COMPLETE"
    assert account.protected() == {}, "the rollback deletes what it made"
    with pytest.raises(ClientError, match="TerminationProtection"):
        account.delete()
    release_failed(account.cloudformation, STACK)
    assert account.delete() == "gone"

    assert account.create() == "CREATE_COMPLETE"
    release_failed(account.cloudformation, STACK)
    deployed = read_stage(account.cloudformation, STACK)
    assert deployed is not None and deployed.protected, "only a failed creation is released"
    assert not any(account.protected().values())
    for _ in range(2):
        protect_tables(account.dynamodb, deployed)
        assert account.protected() == dict.fromkeys(TABLES, True)

    account.cloudformation.update_termination_protection(StackName=STACK, EnableTerminationProtection=False)
    assert account.delete() == "gone"
    assert set(account.protected()) == TABLES, "what was complete once stays"


def test_tables_that_are_given_up_are_not_protected(account: Account) -> None:
    """This is the case of `-c retain=false`, which is deployed before a deletion with the data."""
    assert account.create() == "CREATE_COMPLETE"
    kept = read_stage(account.cloudformation, STACK)
    assert kept is not None
    protect_tables(account.dynamodb, kept)
    given_up = replace(kept, resources=tuple(replace(r, retained=False) for r in kept.resources))
    protect_tables(account.dynamodb, given_up)
    assert account.protected() == dict.fromkeys(TABLES, False)
