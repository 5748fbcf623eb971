"""Writes the tables of the rows' fields in docs/protocol.md from the docstrings of the fields.

    python docs/field_tables.py

The command replaces each table between `<!-- fields of CLASS, CLASS -->` and `<!-- end of fields -->`. Run it after you
change a docstring of a row. `tests/docs/test_field_tables.py` fails if a table is out of date.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import griffe
from pydantic import BaseModel

PLACE = Path(__file__).with_name("protocol.md")
TABLE = re.compile(r"(<!-- fields of ([\w., ]+) -->\n)(.*?)(<!-- end of fields -->)", re.DOTALL)
REFERENCE = re.compile(r"docs/protocol\.md(#[\w-]+)")


def written(text: str) -> str:
    """Return the document with all its tables of fields written anew."""
    return TABLE.sub(lambda found: f"{found[1]}\n{_table(found[2].split(', '))}\n{found[4]}", text)


def _table(names: list[str]) -> str:
    """Return the table of the classes' fields. If there are several classes, the first column names them."""
    models = [_model(name) for name in names]
    if len(models) == 1:
        lines = ["| Field | Meaning |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in _fields(models[0]))]
    else:
        lines = ["| Part | Field | Meaning |", "|---|---|---|"]
        lines += [f"| {model.__name__} | `{name}` | {text} |" for model in models for name, text in _fields(model)]
    return "\n".join([*lines, ""])


def _model(name: str) -> type[BaseModel]:
    module, _, member = name.rpartition(".")
    model: type[BaseModel] = getattr(import_module(f"helix.core.{module}"), member)
    return model


def _fields(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Yield the fields' names, each with its docstring as the cell of a table."""
    for name in model.model_fields:
        owner = next(cls for cls in model.__mro__ if name in inspect.get_annotations(cls))
        docstring = _source(Path(inspect.getfile(owner)))[owner.__name__][name].docstring
        text = " ".join(docstring.value.split()).replace("|", "\\|")
        yield name, REFERENCE.sub(r"[section](\1)", text)


@cache
def _source(path: Path) -> griffe.Module:
    return griffe.visit(path.stem, path, path.read_text("utf-8"))


if __name__ == "__main__":
    PLACE.write_text(written(PLACE.read_text("utf-8")), encoding="utf-8")
