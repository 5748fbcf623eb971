"""Random interleavings of every verb over memory, SQLite and packed rows, and docs/protocol.md#invariants after every step.

    HELIX_EXAMPLES=5000 HELIX_SEED=7 .venv/bin/python -m pytest tests/properties/test_protocol_machine.py -k memory

At each transaction (`protocol_watch`): one_winner_per_claim, legal_transitions, no_answer_rebought,
staged_answer_immutable, answer_fits_history, no_finished_tool_again, result_immutable, zombie_invisible, interrupt_own_run,
first_answer_wins. After each act (`protocol_checks`): pairs_whole, checkpoint_forever, no_answer_lost, budget_exact,
stream_gapless, final_is_committed, end_truthful. Once everything was delivered and nothing moves: never_stuck,
effects_once, one_child, told_once, parent_wakes, state fits history, drawn = spent + assumed >= paid.

The Hypothesis machine shrinks its findings. The walks over the same rules are longer, and many more. Both are deterministic
unless HELIX_EXAMPLES asks for a long run.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.properties.protocol_company import ProtocolMachine, machine_on
from tests.properties.protocol_rights import VERBS, check_rights, done
from tests.properties.protocol_walk import change_tags, compact, hang, rename, walk
from tests.support.rights import UPDATE

from helix.adapters.aws import packing

EXAMPLES = int(os.environ.get("HELIX_EXAMPLES") or 0)
SEED = int(os.environ.get("HELIX_SEED") or 0)
RULES, ACTS = 30, 60


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("kind", "examples"), [("memory", 12), ("sqlite", 5)])
def test_the_protocol_holds_whatever_happens(kind: str, examples: int) -> None:
    machine: type[ProtocolMachine] = machine_on(kind)
    profile = settings(
        max_examples=EXAMPLES or examples,
        stateful_step_count=RULES,
        deadline=None,
        derandomize=not EXAMPLES,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    run_state_machine_as_test(machine, settings=profile)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("kind", "walks"), [("memory", 12), ("sqlite", 5)])
def test_the_protocol_holds_on_long_walks(kind: str, walks: int) -> None:
    for seed in range(SEED, SEED + (EXAMPLES or walks)):
        try:
            walk(seed, kind, ACTS)
        except BaseException as error:
            error.add_note(f"walk({seed}, {kind!r}, {ACTS}) finds it again")
            raise


def packed_walk(seed: int) -> None:
    try:
        walk(seed, "packed", ACTS)
    except BaseException as error:
        error.add_note(f'walk({seed}, "packed", {ACTS}) with ROOM = 300 finds it again')
        raise


@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(3))
def test_the_protocol_holds_over_packed_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is so little room that most rows are moved."""
    monkeypatch.setattr(packing, "ROOM", 300)
    packed_walk(seed)
    check_rights()


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_the_protocol_holds_over_packed_rows_on_many_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    """No verb performs an operation on rows that its function has no right to."""
    monkeypatch.setattr(packing, "ROOM", 300)
    done.clear()
    for seed in range(SEED, SEED + (EXAMPLES or 30)):
        packed_walk(seed)
    assert {*VERBS.values(), "fail_run", "sweep"} <= set(done), "the walks deliver every verb"
    assert ("sessions", UPDATE) in done["call_model"], "claims are renewed"
    check_rights()


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("slots", [1, 2])
def test_the_protocol_holds_where_runs_wait_for_slots(slots: int) -> None:
    """slot_exact holds at each moment. At rest no run holds a slot, and no run waits (no_lost_wakeup)."""
    for seed in range(SEED, SEED + (EXAMPLES or 10)):
        try:
            walk(seed, acts=ACTS, slots=slots)
        except BaseException as error:
            error.add_note(f"walk({seed}, acts={ACTS}, slots={slots}) finds it again")
            raise


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_the_protocol_holds_where_workers_hang() -> None:
    """Sweeps start the next parts of their runs, and the workers return or do not."""
    parts: list[str] = []

    def watch(machine: ProtocolMachine) -> None:
        machine.world.observers.append(lambda name, _: parts.append(name) if name == "roll_over_silent" else None)

    for seed in range(SEED, SEED + (EXAMPLES or 12)):
        try:
            walk(seed, acts=ACTS, watch=watch, also=[(60, hang)])
        except BaseException as error:
            error.add_note(f"walk({seed}, acts={ACTS}, also=[(60, hang)]) finds it again")
            raise
    assert len(parts) >= 10


REQUESTS = ("ask_for_summary", "rename", "change_tags")

ALSO = [(40, compact), (40, rename), (40, change_tags)]


def test_requests_of_people_cost_no_answer() -> None:
    """Requests for summaries, titles and tags come at any moment, also while a model is asked. The model fails to write
    each summary."""
    asked: list[str] = []

    def watch(machine: ProtocolMachine) -> None:
        machine.world.observers.append(lambda name, _: asked.append(name) if name in REQUESTS else None)

    for seed in range(SEED, SEED + 6):
        try:
            walk(seed, acts=ACTS, watch=watch, also=ALSO)
        except BaseException as error:
            error.add_note(f"walk({seed}, acts={ACTS}, also=ALSO) finds it again")
            raise
    assert min(asked.count(name) for name in REQUESTS) >= 10
