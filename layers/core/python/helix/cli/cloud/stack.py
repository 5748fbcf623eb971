"""A deployed stage as described by CloudFormation, and the protection of its data.

Law: data is protected only after a successful deployment. Protection during the first deployment would prevent its rollback
from deleting the resources, and then the next deployment could not create them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from botocore.exceptions import ClientError

from helix.ports.state_store import TABLES

NESTED = "AWS::CloudFormation::Stack"
BUCKET = "AWS::S3::Bucket"
KEY = "AWS::KMS::Key"
TABLE = "AWS::DynamoDB::Table"
RULE = "AWS::Events::Rule"
MACHINE = "AWS::StepFunctions::StateMachine"
CREATION_FAILED = frozenset({"ROLLBACK_COMPLETE", "ROLLBACK_FAILED"})
RETAINED = frozenset({"Retain", "RetainExceptOnCreate", "Snapshot"})


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of a stack or of its nested stacks."""

    kind: str
    """The type in CloudFormation, such as `AWS::DynamoDB::Table`."""
    name: str
    """The physical ID in CloudFormation: a name or an ARN, depending on the type."""
    retained: bool
    """Whether the deletion policy retains the resource when the stack is deleted."""
    own: bool = True
    """Whether the resource belongs to Helix, and not to the surrounding app."""

    @property
    def words(self) -> str:
        """A readable name of the resource, such as `table helix-prod-sessions`."""
        return f"{self.kind.rpartition('::')[2].lower()} {self.name}"


@dataclass(frozen=True, slots=True)
class Deployed:
    """A deployed stage."""

    account: str
    """The AWS account ID."""
    protected: bool
    """Whether the stack has termination protection, which blocks its deletion."""
    resources: tuple[Resource, ...]
    """All resources of the stack and its nested stacks."""

    @property
    def retained(self) -> list[Resource]:
        return [resource for resource in self.resources if resource.retained]

    @property
    def buckets(self) -> list[str]:
        """The buckets that are deleted with the stack. They must be emptied first, because S3 deletes only empty
        buckets."""
        return [r.name for r in self.resources if r.kind == BUCKET and r.own and not r.retained]

    @property
    def rules(self) -> list[str]:
        return [r.name for r in self.resources if r.kind == RULE and r.own]

    @property
    def machines(self) -> list[str]:
        """The ARNs of the state machines."""
        return [r.name for r in self.resources if r.kind == MACHINE and r.own]

    def tables(self, *, retained: bool) -> list[str]:
        return [r.name for r in self.resources if r.kind == TABLE and r.own and r.retained is retained]

    @property
    def key(self) -> str | None:
        """The KMS key that is scheduled for deletion with the stack. KMS deletes it 30 days later."""
        return next((r.name for r in self.resources if r.kind == KEY and not r.retained), None)


def describe_stack(cloudformation: Any, name: str) -> Mapping[str, Any] | None:
    """Return CloudFormation's description of the stack with this name, or None if it does not exist."""
    try:
        stack: Mapping[str, Any] = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
    except ClientError as error:
        if "does not exist" in str(error):
            return None
        raise
    return None if stack["StackStatus"] == "DELETE_COMPLETE" else stack


def outputs_of(stack: Mapping[str, Any]) -> dict[str, str]:
    """Return the outputs of a stack from its description."""
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}


def read_stage(cloudformation: Any, name: str) -> Deployed | None:
    """Read the stage from its stack. Return None if it does not exist."""
    stack = describe_stack(cloudformation, name)
    if stack is None:
        return None
    protected = bool(stack.get("EnableTerminationProtection"))
    exact = frozenset({outputs_of(stack).get("BucketName", ""), *(f"{name}-{table}" for table in TABLES)})
    resources = [
        replace(
            resource, own=resource.name in exact if resource.kind in (BUCKET, TABLE) else f"{name}-" in resource.name
        )
        for resource in _resources(cloudformation, stack["StackId"])
    ]
    return Deployed(stack["StackId"].split(":")[4], protected, tuple(resources))


def release_failed(cloudformation: Any, name: str) -> None:
    """Remove the termination protection of a stack whose creation failed, so that CDK can delete and recreate it. CDK
    enables the protection before the creation and does not disable it (https://github.com/aws/aws-cdk/issues/901)."""
    stack = describe_stack(cloudformation, name)
    if stack is not None and stack["StackStatus"] in CREATION_FAILED and stack.get("EnableTerminationProtection"):
        cloudformation.update_termination_protection(StackName=name, EnableTerminationProtection=False)


def protect_tables(dynamodb: Any, deployed: Deployed) -> None:
    """Enable deletion protection for the tables that the stack retains, and disable it for all others. It is not part of
    the template, so updates and drift detection ignore it
    (https://docs.aws.amazon.com/AWSCloudFormation/latest/APIReference/API_StackResourceDrift.html)."""
    for wanted in (True, False):
        for table in deployed.tables(retained=wanted):
            known = dynamodb.describe_table(TableName=table)["Table"].get("DeletionProtectionEnabled", False)
            if known is not wanted:
                dynamodb.update_table(TableName=table, DeletionProtectionEnabled=wanted)
                dynamodb.get_waiter("table_exists").wait(TableName=table, WaiterConfig={"Delay": 2})


def read_templates(cloudformation: Any, stack: str) -> Iterator[Mapping[str, Any]]:
    """Yield the template of the stack, then those of its nested stacks."""
    yield _template(cloudformation, stack)
    for page in cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack):
        for found in page["StackResourceSummaries"]:
            if found["ResourceType"] == NESTED and found.get("PhysicalResourceId"):
                yield from read_templates(cloudformation, found["PhysicalResourceId"])


def _template(cloudformation: Any, stack: str) -> Mapping[str, Any]:
    body = cloudformation.get_template(StackName=stack, TemplateStage="Processed")["TemplateBody"]
    template: Mapping[str, Any] = json.loads(body) if isinstance(body, str) else body
    return template


def _resources(cloudformation: Any, stack: str) -> Iterator[Resource]:
    known: Mapping[str, Any] = _template(cloudformation, stack)["Resources"]
    for page in cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack):
        for found in page["StackResourceSummaries"]:
            if found["ResourceStatus"] == "DELETE_COMPLETE" or not found.get("PhysicalResourceId"):
                continue
            policy = known.get(found["LogicalResourceId"], {}).get("DeletionPolicy", "Delete")
            yield Resource(found["ResourceType"], found["PhysicalResourceId"], policy in RETAINED)
            if found["ResourceType"] == NESTED:
                yield from _resources(cloudformation, found["PhysicalResourceId"])


def empty_bucket(s3: Any, bucket: str) -> int:
    """Delete every object, version and incomplete multipart upload in the bucket. Return the number of objects and
    versions."""
    count = 0
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        there = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        if there:
            objects = [{"Key": each["Key"], "VersionId": each["VersionId"]} for each in there]
            refused = s3.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True}).get("Errors", [])
            if refused:
                raise ClientError({"Error": refused[0]}, "DeleteObjects")
            count += len(there)
    for page in s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket):
        for upload in page.get("Uploads", []):
            s3.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
    return count
