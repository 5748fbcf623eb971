"""Random runs that people steer, answer and stop, and that others report to, while workers die.

`tests.properties.people` has the laws.

HELIX_EXAMPLES=1000 HELIX_SEED=7 .venv/bin/python -m pytest tests/properties/test_people.py -m slow -k memory
"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.properties.people import ACTS, play
from tests.properties.people_stores import opened
from tests.properties.test_protocol_machine import EXAMPLES, SEED

HAPPEN = [f"messages: {fate}" for fate in ("delivered", "withdrawn")]
HAPPEN += [f"verdicts: {on}" for on in ("input", "call", "result", "output")]
HAPPEN += ["replies: ok", "replies: CallNotPendingError", "answers that tools got", "workers killed"]
HAPPEN += [
    "reports: ok",
    "reports: CallEndedError",
    "reports: forged",
    "answers: cut",
    "answers: of an agent that took over",
]


@pytest.mark.timeout(0)
def test_people_and_deaths_at_once() -> None:
    total = sum((play(seed) for seed in range(SEED, SEED + (EXAMPLES or 4))), Counter[str]())
    assert all(total[what] for what in HAPPEN), total


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("kind", "plays", "acts"), [("memory", 20, ACTS), ("sqlite", 5, ACTS), ("packed", 5, ACTS)])
def test_people_and_deaths_on_many_plays(kind: str, plays: int, acts: int) -> None:
    total = sum((play(SEED + 100 + n, kind, acts) for n in range(EXAMPLES or plays)), Counter[str]())
    assert all(total[what] for what in HAPPEN), total


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_people_and_deaths_on_dynamodb() -> None:
    with opened("dynamodb"):
        for n in range(EXAMPLES or 2):
            play(SEED + 200 + n, "dynamodb", 20)
