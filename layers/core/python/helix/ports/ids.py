"""The source of ids."""

from __future__ import annotations

from typing import Protocol


class Ids(Protocol):
    def new(self, prefix: str) -> str:
        """Return a fresh id `<prefix>_<26 characters>`. Ids are never repeated, and sort roughly by creation time."""
        ...
