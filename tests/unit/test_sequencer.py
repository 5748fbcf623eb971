"""The sequencer's rules one by one, and proof that the invariants detect a missing rule."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest
from tests.support_sequencer import MUTANTS, World, mutant, project, violation

from helix.core.sequencer import MAX_ENDED_CHILDREN, Head, StreamRecord, admit
from helix.core.wire import StreamMessage


@cache
def worlds() -> list[World]:
    made = [World(Random(seed)) for seed in range(120)]
    for world in made:
        world.run(80)
    return made


@pytest.mark.parametrize("rule", MUTANTS)
def test_without_a_rule_an_invariant_breaks(rule: str) -> None:
    broken = mutant(*MUTANTS[rule])
    assert any(violation(world, project(world, broken)) for world in worlds())


def test_with_all_rules_none_breaks() -> None:
    assert [problem for world in worlds() if (problem := violation(world, project(world)))] == []


# --- single rules ----------------------------------------------------------------------------------------------------


def record(kind: Any, text: str | None = None, *, session: str = "s", turn: int = 1, **fields: Any) -> StreamRecord:
    if kind in ("started", "end", "fail", "paused"):
        kind, fields["mark"] = "run", kind
    if kind == "committed":
        kind, fields["mark"], text = "attempt", "committed", text or "<commit>"
    chunks = [{"type": text}] if text else []
    return StreamRecord(session_id=session, run_id=f"r{turn}", turn=turn, kind=kind, chunks=chunks, time=5.0, **fields)


def shown(messages: list[StreamMessage]) -> list[str]:
    return [str((message.chunk or {}).get("type", message.kind)) for message in messages]


def stream(*records: StreamRecord) -> list[str]:
    return shown(admit("s", Head(), records)[1])


START = record("started")


def text(t: str, n: int, step: int = 1, attempt: int = 1, **fields: Any) -> StreamRecord:
    return record("attempt", t, n=n, step=step, attempt=attempt, **fields)


def commit(n: int = 0, step: int = 1, attempt: int = 1, **fields: Any) -> StreamRecord:
    return record("committed", n=n, step=step, attempt=attempt, **fields)


def test_the_arguments_are_not_changed() -> None:
    head = Head()
    after, _ = admit("s", head, [START, text("a", 0)])
    before = after.model_copy(deep=True)
    admit("s", after, [text("b", 1), record("end")])
    assert head == Head() and after == before


def test_a_newer_attempt_takes_back_the_older() -> None:
    got = stream(START, text("a", 0), text("b", 0, attempt=2), text("a2", 1), commit(1, attempt=2))
    assert got == ["a", "step_discarded", "b", "<commit>"]


def test_another_workers_mark_commits_once() -> None:
    assert stream(START, text("a", 0), text("b", 1), commit(0), commit(2), text("c", 3)) == ["a", "b", "<commit>"]


def test_a_hole_in_the_numbers_is_said() -> None:
    assert stream(START, text("a", 0), text("c", 2), commit(3)) == ["a", "stream_resync", "c", "<commit>"]
    assert stream(START, text("b", 1)) == ["stream_resync", "b"]


def test_a_hole_before_the_commit_is_said_before_it() -> None:
    assert stream(START, text("a", 0), commit(2)) == ["a", "stream_resync", "<commit>"]


def test_a_hole_in_a_call_is_said() -> None:
    call: dict[str, Any] = {"step": 1, "attempt": 1, "call_id": "c"}
    got = stream(
        START, record("call", "tool_start", n=0, **call), record("call", "tool_end", n=2, mark="committed", **call)
    )
    assert got == ["tool_start", "stream_resync", "tool_end"]


def test_the_end_of_a_call_may_be_told_by_another_worker() -> None:
    call: dict[str, Any] = {"step": 1, "attempt": 1, "call_id": "c"}
    start = [record("call", "tool_start", n=0, **call), record("call", "custom", n=1, **call)]
    end, own = (record("call", "tool_end", n=n, mark="committed", **call) for n in (0, 2))
    assert stream(START, *start, end, own, start[1]) == ["tool_start", "custom", "tool_end"]
    assert stream(START, *start, own, end) == ["tool_start", "custom", "tool_end"]
    assert stream(START, end) == ["tool_end"]


def test_a_late_record_of_a_call_whose_step_is_over_is_dropped() -> None:
    start = record("call", "tool_start", n=0, step=1, attempt=1, call_id="c")
    end = record("call", "tool_end", n=1, step=1, attempt=1, call_id="c", mark="committed")
    got = stream(START, commit(0), start, end, text("next", 0, step=2), start, end)
    assert got == ["<commit>", "tool_start", "tool_end", "next"]


def test_a_start_that_adopts_the_step_remembers_its_calls() -> None:
    call: dict[str, Any] = {"step": 1, "call_id": "c", "attempt": 1}
    first = [
        START,
        commit(0),
        record("call", "tool_end", n=0, mark="committed", **call),
        record("paused", status="paused"),
    ]
    again = record("call", "tool_end", turn=2, n=0, mark="committed", **{**call, "attempt": 2})
    assert stream(*first, record("started", turn=2, last=(1, 1)), again) == ["<commit>", "tool_end", "paused"]


@pytest.mark.parametrize(
    ("last", "mark"), [((1, 1), "step_committed"), (None, "step_discarded"), ((1, 2), "step_discarded")]
)
@pytest.mark.parametrize("closing", ["end", "started"])
def test_starts_and_ends_settle_what_is_open(last: Any, mark: str, closing: str) -> None:
    after = record("end", last=last) if closing == "end" else record("started", turn=2, last=last)
    assert stream(START, text("a", 0), after)[:2] == ["a", mark]


def test_settling_speaks_for_the_run_that_it_closes() -> None:
    _, messages = admit("s", Head(), [START, text("a", 0), record("started", "run_resumed", turn=2, last=(1, 1))])
    assert [(m.turn, m.run_id) for m in messages] == [(1, "r1"), (1, "r1"), (2, "r2")]
    assert messages[1].parsed().run_id == "r1"


def test_a_late_end_ends_nobody() -> None:
    got = stream(START, record("started", turn=2), text("b", 0, turn=2), record("end"), text("c", 1, turn=2))
    assert got == ["b", "c"]


def test_the_first_end_stands() -> None:
    assert stream(START, record("fail", status="failed"), record("end", status="completed"), text("a", 0)) == ["fail"]


def test_a_child_ends_alone() -> None:
    child = record("started", session="c")
    head, messages = admit("s", Head(), [START, child, record("end", session="c"), text("a", 0)])
    assert shown(messages) == ["end", "a"] and head.root == "s"
    assert not head.sessions["s"].over and head.sessions["c"].over


def test_the_root_is_the_first_session_at_any_time_of_day() -> None:
    zero = [r.model_copy(update={"time": 0.0}) for r in (START, record("started", session="c"))]
    assert admit("s", Head(), zero)[0].root == "s"


def test_a_message_for_a_run_that_has_not_begun_begins_nothing() -> None:
    """A message arrives between the claim of a run and its first record."""
    staged = [START, text("a", 0), record("committed", step=1, attempt=1, n=1)]
    waits = record("inbox", "waits", turn=2)
    paused = record("paused", last=(1, 1))
    begins = record("started", "resumed", turn=2, last=(1, 1))
    repeated = record("committed", turn=2, step=1, attempt=1)
    assert stream(*staged, paused, waits, begins, repeated) == ["a", "<commit>", "paused", "waits", "resumed"]
    assert stream(*staged, waits, paused, begins, waits) == ["a", "<commit>", "paused", "resumed", "waits"]


def test_a_fold_is_shown_once_per_version() -> None:
    fold = record("fold", "state_patch", version=3, step=1)
    older = record("fold", "state_patch", version=2, step=1)
    assert stream(START, fold, fold, older, record("fold", "state_patch", version=4, step=2)) == ["state_patch"] * 2


def test_the_head_does_not_grow_for_ever() -> None:
    head = Head()
    for number in range(MAX_ENDED_CHILDREN * 2):
        name = f"c{number}"
        head, _ = admit("s", head, [START, record("started", session=name), record("end", session=name)])
    assert len(head.sessions) == MAX_ENDED_CHILDREN + 1 and "s" in head.sessions


def test_an_end_carries_status_and_error() -> None:
    (end,) = admit("s", Head(), [START, record("fail", status="failed", error="boom")])[1]
    assert (end.kind, end.status, end.error, end.turn, end.sequence) == ("fail", "failed", "boom", 1, 1)
