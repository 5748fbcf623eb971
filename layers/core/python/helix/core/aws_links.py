"""ARNs of executions, and addresses in the AWS console that show an execution or the log groups of a stage.

Law: everything here follows from names. Nothing calls AWS, so an address may lead to something that AWS has deleted.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

CONSOLES: Final = {
    "aws": "console.aws.amazon.com",
    "aws-cn": "console.amazonaws.cn",
    "aws-us-gov": "console.amazonaws-us-gov.com",
}
"""The host of the AWS console by partition. Other partitions have no address here."""
PROFILE: Final = "{profile}"
"""The place of a resource profile's name in the ARN of a stage's state machines."""


def execution_arn(machine: str, profile: str, name: str) -> str:
    """Return the ARN of an execution of a profile's state machine."""
    return f"{machine.replace(PROFILE, profile).replace(':stateMachine:', ':execution:')}:{name}"


def execution_url(arn: str) -> str | None:
    """Return the address of an execution in the AWS console. None if its partition has no known console."""
    return _url(arn, "states", f"/v2/executions/details/{quote(arn, safe=':')}")


def log_group_prefix(stage: str) -> str:
    """Return the beginning of the names of a stage's log groups. The name of the function follows."""
    return f"/aws/lambda/helix-{stage}-"


def log_groups_url(machine: str, prefix: str) -> str | None:
    """Return the address of the log groups whose names begin with `prefix`, in the region of the state machines."""
    return _url(machine, "cloudwatch", f"logsV2:log-groups$3FlogGroupNameFilter$3D{quote(prefix, safe='')}")


def _url(arn: str, service: str, place: str) -> str | None:
    _, partition, _, region, *_ = arn.split(":")
    host = CONSOLES.get(partition)
    return None if host is None else f"https://{region}.{host}/{service}/home?region={region}#{place}"
