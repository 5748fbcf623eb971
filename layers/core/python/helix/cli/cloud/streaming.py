"""A change of the setting `streaming` on a living stage: in which order, and when.

Law: `kinesis` and `direct` do not follow each other. Between them the stage has `both`, until no function runs that was
deployed before it, and Kinesis holds nothing that is not on the log (docs/adr/0028-streams-without-kinesis.md).
"""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from helix.cli.output import RefusedError
from helix.ports.clock import Clock

FLIGHT_S = 20 * 60.0
"""After the deployment of `both`. Functions run for 15 minutes at most."""
LATE = ("chunks-behind", "chunks-refused")
"""Alarms of a projector that has not taken what is on Kinesis."""


def check_streaming(cloudformation: Any, cloudwatch: Any, clock: Clock, stack: str, wanted: str) -> None:
    """Raise `RefusedError` where `wanted` would lose chunks of the stage as it is deployed. A new stage may have any."""
    try:
        described = cloudformation.describe_stacks(StackName=stack)["Stacks"][0]
    except ClientError as error:
        if "does not exist" in str(error):
            return
        raise
    outputs = {each["OutputKey"]: each["OutputValue"] for each in described.get("Outputs", [])}
    present = outputs.get("StreamingMode") or ("kinesis" if "ChunkStream" in outputs else wanted)
    if wanted in (present, "both"):
        return
    if present != "both":
        raise RefusedError(
            f"the stage streams by {present!r}: deploy it with -c streaming=both first, and with -c streaming={wanted} "
            f"{FLIGHT_S / 60:.0f} minutes later, or what functions write meanwhile is lost"
        )
    newest = cloudformation.describe_stack_events(StackName=stack)["StackEvents"][0]["Timestamp"].timestamp()
    if (left := newest + FLIGHT_S - clock.now()) > 0:
        raise RefusedError(
            f"functions that were deployed before streaming=both may still run: deploy with -c streaming={wanted} in "
            f"{left / 60:.0f} minutes"
        )
    names = [f"{stack}-{alarm}" for alarm in LATE]
    for alarm in cloudwatch.describe_alarms(AlarmNames=names)["MetricAlarms"]:
        if alarm["StateValue"] == "ALARM":
            name = alarm["AlarmName"]
            raise RefusedError(f"Kinesis holds chunks that are not on the log (alarm {name!r}): wait until it is over")
