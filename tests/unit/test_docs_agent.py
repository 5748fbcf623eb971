"""The example of `make demo`: its tools read real documents and nothing else."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel

from helix.core.context import ToolContext, create_tool_context
from helix.core.tools import Tool
from helix.core.tracker import StateTracker, create_state_tracker

ROOT = Path(__file__).parents[2]
AGENT = ROOT / "examples" / "docs_agent" / "agent.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    """The example's module, loaded as the command line loads a file."""
    spec = importlib.util.spec_from_file_location("docs_agent_under_test", AGENT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def library(example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project with the example, and with a secret beside the documents."""
    (tmp_path / "docs" / "guide").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[project]")
    (tmp_path / "README.md").write_text("# Soup\n\nCommon words about soup.\n\nA lease lapses after fifteen seconds.\n")
    (tmp_path / "docs" / "guide" / "soup.md").write_text("# More soup\n\n" + "Soup and soup again.\n\n" * 5)
    (tmp_path / "secret.md").write_text("the lease of the secret")
    monkeypatch.setattr(example, "__file__", str(tmp_path / "examples" / "docs_agent" / "agent.py"))
    return tmp_path


def call(tool: Tool[Any], tracker: StateTracker[Any], **arguments: Any) -> Any:
    assert tool.execute is not None
    context: ToolContext[Any] = create_tool_context(agent_id="ses_1", agent_type="librarian", state_tracker=tracker)
    return tool.execute(tool.input_schema.model_validate(arguments), context)


def notes(example: ModuleType) -> StateTracker[Any]:
    return create_state_tracker({}, schema=example.Notes)


def test_the_definition(example: ModuleType) -> None:
    librarian = example.librarian
    assert [tool.name for tool in librarian.tools] == ["search_documents", "read_document", "subagent__fact_checker"]
    assert librarian.find_agent("fact_checker") is example.fact_checker
    assert "Already looked up: nothing" in librarian.system_prompt(example.Notes())
    assert librarian.llm_config.model == "openai/gpt-4o-mini"
    assert issubclass(librarian.output_schema, BaseModel)


def test_search_ranks_rare_words_first_and_says_where(example: ModuleType, library: Path) -> None:
    tracker = notes(example)
    found = call(example.search_documents, tracker, query="When do leases of soup lapse?", limit=3)
    assert (found.hits[0].path, found.hits[0].line) == ("README.md", 5)
    assert "fifteen seconds" in found.hits[0].snippet
    assert {hit.path for hit in found.hits} == {"README.md", "docs/guide/soup.md"} and len(found.hits) == 3
    assert tracker.get_state().looked_up == ["When do leases of soup lapse?"]
    assert call(example.search_documents, tracker, query="chromodynamics").hits == []


def test_reading_returns_the_lines_asked_for(example: ModuleType, library: Path) -> None:
    tracker = notes(example)
    page = call(example.read_document, tracker, path="README.md", start_line=3, lines=1)
    assert (page.text, page.start_line) == ("Common words about soup.", 3)
    assert tracker.get_state().read == ["README.md"]
    assert call(example.read_document, tracker, path="README.md", start_line=-5, lines=-5).text == "# Soup"
    assert call(example.read_document, tracker, path="README.md", start_line=999).text == ""


@pytest.mark.parametrize(
    "path", ["secret.md", "../secret.md", "/etc/passwd", "docs", "docs/../secret.md", "pyproject.toml"]
)
def test_nothing_else_can_be_read(example: ModuleType, library: Path, path: str) -> None:
    tracker = notes(example)
    with pytest.raises(ValueError, match="use a path that search_documents returned"):
        call(example.read_document, tracker, path=path)
    assert tracker.get_patches() == []


def test_a_link_out_of_the_documents_is_refused(example: ModuleType, library: Path) -> None:
    (library / "docs" / "link.md").symlink_to(library / "secret.md")
    with pytest.raises(ValueError, match="no document"):
        call(example.read_document, notes(example), path="docs/link.md")
    assert not any("link" in hit.path for hit in call(example.search_documents, notes(example), query="secret").hits)


def test_without_documents_the_package_itself_is_read(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "__file__", str(tmp_path / "agent.py"))
    found = call(example.search_documents, notes(example), query="state tracker patches")
    assert found.hits and found.hits[0].path.startswith("helix/")


def test_it_is_short_enough_to_copy() -> None:
    assert len(AGENT.read_text().splitlines()) <= 150
