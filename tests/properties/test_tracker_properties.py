"""Patches lead to the state that they describe. Merging depends only on the call order, and on nothing if calls do not
overlap."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from helix.core.json import JsonObject
from helix.core.merge import merge_patches
from helix.core.patches import apply, diff, equals_json
from helix.core.tracker import create_state_tracker

KEYS = st.sampled_from(["a", "b", "a/b", "~", "~1", "", "-", "0", "é"])
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0, 0.5]) | st.text(max_size=3)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=12
)
STATES = st.dictionaries(KEYS, JSON, max_size=4)
MODES = st.sampled_from(["append_only", "full_replace"])


@st.composite
def changed(draw: st.DrawFn, state: dict[str, Any]) -> dict[str, Any]:
    """Return a state similar to `state`, because equal parts matter more than different ones."""
    state = copy.deepcopy(state)
    for _ in range(draw(st.integers(0, 4))):
        node: Any = state
        while isinstance(node, dict) and node:
            key = draw(st.sampled_from(sorted(node)))
            if not isinstance(node[key], dict | list) or draw(st.booleans()):
                break
            node = node[key]
        if isinstance(node, list):
            if node and draw(st.integers(0, 3)) == 0:
                node.pop(draw(st.integers(0, len(node) - 1)))
            else:
                node.append(draw(JSON))
        elif node and draw(st.integers(0, 3)) == 0:
            del node[draw(st.sampled_from(sorted(node)))]
        else:
            node[draw(KEYS)] = draw(JSON)
    return state


STEPS = STATES.flatmap(lambda state: st.tuples(st.just(state), changed(state), changed(state), changed(state)))


@given(STEPS, MODES)
def test_a_diff_leads_from_one_to_the_other(states: Any, mode: Any) -> None:
    before, after, *_ = states
    kept = copy.deepcopy(states)
    patches = diff(before, after, mode)
    assert equals_json(apply(before, patches), after)
    assert (patches == []) == equals_json(before, after)
    assert equals_json(list(states), list(kept))


@given(STATES, STATES, MODES)
def test_a_diff_of_strangers(before: Any, after: Any, mode: Any) -> None:
    assert equals_json(apply(before, diff(before, after, mode)), after)


@given(STEPS, MODES, st.integers(0, 3))
def test_a_tracker_accumulates(states: Any, mode: Any, reset: int) -> None:
    tracker = create_state_tracker(states[0], array_delta_mode=mode)
    base = tracker.to_json()
    for index, state in enumerate(states):
        if index == reset:
            base = tracker.to_json()
            tracker.reset_patches()

        def replace(draft: JsonObject, state: JsonObject = state) -> None:
            draft.clear()
            draft.update(copy.deepcopy(state))

        tracker.update(replace)
        assert equals_json(tracker.to_json(), state)
        assert equals_json(apply(base, tracker.get_patches()), tracker.to_json())


@given(STEPS, MODES)
def test_one_tool_merges_to_what_it_did(states: Any, mode: Any) -> None:
    before, after, *_ = states
    merged = merge_patches(before, [[], diff(before, after, mode), []], mode)
    assert equals_json(merged.state, after)
    assert merged.warnings == []


@settings(max_examples=200)
@given(STEPS, MODES)
def test_merging_is_a_function_of_the_call_order(states: Any, mode: Any) -> None:
    before, *afters = states
    changes: list[Any] = [diff(before, after, mode) for after in afters]
    kept = copy.deepcopy((before, changes))
    merged = merge_patches(before, changes, mode)
    again = merge_patches(copy.deepcopy(before), copy.deepcopy(changes), mode)
    assert merged == again and list(merged.state) == list(again.state)
    assert equals_json(apply(before, merged.patches), merged.state)
    assert equals_json([before, changes], list(kept))


@settings(max_examples=200)
@given(STEPS)
def test_calls_that_do_not_meet_commute(states: Any) -> None:
    """There is no warning and no list that two calls appended to, so the order does not matter."""
    before, *afters = states
    changes = [diff(before, after) for after in afters]
    merged = merge_patches(before, changes)
    appended = [{p["path"] for p in patches if p["op"] == "add"} for patches in changes]
    if merged.warnings or appended[0] & appended[1] or appended[0] & appended[2] or appended[1] & appended[2]:
        return
    assert equals_json(merge_patches(before, changes[::-1]).state, merged.state)
    one_by_one = before
    for patches in changes:
        one_by_one = apply(
            one_by_one, [p for p in patches if p["op"] != "remove" or _exists(one_by_one, str(p["path"]))]
        )
    assert equals_json(one_by_one, merged.state)


@given(st.lists(st.lists(JSON, max_size=3), max_size=4), st.lists(JSON, max_size=2))
def test_appends_concatenate_in_call_order(items: Any, base: Any) -> None:
    changes = [diff({"l": base}, {"l": base + added}) for added in items]
    merged = merge_patches({"l": base}, changes)
    assert equals_json(merged.state["l"], base + [item for added in items for item in added])
    assert merged.warnings == []


def _exists(state: Any, path: str) -> bool:
    try:
        apply(state, [{"op": "remove", "path": path}])
    except ValueError:
        return False
    return True
