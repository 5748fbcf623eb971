"""Entries of the Berkeley Function Calling Leaderboard, read from the package `bfcl-eval` (Apache License 2.0). Each has
functions with their schemas, a question, and the calls that answer it.

`tests/fixtures/bfcl.jsonl` has every fiftieth entry. `python bench/bfcl.py` downloads the package and plays all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helix.core.json import JsonObject
from helix.ports.model import ToolSpec

SAMPLE = Path(__file__).parents[1] / "fixtures" / "bfcl.jsonl"
CALLED = (
    *("simple_python", "simple_java", "simple_javascript", "multiple", "parallel", "parallel_multiple"),
    *("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"),
)
"""Categories whose entries have the correct calls."""
UNCALLED = ("irrelevance", "live_irrelevance", "live_relevance")
_TYPES = {
    "dict": "object",
    "HashMap": "object",
    "float": "number",
    "double": "number",
    "long": "integer",
    "tuple": "array",
    "ArrayList": "array",
    "Array": "array",
    "String": "string",
    "char": "string",
    "Boolean": "boolean",
    "any": "",
    "": "",
}
"""The JSON Schema types for the data set's type names, which come from several languages. "" is a schema without a type."""
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_OMITTED = ""
"""A value among the correct values of an argument which says that the argument may be left out."""


@dataclass(frozen=True)
class Entry:
    """An entry. `calls` has the (name, arguments) of each call, and is () for an entry without calls."""

    id: str
    question: str
    tools: tuple[ToolSpec, ...]
    calls: tuple[tuple[str, JsonObject], ...]


def sample() -> Iterator[Entry]:
    for line in SAMPLE.read_text(encoding="utf-8").splitlines():
        yield _entry(json.loads(line))


def all_entries(data: Path) -> Iterator[Entry]:
    """Return all entries. `data` is the package's folder of that name."""
    for raw in raw_entries(data):
        yield _entry(raw)


def raw_entries(data: Path) -> Iterator[dict[str, Any]]:
    for category in (*CALLED, *UNCALLED):
        answers = {}
        if category in CALLED:
            answers = {one["id"]: one["ground_truth"] for one in _lines(data / "possible_answer", category)}
        for one in _lines(data, category):
            functions = [{name: f[name] for name in ("name", "description", "parameters")} for f in one["function"]]
            question = one["question"][0][-1]["content"]
            yield {"id": one["id"], "question": question, "function": functions, "answer": answers.get(one["id"], [])}


def _lines(folder: Path, category: str) -> Iterator[dict[str, Any]]:
    for line in (folder / f"BFCL_v4_{category}.json").read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def _entry(raw: dict[str, Any]) -> Entry:
    tools = tuple(ToolSpec(_name(f["name"]), f["description"], schema_of(f["parameters"])) for f in raw["function"])
    calls = tuple((_name(name), _chosen(given)) for call in raw["answer"] for name, given in call.items())
    return Entry(raw["id"], raw["question"] or "?", tools, calls)


def _name(name: str) -> str:
    """Replace the dots in the name of a function, which providers do not accept."""
    return _NO_NAME.sub("_", name)[:64]


def schema_of(given: dict[str, Any]) -> JsonObject:
    kind = _TYPES.get(given.get("type", ""), given.get("type", ""))
    made: JsonObject = {"type": kind} if kind else {}
    for name in ("description", "enum", "default", "required"):
        if name in given:
            made[name] = given[name]
    if isinstance(given.get("properties"), dict):
        made["properties"] = {name: schema_of(inner) for name, inner in given["properties"].items()}
    if isinstance(given.get("items"), dict):
        made["items"] = schema_of(given["items"])
    return made


def _chosen(given: Any) -> Any:
    """Return the first correct value of each argument, at any depth."""
    match given:
        case dict():
            options = {name: value if isinstance(value, list) else [value] for name, value in given.items()}
            first = {name: next((v for v in value if v != _OMITTED), _OMITTED) for name, value in options.items()}
            return {name: _chosen(value) for name, value in first.items() if value != _OMITTED}
        case list():
            return [_chosen(value) for value in given]
    return given
