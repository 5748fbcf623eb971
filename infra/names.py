"""Names and ARNs of a stage's resources, made of the stage alone.

Law: what has a fixed name here can be pointed at before it exists; so functions may hold rights on the machines that call
them, and no two resources wait for each other.
"""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import ArnFormat, Stack

from helix.core.resources import DEFAULT_PROFILE
from helix.infra.image_packages import SUFFIX

PROFILE = "{profile}"
ALIAS = "live"
SERVICE = "helix"


@dataclass(frozen=True, slots=True)
class Names:
    stage: str

    @property
    def prefix(self) -> str:
        return f"{SERVICE}-{self.stage}"

    def of(self, what: str) -> str:
        return f"{self.prefix}-{what}"

    def function(self, verb: str, profile: str = DEFAULT_PROFILE) -> str:
        return self.of(verb if profile == DEFAULT_PROFILE else f"{profile}-{verb}")

    def image_function(self, verb: str, profile: str = DEFAULT_PROFILE) -> str:
        return f"{self.function(verb, profile)}{SUFFIX}"

    def machine(self, profile: str) -> str:
        return self.of(profile)

    def machine_arn(self, stack: Stack, profile: str) -> str:
        """ARN of a state machine; with `PROFILE` for `profile`, the pattern that functions fill in."""
        return _states_arn(stack, "stateMachine", self.machine(profile))

    def executions_arn(self, stack: Stack, profile: str) -> str:
        """ARN pattern of all executions of one machine."""
        return _states_arn(stack, "execution", f"{self.machine(profile)}:*")


def _states_arn(stack: Stack, resource: str, name: str) -> str:
    colons = ArnFormat.COLON_RESOURCE_NAME
    arn: str = stack.format_arn(service="states", resource=resource, resource_name=name, arn_format=colons)
    return arn
