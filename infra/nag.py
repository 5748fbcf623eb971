"""cdk-nag's AwsSolutions rules, and the exceptions to them.

Law: an exception names one finding on one construct and says why. An unexplained finding stops the synthesis.
"""

from __future__ import annotations

import re
from typing import Any

import jsii
from aws_cdk import (
    Acknowledgment,
    IPolicyValidationContext,
    IPolicyValidationPlugin,
    Names,
    Stack,
    Validations,
)
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from cdk_nag import AwsSolutionsChecks
from constructs import IConstruct


@jsii.implements(IPolicyValidationPlugin)
class _NagPlugin:
    """A validation plugin that runs cdk-nag on one construct and its descendants."""

    def __init__(self, scope: IConstruct) -> None:
        self._scope = scope
        self._pack = AwsSolutionsChecks(scope, write_suppressions_to_cloud_formation=True)

    @property
    def name(self) -> str:
        return f"cdk-nag of {self._scope.node.path}"

    def validate(self, context: IPolicyValidationContext) -> Any:
        return self._pack.validate_scope(self._scope)


def check(scope: IConstruct) -> None:
    """Check `scope` and its descendants, and nothing else, when the app is synthesised."""
    Validations.of(scope).add_plugins(_NagPlugin(scope))


def explain(construct: IConstruct, finding: str, reason: str) -> None:
    """Accept `finding` ("S1", or "IAM5[Resource::*]") on `construct` and its descendants, for `reason`."""
    Validations.of(construct).acknowledge(Acknowledgment(id=f"AwsSolutions-{finding}", reason=reason))


def explain_template(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept a finding from CloudFormation's own rules ("W3694") on `construct` and its descendants, for `reason`."""
    Validations.of(construct).acknowledge(Acknowledgment(id=f"CloudFormation-Validate::{rule}", reason=reason))


def explain_objects(grantee: iam.IGrantable, bucket: s3.Bucket, objects: str, reason: str) -> None:
    """Accept the wildcard in `objects`, a pattern of keys in `bucket`. A nested stack refers to the bucket through a
    parameter."""
    role, owner = grantee.grant_principal, bucket.node.default_child
    same = Stack.of(role).node.path == Stack.of(bucket).node.path
    place = f"{Stack.of(bucket).get_logical_id(owner)}." if same else f"referenceto{Names.node_unique_id(owner.node)}"
    explain(role, f"IAM5[Resource::<{place}Arn>/{objects}]", reason)


def explain_resource(grantee: iam.IGrantable, arn: str, reason: str) -> None:
    """Accept the wildcard in `arn`, which consists of names and pseudo parameters."""
    role = grantee.grant_principal
    explain(role, f"IAM5[Resource::{_format_arn(Stack.of(role).resolve(arn))}]", reason)


def _format_arn(resolved: Any) -> str:
    """Format an ARN like cdk-nag, with references as `<Name>`. Raises `TypeError` for an unknown form."""
    match resolved:
        case str():
            return re.sub(r"\$\{(.)\}", r"<\1>", resolved)  # an escaped wildcard
        case {"Fn::Join": [_, parts]}:
            return "".join(map(_format_arn, parts))
        case {"Ref": name}:
            return f"<{name}>"
        case {"Fn::Sub": str(text)}:
            return re.sub(r"\$\{([\w:]+)\}", r"<\1>", text)
        case _:
            raise TypeError(f"cdk-nag's spelling of {resolved!r} is not known here")
