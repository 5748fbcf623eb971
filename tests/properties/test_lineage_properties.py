"""Lineages compared with a model that copies. After any appends and rewinds, every (lineage, count) keeps its messages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helix.core.lineage import ROOT, find_spans, fork
from helix.core.rows import LineageRow

Rows = dict[tuple[int, int], int]


def read(rows: Rows, row: LineageRow, start: int, count: int) -> list[int]:
    return [rows[owner, index] for owner, first, end in find_spans(row, start, count) for index in range(first, end)]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 100)), max_size=40), st.data())
def test_histories_equal_copies(moves: list[tuple[bool, int, int]], data: st.DataObject) -> None:
    """A move appends `n` messages, or forks an older lineage at some count of it."""
    rows: Rows = {}
    copies: list[list[int]] = [[]]
    lineages = [ROOT]
    current, fresh = 0, 0
    kept: list[tuple[int, int, list[int]]] = []
    for is_fork, n, pick in moves:
        if is_fork:
            source = pick % len(lineages)
            count = data.draw(st.integers(0, len(copies[source])))
            lineages.append(fork(lineages[source], count, len(lineages)))
            copies.append(copies[source][:count])
            current = len(lineages) - 1
        else:
            for _ in range(n):
                key = (current, len(copies[current]))
                assert key not in rows  # written once, in place
                rows[key] = fresh
                copies[current].append(fresh)
                fresh += 1
        kept.append((current, len(copies[current]), list(copies[current])))
    for number, count, copy in kept:
        assert read(rows, lineages[number], 0, count) == copy
    for lineage, copy in zip(lineages, copies, strict=True):
        start = data.draw(st.integers(0, len(copy)))
        count = data.draw(st.integers(start, len(copy)))
        assert read(rows, lineage, start, count) == copy[start:count]
        assert len(lineage.chain) == len({owner for owner, _ in lineage.chain})
        assert [upto for _, upto in lineage.chain] == sorted({upto for _, upto in lineage.chain})
