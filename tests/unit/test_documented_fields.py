"""Fields have docstrings below them: at least 99 % of all fields, and every field that users read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests.docs.documents import PACKAGE

FLOOR = 0.99
WHOLE = (
    "core/agents.py",
    "core/chunk_envelope.py",
    "core/chunks.py",
    "core/config.py",
    "core/replies.py",
    "core/fleet_requests.py",
    "core/request_fields.py",
    "core/requests.py",
    "core/run_requests.py",
    "core/session_replies.py",
    "core/session_requests.py",
    "core/rows.py",
    "core/run_row.py",
    "core/session_row.py",
    "core/tool_settings.py",
    "core/tools.py",
    "engine/context.py",
    "engine/engine.py",
    "engine/placement.py",
    "runtime/cloud_settings.py",
)
"""Modules of rows, settings, agents, tools, chunks and messages of the protocol."""


def fields(file: Path) -> Iterator[tuple[str, bool]]:
    """Yield the name of each public field and whether it has a docstring."""
    for cls in ast.walk(ast.parse(file.read_text("utf-8"))):
        if not isinstance(cls, ast.ClassDef):
            continue
        for statement, below in pairwise([*cls.body, None]):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                name = statement.target.id
                if name[0] != "_" and name != "model_config" and "ClassVar" not in ast.unparse(statement.annotation):
                    yield f"{cls.name}.{name}", _is_text(below)


def _is_text(statement: ast.stmt | None) -> bool:
    text = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(text, ast.Constant) and isinstance(text.value, str)


def test_almost_all_fields_are_documented() -> None:
    files = [file for file in PACKAGE.rglob("*.py") if "templates" not in file.parts]
    found = [documented for file in files for _, documented in fields(file)]
    assert len(found) > 2000 and sum(found) / len(found) >= FLOOR, f"{sum(found)} of {len(found)}"


@pytest.mark.parametrize("place", WHOLE)
def test_each_field_is_documented(place: str) -> None:
    assert [name for name, documented in fields(PACKAGE / place) if not documented] == []
