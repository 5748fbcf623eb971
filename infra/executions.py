"""Rights on executions of the stage's state machines, by constructed ARN.

Law: rights name every machine of the stage, and no other; the functions that hold them are called by those very machines.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import IConstruct

from infra.nag import explain, explain_resource
from infra.names import PROFILE, Names


class Executions:
    """`profiles`: every resource profile that is deployed. `prefix` is what all their machines' ARNs begin with."""

    def __init__(self, scope: IConstruct, *, names: Names, profiles: Sequence[str]) -> None:
        stack = Stack.of(scope)
        self.pattern = names.machine_arn(stack, PROFILE)
        self.prefix = names.machine_arn(stack, "")
        self.machines = [names.machine_arn(stack, profile) for profile in profiles]
        self._executions = [names.executions_arn(stack, profile) for profile in profiles]

    def grant_start(self, grantee: iam.IGrantable) -> None:
        iam.Grant.add_to_principal(grantee=grantee, actions=["states:StartExecution"], resource_arns=self.machines)

    def grant_describe(self, grantee: iam.IGrantable) -> None:
        self._grant_executions(grantee, "states:DescribeExecution")

    def grant_stop(self, grantee: iam.IGrantable) -> None:
        self._grant_executions(grantee, "states:StopExecution")

    def grant_wake(self, grantee: iam.IGrantable) -> None:
        """Answer the task token of a parent that waits for its child."""
        iam.Grant.add_to_principal(grantee=grantee, actions=["states:SendTaskSuccess"], resource_arns=["*"])
        why = "SendTaskSuccess knows no resources: the token names the one task that it can answer, and is a secret."
        explain(grantee.grant_principal, "IAM5[Resource::*]", why)

    def _grant_executions(self, grantee: iam.IGrantable, action: str) -> None:
        iam.Grant.add_to_principal(grantee=grantee, actions=[action], resource_arns=self._executions)
        for arn in self._executions:
            explain_resource(grantee, arn, "Executions of this stage's machines are named after runs, which are data.")
