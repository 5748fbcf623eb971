"""Rights that `govern` alone has: to read metrics, and to keep functions of agents with resources warm.

Law: it changes the provisioned concurrency of the stage's own aliases, one by one, and no other setting of a function.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from constructs import IConstruct

from infra.nag import explain
from infra.names import ALIAS, Names

PROVISIONED = "call_model"
"""What an agent waits for."""
SET = ("lambda:PutProvisionedConcurrencyConfig", "lambda:DeleteProvisionedConcurrencyConfig")


class Provisioning:
    """`profiles`: those of agents whose functions are kept warm."""

    def __init__(self, scope: IConstruct, *, names: Names, profiles: Sequence[str]) -> None:
        self._aliases = [
            Stack.of(scope).format_arn(
                service="lambda",
                resource="function",
                resource_name=f"{names.function(PROVISIONED, profile)}:{ALIAS}",
                arn_format=ArnFormat.COLON_RESOURCE_NAME,
            )
            for profile in profiles
        ]

    def grant_set(self, grantee: iam.IGrantable) -> None:
        if self._aliases:
            iam.Grant.add_to_principal(grantee=grantee, actions=list(SET), resource_arns=self._aliases)


def grant_read_metrics(grantee: iam.IGrantable) -> None:
    iam.Grant.add_to_principal(grantee=grantee, actions=["cloudwatch:GetMetricData"], resource_arns=["*"])
    why = "GetMetricData knows no resources: a right to read one metric of the account is a right to read all of them."
    explain(grantee.grant_principal, "IAM5[Resource::*]", why)
