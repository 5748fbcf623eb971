"""Suggestions for misspelled names in error messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

SIMILAR = 0.6
"""The minimum similarity of a name and its misspelling, from 0 to 1."""


def did_you_mean(given: str, known: Iterable[str], rest: str = "") -> str:
    """Return a suffix for an error message, such as "; did you mean 'desk'?", or "" if no known name is similar. `rest`
    is appended to the suggested name."""
    lowered = {name.lower(): name for name in known}
    found = get_close_matches(given.lower(), lowered, n=1, cutoff=SIMILAR)
    return f"; did you mean {lowered[found[0]] + rest!r}?" if found else ""
