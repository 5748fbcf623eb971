"""The division of a stage's Lambda concurrency between runs and the small functions.

Law: runs that wait for their model must not use up the concurrency that the gateway, the projector, `sweep` and `govern`
need. If the account's limit is high enough, these have reserved concurrency; otherwise the number of concurrent runs is
limited further. This module does not query the account; the setting `concurrency` contains its limit.
"""

from __future__ import annotations

from collections.abc import Mapping

from helix.infra.config import Settings

LANES = 10
"""The number of batches of one shard that are processed concurrently. A slow socket delays only its own lane."""
UNRESERVED = 100
"""The concurrency that AWS keeps unreserved in every account and region:
https://docs.aws.amazon.com/lambda/latest/api/API_PutFunctionConcurrency.html"""
SHARES = {"ws_message": 0.05, "ws_authorize": 0.02, "ws_connect": 0.02, "ws_disconnect": 0.02}
"""The shares of the functions that clients call. A reservation is also a maximum, so it must grow with the account's
limit."""
LEAST_SHARE = 5
FIXED = {"sweep": 2, "govern": 2, "health": 4}


def reserved(settings: Settings) -> Mapping[str, int]:
    """Return the reserved concurrency by verb. Empty if the limit is unknown, or too low to reserve anything.
    `project_stream` does not have a reservation if the number of shards is unknown, because Kinesis or DynamoDB chooses
    it."""
    wished = {verb: max(LEAST_SHARE, round(share * settings.concurrency)) for verb, share in SHARES.items()} | FIXED
    if settings.shards and settings.streaming == "kinesis":
        wished["project_stream"] = settings.shards * LANES
    left = settings.concurrency - settings.provisioned_concurrency - sum(wished.values())
    return wished if left >= UNRESERVED else {}


def runs_at_once(settings: Settings) -> int:
    """Return `max_runs`, or its default, which depends on the limit. 0: no limit.

    Without reservations, the default is half of the limit. With them, it is four fifths of the unreserved rest. The
    remainder is for steps with several calls, which take several executions.
    """
    if settings.max_runs is not None:
        return settings.max_runs
    taken = sum(reserved(settings).values())
    return (settings.concurrency - taken) * 4 // 5 if taken else settings.concurrency // 2


def division(settings: Settings) -> str:
    """Describe the division for the stack's output."""
    if not settings.concurrency:
        return "unknown; nothing is reserved"
    runs, taken = runs_at_once(settings), reserved(settings)
    words = f"{settings.concurrency} invocations at once, {runs or 'any number of'} runs at work"
    if not taken:
        return f"{words}; nothing is reserved, because AWS keeps {UNRESERVED} unreserved"
    return f"{words}; reserved: " + ", ".join(f"{verb} {number}" for verb, number in taken.items())
