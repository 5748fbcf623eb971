"""Formatting of values and tables, shared by all commands."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from helix.cli.output import console
from helix.core.files import FilePart
from helix.core.messages import AskedQuestion, CallResponse
from helix.core.usage import Usage

LONGEST_TEXT, MOST_ITEMS = 60, 3
CUT: Final = "stopped here"
"""The line after an answer that an interrupt cut off."""


def short(value: object, limit: int = 200) -> str:
    """Format a value as JSON in at most `limit` characters. Long strings are truncated, and only the first items of a list
    are shown. A string value has no quotes."""
    if isinstance(value, str):
        return cut(value, limit)
    return cut(_short(value), limit)


def _short(value: object) -> str:
    match value:
        case str():
            return json.dumps(cut(value, LONGEST_TEXT), ensure_ascii=False)
        case Mapping():
            return "{" + ", ".join(f"{name}: {_short(item)}" for name, item in value.items()) + "}"
        case list() | tuple():
            items = [_short(item) for item in value[:MOST_ITEMS]]
            more = [f"… {len(value) - MOST_ITEMS} more"] if len(value) > MOST_ITEMS else []
            return "[" + ", ".join([*items, *more]) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False, default=str)


def cut(text: str, limit: int) -> str:
    """Put a string on one line and truncate it to `limit` characters, with an ellipsis at the end."""
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def call(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={_short(value)}' for key, value in arguments.items())})"


def file(part: FilePart) -> str:
    """Describe a file in a message: its name, type and size."""
    facts = [part.media_type]
    if part.width is not None and part.height is not None:
        facts.append(f"{part.width} x {part.height}")
    if part.pages is not None:
        facts.append(count(part.pages, "page"))
    if part.size:
        facts.append(decimal(part.size))
    return f"{part.name or part.url or part.kind} ({', '.join(facts)})"


def change(operation: Mapping[str, Any]) -> str:
    """Format an RFC 6902 (JSON Patch) operation as an assignment. For example, adding to `/a/b/-` becomes `a.b += ...`."""
    path = str(operation.get("path", "")).removeprefix("/").replace("/", ".").replace("~1", "/").replace("~0", "~")
    match operation.get("op"):
        case "add" if path == "-" or path.endswith(".-"):
            return f"{path[:-2] or 'state'} += {_short(operation.get('value'))}"
        case "add" | "replace":
            return f"{path or 'state'} = {_short(operation.get('value'))}"
        case "remove":
            return f"{path} removed"
        case other:
            return f"{path} {other} {operation.get('from', '')}".rstrip()


def tokens(usage: Usage) -> str:
    text = f"{usage.prompt_tokens:,} + {usage.completion_tokens:,} tokens"
    parts = {"cached": usage.cached_tokens, "lost from a cache": usage.lost_tokens}
    of = ", ".join(f"{number:,} {what}" for what, number in parts.items() if number)
    return f"{text} ({of})" if of else text


def cost(usage: Usage, *, imaginary: bool = False) -> str:
    """Format a cost in US dollars, with more decimals for small amounts. `imaginary` marks the cost of the demonstration
    model."""
    if not usage.priced:
        return "price unknown"
    digits = 2 if usage.cost_micros == 0 or usage.cost_usd >= 1 else 4 if usage.cost_micros >= 100 else 6
    return f"${usage.cost_usd:.{digits}f}" + (" (imaginary)" if imaginary else "")


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def age(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{max(0, seconds):.0f} s ago"


_STATUSES = {
    "green": ("completed", "healthy"),
    "red": ("failed", "unhealthy"),
    "cyan": ("running",),
    "yellow": ("paused", "interrupted", "stopped", "degraded"),
}
_STYLES = {status: style for style, statuses in _STATUSES.items() for status in statuses}


MISSING: Final[Mapping[str, str]] = {"deleted": "was deleted", "not_started": "has not started"}
"""The words for the statuses of a sub-agent's session that is not in the store."""


def status_style(status: str) -> str:
    """Return the Rich colour of a status, or an empty string for any other value."""
    return _STYLES.get(status, "")


def lines_of(value: object, indent: int = 0) -> Sequence[str]:
    """Format a JSON value as an indented outline, with `name: value` lines, and dashes for lists. Strings are not
    truncated."""
    pad = "  " * indent
    match value:
        case Mapping() if value:
            return [line for name, item in value.items() for line in _entry(f"{pad}{name}:", item, indent)]
        case list() if value:
            return [line for item in value for line in _entry(f"{pad}-", item, indent)]
        case str():
            return [f"{pad}{line}" for line in value.splitlines() or [""]]
        case _:
            return [pad + json.dumps(value, ensure_ascii=False)]


def _entry(head: str, item: object, indent: int) -> list[str]:
    if isinstance(item, (Mapping, list)) and item:
        return [head, *lines_of(item, indent + 1)]
    first, *rest = lines_of(item)
    return [f"{head} {first}", *("  " * (indent + 1) + line for line in rest)]


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    last: Literal["fold", "ellipsis"] = "fold",
) -> None:
    """Print a table. The parameters are those of `table_of`."""
    console().print(table_of(columns, rows, right=right, last=last))


def table_of(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    last: Literal["fold", "ellipsis"] = "fold",
) -> Table:
    """Create a table with coloured statuses. `right` names the right-aligned columns, which contain numbers.

    Only the last column shrinks on a narrow terminal, because a truncated id is useless.
    """
    table = Table(box=None, pad_edge=False, header_style="dim")
    for index, name in enumerate(columns):
        if index == len(columns) - 1:
            table.add_column(name, no_wrap=last == "ellipsis", overflow=last)
        else:
            width = max(len(name), *(len(row[index]) for row in rows)) if rows else None
            table.add_column(name, no_wrap=True, min_width=width, justify="right" if name in right else "left")
    for row in rows:
        table.add_row(*(Text(cell, status_style(cell)) for cell in row))
    return table


def asked(question: AskedQuestion) -> str:
    """Return the answer to a question of a tool, and who gave it."""
    if not question.answered:
        return "no answer"
    late = "the default, because no answer came in time" if question.timed_out else ""
    return f"{short(question.data)}{_given(late, by=question.by, at=question.at)}"


def response(given: CallResponse) -> str:
    """Return a person's or client's response to a call that waited, and who gave it."""
    word = {"client": "result given", "unknown": "run again", "question": "answered"}.get(given.kind, "approved")
    if not given.approved:
        no = {"client": "failure reported", "unknown": "outcome decided", "question": "not answered"}
        word = no.get(given.kind, "denied")
    return f"{word}{_given(by=given.by, at=given.at)}"


def _given(*words: str, by: str | None, at: float | None) -> str:
    who = "" if by is None else f"by {by}"
    said = [word for word in (*words, who, time(at)) if word]
    return f" ({', '.join(said)})" if said else ""


def time(at: float | None) -> str:
    """Format a time in Unix seconds. Empty for None and 0."""
    return "" if not at else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
