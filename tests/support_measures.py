"""Metrics that record what an engine measures, and models whose answers have a cost."""

from __future__ import annotations

from collections import Counter
from typing import Any

from helix.core.measures import Measures
from helix.core.usage import Usage


class Heard:
    """`Metrics` that store everything that is reported."""

    def __init__(self) -> None:
        self.all: list[Measures] = []

    def record(self, measures: Measures) -> None:
        self.all.append(measures)

    def total(self, name: str) -> float:
        return sum(measures.values.get(name, 0) for measures in self.all)

    def with_(self, name: str) -> list[Measures]:
        return [measures for measures in self.all if name in measures.values]

    def names(self) -> Counter[str]:
        """Return the names of the measures above zero."""
        return Counter(name for measures in self.all for name, value in measures.values.items() if value)


def used(prompt: int = 100, completion: int = 10, micros: int = 500, **fields: Any) -> Usage:
    """Return the usage of one call."""
    return Usage(prompt_tokens=prompt, completion_tokens=completion, cost_micros=micros, calls=1, **fields)


def says(content: str, usage: Usage, **fields: Any) -> dict[str, Any]:
    """Return a script entry: a text with this cost."""
    return {"content": content, "usage": usage.model_dump(), **fields}
