"""Lazy imports: packages that load their public names at first use."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any


class LazyNames:
    """The lazily loaded names of a package.

    `modules` maps each module to the names that the package exports from it, separated by spaces. A name is `Name` or
    `Alias=Name`.
    """

    def __init__(self, package: str, modules: Mapping[str, str]) -> None:
        self._package = package
        self._homes: dict[str, tuple[str, str]] = {}
        for module, names in modules.items():
            for one in names.split():
                alias, _, name = one.partition("=")
                self._homes[alias] = module, name or alias

    def load(self, name: str) -> Any:
        """Import the module of a name and return the attribute. Raises `AttributeError`."""
        if name not in self._homes:
            raise AttributeError(f"module {self._package!r} has no attribute {name!r}")
        module, attribute = self._homes[name]
        return getattr(importlib.import_module(module), attribute)

    def names(self) -> list[str]:
        return sorted(self._homes)
