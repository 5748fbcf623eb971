"""A check before a deployment: the setting `streaming` may change only in the right order and at the right time.

Law: a stage cannot change between `kinesis` and `direct` in one step. In between it uses `both`, until invocations of the
earlier code have ended and all chunks in Kinesis are in the log (docs/adr/0028-streams-without-kinesis.md).
"""

from __future__ import annotations

from typing import Any

from helix.cli.cloud.stack import described, outputs_of
from helix.cli.output import RefusedError
from helix.ports.clock import Clock

FLIGHT_S = 20 * 60.0
"""The wait in seconds after the deployment of `both`. An invocation runs for at most 15 minutes."""
LATE = ("chunks-behind", "chunks-refused")
"""The alarms of a projector that has not yet processed all chunks in Kinesis."""


def check_streaming(cloudformation: Any, cloudwatch: Any, clock: Clock, stack: str, wanted: str) -> None:
    """Raise `RefusedError` if the change to `wanted` would lose chunks of the deployed stage. A new stage may have any
    setting."""
    deployed = described(cloudformation, stack)
    if deployed is None:
        return
    outputs = outputs_of(deployed)
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
