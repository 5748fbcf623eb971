"""Diffs of values and their application."""

from __future__ import annotations

import subprocess
import sys
from copy import deepcopy
from typing import Any

import pytest

from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject
from helix.core.patches import apply, diff, equals_json, parts_of, pointer, to_rfc6902


@pytest.mark.parametrize(
    ("before", "after", "patches"),
    [
        ({}, {}, []),
        ({"a": 1}, {"a": 1.0}, []),
        ({"a": 1}, {"a": True}, [{"op": "replace", "path": "/a", "value": True}]),
        ({"a": [0]}, {"a": [False]}, [{"op": "replace", "path": "/a", "value": [False]}]),
        ({"a": 0}, {"a": None}, [{"op": "replace", "path": "/a", "value": None}]),
        ({"a": 1}, {}, [{"op": "remove", "path": "/a"}]),
        ({}, {"a": None}, [{"op": "add", "path": "/a", "value": None}]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, [{"op": "replace", "path": "/a/c", "value": 3}]),
        ({"a": {"b": 1}}, {"a": [1]}, [{"op": "replace", "path": "/a", "value": [1]}]),
        ({"a/b~": {"": 1}}, {"a/b~": {"": 2}}, [{"op": "replace", "path": "/a~1b~0/", "value": 2}]),
        ({"~1": 1}, {"~1": 2}, [{"op": "replace", "path": "/~01", "value": 2}]),
        ({"a": {"-": 1}}, {"a": {"-": 2}}, [{"op": "add", "path": "/a/-", "value": 2}]),
        (
            {"a": [{"b": []}]},
            {"a": [{"b": [1]}]},
            [{"op": "replace", "path": "/a", "value": [{"b": [1]}]}],
        ),
        (
            {"a": []},
            {"a": [1, [2]]},
            [{"op": "add", "path": "/a/-", "value": 1}, {"op": "add", "path": "/a/-", "value": [2]}],
        ),
        ({"a": [1, 2]}, {"a": [1]}, [{"op": "replace", "path": "/a", "value": [1]}]),
    ],
)
def test_diff(before: Any, after: Any, patches: Any) -> None:
    kept = deepcopy((before, after))
    assert diff(before, after) == patches
    result = apply(before, patches)
    assert equals_json(result, after)
    assert (before, after) == kept


def test_apply_shares_nothing_with_its_arguments() -> None:
    value: list[Any] = []
    patches: list[JsonObject] = [{"op": "add", "path": "/a", "value": value}, {"op": "add", "path": "/a/-", "value": 1}]
    state = apply({}, patches)
    assert state == {"a": [1]} and value == []
    state["a"].append(2)  # type: ignore[union-attr]
    assert value == []
    before: dict[str, Any] = {"x": [1]}
    apply(before, [])["x"].append(2)  # type: ignore[union-attr]
    assert before == {"x": [1]}


@pytest.mark.parametrize(
    "patch",
    [
        {"op": "replace", "path": "/nope", "value": 1},
        {"op": "add", "path": "/n/x", "value": 1},
        {"op": "add", "path": "/l/9", "value": 1},
        {"op": "test", "path": "/n", "value": 2},
        {"op": "replace", "path": "", "value": [1]},
        {"op": "add", "path": "/x"},
        {"op": "boo", "path": "/x", "value": 1},
        {"path": "/x"},
        {"op": "add", "path": 5, "value": 1},
        {"op": "add", "path": "/x", "value": float("nan")},
    ],
)
def test_what_does_not_fit_is_refused_whole(patch: Any) -> None:
    state: dict[str, Any] = {"n": 1, "l": []}
    with pytest.raises(InvalidInputError):
        apply(state, [{"op": "add", "path": "/l/-", "value": 1}, patch])
    assert state == {"n": 1, "l": []}


def test_paths_as_lists_become_pointers() -> None:
    internal: list[dict[str, Any]] = [
        {"op": "replace", "path": ["a/b", 0, "~"], "value": 1},
        {"op": "remove", "path": ["c"]},
    ]
    assert to_rfc6902(internal) == [
        {"op": "replace", "path": "/a~1b/0/~0", "value": 1},
        {"op": "remove", "path": "/c"},
    ]
    assert internal[0]["path"] == ["a/b", 0, "~"]


@pytest.mark.parametrize("parts", [[], [""], ["a", "b/c", "~", "~1", "-"]])
def test_pointers_and_back(parts: list[str]) -> None:
    assert parts_of(pointer(parts)) == parts


def test_a_pointer_starts_with_a_slash() -> None:
    with pytest.raises(InvalidInputError, match="pointer"):
        parts_of("a")


def test_jsonpatch_is_imported_only_when_patches_are_applied() -> None:
    code = "import sys, helix.core.tracker, helix.core.merge; sys.exit('jsonpatch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
