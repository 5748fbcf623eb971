"""A line of the terminal shows values in a short form and text as it grows."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from helix.cli.view import formats
from helix.cli.view.base import Hints
from helix.cli.view.writer import Writer
from helix.core.usage import Usage


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        ("two\nlines", "two lines"),
        ({"a": 1, "b": None}, "{a: 1, b: null}"),
        ({"name": "x" * 80}, '{name: "' + "x" * 59 + '…"}'),
        ([1, 2, 3, 4, 5], "[1, 2, 3, … 2 more]"),
        (1.5, "1.5"),
    ],
)
def test_values_in_short(value: object, text: str) -> None:
    assert formats.short(value) == text
    assert len(formats.short(value, 10)) <= 10


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        ({"op": "add", "path": "/notes/-", "value": "x"}, 'notes += "x"'),
        ({"op": "replace", "path": "/a/b", "value": 2}, "a.b = 2"),
        ({"op": "add", "path": "", "value": {}}, "state = {}"),
        ({"op": "remove", "path": "/a~1b"}, "a/b removed"),
        ({"op": "move", "path": "/b", "from": "/a"}, "b move /a"),
    ],
)
def test_state_changes_read_like_assignments(operation: dict[str, object], text: str) -> None:
    assert formats.change(operation) == text


def test_money_says_what_is_not_known_or_not_real() -> None:
    assert formats.cost(Usage(cost_micros=0)) == "$0.00"
    assert formats.cost(Usage(cost_micros=12)) == "$0.000012"
    assert formats.cost(Usage(cost_micros=1234)) == "$0.0012"
    assert formats.cost(Usage(cost_micros=2_500_000), imaginary=True) == "$2.50 (imaginary)"
    assert formats.cost(Usage(priced=False)) == "price unknown"


def test_a_value_as_an_outline() -> None:
    value = {"summary": "one\ntwo", "sources": ["a", "b"], "none": [], "deep": {"x": 1}}
    lines = ["summary: one", "  two", "sources:", "  - a", "  - b", "none: []", "deep:", "  x: 1"]
    assert formats.lines_of(value) == lines


def terminal(width: int) -> tuple[Writer, io.StringIO]:
    file = io.StringIO()
    writer = Writer(file)
    writer.console = Console(
        file=file, width=width, force_terminal=True, no_color=True, highlight=False, soft_wrap=True
    )
    writer.width = width
    return writer, file


def test_growing_text_is_wrapped_at_words_within_its_margin() -> None:
    writer, file = terminal(20)
    for delta in ("The qui", "ck brown fox jum", "ped over\nthe dog", "."):
        writer.grow("one", delta, margin="| ")
    writer.grow("two", "Next", margin="  ")
    writer.line("a line that does not fit there", margin="  ")
    text = file.getvalue()
    for code in ("\x1b[2m", "\x1b[0m"):
        text = text.replace(code, "")
    assert text.splitlines() == [
        "| The quick brown",
        "| fox jumped over",
        "| the dog.",
        "  Next",
        "  a line that does",
        "    not fit there",
    ]


def test_a_pipe_gets_the_text_unwrapped_and_without_codes() -> None:
    file = io.StringIO()
    writer = Writer(file)
    words = "word " * 60
    writer.grow("one", words, "dim")
    writer.line("x " * 100, "red")
    assert file.getvalue().splitlines() == [words.rstrip(), "x " * 100]


def test_commands_are_quoted_as_they_must_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["pytest"])
    hints = Hints("my agents.py:a", "a b.db", "openai/gpt-4o")
    assert (
        hints("run", "...", "--session", "s 1")
        == "helix run 'my agents.py:a' \"...\" --session 's 1' --model openai/gpt-4o --db 'a b.db'"
    )
    assert Hints("m:a").show("s") == "helix show s"
