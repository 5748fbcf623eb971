"""How a stage divides the concurrent executions that Lambda allows it: runs, and the small functions beside them.

Law: a run that waits for its model must not take the place of the gateway, of the projector, of `sweep` or `govern`. Where
AWS leaves enough to reserve, they have places of their own; elsewhere fewer runs are at work at once. The account is not
asked here: the setting `concurrency` says what it allows.
"""

from __future__ import annotations

from collections.abc import Mapping

from helix.infra.config import Settings
from helix.infra.streaming import LANES

UNRESERVED = 100
"""This many stay unreserved in every account and region:
https://docs.aws.amazon.com/lambda/latest/api/API_PutFunctionConcurrency.html"""
SHARES = {"ws_message": 0.05, "ws_authorize": 0.02, "ws_connect": 0.02, "ws_disconnect": 0.02}
"""A reservation is a bound, too, so what clients call grows with the account."""
LEAST_SHARE = 5
FIXED = {"sweep": 2, "govern": 2, "health": 4}


def reserved(settings: Settings) -> Mapping[str, int]:
    """Reserved concurrency by verb; empty where the limit is unknown, or too low to reserve anything. `project_stream` has
    none where the number of shards is unknown: Kinesis chooses it, or DynamoDB."""
    wished = {verb: max(LEAST_SHARE, round(share * settings.concurrency)) for verb, share in SHARES.items()} | FIXED
    if settings.shards and settings.streaming == "kinesis":
        wished["project_stream"] = settings.shards * LANES
    left = settings.concurrency - settings.provisioned_concurrency - sum(wished.values())
    return wished if left >= UNRESERVED else {}


def runs_at_once(settings: Settings) -> int:
    """`max_runs`, or what the limit leaves for it: half of it without reservations, and four fifths of what is not reserved
    with them, because steps with several calls take several. 0: no bound."""
    if settings.max_runs is not None:
        return settings.max_runs
    taken = sum(reserved(settings).values())
    return (settings.concurrency - taken) * 4 // 5 if taken else settings.concurrency // 2


def division(settings: Settings) -> str:
    """In words, for the stack's output."""
    if not settings.concurrency:
        return "unknown; nothing is reserved"
    runs, taken = runs_at_once(settings), reserved(settings)
    words = f"{settings.concurrency} invocations at once, {runs or 'any number of'} runs at work"
    if not taken:
        return f"{words}; nothing is reserved, because AWS keeps {UNRESERVED} unreserved"
    return f"{words}; reserved: " + ", ".join(f"{verb} {number}" for verb, number in taken.items())
