"""Shared validation helpers for definitions. Each failure is a `DefinitionError` that names the field."""

from __future__ import annotations

import inspect
from typing import Any, TypeGuard

from pydantic import BaseModel

from helix.core.errors import DefinitionError


def require(condition: bool, owner: str, field: str, problem: str) -> None:
    if not condition:
        raise DefinitionError(owner, field, problem)


def is_model(value: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(value, type) and issubclass(value, BaseModel)


def is_int(value: Any) -> TypeGuard[int]:
    """Return whether the value is an int but not a bool, so that `retries=True` is rejected rather than read as 1."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> TypeGuard[float]:
    return is_int(value) or isinstance(value, float)


def is_plain_function(value: Any) -> bool:
    """Return whether the value is callable and not async. Pure code calls it and cannot await."""
    return callable(value) and not inspect.iscoroutinefunction(value)
