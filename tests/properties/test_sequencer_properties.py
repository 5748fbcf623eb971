"""The invariants of docs/protocol.md#invariants on the stream, over random histories: workers, resends, crashes, zombies,
late ends, children, rewinds. `tests/unit/test_sequencer.py` shows that they fail if a rule is missing."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support_sequencer import World, project, violation

SEEDS = st.integers(0, 2**32)


@settings(max_examples=200, deadline=None)
@given(SEEDS, st.integers(0, 250), st.sampled_from([("root",), ("root", "child"), ("root", "a", "b")]))
def test_stream_gapless_final_is_committed_end_truthful(seed: int, actions: int, sessions: tuple[str, ...]) -> None:
    world = World(Random(seed), sessions)
    world.run(actions)
    assert violation(world, project(world)) is None


@settings(max_examples=50, deadline=None)
@given(SEEDS, SEEDS)
def test_how_the_log_is_cut_into_batches_does_not_matter(seed: int, cuts: int) -> None:
    world = World(Random(seed))
    world.run(80)
    assert project(world, random=Random(cuts)) == project(world)


@settings(max_examples=50, deadline=None)
@given(SEEDS)
def test_a_log_read_twice_adds_nothing_final(seed: int) -> None:
    """All records are read again after the end. Each of them is known, older, or over."""
    world = World(Random(seed))
    world.run(80)
    once = project(world)
    world.log = world.log + world.log
    assert project(world) == once
