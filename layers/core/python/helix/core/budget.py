"""Budget arithmetic: integers only."""

from __future__ import annotations


def block_size(remaining: int, estimate: int) -> int:
    """How much to draw: about 1 % of what remains, at least the estimate, shrinking to it near the line.

    Never more than `remaining` unless the estimate itself is: then the draw is refused, not cut.
    """
    return max(estimate, min(remaining // 100, remaining))
