"""A few random plays of people on the offline stage, whose functions are killed. `tests.e2e.people_play` plays more."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.e2e.people_play import play
from tests.e2e.people_told import Answer, Report, Sent, Told, check
from tests.e2e.test_crashes import configured
from tests.support.offline_cloud import CloudForTests

from helix.core.messages import AnyMessage, ToolResultMessage, UserMessage

PLAYS = 2
SEED = int(os.environ.get("HELIX_SEED", "0"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def hasty(cloud: CloudForTests) -> Iterator[CloudForTests]:
    with configured(cloud) as made:
        yield made


async def test_people_and_killed_functions(hasty: CloudForTests) -> None:
    total = sum(await asyncio.gather(*(play(hasty, seed) for seed in range(SEED, SEED + PLAYS))), Counter[str]())
    print(f"\n{total}")
    always = ("deployed", "report: ok", "forged: invalid_call_token", "question answered: ok")
    assert all(total[what] for what in always) and any(what.startswith("killed") for what in total), total


HEARD: list[AnyMessage] = [UserMessage(content="a"), UserMessage(content="b")]
HEARD.append(ToolResultMessage(tool_call_id="c", tool_name="ship", content="parcel", success=True))


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        (Told(sent=[Sent("c", "queue", "ok")]), "0 times"),
        (Told(sent=[Sent("b", "queue", "ok"), Sent("a", "queue", "ok")]), "not in order"),
        (Told(sent=[Sent("a", "queue", "ok", withdrawals=["withdrawn"])]), "was withdrawn"),
        (Told(answers=[Answer("c", "question", "red", "ok")]), "was accepted"),
        (Told(reports=[Report("p", "parcel", False, "call_ended")]), "has the results"),
        (Told(reports=[Report("p", "parcel", False, "ok"), Report("p", "other", False, "ok")]), "ended twice"),
        (Told(reports=[Report("p", "forged", True, "ok")]), "not refused"),
    ],
)
def test_a_difference_is_noticed(told: Told, wrong: str) -> None:
    with pytest.raises(AssertionError, match=wrong):
        check(told, HEARD)
