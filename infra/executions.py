"""Permissions on executions of the stage's state machines, by constructed ARN.

Law: permissions cover exactly the stage's machines, by the prefix of their names. This is safe because a stage's name does
not contain a dash. The size of a policy therefore does not depend on the number of agents that have their own machines.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import IConstruct

from helix.infra.nag import explain, explain_resource
from helix.infra.names import PROFILE, Names


class Executions:
    """The state machines of a stage, and permissions on them. `profiles`: every deployed resource profile. `prefix`: the
    common prefix of their machines' ARNs."""

    def __init__(self, scope: IConstruct, *, names: Names, profiles: Sequence[str]) -> None:
        stack = Stack.of(scope)
        self.pattern = names.machine_arn(stack, PROFILE)
        self.prefix = names.machine_arn(stack, "")
        self.machines = [names.machine_arn(stack, profile) for profile in profiles]
        self._every_machine, self._every_execution = names.machine_arn(stack, "*"), names.executions_arn(stack, "*")

    def grant_start(self, grantee: iam.IGrantable) -> None:
        self._grant(grantee, "states:StartExecution", self._every_machine, "Each agent with resources has a machine.")

    def grant_describe(self, grantee: iam.IGrantable) -> None:
        self._grant_executions(grantee, "states:DescribeExecution")

    def grant_stop(self, grantee: iam.IGrantable) -> None:
        self._grant_executions(grantee, "states:StopExecution")

    def grant_wake(self, grantee: iam.IGrantable) -> None:
        """Let `grantee` complete the task token of a parent that waits for its sub-agent."""
        iam.Grant.add_to_principal(grantee=grantee, actions=["states:SendTaskSuccess"], resource_arns=["*"])
        why = "SendTaskSuccess does not support resource ARNs. The token is secret and completes only its own task."
        explain(grantee.grant_principal, "IAM5[Resource::*]", why)

    def _grant_executions(self, grantee: iam.IGrantable, action: str) -> None:
        why = "Executions of this stage's machines are named after runs, which are data."
        self._grant(grantee, action, self._every_execution, why)

    def _grant(self, grantee: iam.IGrantable, action: str, arn: str, why: str) -> None:
        iam.Grant.add_to_principal(grantee=grantee, actions=[action], resource_arns=[arn])
        explain_resource(grantee, arn, why)
