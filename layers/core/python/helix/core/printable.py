"""Text for terminals and logs. Control characters become visible symbols and never reach the terminal as commands.

Law: the table replaces every character that can start an escape sequence. So text from `printable` cannot move the
cursor, set the title, create a link or reverse a line. Unicode format characters (category Cf) are kept only if scripts
need them and they neither hide nor reorder text: the joiners U+200C and U+200D, the soft hyphen, and visible signs.
"""

from __future__ import annotations

import json
import re

_FORMATS = (
    *((0x061C, 0x061C), (0x180E, 0x180E), (0x200B, 0x200B), (0x200E, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F)),
    *((0xFEFF, 0xFEFF), (0xFFF9, 0xFFFB), (0x13430, 0x1343F), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A)),
    (0xE0000, 0xE007F),  # tags, which are invisible text
)
"""Ranges (first, last) of format characters to replace, such as text direction marks and overrides."""
_SHOWN = (
    {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}  # C0, shown as pictures such as ␛ for ESC
    | {0x7F: 0x2421}
    | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)  # C1
    | dict.fromkeys((code for first, last in _FORMATS for code in range(first, last + 1)), 0xFFFD)
    | dict.fromkeys((0x2028, 0x2029), 0x2424)  # line and paragraph separators, which terminals do not draw
    | dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)  # surrogate halves, which cannot be encoded
)
_RANGES = "".join(f"{chr(first)}-{chr(last)}" for first, last in _FORMATS)
_ESCAPED = re.compile(f"[\x7f-\x9f\u2028-\u2029\ud800-\udfff{_RANGES}]")


def printable(text: str) -> str:
    """Return `text` with control and format characters replaced by visible ones. Newlines and tabs are kept, and the
    length does not change."""
    return text.translate(_SHOWN)


def json_line(value: object) -> str:
    """Return `value` as one line of JSON with control and format characters escaped."""
    return json_text(value, indent=None)


def json_text(value: object, *, indent: int | None = 2) -> str:
    """Return `value` as JSON for people to read and edit, with control and format characters escaped."""
    return escape_json(json.dumps(value, ensure_ascii=False, default=str, indent=indent))


def escape_json(text: str) -> str:
    """Return the same JSON with control and format characters escaped."""
    return _ESCAPED.sub(lambda found: json.dumps(found[0])[1:-1], text)
