"""All citations of the protocol and the semantics in code, documents and tests exist, and each stored field is
explained."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from helix.core import entries, messages, request_heads, rows, run_row, session_row, view_row

ROOT = Path(__file__).parents[2]
CITED = ("protocol.md", "appendix/semantics.md")
CITATION = re.compile(r"\b(protocol|(?:appendix/)?semantics)\.md#([\w-]+)")
RETIRED = re.compile(r"\bPROTOCOL\b(?! *=)|\bsemantics [A-E]\d")
SECTIONS: dict[str, list[type[BaseModel]]] = {
    "row-session": [session_row.SessionRow],
    "row-run": [run_row.RunRow],
    "row-user": [entries.UserRow],
    "row-assistant": [entries.AssistantRow],
    "row-call": [entries.CallRow],
    "row-checkpoint": [rows.CheckpointRow],
    "row-lineage": [rows.LineageRow],
    "row-stop": [rows.StopRow],
    "row-attempt": [rows.AttemptRow],
    "row-head": [request_heads.HeadRow, request_heads.RequestHead, request_heads.HeadTool],
    "row-view": [view_row.ViewRow, view_row.ContextMark],
    "row-parts": [
        *(rows.ErrorInfo, rows.Pending, messages.AskedQuestion),
        *(session_row.OpenStep, session_row.StepClaim, session_row.Block, session_row.Bounds, session_row.Parent),
        entries.ChildRef,
    ],
}


def texts() -> Iterator[tuple[str, str]]:
    """Yield name and text of every tracked file of code and documents except this one."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py", "*.md", "*.toml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("needs a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path != Path(__file__).resolve() and path.is_file():
            yield name, path.read_text("utf-8")


def anchors(document: str) -> list[str]:
    return re.findall(r'<a id="([\w-]+)"></a>', (ROOT / "docs" / document).read_text("utf-8"))


@pytest.mark.parametrize("document", CITED)
def test_an_anchor_is_there_once(document: str) -> None:
    found = anchors(document)
    assert found and len(found) == len(set(found))


def test_every_citation_leads_to_an_anchor() -> None:
    known = {f"{document}#{anchor}" for document in CITED for anchor in anchors(document)}
    cited = {(name, f"{document}.md#{anchor}") for name, text in texts() for document, anchor in CITATION.findall(text)}
    assert "protocol.md#call-model" in {citation for _, citation in cited}
    assert {(name, citation) for name, citation in cited if citation not in known} == set()


def test_nothing_cites_by_number() -> None:
    assert [name for name, text in texts() if RETIRED.search(text)] == []


def section(anchor: str) -> str:
    """Return the text from the anchor to the next one."""
    text = (ROOT / "docs" / "protocol.md").read_text("utf-8")
    return text.split(f'<a id="{anchor}"></a>', 1)[1].split("<a id=", 1)[0]


@pytest.mark.parametrize("anchor", SECTIONS)
def test_every_stored_field_is_explained(anchor: str) -> None:
    explained = set(re.findall(r"`(\w+)`", section(anchor)))
    fields = {field for row in SECTIONS[anchor] for field in row.model_fields}
    assert fields - explained == set()


def test_every_row_has_a_section() -> None:
    modules = (rows, session_row, run_row, entries, view_row, request_heads)
    kinds = {
        kind for m in modules for kind in vars(m).values() if isinstance(kind, type) and kind.__module__ == m.__name__
    }
    # base classes hold groups of fields, which the sections of their rows explain
    kinds -= {base for kind in kinds for base in kind.__bases__}
    kinds |= {messages.AskedQuestion}  # chunks have it too
    assert kinds == {row for listed in SECTIONS.values() for row in listed}
