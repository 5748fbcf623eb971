"""Checks before a deployment. They refuse changes that would fail or lose data.

Law: a stage that has a customer managed key keeps it. Existing objects and log lines stay encrypted with it even if another
key replaces it, and are unreadable without it. A stage without such a key may be given one, because its old data stays
readable.

A stage cannot change between `kinesis` and `direct` in one step. In between it uses `both`, until invocations of the
earlier code have ended and all chunks in Kinesis are in the log (docs/adr/0028-streams-without-kinesis.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from botocore.exceptions import ClientError

from helix.cli.cloud.stack import KEY, Deployed, describe_stack, outputs_of
from helix.cli.output import RefusedError
from helix.core.tool_settings import SecretPlace
from helix.ports.clock import Clock

MISSING_SECRET = ("ParameterNotFound", "ResourceNotFoundException")
FLIGHT_S = 20 * 60.0
"""The number of seconds to wait after deploying `both`. An invocation runs for at most 15 minutes."""
LATE = ("chunks-behind", "chunks-refused")
"""The alarms of a projector that has not yet processed all chunks in Kinesis."""


def keep_key(deployed: Deployed | None, wanted: str, context: MutableMapping[str, str]) -> None:
    """Set `key` in `context` to `own` if the stage has a customer managed key. `wanted` is the user's setting, or "".
    Raises `RefusedError` if the setting would replace the key."""
    if deployed is None or not any(resource.kind == KEY for resource in deployed.resources):
        return
    if wanted == "aws":
        raise RefusedError(
            "the stage has a customer managed key, and only this key can read its objects and logs: "
            "keep -c key=own. A new stage may have -c key=aws"
        )
    context["key"] = "own"


def check_secrets(client: Callable[[str], Any], places: Mapping[SecretPlace, str]) -> None:
    """Raise `RefusedError` with the names of missing secrets. ARNs are not checked, because a secret in another account may
    be readable only by the functions."""
    missing = {
        name: place for place, name in places.items() if not place.id.startswith("arn:") and _is_missing(client, place)
    }
    if missing:
        named = ", ".join(f"{name} at {str(place)!r}" for name, place in sorted(missing.items()))
        how = "aws secretsmanager create-secret, aws ssm put-parameter --type SecureString"
        raise RefusedError(f"secrets of [tool.helix.secrets] do not exist: {named}; create them first ({how})")


def _is_missing(client: Callable[[str], Any], place: SecretPlace) -> bool:
    try:
        if place.service == "ssm":
            client("ssm").get_parameter(Name=place.id)
        else:
            client("secretsmanager").describe_secret(SecretId=place.id)
    except ClientError as error:  # the user who deploys may lack the permission to look
        return error.response["Error"]["Code"] in MISSING_SECRET
    return False


def check_shards(kinesis: Any, stream: str, shards: int) -> None:
    """Raise `RefusedError` if Kinesis would refuse to change `stream` to `shards` shards.

    Kinesis can at most double or halve the number of shards in one step. A new stream may have any number. With 0, Kinesis
    chooses the number.
    """
    if shards == 0:
        return
    try:
        present = kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]["OpenShardCount"]
    except ClientError as error:
        if error.response["Error"]["Code"] == "ResourceNotFoundException":
            return
        raise
    least, most = -(-present // 2), 2 * present
    if not least <= shards <= most:
        step = most if shards > most else least
        raise RefusedError(
            f"the chunk stream {stream!r} has {present} shards, and in one step Kinesis can only change them to {least} "
            f"to {most}: deploy with -c shards={step} first, then with the next step, until there are {shards}"
        )


def check_streaming(cloudformation: Any, cloudwatch: Any, clock: Clock, stack: str, wanted: str) -> None:
    """Raise `RefusedError` if the change to `wanted` would lose chunks of the deployed stage. A new stage may have any
    setting."""
    deployed = describe_stack(cloudformation, stack)
    if deployed is None:
        return
    outputs = outputs_of(deployed)
    present = outputs.get("StreamingMode") or ("kinesis" if "ChunkStream" in outputs else wanted)
    if wanted in (present, "both"):
        return
    if present != "both":
        raise RefusedError(
            f"the stage has streaming={present}: deploy it with -c streaming=both first, and with -c streaming={wanted} "
            f"{FLIGHT_S / 60:.0f} minutes later, or chunks that functions write meanwhile are lost"
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
            raise RefusedError(
                f"Kinesis holds chunks that are not in the log yet (alarm {name!r}): wait until the alarm clears"
            )
