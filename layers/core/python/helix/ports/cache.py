"""Answers that may be given again, without asking a model (semantics B8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from helix.core.json import JsonObject


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. exact: a digest of everything that changes the answer. For questions that may be worded otherwise:
    threshold, the least cosine similarity; context, a digest of all but the last user message; text, that message."""

    exact: str
    threshold: float | None = None
    context: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Known:
    """An answer, and what it took to get it: tokens, and millionths of a US dollar (0 where no price is known)."""

    answer: JsonObject
    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    micros: int = 0


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A stored answer. Times in Unix seconds; `expires_at` None: never. `hits`: how often it was given again before now.
    `similarity`: 1 where the question is the very same."""

    key: str
    known: Known
    created_at: float
    used_at: float
    expires_at: float | None
    hits: int = 0
    similarity: float = 1.0


class ResponseCache(Protocol):
    """Tenants see nothing of each other. An entry is whole or not there; what has expired is never given, however late it
    is removed. No more than the cache's size stay per tenant, whoever writes at once."""

    async def get(self, tenant: str, question: Question) -> CacheEntry | None:
        """The answer to this very question; else, with a threshold, to the most similar one in the same context. Counts as
        a use of it. Raises `InvalidInputError` for a threshold where there is no embedding function."""
        ...

    async def put(self, tenant: str, question: Question, known: Known, ttl_s: float | None) -> None:
        """Keep the answer for `ttl_s` seconds (None: for good), in place of an earlier one to the very same question. Where
        the cache is full, another one goes, never two; none goes where one is replaced."""
        ...

    async def entries(self, tenant: str) -> Sequence[CacheEntry]:
        """All that have not expired. Reads the whole tenant: for people and reports."""
        ...

    async def clear(self, tenant: str, *, expired_only: bool = False) -> int:
        """Remove what the tenant has, or what of it has expired; how many entries that were."""
        ...
