"""All that the command line writes (standard output, standard error, its log), its exit codes, and its error.

Law: text of models, tools, clients and exceptions goes through `printable` on its way out, whatever shows it. JSON is
escaped instead, and stays JSON.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

from helix.core.errors import DamagedRowError
from helix.core.printable import json_line, printable

if TYPE_CHECKING:
    from rich.console import Console


COMPLETED, ERROR, REFUSED, FAILED, STOPPED = 0, 1, 2, 3, 4
"""`STOPPED`: the run paused or was interrupted. `ERROR`: a defect of Helix."""
INTERRUPTED = 130
"""Ctrl-C ended a command that had no run to interrupt: 128 and the signal's number, as shells and Typer have it."""

OF_STATUS = {"completed": COMPLETED, "failed": FAILED, "paused": STOPPED, "interrupted": STOPPED}
"""Exit codes of runs that ended."""


class RefusedError(Exception):
    """The command cannot do what was asked, and started nothing. The message is the line that the user reads."""


@contextlib.contextmanager
def naming(session_id: str | None) -> Iterator[None]:
    """Name the session whose stored rows cannot be read."""
    try:
        yield
    except DamagedRowError as error:
        raise RefusedError(f"session {session_id!r} is damaged: {error}") from error


PIPE_WIDTH = 1_000_000
"""Into a pipe nothing is wrapped and nothing is cut."""


def one_line(message: object) -> str:
    return printable(" ".join(str(message).split()))


def say(message: object) -> None:
    """To the user, beside the output: one line on standard error."""
    print(f"helix: {one_line(message)}", file=sys.stderr, flush=True)


def write(text: str = "", *, to: TextIO | None = None) -> None:
    """Lines of text on standard output."""
    print(printable(text), file=to or sys.stdout, flush=True)


def write_json(value: object, *, to: TextIO | None = None) -> None:
    """One line of JSON."""
    print(json_line(value), file=to or sys.stdout, flush=True)


def ask(prompt: str) -> str:
    """A line from the user, stripped; the prompt is shown at a terminal only."""
    return input(printable(prompt) if sys.stdin.isatty() else "").strip()


def console(file: TextIO | None = None, **options: Any) -> Console:
    """Rich's console, whose every text is made printable as it is rendered."""
    from rich.console import Console
    from rich.segment import Segment

    class SafeConsole(Console):
        def render(self, *given: Any) -> Iterable[Segment]:
            for part in super().render(*given):
                yield part if part.control else part._replace(text=printable(part.text))

    options = {"file": file or sys.stdout, "highlight": False, "markup": False, "emoji": False, **options}
    made = SafeConsole(**options)
    return made if made.is_terminal else SafeConsole(**{"width": PIPE_WIDTH, **options})


class LogFormatter(logging.Formatter):
    """One printable line for each record. A traceback is for developers: it needs `HELIX_LOG=debug`."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))

    def formatException(self, exception: Any) -> str:
        if logging.getLogger().isEnabledFor(logging.DEBUG):
            return super().formatException(exception)
        return f"  {type(exception[1]).__name__}: {one_line(exception[1])} (HELIX_LOG=debug shows where)"


def set_up_log(level: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
