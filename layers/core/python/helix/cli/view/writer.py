"""A writer to a terminal or a pipe, for whole lines and for text that arrives in pieces.

Law: streamed text is wrapped at words within its margin. In a pipe, text is not wrapped, and control codes are not written.
A speaker's text never starts in the middle of another speaker's line.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import TextIO

from rich.cells import cell_len
from rich.text import Text

from helix.cli.output import PIPE_WIDTH, console

WIDEST = 110
_PIECES = re.compile(r"\n|[^\S\n]+|\S+")


class Writer:
    def __init__(self, file: TextIO) -> None:
        self.console = console(file, soft_wrap=True)
        self.width = min(self.console.width, WIDEST) if self.console.is_terminal else PIPE_WIDTH
        self._speaker: Hashable = None
        self._margin, self._style = "", ""
        self._column, self._space, self._word = 0, "", ""

    def line(self, text: str | Text = "", style: str = "", *, margin: str = "", hang: int = 2) -> None:
        """Write one line. A `str` that does not fit continues on lines that are indented by `hang` columns."""
        self.end()
        room = self.width - len(margin)
        if isinstance(text, Text) or cell_len(text) <= room:
            self._print(margin, text, style, "\n")
            return
        indent = ""
        for row in Text(" ".join(text.split())).wrap(self.console, max(1, room - hang)):
            self._print(margin, indent + row.plain.rstrip(), style, "\n")
            indent = " " * hang

    def grow(self, speaker: Hashable, delta: str, style: str = "", *, margin: str = "") -> None:
        """Append to a speaker's text. If another speaker's text is open, end it first."""
        if speaker != self._speaker:
            self.end()
            self._speaker, self._margin, self._style = speaker, margin, style
        for piece in _PIECES.findall(delta):
            if not piece.isspace():
                self._word += piece
                if self.width < PIPE_WIDTH:
                    continue  # the rest of the word may follow
            self._put_word()
            if piece == "\n":
                self._new_line()
            elif piece.isspace():
                self._space = piece if self._column else ""

    def end(self) -> None:
        """End the open text, so that the next line starts in the first column."""
        self._put_word()
        self._new_line()
        self._speaker = None

    def _new_line(self) -> None:
        if self._column:
            self._print("", "", "", "\n")
        self._column, self._space = 0, ""

    def _put_word(self) -> None:
        if not self._word:
            return
        length = cell_len(self._word)
        if self._column + len(self._space) + length > self.width:
            self._new_line()
        if not self._column:
            self._print(self._margin, "", "", "")
            self._column = len(self._margin)
        self._print("", self._space + self._word, self._style, "")
        self._column += len(self._space) + length
        self._space, self._word = "", ""

    def _print(self, margin: str, text: str | Text, style: str, end: str) -> None:
        self.console.print(Text.assemble((margin, "dim"), text if isinstance(text, Text) else (text, style)), end=end)
