"""FleetControl writes the wanted state of agents as rows, without a runtime."""

from __future__ import annotations

import pytest

from helix import MemoryStateStore
from helix.core.errors import InvalidInputError, InvalidScaleError
from helix.fleet import FleetControl, ResourceConfig
from helix.testing.clocks import SetClock

SIX = [f"agent-{n}" for n in range(6)]


@pytest.fixture
async def desk() -> FleetControl:
    """A control of six agents. Those with odd numbers have rows, and the others do not."""
    made = FleetControl(MemoryStateStore(), SetClock(1000.0), known=dict.fromkeys(SIX, ResourceConfig(max_instances=4)))
    for agent_id in SIX[1::2]:
        await made.scale(agent_id, 3)
    return made


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7])
async def test_agents_are_listed_in_pages(desk: FleetControl, size: int) -> None:
    """Any page size lists each agent once and by id, with or without rows."""
    told: list[tuple[str, int]] = []
    while page := await desk.list(after=told[-1][0] if told else "", limit=size):
        assert len(page) <= size and len(told) <= len(SIX)
        told += [(found["agent_id"], found["wanted"]) for found in page]
    assert told == [(agent_id, 4 - n % 2) for n, agent_id in enumerate(SIX)]
    assert [found["agent_id"] for found in await desk.list()] == SIX


async def test_a_page_has_room_for_one(desk: FleetControl) -> None:
    with pytest.raises(InvalidInputError, match="limit"):
        await desk.list(limit=0)


@pytest.mark.parametrize("instances", [1.5, 2.0, True, "2", float("nan"), None, 5, -1])
async def test_what_is_no_number_of_instances_is_refused_and_changes_nothing(
    desk: FleetControl, instances: object
) -> None:
    """If it were stored, it would make the rows of all agents unreadable."""
    with pytest.raises(InvalidScaleError, match="1 to 4 instances"):
        await desk.scale(SIX[1], instances)  # type: ignore[arg-type]
    assert [found["wanted"] for found in await desk.list()] == [4, 3, 4, 3, 4, 3]
