"""Encryption at rest for a stage: tables, bucket, chunk stream, logs, topics.

With `key=own` it uses a customer managed key. With `key=aws` it uses keys that AWS owns or manages for each service, which
are free (docs/adr/0031-nearly-free-at-rest.md).

Law: services use the key on behalf of roles that may use the resource. A role can use the key only through those
services.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import ArnFormat, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from helix.infra.names import Names
from helix.infra.regions import SUFFIXES

READ_KEY = ("kms:Decrypt", "kms:DescribeKey")
ALL_VERBS = ("Encrypt", "Decrypt", "ReEncrypt*", "GenerateDataKey*", "DescribeKey")
WRITE_KEY = (*READ_KEY, "kms:Encrypt", "kms:GenerateDataKey", "kms:ReEncryptFrom", "kms:ReEncryptTo")


class Keys(Construct):
    """The encryption key of a stage. `key`: None with `key=aws`. `given`: a key that the app provides, instead of the
    stage's own."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        names: Names,
        removal: RemovalPolicy,
        own: bool,
        given: kms.IKey | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.key: kms.IKey | None = given or (self._key(names, removal) if own else None)
        if self.key is not None:
            _allow_services(self.key, Stack.of(self), names)

    def _key(self, names: Names, removal: RemovalPolicy) -> kms.Key:
        return kms.Key(
            self,
            "Key",
            alias=f"alias/{names.prefix}",
            description=f"Helix, stage {names.stage}: tables, bucket, chunks and logs",
            enable_key_rotation=True,
            removal_policy=removal,
        )

    def grant_use(self, grantee: iam.IGrantable, *, services: Sequence[str], actions: Sequence[str]) -> None:
        """Let `grantee` use the key through `services` ("dynamodb", "s3", "kinesis") in this region. AWS's own keys do not
        need a grant, because a role that may use the resource may also use its key."""
        if self.key is None:
            return
        region = Stack.of(self).region
        names = [f"{service}.{region}.{suffix}" for service in services for suffix in SUFFIXES]
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=list(actions),
            resource_arns=[self.key.key_arn],
            conditions={"StringEquals": {"kms:ViaService": names}},
        )


def _allow_services(key: kms.IKey, stack: Stack, names: Names) -> None:
    arn_format = ArnFormat.COLON_RESOURCE_NAME
    groups = stack.format_arn(service="logs", resource="log-group", resource_name="*", arn_format=arn_format)
    logs = iam.ServicePrincipal(f"logs.{stack.region}.{stack.url_suffix}")
    _allow_service(key, logs, {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}})
    # Otherwise CloudWatch cannot publish alarms to the encrypted topic, and reports this only in the alarm's history.
    # Actions and conditions: https://docs.aws.amazon.com/sns/latest/dg/sns-key-management.html
    cloudwatch = iam.ServicePrincipal("cloudwatch.amazonaws.com")
    _allow_service(key, cloudwatch, alarms_of(stack, names), ("Decrypt", "GenerateDataKey*"))


def _allow_service(
    key: kms.IKey, service: iam.ServicePrincipal, conditions: dict[str, object], verbs: Sequence[str] = ALL_VERBS
) -> None:
    actions = [f"kms:{verb}" for verb in verbs]
    key.add_to_resource_policy(
        iam.PolicyStatement(actions=actions, principals=[service], resources=["*"], conditions=conditions)
    )


def alarms_of(stack: Stack, names: Names) -> dict[str, object]:
    """Return the policy condition that only this stage's alarms match."""
    alarms = stack.format_arn(
        service="cloudwatch",
        resource="alarm",
        resource_name=names.of("*"),
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )
    return {"StringEquals": {"aws:SourceAccount": stack.account}, "ArnLike": {"aws:SourceArn": alarms}}
