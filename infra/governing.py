"""The permissions that only `govern` has: to start the sweep, to read metrics, and to keep the functions of agents with
resources warm.

Law: `govern` may change the provisioned concurrency of the stage's own aliases, and no other setting of a function.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from constructs import IConstruct

from helix.infra.nag import explain, explain_resource
from helix.infra.names import ALIAS, Names

PROVISIONED = "call_model"
"""The verb whose functions are kept warm, because runs wait for it."""
SWEEP = "sweep"
SET = ("lambda:PutProvisionedConcurrencyConfig", "lambda:DeleteProvisionedConcurrencyConfig")


class Governing:
    """The permissions that only `govern` has. `provisions`: whether functions of agents with resources are kept warm."""

    def __init__(self, scope: IConstruct, *, names: Names, provisions: bool) -> None:
        self._stack, self._names, self._provisions = Stack.of(scope), names, provisions

    def grant(self, grantee: iam.IGrantable) -> None:
        self._allow(grantee, ["lambda:InvokeFunction"], self._alias(self._names.function(SWEEP)))
        if self._provisions:
            every = self._alias(self._names.function(PROVISIONED, "*"))
            self._allow(grantee, SET, every)
            explain_resource(grantee, every, "Each agent with resources has such an alias, and no other resource.")
        self._allow(grantee, ["cloudwatch:GetMetricData"], "*")
        why = "GetMetricData does not support resource ARNs, so it covers all metrics of the account."
        explain(grantee.grant_principal, "IAM5[Resource::*]", why)

    def _alias(self, function: str) -> str:
        colons, place = ArnFormat.COLON_RESOURCE_NAME, f"{function}:{ALIAS}"
        arn: str = self._stack.format_arn(service="lambda", resource="function", resource_name=place, arn_format=colons)
        return arn

    def _allow(self, grantee: iam.IGrantable, actions: Sequence[str], resource: str) -> None:
        iam.Grant.add_to_principal(grantee=grantee, actions=list(actions), resource_arns=[resource])
