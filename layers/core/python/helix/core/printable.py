"""Text for terminals and logs: a control character is shown, and never reaches the terminal as a command.

Law: escape sequences begin with a character of this table, so text that went through `printable` moves no cursor, sets no
title, makes no link and reverses no line.
"""

from __future__ import annotations

import json
import re

_SHOWN = (
    {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}  # C0: its picture, as in ␛ for ESC
    | {0x7F: 0x2421}
    | dict.fromkeys([*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD)  # C1, bidi overrides
    | dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)  # half characters, which no encoding can write
)
_ESCAPED = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """`text` with control characters and bidirectional overrides replaced by visible ones; its length stays the same.
    Newlines and tabs stay."""
    return text.translate(_SHOWN)


def json_line(value: object) -> str:
    """`value` as one line of JSON, in which such characters are escaped."""
    return json_text(value, indent=None)


def json_text(value: object, *, indent: int | None = 2) -> str:
    """`value` as JSON to be read and edited, in which such characters are escaped."""
    text = json.dumps(value, ensure_ascii=False, default=str, indent=indent)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
