"""The limits of models: requests and tokens a minute, and the arithmetic of turns.

    [tool.helix.limits."openai/gpt-5"]
    requests = 50                                     # a minute
    tokens = 100_000

Law: each call has a time of its own (GCRA). A cell has one number per dimension, the time at which all granted turns are
worked off. A turn moves it by the call's share of a minute, so a later caller gets a later time, and none is overtaken.
Times are integers in microseconds, because every store adds and compares those exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from helix.core.errors import InvalidInputError
from helix.core.spelling import did_you_mean

TABLE: Final = "tool.helix.limits"
MICROS_A_SECOND: Final = 1_000_000
USED_PERCENT: Final = 97
"""The percentage of a limit that is granted. The rest covers requests that reach the provider at uneven times."""
BURST_S: Final = 3
"""The seconds' worth of a limit that may be used at once after a pause."""
SLACK_US: Final = 300_000
"""How far another caller may move a cell between the read and the write of a turn. Callers of a model with a high limit
can therefore take turns at the same time, and start up to this much too early."""
MOST: Final = 10**9
DIMENSIONS: Final = ("requests", "tokens")


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of one model. Without both numbers it only tells when a provider refuses requests."""

    requests: int | None = None
    """The number of requests a minute. None: not limited, or not known."""
    tokens: int | None = None
    """The number of tokens a minute, prompts and answers together. None: not limited, or not known."""

    def __bool__(self) -> bool:
        return self.requests is not None or self.tokens is not None

    def share(self, dimension: str, amount: int) -> int | None:
        """Return the time that `amount` takes of this dimension, in microseconds. None: it is not limited."""
        limit = self.requests if dimension == "requests" else self.tokens
        return None if limit is None else amount * 6_000 * MICROS_A_SECOND // (limit * USED_PERCENT)


@dataclass(frozen=True, slots=True)
class Turn:
    """The turn of a call, and how the cell changes when the call takes it."""

    at: int
    """The time of the turn, in microseconds."""
    set: Mapping[str, int] = field(default_factory=dict)
    """The fields of dimensions that were idle, with their new values."""
    equal: Mapping[str, int | None] = field(default_factory=dict)
    """The values of these fields as read."""
    add: Mapping[str, int] = field(default_factory=dict)
    """The amounts by which the fields of busy dimensions grow."""
    at_least: Mapping[str, int] = field(default_factory=dict)
    """The values of these fields as read."""
    below: Mapping[str, int] = field(default_factory=dict)
    """The values that these fields must not have reached."""


def next_turn(cell: Mapping[str, Any], limit: Limit, tokens: int, now: int) -> Turn:
    """Return the first turn of a call that uses about `tokens` tokens. `now` is in microseconds."""
    free = cell.get("free_at") or 0
    at = max(now, free)
    burst = 0 if free > now else BURST_S * MICROS_A_SECOND  # a burst after a refusal would be refused again
    changed: dict[str, int] = {}
    equal: dict[str, int | None] = {}
    add: dict[str, int] = {}
    at_least: dict[str, int] = {}
    below: dict[str, int] = {}
    for name, amount in zip(DIMENSIONS, (1, max(1, tokens)), strict=True):
        cost = limit.share(name, amount)
        if cost is None:
            continue
        known = cell.get(f"{name}_at")
        busy = max(known or 0, free)
        at = max(at, busy + cost - max(cost, burst))
        if known is None or known < now or busy > known:
            changed[f"{name}_at"], equal[f"{name}_at"] = max(now, busy) + cost, known
        else:
            add[f"{name}_at"], at_least[f"{name}_at"] = cost, known
            below[f"{name}_at"] = known + max(1, min(SLACK_US, cost))
    return Turn(at, changed, equal, add, at_least, below)


def parse_limits(table: Any) -> dict[str, Limit]:
    """Parse `[tool.helix.limits]`: the limit of each model. Raises `InvalidInputError`, which names the first invalid
    key."""
    if not isinstance(table, Mapping):
        raise InvalidInputError(f"{TABLE} must be a table of models, not {table!r}")
    return {str(model): _limit(f"{TABLE}.{model!r}", given) for model, given in table.items()}


def _limit(where: str, given: Any) -> Limit:
    if not isinstance(given, Mapping):
        raise InvalidInputError(f"{where} must be a table with requests or tokens, not {given!r}")
    for key, value in given.items():
        if key not in DIMENSIONS:
            listed = f"{', '.join(DIMENSIONS)}{did_you_mean(str(key), DIMENSIONS)}"
            raise InvalidInputError(f"{where} has the unknown key {key!r}; the keys are {listed}")
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
            raise InvalidInputError(f"{where}.{key} is {value!r}; it must be a whole number from 1 to {MOST:,}")
    if not given:
        raise InvalidInputError(f"{where} has no limit: give requests or tokens a minute")
    return Limit(given.get("requests"), given.get("tokens"))


@dataclass(frozen=True, slots=True)
class ReportedLimit:
    """The limit that a provider's response reported."""

    limit: Limit
    """The limit."""
    low: bool
    """Whether less than half of it was left, so that callers must take turns."""


_HEADERS: Final = {
    "requests": (
        ("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests"),
        ("anthropic-ratelimit-requests-limit", "anthropic-ratelimit-requests-remaining"),
    ),
    "tokens": (
        ("x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens"),
        ("anthropic-ratelimit-tokens-limit", "anthropic-ratelimit-tokens-remaining"),
    ),
}
"""The names of the headers of OpenAI, of servers that imitate it, and of Anthropic: the limit, and what is left."""


def reported_limit(headers: Any) -> ReportedLimit | None:
    """Return the limit that a response's headers report, or None. Values that are not whole numbers are ignored."""
    found: dict[str, int] = {}
    low = False
    for dimension, names in _HEADERS.items():
        for limit_name, left_name in names:
            limit, left = _number(headers.get(limit_name)), _number(headers.get(left_name))
            if limit is not None and 1 <= limit <= MOST:
                found[dimension] = limit
                low = low or (left is not None and 2 * left < limit)
                break
    return ReportedLimit(Limit(found.get("requests"), found.get("tokens")), low) if found else None


def _number(value: Any) -> int | None:
    text = str(value)
    return int(text) if text.isdecimal() and len(text) <= 12 else None
