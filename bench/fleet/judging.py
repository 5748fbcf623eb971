"""Check a day for oscillation and for spending beyond a budget, and compute how long people waited."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .load import HOUR, Load
from .replay import Move, Told

LOCK_S = 600.0
MONEY = ("budget stop", "budget reset")


@dataclass(frozen=True, slots=True)
class Overrun:
    agent: str
    window: str
    spent: float
    limit: float


def overruns(load: Load, told: Told) -> list[Overrun]:
    """Return the budget windows whose spending exceeded the budget, in US dollars."""
    spent: defaultdict[tuple[str, str], int] = defaultdict(int)
    for (agent, minute), micros in told.micros.items():
        spent[agent, f"hour {minute // 60}"] += micros
        spent[agent, f"day {minute // 1440}"] += micros
    limits = {kind.name: {"hour": kind.hour_usd, "day": kind.day_usd} for kind in load.kinds}
    return [
        Overrun(agent, window, micros / 1e6, limit)
        for (agent, window), micros in sorted(spent.items())
        if micros / 1e6 > (limit := limits[agent][window.split()[0]])
    ]


def oscillations(told: Told) -> list[tuple[Move, Move, Move]]:
    """Find three alternating moves of an agent within ten minutes. A stop for spent money, followed by a new window,
    does not count."""
    found = []
    for agent in sorted({move.agent for move in told.moves}):
        moves = [move for move in told.moves if move.agent == agent and move.rule not in MONEY]
        turns = [pair for pair in pairwise(moves) if _up(pair[0]) != _up(pair[1])]
        found += [(start, turn, back) for (start, turn), (_, back) in pairwise(turns) if back.at - start.at < LOCK_S]
    return found


def _up(move: Move) -> bool:
    return move.after > move.before


def ups_into_throttling(load: Load, told: Told) -> list[Move]:
    """Find steps up after calls that the provider rejected, within the minutes that a decision considers."""
    refused = sorted(told.refused_at)
    return [
        move
        for move in told.moves
        if _up(move) and any(move.at - 299 < at < move.at and agent == move.agent for at, agent in refused)
    ]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the percentile `share` (0 to 1) of the values, or 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def hourly(told: Told, agent: str) -> dict[int, float]:
    """Return US dollars by hour."""
    found: Counter[int] = Counter()
    for (name, minute), micros in told.micros.items():
        if name == agent:
            found[minute // 60] += micros
    return {hour: micros / 1e6 for hour, micros in sorted(found.items())}


def slot_hours(told: Told, agent: str) -> float:
    return told.allowed_s[agent] / HOUR


def utilization(told: Told, agent: str) -> float:
    """Return the share of the slots' time in which runs were at work."""
    return told.busy_s[agent] / told.allowed_s[agent] if told.allowed_s[agent] else 0.0
