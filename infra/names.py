"""Names and ARNs of a stage's resources, derived from the stage's name alone.

Law: a resource with a fixed name can be referenced before it exists. This lets functions have permissions on the state
machines that call them, without a circular dependency.
"""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import ArnFormat, Stack

from helix.core.aws_links import log_group_prefix
from helix.core.resources import DEFAULT_PROFILE, IMAGE_SUFFIX

PROFILE = "{profile}"
ALIAS = "live"
SERVICE = "helix"


@dataclass(frozen=True, slots=True)
class Names:
    """The names and ARNs of one stage's resources."""

    stage: str
    """The name of the stage, without a dash."""

    @property
    def prefix(self) -> str:
        return f"{SERVICE}-{self.stage}"

    def of(self, what: str) -> str:
        return f"{self.prefix}-{what}"

    def function(self, verb: str, profile: str = DEFAULT_PROFILE) -> str:
        return self.of(verb if profile == DEFAULT_PROFILE else f"{profile}-{verb}")

    def image_function(self, verb: str, profile: str = DEFAULT_PROFILE) -> str:
        return f"{self.function(verb, profile)}{IMAGE_SUFFIX}"

    def machine(self, profile: str) -> str:
        return self.of(profile)

    def machine_arn(self, stack: Stack, profile: str) -> str:
        """Return the ARN of a state machine. With `PROFILE` as `profile`, it is the template that functions fill in."""
        return _states_arn(stack, "stateMachine", self.machine(profile))

    def executions_arn(self, stack: Stack, profile: str) -> str:
        """Return the ARN pattern of all executions of one state machine."""
        return _states_arn(stack, "execution", f"{self.machine(profile)}:*")

    def log_groups_arn(self, stack: Stack) -> str:
        """Return the ARN pattern of the log groups of all functions. It also matches ARNs that end with `:*`."""
        arn: str = stack.format_arn(
            service="logs",
            resource="log-group",
            resource_name=f"{log_group_prefix(self.stage)}*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        return arn


def _states_arn(stack: Stack, resource: str, name: str) -> str:
    colons = ArnFormat.COLON_RESOURCE_NAME
    arn: str = stack.format_arn(service="states", resource=resource, resource_name=name, arn_format=colons)
    return arn
