"""Describes why a stored value cannot be read."""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError

UNREADABLE: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
"""The errors that parsing a damaged value may raise."""


def first_problem(error: Exception) -> str:
    """Return a one-line description of the first problem."""
    if isinstance(error, ValidationError):
        found = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(str(part) for part in found['loc']) or 'the row'}: {found['msg']}"
    return f"{type(error).__name__}: {error}"
