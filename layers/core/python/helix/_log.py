"""Log records about exceptions: the type of the exception and the place where it was raised.

Law: an exception of a tool, a hook or a provider may quote secrets and content, so its text and traceback are logged only
with `HELIX_LOG_CONTENT=1`. Every logger outside the command line and the client comes from `get_logger`.
"""

from __future__ import annotations

import logging
import os
from pathlib import PurePath


def content_shown() -> bool:
    """Whether logs and errors may hold the text of exceptions and the words of providers."""
    return os.environ.get("HELIX_LOG_CONTENT") == "1"


def describe(error: BaseException) -> str:
    """The exception's type, with its text where content is shown."""
    name = type(error).__name__
    return f"{name}: {error}" if content_shown() else name


class WithoutContent(logging.Filter):
    """Replaces a record's traceback with the type of the exception and the line that raised it."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not content_shown():
            record.msg, record.args = f"{record.getMessage()} ({_place(error)})", None
            record.exc_info, record.exc_text = None, None
        return True


def get_logger(name: str) -> logging.Logger:
    logger = logging.getLogger(name)
    logger.addFilter(_WITHOUT_CONTENT)
    return logger


_WITHOUT_CONTENT = WithoutContent()


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    if trace is None:
        return type(error).__name__
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{type(error).__name__} at {PurePath(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
