"""The declaration of an agent's dependencies: a function that makes what its tools need."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

from helix.core.checks import require

Factory: TypeAlias = Callable[[], Any] | Callable[[Callable[[str], str]], Any]
"""A function that returns the dependencies, an awaitable of them, or an async context manager around them. It takes no
arguments, or `secret`, the function that returns secrets."""


def check_factory(factory: Any, owner: str) -> None:
    """Raise `DefinitionError` unless `factory` can be called to make dependencies."""
    problem = "must be a function that makes them, not the dependencies themselves: deps=lambda: ..."
    require(callable(factory) and isinstance(factory, Hashable), owner, "deps", problem)
    plain = inspect.unwrap(factory)
    problem = "yields, and is not an async context manager: write `async def` and decorate it with @asynccontextmanager"
    yields = inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(factory)
    require(not yields, owner, "deps", problem)
    required = [name for name, needed in _parameters(factory).items() if needed and name != "secret"]
    problem = f"is called without arguments, or with `secret`, but requires {', '.join(map(repr, required))}"
    require(not required, owner, "deps", problem)


def takes_secret(factory: Factory) -> bool:
    """Return whether the function has a parameter `secret`, which gets the function that returns secrets."""
    return "secret" in _parameters(factory)


def _parameters(factory: Factory) -> dict[str, bool]:
    """Return the named parameters, and whether each is required."""
    try:
        found = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # classes and functions in C do not always have one
        return {}
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: one.default is one.empty for name, one in found.items() if one.kind not in kinds}
