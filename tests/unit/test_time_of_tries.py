"""The time of a call is shared among the tries of its models."""

from __future__ import annotations

import math

import pytest
from tests.support_litellm import request

from helix.adapters.models.attempt import Call

INVOCATION_S = 885


def played(call: Call, models: int) -> list[list[float]]:
    """Return the length of each try if all models stay silent."""
    now, tries = 0.0, []
    for place in range(models):
        call.begin(f"model-{place}", models - place - 1, now)
        tries.append([min(call.time_for_try(now), call.deadline - now)])
        now += tries[-1][0]
        while now + 1 < min(call.repeats_until, call.deadline):
            tries[-1].append(min(call.time_for_try(now + 1), call.deadline - now - 1))
            now += 1 + tries[-1][-1]
    return tries


@pytest.mark.parametrize(
    ("timeout_s", "models", "tries"),
    [
        (600, 1, [[600, 284]]),
        (600, 2, [[600], [285]]),
        (600, 3, [[600], [225], [60]]),
        (885, 2, [[825], [60]]),
        (100, 2, [[100, 100, 100, 100, 100], [100, 100, 100, 78]]),
    ],
)
def test_each_model_has_time(timeout_s: float, models: int, tries: list[list[float]]) -> None:
    call = Call(request(timeout_s=timeout_s), INVOCATION_S)
    played_tries = played(call, models)
    assert [[pytest.approx(seconds) for seconds in of] for of in tries] == played_tries


def test_nothing_bounds_a_call_without_a_deadline() -> None:
    call = Call(request(timeout_s=600), math.inf)
    call.begin("model", 2, 0.0)
    assert (call.repeats_until, call.time_for_try(1e9)) == (math.inf, 600)
