"""The comparison of two runs: the alignment of their steps, the words of their answers, and their states."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix.core.alignment import CELLS, align, compare_texts
from helix.core.comparison import MOST_CHANGES, MOST_TEXT, ComparedStep, Comparison, Side, compare_sides
from helix.core.entries import AnyEntry, AssistantRow, CallRow, UserRow
from helix.core.messages import EditedArguments, ToolCallRequest
from helix.core.usage import Usage


def asked(text: str, at: float = 100.0) -> UserRow:
    return UserRow(content=text, run_id="r", created_at=at)


def answer(
    step: int, text: str | None = None, *calls: tuple[str, Any, str], at: float = 0.0, **more: Any
) -> list[AnyEntry]:
    requests = [
        ToolCallRequest(id=f"c{step}.{n}", name=name, arguments=args) for n, (name, args, _) in enumerate(calls)
    ]
    row = AssistantRow(
        run_id="r", step=step, attempt_id="a", content=text, tool_calls=requests, created_at=at or 100.0 + step, **more
    )
    rows = [
        CallRow(
            call_id=request.id, tool_name=request.name, step=step, state="done", content=result, success=True,
            ended_at=row.created_at + 0.5, usage=Usage(cost_micros=1),
        )
        for request, (_, _, result) in zip(requests, calls, strict=True)
    ]  # fmt: skip
    return [row, *rows]


def side(*entries: AnyEntry, state: dict[str, Any] | None = None) -> Side:
    return Side("s", None, "helper", "completed", entries, state or {})


def number(step: ComparedStep | None) -> int | None:
    return step.step if step is not None else None


def shape(found: Comparison) -> list[tuple[int | None, int | None, str]]:
    return [(number(pair.left), number(pair.right), " ".join(pair.differs)) for pair in found.steps]


LOOK = ("look", {"at": "A7"}, "seen")


def test_steps_are_aligned_by_their_calls_and_each_difference_has_its_name() -> None:
    left = side(
        asked("Look."), *answer(1, None, LOOK), *answer(2, None, ("refund", {"amount": 3}, "ok")), *answer(3, "Done.")
    )
    right = side(
        asked("Look."), *answer(1, None, LOOK), *answer(2, None, ("check", {}, "fine")),
        *answer(3, None, ("refund", {"amount": 5}, "ok")), *answer(4, "All done."),
    )  # fmt: skip
    found = compare_sides(left, right)
    assert shape(found) == [(1, 1, ""), (None, 2, ""), (2, 3, "calls"), (3, 4, "text")]
    assert found.first_difference == 1
    assert [(p.kind, p.text) for p in found.answer] == [
        ("removed", "Done"), ("added", "All done"), ("same", "."),
    ]  # fmt: skip
    assert [(p.kind, p.text) for p in found.input] == [("same", "Look.")]


def test_a_step_differs_by_its_message_result_or_model() -> None:
    left = side(asked("A"), *answer(1, "x", LOOK, model="m1"), asked("B"), *answer(2, "y"))
    right = side(asked("A"), *answer(1, "x", ("look", {"at": "A7"}, "gone"), model="m2"), asked("C"), *answer(2, "y"))
    assert shape(compare_sides(left, right)) == [(1, 1, "results model"), (2, 2, "message")]


def test_the_same_run_has_no_difference() -> None:
    one = side(asked("A"), *answer(1, None, LOOK), *answer(2, "y"), state={"n": [1]})
    found = compare_sides(one, one)
    assert found.first_difference is None and found.state == [] and all(pair.is_same for pair in found.steps)


def test_time_cost_and_models_are_those_of_the_steps() -> None:
    usage = Usage(prompt_tokens=10, completion_tokens=2, cost_micros=7)
    left = side(
        asked("A", 100), *answer(1, None, LOOK, at=102, usage=usage, model="m1"), *answer(2, "y", at=103, model="m2"),
        asked("B", 500), *answer(3, "z", at=504, model="m1"),
    )  # fmt: skip
    found = compare_sides(left, side()).left
    assert (found.steps, found.models) == (3, ["m1", "m2"]) and found.seconds == pytest.approx(2.5 + 0.5 + 4)
    assert (found.usage.prompt_tokens, found.usage.cost_micros) == (10, 8)
    assert compare_sides(side(), side()).first_difference is None


def test_edited_arguments_and_structured_output_are_compared() -> None:
    row, call = answer(1, None, ("refund", {"amount": 9}, "ok"))
    assert isinstance(call, CallRow)
    edited = call.model_copy(update={"edited": EditedArguments(by="ada", arguments={"amount": 5})})
    found = compare_sides(
        side(row, edited, *answer(2, None, finish={"output": {"n": 1}})), side(row, call, *answer(2, None))
    )
    assert found.steps[0].left is not None and found.steps[0].left.calls[0].arguments == '{"amount":5}'
    assert found.steps[0].left.calls[0].edited and found.steps[0].differs == ["calls"]
    assert [(p.kind, p.text) for p in found.answer] == [("removed", '{"n":1}')]


def test_long_texts_are_compared_whole_and_cut_afterwards() -> None:
    long = "x" * MOST_TEXT
    found = compare_sides(side(*answer(1, long + "a")), side(*answer(1, long + "b")))
    step = found.steps[0].left
    assert found.steps[0].differs == ["text"] and step is not None and len(step.text) == MOST_TEXT


def test_a_comparison_of_long_runs_is_bounded() -> None:
    """Whatever the texts of a step and the values of a state are, the reply fits into a response of 6 MB."""
    entries = [row for n in range(1, 401) for row in answer(n, "x" * 5_000, ("look", {"q": "y" * 5_000}, "z" * 5_000))]
    side = Side("a", None, "helper", "completed", [asked("Hello"), *entries], {"notes": "n" * 3_000_000})
    found = compare_sides(side, Side("b", None, "helper", "completed", side.entries, {"notes": ""}))
    assert len(found.steps) == 400 and found.first_difference is None
    assert sum(len(step.text) + len(step.calls[0].result) for pair in found.steps if (step := pair.left)) > 200_000
    assert len(found.model_dump_json()) < 2_000_000
    (place,) = found.state
    assert place.right == "" and str(place.left).startswith('"nnn') and len(str(place.left)) == MOST_TEXT


def test_states_differ_at_places() -> None:
    left = {"a": {"b": 1, "c": True}, "list": [1, 2], "kind": {}}
    right = {"a": {"b": 2, "c": 1}, "list": [1, 2, 3], "kind": [], "new": None}
    found = compare_sides(side(state=left), side(state=right))
    assert [(one.path, one.only, one.left, one.right) for one in found.state] == [
        (["a", "b"], None, 1, 2),
        (["a", "c"], None, True, 1),
        (["list", "2"], "right", None, 3),
        (["kind"], None, {}, []),
        (["new"], "right", None, None),
    ]
    many = compare_sides(side(state={str(n): n for n in range(MOST_CHANGES + 1)}), side())
    assert len(many.state) == MOST_CHANGES and many.more_state


@given(st.text(alphabet="ab \n", max_size=40), st.text(alphabet="ab \n", max_size=40))
def test_the_pieces_make_up_both_texts(before: str, after: str) -> None:
    pieces = compare_texts(before, after)
    assert "".join(p.text for p in pieces if p.kind != "added") == before
    assert "".join(p.text for p in pieces if p.kind != "removed") == after
    if before == after:
        assert all(p.kind == "same" for p in pieces)


@given(st.lists(st.integers(0, 3), max_size=9), st.lists(st.integers(0, 3), max_size=9))
def test_an_alignment_has_each_element_once_and_in_order(left: list[int], right: list[int]) -> None:
    pairs = align(left, right, lambda one, other: int(one == other))
    assert pairs is not None
    assert [i for i, _ in pairs if i is not None] == list(range(len(left)))
    assert [j for _, j in pairs if j is not None] == list(range(len(right)))
    assert all(left[i] == right[j] for i, j in pairs if i is not None and j is not None)


def test_hostile_texts_and_long_runs_take_bounded_time() -> None:
    began = time.monotonic()
    pieces = compare_texts("a b " * 5_000, "a c " * 5_000)
    assert [p.kind for p in pieces] == ["removed", "added", "same"] and pieces[-1].text == " "
    assert align([0] * 600, [1] * 600, lambda one, other: 1) is None and CELLS < 600 * 600
    left = side(*(row for n in range(1, 700) for row in answer(n, f"left {n}")))
    right = side(*(row for n in range(1, 650) for row in answer(n, f"right {n}")))
    found = compare_sides(left, right)
    assert len(found.steps) == 699 and found.steps[-1].right is None
    assert time.monotonic() - began < 20
