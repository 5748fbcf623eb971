"""The checker of sessions detects every way of spoiling a sound session and names the violated property."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.journal import Journal
from tests.support_crash import GATED_SCRIPT, LOG, SINK, asked, executor, lead, model

from helix import Confirmation, MemoryStateStore
from helix.core.json import dumps
from helix.ports.state_store import Delete, Key, Put
from helix.services.segments import SegmentStreams
from helix.testing.crash import Crash, CrashPoints
from helix.testing.invariants import InvariantViolation, check_session, find_problems

S = "ses"
Rows = dict[str, dict[str, Any]]


def session(**changes: Any) -> Callable[[Rows], None]:
    def spoil(rows: Rows) -> None:
        rows["session"].update(changes)

    return spoil


def first(rows: Rows, prefix: str, **like: Any) -> dict[str, Any]:
    return next(v for k, v in sorted(rows.items()) if k.startswith(prefix) and like.items() <= v.items())


def drop(prefix: str, **like: Any) -> Callable[[Rows], None]:
    def spoil(rows: Rows) -> None:
        del rows[next(k for k, v in sorted(rows.items()) if k.startswith(prefix) and like.items() <= v.items())]

    return spoil


def change(prefix: str, like: dict[str, Any], **changes: Any) -> Callable[[Rows], None]:
    def spoil(rows: Rows) -> None:
        first(rows, prefix, **like).update(changes)

    return spoil


def another_run(rows: Rows) -> None:
    sort = next(sort for sort in sorted(rows) if sort.startswith("r#"))
    rows[sort + "X"] = copy.deepcopy(rows[sort])


def beyond(rows: Rows) -> None:
    rows["m#000000#00000999"] = copy.deepcopy(first(rows, "m#", kind="assistant"))


FORGED = {"kind": "image", "media_type": "image/png", "url": "https://example.com/forged.png"}


def another_output(rows: Rows) -> None:
    first(rows, "m#", content="that is it")["tool_calls"][0]["arguments"]["summary"] = "forged"


SPOILT: list[tuple[str, Callable[[Rows], None]]] = [
    ("legal_transitions", session(status="paused")),
    ("legal_transitions", session(status="odd")),
    ("legal_transitions", change("r#", {}, status="running")),
    ("one_winner_per_claim", another_run),
    ("one_winner_per_claim", session(turn=7)),
    ("effects_once", change("r#", {}, effects="open")),
    ("effects_once", session(lease_owner="worker")),
    ("never_stuck", session(status="running")),
    ("checkpoint_forever", drop("m#", kind="user")),
    ("checkpoint_forever", drop("c#")),
    ("checkpoint_forever", drop("m#", kind="call")),
    ("pairs_whole", change("m#", {"kind": "call"}, state="claimed")),
    ("pairs_whole", change("m#", {"kind": "call"}, call_id="other")),
    ("one_answer_per_step", change("m#", {"kind": "assistant"}, step=5)),
    ("answer_fits_history", session(step=1)),
    ("answer_fits_history", change("c#", {"step": 1}, state={"seen": ["forged"], "total": 0})),
    ("zombie_invisible", beyond),
    ("zombie_invisible", change("m#", {"kind": "assistant"}, run_id="run_of_nobody")),
    ("final_is_committed", change("m#", {"kind": "assistant"}, content="forged")),
    ("final_is_committed: step 5, attempt 1 has the output", another_output),
    ("result_immutable", change("m#", {"kind": "call"}, content="forged")),
    ("result_immutable", change("m#", {"kind": "call"}, by="nobody")),
    ("result_immutable", change("m#", {"kind": "call"}, files=[FORGED])),
    ("told_once", change("m#", {"by": "child"}, success=False)),
    ("no_answer_lost", session(pending=[{"call_id": "call_0", "tool_name": "look"}])),
]


async def sound() -> MemoryStateStore:
    SINK[0] = LOG.append
    store = MemoryStateStore()
    workers = executor(store, SegmentStreams(store), model())
    await (await workers.execute(lead, "begin", session_id=S)).result()
    await check_session(store, SegmentStreams(store), S, at_rest=True)
    return store


async def spoil(store: MemoryStateStore, spoiling: Callable[[Rows], None]) -> None:
    rows = {row.key.sort: row.value for row in await store.query("sessions", S)}
    before = {sort: dumps(value) for sort, value in rows.items()}
    spoiling(rows)
    for sort, value in rows.items():
        if before.get(sort) != dumps(value):
            await store.transact("spoil", [Put(Key("sessions", S, sort), value)])
    for sort in set(before) - set(rows):
        await store.transact("spoil", [Delete(Key("sessions", S, sort))])


@pytest.mark.parametrize(("law", "spoiling"), SPOILT)
async def test_a_spoilt_session_is_found(law: str, spoiling: Callable[[Rows], None]) -> None:
    store = await sound()
    await spoil(store, spoiling)
    problems = await find_problems(store, SegmentStreams(store), S, at_rest=True)
    assert any(law in problem for problem in problems), problems
    with pytest.raises(InvariantViolation, match=law):
        await check_session(store, SegmentStreams(store), S, at_rest=True)


async def test_a_spoilt_stream_is_found() -> None:
    store = await sound()
    rows = await store.query("streams", S)
    for row, law in [(rows[1], "stream_gapless"), (rows[-1], "end_truthful")]:
        await store.transact("spoil", [Delete(row.key)])
        assert any(law in problem for problem in await find_problems(store, SegmentStreams(store), S, at_rest=True))
        await store.transact("mend", [Put(row.key, row.value)])


async def test_a_paused_session_waits_for_what_is_asked() -> None:
    SINK[0] = LOG.append
    store = MemoryStateStore()
    workers = executor(store, SegmentStreams(store), model(lead=GATED_SCRIPT))
    await (await workers.execute(lead, "begin", session_id=S)).result()
    await check_session(store, workers.streams, S, at_rest=True)
    await spoil(store, change("m#", {"state": "asked"}, state="approved"))
    assert any("no_answer_lost" in problem for problem in await find_problems(store, workers.streams, S))
    await spoil(store, change("m#", {"state": "approved"}, state="asked"))
    call_id = await asked(store, S)
    assert call_id is not None
    answer = Confirmation(call_id)
    await (await workers.resume(lead, S, mode="with_confirmation", confirmation=answer)).result()
    await check_session(store, workers.streams, S, at_rest=True)


@pytest.mark.parametrize(
    ("law", "spoiling"),
    [
        ("staged_answer_immutable", change("m#", {"kind": "assistant"}, stop_reason="forged")),
        ("checkpoint_forever", change("c#", {}, created_at=1.0)),
        ("checkpoint_forever", drop("c#")),
        ("effects_once", change("r#", {}, effects="open")),
        ("legal_transitions", change("r#", {}, status="failed")),
        ("one_winner_per_claim", session(version=1)),
    ],
)
async def test_the_journal_finds_what_changed(law: str, spoiling: Callable[[Rows], None]) -> None:
    store, journal = await sound(), Journal()
    await journal.check(store, SegmentStreams(store), S)
    await spoil(store, spoiling)
    problems = await journal.look(store, SegmentStreams(store), S)
    assert any(law in problem for problem in problems), problems


async def test_a_crash_is_total() -> None:
    """After a crash, nothing of the dead process reaches the store, including what runs in other tasks."""
    store, key = MemoryStateStore(), Key("sessions", "p", "s")
    points = CrashPoints(("transact:write:after", 1))
    dying = points.store(store)
    await dying.transact("write", [Put(key, {"n": 1})])
    with pytest.raises(Crash):
        await dying.transact("write", [Put(key, {"n": 2})])
    for late in (lambda: dying.transact("late", [Put(key, {"n": 3})]), lambda: dying.get([key])):
        with pytest.raises(Crash):
            await late()
    assert points.crashed and await store.get([key]) == [{"n": 2}]
    assert [name for name, _ in points.points] == ["transact:write:before", "transact:write:after"] * 2


async def test_a_crash_may_be_numbered_and_named() -> None:
    store, key = MemoryStateStore(), Key("sessions", "p", "session")
    points = CrashPoints(2)
    dying = points.store(store)
    await dying.get([key])
    with pytest.raises(Crash, match="query:checkpoint:before"):
        await dying.query("sessions", "p", start="c#")
    assert points.points == [("get:session:before", 0), ("get:session:after", 0), ("query:checkpoint:before", 0)]
