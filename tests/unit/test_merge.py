"""Merging the changes of parallel tools to one state."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from helix.core.errors import InvalidInputError
from helix.core.merge import MergeChanges, merge_custom_state, merge_patches
from helix.core.patches import apply
from helix.core.tracker import StateTracker, create_state_tracker

BASE: dict[str, Any] = {"n": 0, "notes": ["a"], "o": {"x": 1, "deep": {"tags": []}}}


def add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def put(path: str, value: Any) -> dict[str, Any]:
    return {"op": "replace", "path": path, "value": value}


def gone(path: str) -> dict[str, Any]:
    return {"op": "remove", "path": path}


CASES: dict[str, tuple[list[list[dict[str, Any]]], dict[str, Any], list[str]]] = {
    "nobody": ([], {}, []),
    "nothing": ([[], []], {}, []),
    "appends in call order": (
        [[add("/notes/-", 1), add("/notes/-", 2)], [add("/notes/-", 3)]],
        {"notes": ["a", 1, 2, 3]},
        [],
    ),
    "different members": ([[put("/n", 1)], [add("/m", 2)]], {"n": 1, "m": 2}, []),
    "nested members": (
        [[put("/o/x", 2)], [add("/o/deep/tags/-", 1)], [add("/o/y", 3)]],
        {"o": {"x": 2, "y": 3, "deep": {"tags": [1]}}},
        [],
    ),
    "the same member": ([[put("/n", 1)], [], [put("/n", 1)]], {"n": 1}, ["/n: calls 0, 2 changed it; call 2 holds"]),
    "replace, then append": (
        [[put("/notes", [9])], [add("/notes/-", 1)]],
        {"notes": [9]},
        ["/notes: calls 0, 1 changed it; call 0 replaced it"],
    ),
    "append, then replace": (
        [[add("/notes/-", 1)], [put("/notes", ["a", 9])]],
        {"notes": ["a", 9]},
        ["/notes: calls 0, 1 changed it; call 1 replaced it"],
    ),
    "two replacements and an append": (
        [[put("/notes", [8])], [add("/notes/-", 1)], [put("/notes", [9])]],
        {"notes": [9]},
        ["/notes: calls 0, 1, 2 changed it; call 2 replaced it"],
    ),
    "remove and append": (
        [[gone("/notes")], [add("/notes/-", 1)]],
        {"notes": None},
        ["/notes: calls 0, 1 changed it; call 0 removed it"],
    ),
    "remove twice": ([[gone("/n")], [gone("/n")]], {"n": None}, []),
    "remove and write": ([[gone("/n")], [put("/n", 5)]], {"n": 5}, ["/n: calls 0, 1 changed it; call 1 holds"]),
    "the whole and a part": (
        [[put("/o", 5)], [put("/o/x", 2)]],
        {"o": 5},
        ["/o: calls 0, 1 changed it; call 0 replaced it"],
    ),
    "a part and the whole": (
        [[put("/o/x", 2)], [gone("/o")]],
        {"o": None},
        ["/o: calls 0, 1 changed it; call 1 removed it"],
    ),
    "a new object filled by both": (
        [[add("/new", {"a": 1, "c": [1]})], [add("/new", {"b": 2, "c": [2]})]],
        {"new": {"a": 1, "b": 2, "c": [1, 2]}},
        [],
    ),
    "a new object and a new scalar": (
        [[add("/new", {"a": 1})], [add("/new", 1)]],
        {"new": 1},
        ["/new: calls 0, 1 changed it; call 1 holds"],
    ),
    "indexes into lists": ([[add("/notes/0", 0)], [put("/n", 1)]], {"notes": [0, "a"], "n": 1}, []),
    "an index and an append": (
        [[put("/notes/0", "b")], [add("/notes/-", 1)]],
        {"notes": ["b"]},
        ["/notes: calls 0, 1 changed it; call 0 replaced it"],
    ),
    "two writes of one call": ([[put("/n", 1), put("/n", 2)]], {"n": 2}, []),
    "a write into what the call made": (
        [[add("/new", {}), add("/new/a", [1]), add("/new/a/-", 2)]],
        {"new": {"a": [1, 2]}},
        [],
    ),
    "a move": ([[{"op": "move", "from": "/n", "path": "/m"}]], {"n": None, "m": 0}, []),
}


@pytest.mark.parametrize("case", CASES)
def test_merge(case: str) -> None:
    changes, expected, warnings = CASES[case]
    base, given = deepcopy(BASE), deepcopy(changes)
    merged = merge_patches(base, changes)
    wanted = {key: value for key, value in {**BASE, **expected}.items() if value is not None}
    assert merged.state == wanted
    assert merged.warnings == warnings
    assert apply(base, merged.patches) == wanted
    assert (base, changes) == (BASE, given)


def test_full_replace_lists_collide() -> None:
    merged = merge_patches(BASE, [[put("/notes", ["a", 1])], [put("/notes", ["a", 2])]], "full_replace")
    assert merged.state["notes"] == ["a", 2] and len(merged.warnings) == 1
    merged = merge_patches({}, [[add("/l", [1])], [add("/l", [2])]], "full_replace")
    assert merged.state == {"l": [2]} and len(merged.warnings) == 1


def test_result_shares_nothing_with_the_changes() -> None:
    value: list[Any] = []
    merged = merge_patches({}, [[add("/l", value)]])
    merged.state["l"].append(1)  # type: ignore[union-attr]
    assert value == []


def test_what_trackers_recorded_merges() -> None:
    tools: list[StateTracker[dict[str, Any]]] = [create_state_tracker(BASE) for _ in range(3)]
    for number, tracker in enumerate(tools):

        def note(s: dict[str, Any], number: int = number) -> None:
            s["notes"].append(number)
            s["o"].update({f"k{number}": number})

        tracker.update(note)
    merged = merge_patches(BASE, [tracker.get_patches() for tracker in tools])
    assert merged.state["notes"] == ["a", 0, 1, 2]
    assert merged.state["o"] == {**BASE["o"], "k0": 0, "k1": 1, "k2": 2}
    assert merged.warnings == []


@pytest.mark.parametrize("patch", [gone("/nope"), put("/nope", 1), add("/n/x", 1), {"op": "add"}, add("n", 1), "junk"])
def test_patches_that_do_not_fit_name_their_call(patch: Any) -> None:
    with pytest.raises(InvalidInputError, match="call 1:"):
        merge_patches(BASE, [[], [patch]])


def test_merge_changes_as_an_object() -> None:
    changes = MergeChanges(values={"notes": ["b"], "n": 2, "new": [1]}, warnings=["careful"])
    merged = merge_custom_state(BASE, changes)
    assert merged.state == {**BASE, "notes": ["a", "b"], "n": 2, "new": [1]}
    assert merged.warnings == ["careful"]
    assert apply(BASE, merged.patches) == merged.state
    replaced = merge_custom_state(BASE, MergeChanges(values={"notes": ["b"]}, array_replacements=["notes"]))
    assert replaced.state["notes"] == ["b"]
