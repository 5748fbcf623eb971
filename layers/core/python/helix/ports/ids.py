"""The source of ids."""

from __future__ import annotations

from typing import Protocol


class Ids(Protocol):
    def new(self, prefix: str) -> str:
        """Return a fresh id `<prefix>_<26 characters>`. No id is given twice, and ids sort roughly by the time of their
        making."""
        ...
