"""Text that reaches a terminal cannot contain terminal commands."""

from __future__ import annotations

import json
import logging
import unicodedata

import pytest

from helix.cli.output import LogFormatter
from helix.core.printable import json_line, printable

ATTACK = "\x1b]0;owned\x07 \x1b[2J \x9b1m \x1b]8;;http://x\x1b\\link \x00 \u202eabc\u2066 \x7f \r \ud800"


def test_every_control_character_is_shown() -> None:
    text = printable(ATTACK)
    assert len(text) == len(ATTACK)
    assert text.startswith("␛]0;owned␇ ␛[2J �1m ␛]8;;http://x␛\\link ␀ �abc�")
    assert text.encode()
    assert printable("two\n\tlines, é 漢 🎉 \u200f") == "two\n\tlines, é 漢 🎉 \ufffd"
    joined = "👩\u200d💻 می\u200cخواهم Zucker\u00adguss \u06dd"
    assert printable(joined) == joined


LEFT = {0x00AD, 0x200C, 0x200D, *range(0x0600, 0x0606), 0x06DD, 0x070F, 0x0890, 0x0891, 0x08E2, 0x110BD, 0x110CD}
"""Format characters that are drawn or that a script needs."""


def test_of_all_control_and_format_characters_of_unicode_those_that_scripts_need_stay() -> None:
    kinds = ("Cc", "Cf", "Cs", "Zl", "Zp")
    codes = {code for code in range(0x110000) if unicodedata.category(chr(code)) in kinds} - LEFT - {9, 10}
    assert [hex(code) for code in codes if printable(chr(code)) == chr(code)] == []
    assert [hex(code) for code in codes if chr(code) in json_line(chr(code))] == []
    drawn = {code for code in range(0x110000) if unicodedata.category(chr(code))[0] in "LMNPS"}
    assert [hex(code) for code in drawn if printable(chr(code)) != chr(code)] == []


@pytest.mark.parametrize(
    "code",
    [*range(0x20), *range(0x7F, 0xA0), *range(0x200E, 0x2010), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xE0041],
)
def test_json_is_the_same_value_without_control_characters(code: int) -> None:
    line = json_line({"text": f"a{chr(code)}b"})
    assert chr(code) not in line and json.loads(line) == {"text": f"a{chr(code)}b"}


def test_half_a_character_in_json_can_be_written() -> None:
    assert json_line("\ud800").encode() == b'"\\ud800"'


@pytest.mark.parametrize("level", [logging.WARNING, logging.DEBUG])
def test_a_traceback_is_for_developers(level: int) -> None:
    root = logging.getLogger()
    before = root.level
    root.setLevel(level)
    try:
        raise ValueError(ATTACK)
    except ValueError as error:
        record = logging.LogRecord(
            "helix", logging.ERROR, "x.py", 1, "it failed: %s", (ATTACK,), (ValueError, error, None)
        )
        text = LogFormatter("%(message)s").format(record)
    finally:
        root.setLevel(before)
    assert "\x1b" not in text and "ValueError: ␛]0;owned␇" in text
    assert ("HELIX_LOG=debug" in text) is (level == logging.WARNING)
