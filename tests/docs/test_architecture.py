"""The claims of ARCHITECTURE.md that no other test checks: numbers of verbs, and the functions that it names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from helix.ports.model import LLMAdapter
from helix.ports.state_store import StateStore

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "layers/core/python/helix"
TEXT = (ROOT / "ARCHITECTURE.md").read_text("utf-8")


def verbs(port: type) -> set[str]:
    return {name for name in vars(port) if not name.startswith("_")}


def test_the_ports_have_as_many_verbs_as_the_documents_say() -> None:
    assert "the one verb of `ports/model.py`" in TEXT and verbs(LLMAdapter) == {"generate_step"}
    contributing = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert "the six verbs of `ports/state_store.py`" in contributing and len(verbs(StateStore)) == 6


def test_each_step_of_a_path_names_a_function_of_its_module() -> None:
    named = re.findall(r"^\d+\. `([\w/]+\.py)`, `([\w.]+)`", TEXT, re.MULTILINE)
    assert len(named) > 20
    for file, name in named:
        tree = ast.parse((PACKAGE / file).read_text("utf-8"))
        found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name.rpartition(".")[2] in found, f"{file} has no {name}"


def test_the_engine_asks_its_placement_where_runs_are_executed() -> None:
    """No other module of the engine tests the class of its placement."""
    for file in (PACKAGE / "engine").rglob("*.py"):
        if file.name == "placement.py":
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                assert "placement" not in ast.unparse(node), f"{file.name}:{node.lineno}"
            assert not (isinstance(node, ast.Attribute) and node.attr == "in_process"), f"{file.name}:{node.lineno}"
