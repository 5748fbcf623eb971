"""The network that a CDK app provides for the functions that execute tools.

Law: it replaces the network that `[tool.helix.vpc]` names, and changes nothing else in a profile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from helix.core.tool_settings import Vpc
from helix.infra.agent_profiles import Profile


@dataclass(frozen=True, slots=True)
class Network:
    """The network of the functions that execute tools."""

    subnets: tuple[str, ...]
    """The ids of its subnets. They may be CDK tokens. By default they are the private subnets with egress."""
    groups: tuple[ec2.ISecurityGroup, ...]
    """The security groups of the functions: those that the app provides, or else one that the stage creates."""

    @classmethod
    def of(
        cls,
        scope: Construct,
        vpc: ec2.IVpc,
        subnets: ec2.SubnetSelection | None,
        groups: Sequence[ec2.ISecurityGroup] | None,
    ) -> Network:
        chosen = subnets or ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS)
        if not groups:
            description = "Functions of Helix that execute tools"
            groups = [ec2.SecurityGroup(scope, "ToolsSecurityGroup", vpc=vpc, description=description)]
        return cls(tuple(vpc.select_subnets(**chosen._values).subnet_ids), tuple(groups))

    def around(self, profile: Profile) -> Profile:
        groups = tuple(group.security_group_id for group in self.groups)
        # Ids may be CDK tokens, which would fail the validation of `Vpc`.
        vpc = Vpc.model_construct(subnets=self.subnets, security_groups=groups)
        return replace(profile, tools=profile.tools.model_copy(update={"vpc": vpc}))
