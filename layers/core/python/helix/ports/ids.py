"""The source of ids."""

from __future__ import annotations

from typing import Protocol


class Ids(Protocol):
    def new(self, prefix: str) -> str:
        """Return a fresh id `<prefix>_<26 characters>`. Ids are never repeated, and sort roughly by creation time."""
        ...


RANDOM = 16
"""The number of random characters at the end of an id. Each has 5 bits."""


def new_secret(ids: Ids) -> str:
    """Return a secret of 160 random bits."""
    return ids.new("secret")[-RANDOM:] + ids.new("secret")[-RANDOM:]
