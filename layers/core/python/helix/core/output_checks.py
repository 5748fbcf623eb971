"""Checks of an agent's output, which may send the model back with a reason."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from helix.core.checks import require

OutputCheck = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class OutputContext:
    """The run whose output is checked."""

    session_id: str
    """The session of the run."""
    run_id: str
    """The id of the run."""
    step: int
    """The step whose answer has the output."""
    state: Any
    """The custom state before the step: an instance of the agent's `state_schema`, or a JSON object without one."""


def check_of(check: OutputCheck, owner: str) -> OutputCheck:
    """Return the function if it can check outputs. Raises `DefinitionError` if not."""
    problem = "must be a function of the output, or of the output and an OutputContext"
    require(callable(check), owner, "output_checks", problem)
    require(count_parameters(check) in (1, 2), owner, "output_checks", problem)
    return check


def count_parameters(check: OutputCheck) -> int:
    """Return the number of positional parameters that the function takes."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in kinds for one in inspect.signature(check).parameters.values())
