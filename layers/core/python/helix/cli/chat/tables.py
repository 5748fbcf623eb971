"""Tables that open on top of the chat, for reading or for choosing a row."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from helix.cli.chat.commands import ChooseRow, ShowTable
from helix.cli.chat.texts import content, to_printable
from helix.cli.view import formats

_CLOSE: list[BindingType] = [Binding("escape,q,ctrl+c", "dismiss(None)", "Close", show=False, priority=True)]


class TableDialog(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [*_CLOSE, Binding("enter", "dismiss(None)", show=False)]

    def __init__(self, of: ShowTable) -> None:
        super().__init__()
        self._of = of

    def compose(self) -> Any:
        of = self._of
        rows = [[to_printable(cell) for cell in row] for row in of.rows]
        with Vertical(classes="sheet"):
            yield Static(content((of.title, "bold")))
            with VerticalScroll():
                yield Static(formats.table_of(of.columns, rows, right=of.right), expand=True)
            yield Static(content(of.note))
            yield Static(content(("Escape closes", "dim")))


class RowPicker(ModalScreen[int | None]):
    """A table that returns the index of the chosen row, or None if the user closes it."""

    BINDINGS: ClassVar[list[BindingType]] = _CLOSE

    def __init__(self, of: ChooseRow) -> None:
        super().__init__()
        self._of = of

    def compose(self) -> Any:
        with Vertical(classes="sheet"):
            yield Static(content((self._of.title, "bold")))
            yield OptionList(*(Option(_two_lines(row)) for row in self._of.rows))
            yield Static(content(self._of.note))
            yield Static(content(("Enter chooses · Escape closes", "dim")))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_index)


def _two_lines(row: Any) -> Any:
    """Format a row as two lines, so that it fits on a narrow screen."""
    first, *middle, last = row
    return content((first, "bold"), f"  {last}\n", (" · ".join(cell for cell in middle if cell), "dim"))
