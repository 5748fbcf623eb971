"""The app's own network around the functions that execute tools.

Law: it takes the place of what `[tool.helix.vpc]` names, and nothing else of a profile changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from helix.core.tool_settings import Vpc
from helix.infra.profile import Profile


@dataclass(frozen=True, slots=True)
class Network:
    subnets: tuple[str, ...]
    groups: tuple[ec2.ISecurityGroup, ...]

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
        # Identifiers may be CDK's tokens, which have no pattern.
        vpc = Vpc.model_construct(subnets=self.subnets, security_groups=groups)
        return replace(profile, tools=profile.tools.model_copy(update={"vpc": vpc}))
