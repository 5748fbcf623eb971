"""Human-readable logs: each log line of a function becomes one line in the terminal, always in the same format.

Law: log messages are shown, and failures stand out. Metrics are omitted, because they are in CloudWatch. With `--logs json`
each line is one JSON object, and metrics are included. The same line always produces the same text, regardless of earlier
lines. Control characters are escaped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TextIO

from helix.core.json import load_object
from helix.core.printable import json_line, printable
from helix.local.metrics import embedded

DONE = "done"
"""The message of the last log line of an invocation (`runtime.lambdas`)."""
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_COLOURS = {"DEBUG": "2", "INFO": "0", "WARNING": "33", "ERROR": "31;1", "CRITICAL": "31;1"}
_QUIET, _NAME = "2", "36"
_OWN = frozenset(
    {"level", "message", "timestamp", "service", "location", "xray_trace_id", "sampling_rate", "request_id"}
)
_ONE_LINE = frozenset({"exception", "stack_trace"})
"""The fields that are printed below their line."""


class Console:
    """Prints log lines. `prefix` is the common prefix of all functions' names, which is omitted. `colour`: whether to use
    control codes."""

    def __init__(self, out: TextIO, *, prefix: str, colour: bool, as_json: bool = False) -> None:
        self._out, self._prefix = out, prefix
        self._paint: Callable[[str, str], str] = _coloured if colour else _plain
        self._as_json = as_json

    def print_line(self, line: dict[str, Any]) -> None:
        """Print a line. This method is a listener for the emulator."""
        text = self.json(line) if self._as_json else self.text(line)
        if text is not None:
            self._out.write(text + "\n")
            self._out.flush()

    def text(self, line: Mapping[str, Any]) -> str | None:
        """Return the text of a line, or None if it is not shown."""
        if embedded(line["line"]) is not None:
            return None
        fields = _shorten_last_line(_fields(line["line"]), line.get("about", {}))
        if not fields.get("message"):
            return None
        level = fields.get("level", "INFO")
        message = str(fields.get("message", ""))
        paint, moment = self._paint, datetime.fromtimestamp(line["time"]).strftime("%H:%M:%S.%f")[:-3]
        more = [f"{name}={value}" for name, value in fields.items() if name not in _OWN | _ONE_LINE]
        head = (
            f"{paint(_QUIET, moment)} {paint(_COLOURS[level], f'{level:<7}')} {paint(_NAME, f'{self._verb(line):<14}')}"
        )
        first = " ".join([f"{head} {paint(_COLOURS[level], message)}", *(paint(_QUIET, word) for word in more)])
        below = [f"    {printable(row)}" for name in sorted(_ONE_LINE) for row in _rows(fields.get(name))]
        return "\n".join([first, *below])

    def json(self, line: Mapping[str, Any]) -> str:
        head = {name: line[name] for name in ("time", "function", "version", "request_id")}
        said = load_object(line["line"])
        return json_line(head | {"said": line["line"] if said is None else said})

    def _verb(self, line: Mapping[str, Any]) -> str:
        return str(line["function"]).removeprefix(self._prefix)


def _shorten_last_line(fields: dict[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    """Reduce the last line of an invocation to its duration, or to nothing if the invocation had no session. Return the
    fields of other lines unchanged."""
    if fields.get("message") != DONE or "took_ms" not in fields:
        return fields
    if not about:
        return {}
    call = about.get("call")
    step = call.get("step") if isinstance(call, dict) else about.get("step")
    what = DONE if step is None else f"step {step}"
    return {"message": f"{what} in {fields['took_ms']:,.0f} ms", "session": about.get("session_id")}


def _fields(text: str) -> dict[str, Any]:
    """Return the fields of a structured line. Any other text becomes the message, with level ERROR if Lambda marks it as an
    error."""
    if (read := load_object(text)) is not None and "message" in read:
        level = str(read.get("level", "INFO")).upper()
        return {**read, "level": level if level in LEVELS else "INFO"}
    if text.startswith("[ERROR] "):
        return {"level": "ERROR", "message": text.removeprefix("[ERROR] ")}
    return {"message": text.rstrip()}


def _rows(value: Any) -> list[str]:
    if value is None:
        return []
    return (value if isinstance(value, str) else json.dumps(value, indent=2)).rstrip().splitlines()


def _plain(code: str, text: str) -> str:
    return printable(text)


def _coloured(code: str, text: str) -> str:
    text = printable(text)
    return f"\x1b[{code}m{text}\x1b[0m" if text and code != "0" else text
