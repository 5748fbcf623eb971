"""What a command refuses to do, said in one line, and the exit codes."""

from __future__ import annotations

COMPLETED, ERROR, REFUSED, FAILED, STOPPED = 0, 1, 2, 3, 4
"""`STOPPED` is for runs that paused or were interrupted; `ERROR` for what should not happen: a defect, with a traceback."""

_OF_STATUS = {"completed": COMPLETED, "failed": FAILED, "paused": STOPPED, "interrupted": STOPPED}


class RefusedError(Exception):
    """The command cannot do what was asked; nothing was started. The message is the line the user reads."""


def exit_code(status: str) -> int:
    """Of a run that ended with `status`."""
    return _OF_STATUS[status]


def one_line(message: object) -> str:
    return " ".join(str(message).split())
