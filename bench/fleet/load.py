"""A day of load, generated from a seed: a busy working day with bursts, a quiet night, a runaway agent, and a provider that
throttles.

Times are seconds since midnight. Token counts and durations are those of ordinary chat models. Money is in micro-dollars at
$2.50 and $10 per million tokens of input and output.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

HOUR, DAY = 3600.0, 86_400.0
MICROS_INPUT, MICROS_OUTPUT = 2.5, 10.0
MAX_OUTPUT = 2_000
"""The maximum tokens of an answer, which its reservation assumes."""


@dataclass(frozen=True, slots=True)
class Call:
    """One model call and the tools after it."""

    input_tokens: int
    output_tokens: int
    seconds: float
    tools_s: float

    @property
    def micros(self) -> int:
        return round(self.input_tokens * MICROS_INPUT + self.output_tokens * MICROS_OUTPUT)

    @property
    def worst_micros(self) -> int:
        return round(self.input_tokens * MICROS_INPUT + MAX_OUTPUT * MICROS_OUTPUT)


@dataclass(frozen=True, slots=True)
class Arrival:
    at: float
    agent: str
    run_id: str
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Throttled:
    """A period from `start` to `end` in which the provider answers a limited number of calls at once, each more slowly,
    and rejects the others."""

    start: float
    end: float
    at_once: int
    slower: float


@dataclass(frozen=True, slots=True)
class Kind:
    """An agent. Budgets in US dollars."""

    name: str
    resources: dict[str, Any]
    hour_usd: float
    day_usd: float


@dataclass(frozen=True, slots=True)
class Load:
    kinds: tuple[Kind, ...]
    arrivals: list[Arrival]
    throttled: list[Throttled]
    length_s: float
    at_once: int = 60
    seed: int = 0
    bursts: list[float] = field(default_factory=list)
    runaway: tuple[float, float] = (0.0, 0.0)


SLOW = {"target_tokens_per_second": 600, "target_p95_latency_ms": 20_000, "target_p99_latency_ms": 40_000}
"""The size and duration of these calls; the defaults describe quicker ones."""
SUPPORT = Kind(
    "support",
    {"min": 1, "max": 12, "scaling": {**SLOW, "queue_depth_threshold": 1, "scale_up_step": 2}},
    hour_usd=25,
    day_usd=250,
)
"""An agent that people wait for."""
CRAWLER = Kind("crawler", {"min": 1, "max": 6, "scaling": SLOW}, hour_usd=4, day_usd=20)
"""An agent without waiting people, which may loop."""


def make_day(seed: int, *, start: float = 0, hours: float = 24) -> Load:
    """Generate the hours from `start` on, of the day of the seed."""
    rng = random.Random(seed)
    bursts = [*sorted(rng.uniform(8, 19) * HOUR for _ in range(7)), 2.5 * HOUR]
    runaway = (13.4 * HOUR, 15.4 * HOUR)
    throttled = [Throttled(10.2 * HOUR, 10.9 * HOUR, 3, 1.6), Throttled(16.5 * HOUR, 16.8 * HOUR, 2, 2.0)]
    arrivals = [*_support(rng, bursts), *_crawler(rng, runaway)]
    end = min(start + hours * HOUR, DAY)
    kept = sorted((a for a in arrivals if start <= a.at < end), key=lambda a: (a.at, a.run_id))
    return Load((SUPPORT, CRAWLER), kept, throttled, end, seed=seed, bursts=bursts, runaway=runaway)


def _support(rng: random.Random, bursts: list[float]) -> list[Arrival]:
    """Few runs at night, most about noon, and bursts of many at once."""
    moments, at = [], 0.0
    peak = 5.5 / 60
    while (at := at + rng.expovariate(peak)) < DAY:
        hour = at / HOUR
        level = 0.02 if hour < 6 or hour > 22 else 0.06 + 0.94 * math.sin(math.pi * (hour - 6) / 16) ** 2
        if rng.random() < level:
            moments.append(at)
    for burst in bursts:
        moments += [burst + rng.expovariate(1 / 60) for _ in range(rng.randint(25, 60))]
    return [Arrival(at, "support", f"s{n:05d}", _chat(rng)) for n, at in enumerate(sorted(moments)) if at < DAY]


def _chat(rng: random.Random) -> tuple[Call, ...]:
    context, calls = rng.randint(800, 3000), []
    for _ in range(rng.randint(2, 7)):
        output = rng.randint(80, 700)
        calls.append(Call(context, output, 1.0 + output / 90 + rng.expovariate(1.2), rng.uniform(0.2, 3)))
        context += output + rng.randint(100, 900)
    return tuple(calls)


def _crawler(rng: random.Random, runaway: tuple[float, float]) -> list[Arrival]:
    """Four runs an hour, and for two hours a loop that starts ever more runs, whose contexts grow with each call."""
    moments, at = [], 0.0
    while (at := at + rng.expovariate(4 / HOUR)) < DAY:
        moments.append((at, rng.randint(3, 8), 600))
    at = runaway[0]
    while (at := at + rng.expovariate(1 / 90)) < runaway[1]:
        moments.append((at, rng.randint(60, 140), 1500))
    made = []
    for n, (moment, length, growth) in enumerate(sorted(moments)):
        context, calls = rng.randint(2000, 6000), []
        for _ in range(length):
            output = rng.randint(100, 500)
            calls.append(Call(context, output, 1.5 + output / 90 + rng.expovariate(1), rng.uniform(0.5, 2)))
            context = min(context + growth + rng.randint(0, growth), 120_000)
        made.append(Arrival(moment, "crawler", f"c{n:05d}", tuple(calls)))
    return made
