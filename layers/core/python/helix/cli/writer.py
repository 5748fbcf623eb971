"""Writing to a terminal or a pipe: whole lines, and text that grows.

Law: text is wrapped at words within its margin as it comes; into a pipe nothing is wrapped and no control code is
written. A line never starts in the middle of another speaker's.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_PIECES = re.compile(r"\n|[^\S\n]+|\S+")


class Writer:
    def __init__(self, file: TextIO) -> None:
        self.console = Console(file=file, highlight=False, markup=False, emoji=False, soft_wrap=True)
        self.width = min(self.console.width, 110) if self.console.is_terminal else 1_000_000
        self._speaker: Hashable = None
        self._margin, self._style = "", ""
        self._column, self._space, self._word = 0, "", ""

    def line(self, text: str | Text = "", style: str = "", *, margin: str = "", hang: int = 2) -> None:
        """One line; what does not fit goes on below, `hang` columns further in."""
        self.end()
        words = text.split() if isinstance(text, str) and cell_len(text) > self.width - len(margin) else None
        if words is None:
            self._print(margin, text, style, "\n")
            return
        row = ""
        for word in words:
            room = self.width - len(margin)
            if row.strip() and cell_len(row) + 1 + cell_len(word) > room:
                self._print(margin, row, style, "\n")
                row = " " * hang + word
            else:
                row = f"{row} {word}" if row else word
        self._print(margin, row, style, "\n")

    def grow(self, speaker: Hashable, delta: str, style: str = "", *, margin: str = "") -> None:
        """More of a speaker's text. Another speaker's text before it is ended first."""
        if speaker != self._speaker:
            self.end()
            self._speaker, self._margin, self._style = speaker, margin, style
        for piece in _PIECES.findall(delta):
            if piece == "\n":
                self._put_word()
                if self._column:
                    self._print("", "", "", "\n")
                self._column, self._space = 0, ""
            elif piece.isspace():
                self._put_word()
                self._space = piece if self._column else ""
            else:
                self._word += piece
                if self.width > 1000:  # a pipe: nothing to wrap, so nothing to wait for
                    self._put_word()

    def end(self) -> None:
        """Finish what is growing, so that the next line starts at the left."""
        self._put_word()
        if self._column:
            self._print("", "", "", "\n")
        self._speaker, self._column, self._space = None, 0, ""

    def _put_word(self) -> None:
        if not self._word:
            return
        length = cell_len(self._word)
        if self._column and self._column + len(self._space) + length > self.width:
            self._print("", "", "", "\n")
            self._column = 0
        if not self._column:
            self._print(self._margin, "", "", "")
            self._column, self._space = len(self._margin), ""
        self._print("", self._space + self._word, self._style, "")
        self._column += len(self._space) + length
        self._space, self._word = "", ""

    def _print(self, margin: str, text: str | Text, style: str, end: str) -> None:
        self.console.print(Text.assemble((margin, "dim"), text if isinstance(text, Text) else (text, style)), end=end)
