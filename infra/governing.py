"""Rights that `govern` alone has: to read metrics, and to keep functions of agents with resources warm.

Law: it changes the provisioned concurrency of the stage's own aliases, one by one, and no other setting of a function.
"""

from __future__ import annotations

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from constructs import IConstruct

from helix.infra.nag import explain, explain_resource
from helix.infra.names import ALIAS, Names

PROVISIONED = "call_model"
"""What an agent waits for."""
SET = ("lambda:PutProvisionedConcurrencyConfig", "lambda:DeleteProvisionedConcurrencyConfig")


class Provisioning:
    """`wanted`: whether functions of agents with resources are kept warm."""

    def __init__(self, scope: IConstruct, *, names: Names, wanted: bool) -> None:
        every = f"{names.function(PROVISIONED, '*')}:{ALIAS}"
        colons = ArnFormat.COLON_RESOURCE_NAME
        stack = Stack.of(scope)
        arn = stack.format_arn(service="lambda", resource="function", resource_name=every, arn_format=colons)
        self._aliases = arn if wanted else None

    def grant_set(self, grantee: iam.IGrantable) -> None:
        if self._aliases:
            iam.Grant.add_to_principal(grantee=grantee, actions=list(SET), resource_arns=[self._aliases])
            explain_resource(
                grantee, self._aliases, "Each agent with resources has such an alias, and no other resource."
            )


def grant_read_metrics(grantee: iam.IGrantable) -> None:
    iam.Grant.add_to_principal(grantee=grantee, actions=["cloudwatch:GetMetricData"], resource_arns=["*"])
    why = "GetMetricData knows no resources: a right to read one metric of the account is a right to read all of them."
    explain(grantee.grant_principal, "IAM5[Resource::*]", why)
