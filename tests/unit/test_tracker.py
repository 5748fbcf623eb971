"""The state tracker: all or nothing, patches that lead there, nothing shared."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, assert_type

import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field

from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject
from helix.core.patches import apply
from helix.core.tracker import Draft, StateTracker, create_state_tracker


class Inner(BaseModel):
    tags: list[str] = Field(default_factory=list)


class Notes(BaseModel):
    notes: list[str] = Field(default_factory=list)
    count: int = 0
    inner: Inner = Field(default_factory=Inner)
    due: datetime | None = None


def test_update_gives_the_new_state_and_its_patches() -> None:
    tracker = StateTracker(Notes())

    def change(state: Notes) -> None:
        state.notes.append("a")
        state.count += 1

    assert tracker.update(change) == Notes(notes=["a"], count=1)
    assert tracker.get_patches() == [
        {"op": "add", "path": "/notes/-", "value": "a"},
        {"op": "replace", "path": "/count", "value": 1},
    ]
    assert tracker.to_json()["notes"] == ["a"]


def test_what_the_change_returns_is_ignored() -> None:
    tracker: StateTracker[dict[str, Any]] = create_state_tracker({"items": [1]})
    assert tracker.update(lambda s: s["items"].pop()) == {"items": []}
    assert tracker.update(lambda s: {"thrown": "away"}) == {"items": []}


def test_an_exception_changes_nothing() -> None:
    tracker = StateTracker(Notes())

    def change(state: Notes) -> None:
        state.notes.append("a")
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        tracker.update(change)
    with pytest.raises(LookupError), tracker.draft() as state:
        change(state)
    assert tracker.get_state() == Notes()
    assert tracker.get_patches() == []


@pytest.mark.parametrize("value", ["many", object(), float("nan"), [1]])
def test_an_invalid_state_changes_nothing_and_names_the_field(value: object) -> None:
    tracker = StateTracker(Notes())
    with pytest.raises(InvalidInputError, match="count"):
        tracker.update(lambda s: setattr(s, "count", value))
    assert tracker.get_patches() == [] and tracker.get_state() == Notes()


def test_a_nested_problem_is_named_by_its_path() -> None:
    tracker = StateTracker(Notes())
    with pytest.raises(InvalidInputError, match=r"inner\.tags\.0"):
        tracker.update(lambda s: s.inner.tags.append(1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (datetime.now(UTC), "'/x/0'.*datetime is not JSON"),
        ({1: 2}, "key 1 is no string"),
        (float("inf"), "inf is not JSON"),
        ("\ud800", "lone surrogate"),
        ({1, 2}, "set is not JSON"),
    ],
)
def test_a_plain_state_takes_json_only(value: object, words: str) -> None:
    tracker = create_state_tracker({"x": []})
    with pytest.raises(InvalidInputError, match=words):
        tracker.update(lambda s: s["x"].append(value))  # type: ignore[union-attr,arg-type]
    assert tracker.to_json() == {"x": []}


def test_a_state_that_contains_itself_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="contains itself"):
        create_state_tracker({}).update(lambda s: s.update(s=s))


def test_tuples_become_lists() -> None:
    tracker: StateTracker[dict[str, Any]] = create_state_tracker({})
    assert tracker.update(lambda s: s.update(x=(1, (2,)))) == {"x": [1, [2]]}


def test_nothing_is_shared() -> None:
    given: JsonObject = {"a": [1]}
    tracker = create_state_tracker(given)
    given["a"].append(2)  # type: ignore[union-attr]
    tracker.get_state()["a"].append(3)  # type: ignore[union-attr]
    tracker.to_json()["a"].append(4)  # type: ignore[union-attr]
    kept: list[JsonObject] = []
    tracker.update(lambda s: kept.append(s))
    kept[0]["a"].append(5)  # type: ignore[union-attr]
    tracker.update(lambda s: s.update(b=[6]))
    tracker.get_patches()[0]["value"].append(7)  # type: ignore[union-attr]
    assert tracker.to_json() == {"a": [1], "b": [6]}


def test_append_only_falls_back_to_the_whole_list() -> None:
    tracker: StateTracker[dict[str, Any]] = create_state_tracker({"x": [1, 2]})
    tracker.update(lambda s: s["x"].insert(0, 0))
    assert tracker.get_patches() == [{"op": "replace", "path": "/x", "value": [0, 1, 2]}]


def test_full_replace() -> None:
    tracker: StateTracker[dict[str, Any]] = create_state_tracker({"x": [1]}, array_delta_mode="full_replace")
    tracker.update(lambda s: s["x"].append(2))
    assert tracker.get_patches() == [{"op": "replace", "path": "/x", "value": [1, 2]}]


def test_patches_accumulate_compactly_until_the_reset() -> None:
    tracker: StateTracker[dict[str, Any]] = create_state_tracker({"n": 0, "x": []})
    tracker.update(lambda s: s.update(n=1))
    tracker.update(lambda s: s.update(n=2))
    tracker.update(lambda s: s["x"].append("a"))
    assert len(tracker.get_patches()) == 2
    tracker.reset_patches()
    assert tracker.get_patches() == []
    tracker.update(lambda s: s["x"].append("b"))
    assert tracker.get_patches() == [{"op": "add", "path": "/x/-", "value": "b"}]
    tracker.update(lambda s: s["x"].pop())
    assert tracker.get_patches() == []


def test_an_async_change_is_refused() -> None:
    async def change(state: JsonObject) -> None:
        state["a"] = 1

    with pytest.raises(InvalidInputError, match="plain function"):
        create_state_tracker({}).update(change)


def test_drafts_do_not_overlap_silently() -> None:
    tracker = create_state_tracker({"n": 0})
    with pytest.raises(InvalidInputError, match="one draft at a time"), tracker.draft() as state:
        state["n"] = 1
        tracker.update(lambda s: s.update(n=2))
    assert tracker.to_json() == {"n": 2}


def test_dates_aliases_and_computed_fields() -> None:
    class State(BaseModel):
        model_config = ConfigDict(extra="forbid")
        due: datetime | None = None
        user_id: int = Field(default=1, alias="userId")

        @computed_field  # type: ignore[prop-decorator]
        @property
        def twice(self) -> int:
            return self.user_id * 2

    tracker = StateTracker(State())
    due = datetime(2026, 1, 2, tzinfo=UTC)
    assert tracker.update(lambda s: setattr(s, "due", due)).due == due
    assert tracker.to_json() == {"due": "2026-01-02T00:00:00Z", "user_id": 1}
    assert StateTracker({"userId": 5}, schema=State).get_state().user_id == 5


def test_strict_schemas_work() -> None:
    class State(BaseModel):
        model_config = ConfigDict(strict=True)
        due: datetime | None = None

    tracker = StateTracker(State())
    tracker.update(lambda s: setattr(s, "due", datetime(2026, 1, 2)))
    with pytest.raises(InvalidInputError, match="due"):
        tracker.update(lambda s: setattr(s, "due", 5))


def test_a_field_that_a_newer_schema_added_comes_with_the_first_change() -> None:
    stored: JsonObject = {"notes": ["a"], "count": 1}
    tracker = StateTracker(stored, schema=Notes)
    assert tracker.get_patches() == []
    tracker.update(lambda s: setattr(s, "count", 2))
    assert apply(stored, tracker.get_patches()) == tracker.to_json()
    assert tracker.to_json()["inner"] == {"tags": []}


@pytest.mark.parametrize("initial", [[], "x", None, 1])
def test_state_is_an_object(initial: object) -> None:
    with pytest.raises(InvalidInputError, match="state is a JSON object"):
        StateTracker(initial)


def test_an_initial_state_that_the_schema_refuses() -> None:
    with pytest.raises(InvalidInputError, match="Notes: count"):
        StateTracker({"count": "x"}, schema=Notes)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="append_only"):
        create_state_tracker({}, array_delta_mode="patch")  # type: ignore[call-overload]


def test_types() -> None:
    assert_type(create_state_tracker(Notes()), StateTracker[Notes])
    assert_type(create_state_tracker({}, schema=Notes), StateTracker[Notes])
    assert_type(create_state_tracker({}), StateTracker[JsonObject])
    assert_type(StateTracker({}, schema=Notes).get_state(), Notes)
    draft: Draft[Notes] = Notes()
    assert_type(draft, Notes)
