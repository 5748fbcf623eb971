"""All output of the command line (standard output, standard error, log), its exit codes, and its error class.

Law: text from models, tools, clients and exceptions always goes through `printable` before it is written. JSON output is
escaped instead, so that it stays valid JSON.
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
"""The exit codes. `STOPPED`: the run paused or was interrupted. `ERROR`: a bug in Helix."""
INTERRUPTED = 130
"""The exit code after Ctrl-C in a command without a run. It is 128 plus the signal's number, as in shells and Typer."""

OF_STATUS = {"completed": COMPLETED, "failed": FAILED, "paused": STOPPED, "interrupted": STOPPED}
"""The exit codes of runs that ended, by status."""


class RefusedError(Exception):
    """The command cannot do what the user asked, and has not started anything. The message is the line that the user
    sees."""


@contextlib.contextmanager
def name_session_in_errors(session_id: str | None) -> Iterator[None]:
    """Add the session's id to the error if its stored rows cannot be read."""
    try:
        yield
    except DamagedRowError as error:
        raise RefusedError(f"session {session_id!r} is damaged: {error}") from error


PIPE_WIDTH = 1_000_000
"""The width that is assumed for a pipe, so that no line is wrapped or truncated."""


def one_line(message: object) -> str:
    return printable(" ".join(str(message).split()))


def say(message: object) -> None:
    """Write one line for the user to standard error, separate from the output."""
    print(f"helix: {one_line(message)}", file=sys.stderr, flush=True)


def write(text: str = "", *, to: TextIO | None = None) -> None:
    """Write lines of text to standard output."""
    print(printable(text), file=to or sys.stdout, flush=True)


def write_json(value: object, *, to: TextIO | None = None) -> None:
    """Write one line of JSON."""
    print(json_line(value), file=to or sys.stdout, flush=True)


def ask(prompt: str) -> str:
    """Read a line from the user and strip it. The prompt is shown only in a terminal."""
    return input(printable(prompt) if sys.stdin.isatty() else "").strip()


def console(file: TextIO | None = None, **options: Any) -> Console:
    """Create a Rich console that makes all text printable when it renders it."""
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
    """A formatter that writes one printable line for each record. Tracebacks are for developers and appear only with
    `HELIX_LOG=debug`."""

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
