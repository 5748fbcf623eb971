"""Deploy an assembly using only AWS APIs: buckets, objects, CloudFormation stacks.

Law: existing objects are not uploaded again, and a stack with an unchanged template is skipped. A stack whose creation
failed is deleted before the next attempt. A stack whose update failed is rolled back, and the reason is reported.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError, WaiterError

from helix.local.process import OfflineError
from helix.local.project import Assembly, Asset, StackArtifact

ENDPOINT = "Endpoint"
"""The parameter that passes the emulator's address to a stack, so that its outputs contain it."""
POLL_S = 0.05
TRIES = 2400
BOOTSTRAPPED = "1000"
"""The reported version of the bootstrap stack, newer than any that a stack requires. There is no bootstrap stack here,
because buckets are created on demand and roles are not needed."""


class StackFailedError(OfflineError):
    """CloudFormation refused a stack, or could not create one of its resources."""

    code = "stack_failed"


@dataclass(frozen=True, slots=True)
class Account:
    """The clients of one account and region."""

    session: Any
    """A boto3 session, or another object with a method `client`."""
    endpoint: str | None
    """The URL of the emulator. None: AWS itself."""
    id: str
    """The account's id, twelve digits."""
    region: str
    """The region's name."""

    def client(self, service: str, **more: Any) -> Any:
        return self.session.client(service, endpoint_url=self.endpoint, region_name=self.region, **more)

    def fill_placeholders(self, text: str) -> str:
        """Fill in CDK's placeholders for account, region and partition."""
        places = {"AccountId": self.id, "Region": self.region, "Partition": "aws"}
        for name, value in places.items():
            text = text.replace("${AWS::" + name + "}", value)
        return text


def deploy(account: Account, assembly: Assembly) -> dict[str, dict[str, str]]:
    """Deploy the assembly to the account. Returns each stack's outputs. Raises `StackFailedError`."""
    keys = publish(account, assembly.assets)
    cloud = account.client("cloudformation")
    outputs = {}
    for parameter in {stack.bootstrap for stack in assembly.stacks if stack.bootstrap}:
        account.client("ssm").put_parameter(Name=parameter, Value=BOOTSTRAPPED, Type="String", Overwrite=True)
    for stack in assembly.stacks:
        taken = json.loads(stack.template.read_text(encoding="utf-8")).get("Parameters", {})
        here = {ENDPOINT: account.endpoint} if ENDPOINT in taken and account.endpoint else {}
        _create_or_update(cloud, stack, _url(account, stack, keys), here)
        outputs[stack.name] = _outputs(_describe(cloud, stack.name) or {})
    return outputs


def publish(account: Account, assets: tuple[Asset, ...]) -> dict[str, tuple[str, str]]:
    """Upload the missing files. Returns (bucket, key) by the file's name."""
    storage, keys = account.client("s3"), {}
    for bucket in {account.fill_placeholders(asset.bucket) for asset in assets}:
        _make_bucket(storage, bucket)
    for asset in assets:
        bucket, key = account.fill_placeholders(asset.bucket), account.fill_placeholders(asset.key)
        keys[asset.path.name] = (bucket, key)
        if not _exists(storage, bucket, key):
            storage.put_object(Bucket=bucket, Key=key, Body=asset.read())
    return keys


def _make_bucket(storage: Any, bucket: str) -> None:
    known = storage.exceptions
    with contextlib.suppress(known.BucketAlreadyOwnedByYou, known.BucketAlreadyExists):
        storage.create_bucket(Bucket=bucket)


def _exists(storage: Any, bucket: str, key: str) -> bool:
    try:
        storage.head_object(Bucket=bucket, Key=key)
    except ClientError:
        return False
    return True


def _url(account: Account, stack: StackArtifact, keys: Mapping[str, tuple[str, str]]) -> str:
    bucket, key = keys[stack.template.name]
    return f"https://s3.{account.region}.amazonaws.com/{bucket}/{key}"


def _create_or_update(cloud: Any, stack: StackArtifact, url: str, more: Mapping[str, str]) -> None:
    request = {
        "StackName": stack.name,
        "TemplateURL": url,
        "Parameters": [{"ParameterKey": k, "ParameterValue": v} for k, v in {**stack.parameters, **more}.items()],
        "Tags": [{"Key": k, "Value": v} for k, v in stack.tags.items()],
        "Capabilities": ["CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"],
    }
    there = _describe(cloud, stack.name)
    if there is not None and there["StackStatus"] in ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED"):
        cloud.delete_stack(StackName=stack.name)
        _wait(cloud, stack.name, "stack_delete_complete")
        there = None
    if there is None:
        cloud.create_stack(**request, OnFailure="ROLLBACK")
    else:
        try:
            cloud.update_stack(**request)
        except ClientError as error:
            if "No updates are to be performed" in str(error):
                return
            raise StackFailedError(f"stack {stack.name!r}: {error}") from error
    _wait(cloud, stack.name, "stack_create_complete" if there is None else "stack_update_complete")


def _wait(cloud: Any, name: str, until: str) -> None:
    try:
        cloud.get_waiter(until).wait(StackName=name, WaiterConfig={"Delay": POLL_S, "MaxAttempts": TRIES})
    except WaiterError as error:
        status = (_describe(cloud, name) or {}).get("StackStatus", "gone")
        raise StackFailedError(f"stack {name!r} is {status}: {_find_first_failure(cloud, name)}") from error


def _describe(cloud: Any, name: str) -> dict[str, Any] | None:
    try:
        stack: dict[str, Any] = cloud.describe_stacks(StackName=name)["Stacks"][0]
    except ClientError:
        return None
    return None if stack["StackStatus"] == "DELETE_COMPLETE" else stack


def _outputs(stack: Mapping[str, Any]) -> dict[str, str]:
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}


def _find_first_failure(cloud: Any, name: str) -> str:
    """Return the reason for the first failure."""
    events = cloud.describe_stack_events(StackName=name)["StackEvents"]
    failed = [e for e in events if e["ResourceStatus"].endswith("_FAILED") and e.get("ResourceStatusReason")]
    if not failed:
        return "no reason is given"
    first = failed[-1]
    return f"{first['LogicalResourceId']} ({first['ResourceType']}): {first['ResourceStatusReason']}"
