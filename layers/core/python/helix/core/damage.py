"""Describes why a value cannot be read."""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError

UNREADABLE: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
"""The errors that parsing a damaged value may raise."""


def first_problem(error: Exception, whole: str = "the row") -> str:
    """Return a one-line description of the first problem. `whole` names the value, for a problem of no single field."""
    return _problems(error, whole)[0] if isinstance(error, ValidationError) else f"{type(error).__name__}: {error}"


def every_problem(error: ValidationError, whole: str) -> str:
    """Return one line with all problems, each with its field. `whole` names the value, as for `first_problem`."""
    return "; ".join(_problems(error, whole))


def _problems(error: ValidationError, whole: str) -> list[str]:
    found = error.errors(include_url=False, include_input=False)
    return [f"{'.'.join(map(str, problem['loc'])) or whole}: {problem['msg']}" for problem in found]
