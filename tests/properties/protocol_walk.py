"""Random walks over the machine's rules. They do not shrink, but have long histories, and many are fast.

Law: a walk is a function of its seed, so the same seed finds the same problem again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.properties.protocol_company import HOLDS, SILENCES, ProtocolMachine, machine_on
from tests.properties.protocol_machine import FAR_S, FATES
from tests.properties.protocol_play import MARGIN_S

from helix.engine.placement import IN_FUNCTIONS, IN_WORKERS

HOWS = ["at once", "over a pause", "over an end"]
Act = Callable[[ProtocolMachine, Random], None]


def small(rng: Random) -> int:
    return rng.randrange(6)


def then(rng: Random) -> int:
    return rng.choice([0, 0, 1, 7, 40, 150])


def plan(rng: Random) -> int:
    return rng.randrange(30)


def _execute(m: ProtocolMachine, rng: Random) -> None:
    m.execute(p=small(rng), s=small(rng), plan=plan(rng), then=then(rng))


def _resume(m: ProtocolMachine, rng: Random) -> None:
    mode = rng.choice(["continue", "continue", "with_message"])
    m.resume(p=small(rng), s=small(rng), mode=mode, plan=plan(rng), then=then(rng))


def _retry(m: ProtocolMachine, rng: Random) -> None:
    message = rng.choice([None, plan(rng)])
    m.retry(p=small(rng), s=small(rng), start=rng.random() < 0.4, plan=message, then=then(rng))


def _rewind(m: ProtocolMachine, rng: Random) -> None:
    m.rewind(p=small(rng), s=small(rng), n=plan(rng), message=rng.choice([None, plan(rng)]), then=then(rng))


def _answer(m: ProtocolMachine, rng: Random) -> None:
    verdict = rng.choice(["approve", "approve", "deny", "data"])
    twice, old = rng.random() < 0.3, rng.random() < 0.2
    m.answer(p=small(rng), n=small(rng), verdict=verdict, twice=twice, old=old, then=then(rng))


def _copy(m: ProtocolMachine, rng: Random) -> None:
    how = rng.choice(["branch", "clone", "index"])
    m.copy(p=small(rng), s=small(rng), n=plan(rng), how=how, then=then(rng))


def _go_on(m: ProtocolMachine, rng: Random) -> None:
    m.go_on(p=small(rng), s=small(rng), how=small(rng), plan=plan(rng), then=then(rng))


def _delete(m: ProtocolMachine, rng: Random) -> None:
    m.delete(p=small(rng), s=small(rng), sure=0, then=then(rng))


def _interleave(m: ProtocolMachine, rng: Random) -> None:
    m.interleave(picks=picks(rng))


def _one(m: ProtocolMachine, rng: Random) -> None:
    m.run_one(n=small(rng), calls=rng.choice([1, 2, 5, 10, 20, 40]))


def _wake(m: ProtocolMachine, rng: Random) -> None:
    if any(a.frozen for a in m.world.actors):
        m.wake(n=small(rng), then=then(rng))


def _duplicate(m: ProtocolMachine, rng: Random) -> None:
    if any(e.deliveries for e in m.cloud.executions.values()):
        m.duplicate(n=small(rng), late=rng.random() < 0.5, then=then(rng))


def _late(m: ProtocolMachine, rng: Random) -> None:
    if m.cloud.executions:
        m.late_delivery(n=small(rng), step=rng.randrange(1, 5), then=then(rng))


def _end_execution(m: ProtocolMachine, rng: Random) -> None:
    if any(e.phase != ("over",) for e in m.cloud.executions.values()):
        m.end_execution(n=small(rng), told=rng.random() < 0.5, then=then(rng))


def _late_event(m: ProtocolMachine, rng: Random) -> None:
    if any(e.phase == ("over",) for e in m.cloud.executions.values()):
        m.late_event(n=small(rng), then=then(rng))


def picks(rng: Random) -> list[int]:
    return [rng.randrange(12) for _ in range(rng.randrange(1, 60))]


def hold(rng: Random) -> str:
    return rng.choice(HOLDS)


def _volley(m: ProtocolMachine, rng: Random) -> None:
    m.volley(s=small(rng), verbs=[(small(rng), small(rng)) for _ in range(rng.randrange(2, 5))], picks=picks(rng))


def _unheard(m: ProtocolMachine, rng: Random) -> None:
    seconds, calls = rng.choice(SILENCES), rng.choice([10, 40])
    m.unheard(n=small(rng), cloud=rng.random() < 0.5, seconds=seconds, calls=calls, picks=picks(rng))


def _double(m: ProtocolMachine, rng: Random) -> None:
    m.double(late=rng.random() < 0.5, hold=hold(rng), picks=picks(rng), seconds=rng.choice([0.0, 0.0, 22.0]))


def _slow_tool(m: ProtocolMachine, rng: Random) -> None:
    m.slow_tool(
        s=small(rng), p=small(rng), plan=plan(rng), how=rng.choice(["abort", "late"]), hold=hold(rng), picks=picks(rng)
    )


def hang(m: ProtocolMachine, rng: Random) -> None:
    calls = rng.choice([1, 10, 40, 150])
    m.hang(n=small(rng), sweeps=rng.choice([1, 1, 2]), calls=calls, picks=picks(rng))


def compact(m: ProtocolMachine, rng: Random) -> None:
    sid, focus = m.target(small(rng)), rng.choice(["", "a", "b"])
    p = small(rng)
    m.say(f"compact {sid} by {p}")
    process = m.process(p)
    process.do(process.executor.compact(sid, focus))
    m.after(then(rng))


def change_tags(m: ProtocolMachine, rng: Random) -> None:
    sid, tag = m.target(small(rng)), rng.choice("ab")
    p, name = small(rng), rng.choice(["add", "remove"])
    m.say(f"{name} tag of {sid} by {p}")
    process = m.process(p)
    process.do(process.executor.change_tags(sid, **{name: [tag]}))
    m.after(then(rng))


def rename(m: ProtocolMachine, rng: Random) -> None:
    sid, title = m.target(small(rng)), rng.choice(["", "a", "b"])
    p = small(rng)
    m.say(f"rename {sid} by {p}")
    process = m.process(p)
    process.do(process.executor.rename(sid, title))
    m.after(then(rng))


ACTS: list[tuple[int, Act]] = [
    (8, _execute),
    (6, lambda m, rng: m.execute_in_the_cloud(s=small(rng), plan=plan(rng), then=then(rng))),
    (8, _resume),
    (8, _retry),
    (4, _rewind),
    (12, _answer),
    (4, lambda m, rng: m.interrupt(p=small(rng), s=small(rng), then=then(rng))),
    (2, lambda m, rng: m.abort(p=small(rng), s=small(rng), then=then(rng))),
    (12, _go_on),
    (8, _volley),
    (5, lambda m, rng: m.zombie(n=small(rng), calls=rng.choice([1, 10, 40, 150]), hold=hold(rng), picks=picks(rng))),
    (5, _double),
    (5, _unheard),
    (5, _slow_tool),
    (5, lambda m, rng: m.answers(n=small(rng), how=rng.choice(HOWS), picks=picks(rng))),
    (2, _copy),
    (1, _delete),
    (1, lambda m, rng: m.raise_limit(more=rng.randrange(10, 1000))),
    (25, _interleave),
    (15, _one),
    (10, lambda m, rng: m.run_all(calls=rng.choice([20, 60, 150, 300]))),
    (5, lambda m, rng: m.accident(n=rng.randrange(12), fate=rng.choice(FATES))),
    (3, lambda m, rng: m.crash(n=small(rng), then=then(rng))),
    (4, lambda m, rng: m.stand_still(n=small(rng))),
    (4, _wake),
    (6, _duplicate),
    (3, _late),
    (2, _end_execution),
    (2, _late_event),
    (3, lambda m, rng: m.sweep(then=then(rng))),
    (4, lambda m, rng: m.silence(n=small(rng), seconds=rng.choice([0.0, 8.0, 16.0]), then=then(rng))),
    (4, lambda m, rng: m.expire(n=small(rng), kill=rng.random() < 0.5, twice=rng.random() < 0.5, then=then(rng))),
    (8, lambda m, rng: m.tick(seconds=rng.choice([0.1, 1.0, 5.0, 16.0, 35.0]), then=then(rng))),
]


REWRITES = (_retry, _rewind, _go_on, _copy, _delete)
"""The acts after which a history may be another one."""


def walk(
    seed: int,
    kind: str = "memory",
    acts: int = 60,
    watch: Callable[[ProtocolMachine], Any] | None = None,
    slots: int | None = None,
    also: Sequence[tuple[int, Act]] = (),
) -> None:
    """Play `acts` random acts in one world, and then bring everything to rest. Raise the violation, if any. `also` are more
    acts to choose from."""
    rng = Random(seed)
    machine = machine_on(kind, slots)()
    if watch is not None:
        watch(machine)
    # Each walk excludes some acts and prefers others: accidents need a combination of acts, and not always the same one.
    weights = [weight * rng.choice([0, 1, 1, 4]) for weight, _ in ACTS] + [weight for weight, _ in also]
    weights[0], weights[1] = max(weights[0], 4), max(weights[1], 4 if slots is None else 40)
    placements = [IN_FUNCTIONS, IN_FUNCTIONS, IN_WORKERS]
    try:
        machine.invocations(placement=rng.choice(placements), steps=rng.choice([None, None, 1]))
        machine.widths(calls=[80, 1, 2, 80][seed % 4])
        machine.clocks(apart=rng.choice([0.0, 0.0, MARGIN_S, -MARGIN_S, FAR_S]))
        machine.budgets(money=rng.choice([10_000, 10_000, 60, 23, 17, 12]), tokens=rng.choice([100_000, 100_000, 600]))
        for act in rng.choices([act for _, act in [*ACTS, *also]], weights, k=acts):
            act(machine, rng)
    except BaseException:
        machine.sick = True
        raise
    finally:
        machine.teardown()
