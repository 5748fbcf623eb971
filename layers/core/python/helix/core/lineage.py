"""Lineages: versions of a history that share write-once rows instead of copying them.

A rewind starts a new lineage that begins with the first `count` messages of an older one. Law: the messages of
(lineage, count) never change, so every checkpoint stays valid.
"""

from __future__ import annotations

from helix.core.rows import LineageRow

ROOT = LineageRow(lineage=0, start=0, chain=[])


def fork(source: LineageRow, count: int, lineage: int) -> LineageRow:
    """Return the lineage that continues from the first `count` messages of `source`."""
    chain = [(older, upto) for older, upto in source.chain if upto < count]
    below = max((upto for _, upto in chain), default=0)
    if count > below:
        owner = source.lineage
        if count <= source.start:
            owner = next(older for older, upto in source.chain if upto >= count)
        chain.append((owner, count))
    return LineageRow(lineage=lineage, start=count, chain=chain)


def find_spans(row: LineageRow, start: int, count: int) -> list[tuple[int, int, int]]:
    """Return where the messages from `start` (inclusive) to `count` (exclusive) are stored, as (lineage, first index,
    end index) in order."""
    found = []
    low = 0
    for owner, upto in [*row.chain, (row.lineage, max(count, row.start))]:
        first, end = max(low, start), min(upto, count)
        if first < end:
            found.append((owner, first, end))
        low = max(low, upto)
    return found
