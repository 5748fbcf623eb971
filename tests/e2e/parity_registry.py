"""The register of the parity suite's scenarios. A scenario has the name of its function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.e2e.parity_stage import Stage

Scenario = Callable[[Stage], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {}
LONG = "A sentence that is long enough to be streamed in more than one piece, and a word at its end."


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function
