"""Identity."""

from __future__ import annotations

from typing import Protocol


class Ids(Protocol):
    def new(self, prefix: str) -> str:
        """A fresh id `<prefix>_<26 characters>`, never given twice, sorting roughly by time of making."""
        ...
