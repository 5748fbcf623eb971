"""Random walks over every verb in which messages arrive for running, paused and stopped sessions, and are taken back."""

from __future__ import annotations

import pytest
from tests.properties.inbox_watch import InboxWatch, speak
from tests.properties.protocol_company import ProtocolMachine
from tests.properties.protocol_rights import check_rights
from tests.properties.protocol_walk import walk
from tests.properties.test_protocol_machine import ACTS, EXAMPLES, SEED


def walk_and_watch(seed: int, kind: str) -> dict[str, int]:
    watches: list[InboxWatch] = []

    def watch(machine: ProtocolMachine) -> None:
        watches.append(InboxWatch(machine.world))
        at_rest = machine.checks.at_rest
        machine.checks.at_rest = lambda: (at_rest(), watches[-1].at_rest())[0]  # type: ignore[method-assign]

    try:
        walk(seed, kind, ACTS, watch=watch, also=[(120, speak)])
    except BaseException as error:
        error.add_note(f"walk_and_watch({seed}, {kind!r}) finds it again")
        raise
    return watches[0].moved


@pytest.mark.timeout(0)
def test_each_message_is_delivered_once_and_in_order() -> None:
    moved = [walk_and_watch(seed, "memory") for seed in range(SEED, SEED + (EXAMPLES or 6))]
    assert all(sum(one[fate] for one in moved) for fate in ("left", "delivered")), moved


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("kind", "walks"), [("memory", 40), ("sqlite", 5), ("packed", 10)])
def test_each_message_is_delivered_once_on_many_walks(kind: str, walks: int) -> None:
    moved = [walk_and_watch(seed, kind) for seed in range(SEED + 100, SEED + 100 + (EXAMPLES or walks))]
    fates = ("left", "delivered", "withdrawn") if len(moved) >= 10 else ("left", "delivered")
    assert all(sum(one[fate] for one in moved) for fate in fates), moved
    check_rights()
