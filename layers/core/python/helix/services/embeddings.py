"""Embeds strings as vectors, for a cache that recognises questions by their meaning.

Law: vectors are stored at length 1 in 32-bit floats, so that a dot product is the cosine. If an embedding function
fails, only identical questions are found, but the call never fails.
"""

from __future__ import annotations

import base64
from array import array
from collections.abc import Awaitable, Callable, Iterable, Sequence
from operator import mul

from helix._log import get_logger

Embed = Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]]
"""A function that returns a vector for each string, in order. All vectors have the same number of dimensions."""

MEMORY = 64
logger = get_logger(__name__)


class Vectors:
    """A wrapper of `embed` that remembers the vectors of the last few strings, because a new question is embedded both
    to look it up and to store it."""

    def __init__(self, embed: Embed) -> None:
        self._embed = embed
        self._known: dict[str, array[float]] = {}

    async def of(self, text: str) -> array[float] | None:
        """Return the vector of the string, or None if the function failed or its vector is zero or not finite."""
        if text in self._known:
            return self._known[text]
        try:
            (given,) = await self._embed([text])
            vector = normalize(given)
        except Exception:
            logger.warning("the embedding function failed: only identical questions are found", exc_info=True)
            return None
        if vector is not None:
            if len(self._known) >= MEMORY:
                del self._known[next(iter(self._known))]
            self._known[text] = vector
        return vector


def normalize(vector: Sequence[float]) -> array[float] | None:
    """Return the vector scaled to length 1, or None if its length is zero or not finite."""
    length = sum(x * x for x in vector) ** 0.5
    return array("f", (x / length for x in vector)) if 0 < length < float("inf") else None


def pack_vector(vector: array[float]) -> str:
    return base64.b64encode(vector.tobytes()).decode()


def find_nearest(vector: array[float], others: Iterable[tuple[str, str]], threshold: float) -> tuple[str, float] | None:
    """Return the (name, packed vector) pair with the greatest cosine, if that is at least `threshold`."""
    best: tuple[str, float] | None = None
    for name, text in others:
        other = array("f", base64.b64decode(text))
        if len(other) != len(vector):  # a vector from another embedding function
            continue
        cosine = min(1.0, sum(map(mul, vector, other)))
        if cosine >= threshold - 1e-6 and (best is None or cosine > best[1]):
            best = (name, cosine)
    return best
