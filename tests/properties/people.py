"""Runs that people steer, queue for, answer, interrupt and withdraw from, and that other systems report to, while their
workers die, by seed.

    .venv/bin/python -m tests.properties.people --count 1000 [--kind sqlite] [--seed 7]

Law: a play is a function of its seed. Each has two worker processes and functions on one store, and a client in each. It
steers, queues, asks, interrupts and kills at least once, at random moments. Afterwards plain lists of what clients were
told are compared with the rows: each message is in history once and in order, each question has one answer, which its tool
got, each call that ends elsewhere has one result, which a right token brought, a cut answer is in history once, the active
agent is the target of the last handoff, no guard judged a value again once its verdict was stored, and streams have no gap.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from tests.properties.people_machine import PeopleMachine
from tests.properties.people_stores import opened
from tests.properties.protocol_machine import FATES
from tests.properties.protocol_play import MARGIN_S
from tests.properties.protocol_walk import ACTS as VERBS
from tests.properties.protocol_walk import REWRITES, small, then

from helix.engine.placement import IN_FUNCTIONS, IN_WORKERS

KINDS = ("memory", "sqlite", "packed", "dynamodb")
ACTS = 60
Act = Callable[[PeopleMachine, Random], Any]


def _kill(m: PeopleMachine, rng: Random) -> None:
    """Kill a worker before or after a write, or wherever it is."""
    writes = [call for call in m.world.choices() if call.kind == "write"]
    if not writes or rng.random() < 0.2:
        m.crash(n=small(rng))
        return
    m.ledger.moves["killed"] += 1
    m.world.open(rng.choice(writes), rng.choice(FATES[2:]))
    m._restart()
    m.after(then(rng))


def _lose(m: PeopleMachine, rng: Random) -> None:
    """Lose a write, or the answer to it, and let a moment pass in which others may act."""
    writes = [call for call in m.world.choices() if call.kind == "write"]
    if writes:
        m.world.open(rng.choice(writes), rng.choice(FATES[:2]))
        m.after(rng.choice([0, 1, 7, 40]))
        m.world.advance(0.1)
        m.after()


def _interrupt(m: PeopleMachine, rng: Random) -> None:
    m.interrupt(p=small(rng), s=small(rng), then=then(rng))


PEOPLE: list[tuple[int, Act]] = [
    (60, lambda m, rng: m.speak(rng, then=then(rng))),
    (70, lambda m, rng: m.reply(rng, then=then(rng))),
    (30, lambda m, rng: m.report(rng, then=then(rng))),
    (6, lambda m, rng: m.cut(rng, then=then(rng))),
    (12, lambda m, rng: m.withdraw(rng, then=then(rng))),
    (25, _kill),
    (15, _lose),
    (6, _interrupt),
    (25, lambda m, rng: m.run_all(calls=rng.choice([20, 60, 150]))),
]
EACH: list[Act] = [
    lambda m, rng: m.speak(rng, "steer"),
    lambda m, rng: m.speak(rng, "queue"),
    lambda m, rng: m.speak(rng, "interrupt"),
    lambda m, rng: m.reply(rng),
    lambda m, rng: m.reply(rng),
    lambda m, rng: m.report(rng),
    lambda m, rng: m.cut(rng),
    _interrupt,
    _kill,
]


def play(seed: int, kind: str = "memory", acts: int = ACTS) -> Counter[str]:
    """Play one seed. Return how often each kind of transaction was written. Raise what is wrong."""
    rng = Random(seed)
    machine: PeopleMachine = type("People", (PeopleMachine,), {"kind": kind})()
    machine.rng = rng
    rewinds = rng.random() < 0.3
    weights = [weight * rng.choice([0, 1, 1, 3]) / 3 for weight, _ in VERBS]
    if not rewinds:  # the checks of such histories are stricter
        weights = [0 if act in REWRITES else weight for weight, (_, act) in zip(weights, VERBS, strict=True)]
    weights += [weight for weight, _ in PEOPLE]
    chosen = rng.choices([act for _, act in [*VERBS, *PEOPLE]], weights, k=acts)
    for act in EACH:
        chosen.insert(rng.randrange(3, len(chosen)), act)
    try:
        machine.invocations(placement=rng.choice([IN_FUNCTIONS, IN_FUNCTIONS, IN_WORKERS]), steps=rng.choice([None, 1]))
        machine.widths(calls=[80, 1, 80, 2][seed % 4])
        machine.clocks(apart=rng.choice([0.0, 0.0, MARGIN_S, -MARGIN_S]))
        machine.budgets(money=rng.choice([10_000, 10_000, 10_000, 60]), tokens=rng.choice([100_000, 100_000, 600]))
        machine.speak(rng, "queue")
        for act in chosen:
            act(machine, rng)
        machine.finish()
        return machine.figures()
    except BaseException as error:
        error.add_note(f"play({seed}, {kind!r}, {acts}) finds it again")
        raise
    finally:
        machine.sick = True
        machine.teardown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, default="memory")
    given = parser.parse_args()
    logging.getLogger("helix").setLevel(logging.CRITICAL + 1)
    begun, broken, total = time.monotonic(), 0, Counter[str]()
    with opened(given.kind):
        for seed in range(given.seed, given.seed + given.count):
            try:
                total += play(seed, given.kind)
            except Exception as error:
                broken += 1
                print(f"{seed}: {type(error).__name__}: {str(error)[:600]}", flush=True)
            if (seed - given.seed + 1) % 100 == 0:
                print(f"{seed - given.seed + 1} plays in {time.monotonic() - begun:.0f} s", flush=True)
    for name, number in sorted(total.items()):
        print(f"{number:9,}  {name}")
    last, seconds = given.seed + given.count - 1, time.monotonic() - begun
    print(f"{given.count} plays on {given.kind}, seeds {given.seed} to {last}, {broken} broken: {seconds:.0f} s")
    raise SystemExit(1 if broken else 0)


if __name__ == "__main__":
    main()
