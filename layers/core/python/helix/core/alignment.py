"""Aligns two sequences: the steps of two runs, or the words of two texts.

Law: the time is bounded. Sequences that differ in too many places are not aligned; one follows the other.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence
from itertools import groupby, takewhile
from typing import Final, Literal, TypeVar

from helix.core.messages import Record

T = TypeVar("T")
Pair = tuple[int | None, int | None]
CELLS: Final = 250_000
"""The maximum product of the lengths of two sequences that are aligned, without what they begin and end with alike."""
_WORDS: Final = re.compile(r"\w+\s*|[^\w\s]\s*|\s+")
_LINES: Final = re.compile(r"[^\n]*\n|[^\n]+")


class TextPiece(Record):
    """A piece of a text that is compared with another one."""

    kind: Literal["same", "removed", "added"]
    """`same`: both texts have the piece. `removed`: only the first. `added`: only the second."""
    text: str
    """The text of the piece."""


def align(left: Sequence[T], right: Sequence[T], score: Callable[[T, T], int]) -> list[Pair] | None:
    """Return pairs of indexes in order, with None on one side for an element without a partner. The sum of the pairs'
    scores is the highest possible one. Elements with a score of 0 are not paired. Return None if this would take too
    long. Equal elements must have the highest score."""
    first, end = _common(left, right)
    n, m = len(left) - first - end, len(right) - first - end
    if n * m > CELLS:
        return None
    a, b = left[first : first + n], right[first : first + m]
    scores = [array("l", (score(one, other) for other in b)) for one in a]
    best = [array("l", bytes(array("l").itemsize * (m + 1))) for _ in range(n + 1)]
    for i in range(n - 1, -1, -1):
        row, below, here = best[i], best[i + 1], scores[i]
        for j in range(m - 1, -1, -1):
            paired = below[j + 1] + here[j] if here[j] else 0
            row[j] = max(paired, below[j], row[j + 1])
    pairs: list[Pair] = [(i, i) for i in range(first)]
    i = j = 0
    while i < n or j < m:
        if i < n and j < m and scores[i][j] and best[i][j] == best[i + 1][j + 1] + scores[i][j]:
            pairs.append((first + i, first + j))
            i, j = i + 1, j + 1
        elif i < n and best[i][j] == best[i + 1][j]:
            pairs.append((first + i, None))
            i += 1
        else:
            pairs.append((None, first + j))
            j += 1
    tail = zip(range(len(left) - end, len(left)), range(len(right) - end, len(right)), strict=True)
    return [*pairs, *tail]


def _common(left: Sequence[T], right: Sequence[T]) -> tuple[int, int]:
    """Return how many elements both sequences begin with, and how many of the rest they end with."""
    most = min(len(left), len(right))
    first = next((n for n in range(most) if left[n] != right[n]), most)
    end = next((n for n in range(most - first) if left[-1 - n] != right[-1 - n]), most - first)
    return first, end


def compare_texts(before: str, after: str) -> list[TextPiece]:
    """Return the pieces of both texts in order. Texts that differ much are compared by lines, or not at all."""
    for pattern in (_WORDS, _LINES):
        left, right = pattern.findall(before), pattern.findall(after)
        if (pairs := align(left, right, lambda one, other: int(one == other))) is not None:
            return _pieces(left, right, pairs)
    return [TextPiece(kind="removed", text=before), TextPiece(kind="added", text=after)]


def _pieces(left: Sequence[str], right: Sequence[str], pairs: Sequence[Pair]) -> list[TextPiece]:
    found: list[TextPiece] = []
    removed = added = ""
    for i, j in [*pairs, (None, None)]:
        if (i is not None and j is not None) or i is j:
            found += _changed(removed, added)
            removed = added = ""
            found += [TextPiece(kind="same", text=left[i])] if i is not None else []
        else:
            removed += left[i] if i is not None else ""
            added += right[j] if j is not None else ""
    groups = groupby(found, key=lambda piece: piece.kind)
    return [TextPiece(kind=kind, text="".join(piece.text for piece in group)) for kind, group in groups]


def _changed(removed: str, added: str) -> list[TextPiece]:
    """Return the pieces of a place where both texts differ. Space that both end with is the same."""
    alike = (one == other and one.isspace() for one, other in zip(reversed(removed), reversed(added), strict=False))
    space = sum(1 for _ in takewhile(bool, alike))
    ends = [len(removed) - space, len(added) - space]
    parts = [("removed", removed[: ends[0]]), ("added", added[: ends[1]]), ("same", removed[ends[0] :])]
    return [TextPiece.model_validate({"kind": kind, "text": text}) for kind, text in parts if text]
