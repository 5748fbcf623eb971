"""History is assembled from rows that are written once."""

from __future__ import annotations

from helix.core.lineage import ROOT, find_spans, fork
from helix.core.rows import LineageRow


def test_the_root_has_no_prefix() -> None:
    assert (
        find_spans(ROOT, 0, 5) == [(0, 0, 5)] and find_spans(ROOT, 2, 5) == [(0, 2, 5)] and find_spans(ROOT, 0, 0) == []
    )


def test_a_fork_begins_with_its_sources_messages() -> None:
    one = fork(ROOT, 3, 1)
    assert one == LineageRow(lineage=1, start=3, chain=[(0, 3)])
    assert find_spans(one, 0, 5) == [(0, 0, 3), (1, 3, 5)]
    assert find_spans(one, 1, 2) == [(0, 1, 2)] and find_spans(one, 3, 4) == [(1, 3, 4)]


def test_a_fork_at_nothing_has_no_prefix() -> None:
    assert find_spans(fork(ROOT, 0, 1), 0, 2) == [(1, 0, 2)]


def test_a_fork_of_a_fork() -> None:
    one = fork(ROOT, 3, 1)
    assert find_spans(fork(one, 5, 2), 0, 7) == [(0, 0, 3), (1, 3, 5), (2, 5, 7)]
    assert find_spans(fork(one, 3, 2), 0, 4) == [(0, 0, 3), (2, 3, 4)]
    assert find_spans(fork(one, 2, 2), 0, 4) == [(0, 0, 2), (2, 2, 4)]
    assert fork(one, 2, 2).chain == [(0, 2)]
