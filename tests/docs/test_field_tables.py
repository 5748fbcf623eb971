"""The tables of the rows' fields in docs/protocol.md match the fields' docstrings."""

from __future__ import annotations

import importlib.util

from tests.support.browser import ROOT

SCRIPT = ROOT / "docs" / "field_tables.py"


def test_the_tables_are_what_the_docstrings_say() -> None:
    spec = importlib.util.spec_from_file_location("field_tables", SCRIPT)
    assert spec is not None and spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    text = tables.PLACE.read_text("utf-8")
    assert len(tables.TABLE.findall(text)) == 16
    assert tables.written(text) == text, "run: python docs/field_tables.py"
    assert tables.written(text.replace("The current lineage.", "Another meaning.")) == text
