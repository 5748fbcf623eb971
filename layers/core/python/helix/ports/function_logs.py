"""The logs of the functions that carry out runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class LogEvent(NamedTuple):
    """A line of a function's log."""

    at: float
    """The time of the line, in Unix seconds."""
    function: str
    """The function that wrote the line, without the prefix of its stage, such as `call_model`."""
    text: str
    """The line as the function wrote it, without the white space at its end."""


class LogPage(NamedTuple):
    """A page of lines."""

    events: list[LogEvent]
    """The lines, sorted by time. There may be none even if there are further pages."""
    after: str | None
    """The token of the next page. None: this is the last page."""


class Logs(Protocol):
    async def functions(self) -> list[str]:
        """Return the names of all functions that have a log, sorted. Raises `StoreError`."""
        ...

    async def read(
        self,
        functions: Sequence[str],
        word: str,
        *,
        since: float,
        until: float | None = None,
        after: str | None = None,
        limit: int,
    ) -> LogPage:
        """Read a page of the lines that contain `word`: at most `limit`, from `since` to `until` in Unix seconds. It
        reads the functions' logs one after the other, and skips a function without a log. `after`: the token of the
        previous page.

        Raises `StoreError` if a log cannot be read, and `InvalidInputError` if `after` is not a token for these
        functions, or has expired.
        """
        ...
