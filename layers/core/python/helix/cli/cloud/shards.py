"""A check before a deployment: Kinesis must allow the new shard count of the chunk stream in one step."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from helix.cli.output import RefusedError


def check_shards(kinesis: Any, stream: str, shards: int) -> None:
    """Raise `RefusedError` if Kinesis would refuse to change `stream` to `shards` shards.

    In one step, Kinesis can at most double or halve the number of shards. A new stream may have any number. With 0, Kinesis
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
            f"the chunk stream {stream!r} has {present} shards, and Kinesis changes them to {least} to {most} in one step: "
            f"deploy with -c shards={step} first, then with the next step, until there are {shards}"
        )
