"""Budget alerts are delivered to people at least once, in order (`helix.fleet.alerts`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.alerts import raise_alert

from helix.adapters.aws.notifier import SnsNotifier
from helix.adapters.memory import MemoryStateStore
from helix.core.budget import LEVELS
from helix.core.errors import StoreError
from helix.fleet.alerts import publish_alerts, read_alerts, unpublished_alerts
from helix.ports.state_store import Put
from helix.services.budget_rows import ALERTS, UNPUBLISHED
from helix.testing.crash import Crash, CrashPoints

NOW = 1_795_219_200.0


class People:
    """A receiver of notifications, which fails the first `deaf` times."""

    def __init__(self, deaf: int = 0) -> None:
        self.heard: list[str] = []
        self.deaf = deaf

    async def publish(self, subject: str, message: Mapping[str, Any]) -> bool:
        if self.deaf:
            self.deaf -= 1
            raise StoreError("nobody answers")
        self.heard.append(f"{subject} {message['alert_id']}")
        return True


@pytest.fixture
async def store() -> MemoryStateStore:
    """A store with three undelivered alerts of one budget."""
    made = MemoryStateStore()
    for number, level in enumerate(LEVELS):
        await raise_alert(made, "a", f"{number}", NOW, level)
    return made


async def test_each_is_told_once_the_oldest_first(store: MemoryStateStore) -> None:
    people = People()
    assert await publish_alerts(store, people.publish, "dev") == 3
    assert await publish_alerts(store, people.publish, "dev") == 0
    told = [f"Helix dev: {level}: budget agent:a/day {number}" for number, level in enumerate(LEVELS)]
    assert people.heard == told


async def test_without_anybody_to_tell_they_stay_untold(store: MemoryStateStore) -> None:
    assert await publish_alerts(store, SnsNotifier(None, "").publish, "dev") == 0
    assert len(await unpublished_alerts(store)) == 3


async def test_one_that_is_not_heard_holds_up_those_after_it_until_the_next_look(store: MemoryStateStore) -> None:
    people = People(deaf=1)
    assert await publish_alerts(store, people.publish, "dev") == 0
    assert await publish_alerts(store, people.publish, "dev") == 3
    assert [line[-1] for line in people.heard] == ["0", "1", "2"]


async def test_a_crash_between_telling_and_marking_tells_again(store: MemoryStateStore) -> None:
    people, points = People(), CrashPoints(at=("transact:alert_told:before", 1))
    with pytest.raises(Crash):
        await publish_alerts(points.store(store), people.publish, "dev")
    assert await publish_alerts(store, people.publish, "dev") == 2
    assert [line[-1] for line in people.heard] == ["0", "1", "1", "2"], "with the same id"


async def test_alerts_of_an_older_version_are_published_and_can_be_read_afterwards(store: MemoryStateStore) -> None:
    for partition in (ALERTS, UNPUBLISHED):
        for row in await store.query("control", partition):
            older = {"told" if name == "published" else name: value for name, value in row.value.items()}
            await store.transact("older", [Put(row.key, older)])
    assert await publish_alerts(store, People().publish, "dev") == 3
    assert [alert.published for alert in await read_alerts(store)] == [True] * 3


async def test_a_notice_has_the_alert_and_not_whether_it_was_published(store: MemoryStateStore) -> None:
    sent: list[Mapping[str, Any]] = []

    async def publish(subject: str, message: Mapping[str, Any]) -> bool:
        sent.append(message)
        return True

    await publish_alerts(store, publish, "dev", at_most=1)
    (alert,) = [alert for alert in await read_alerts(store) if alert.published]
    assert sent == [{"stage": "dev", **alert.model_dump(mode="json", exclude={"published"})}]
