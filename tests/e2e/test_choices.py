"""The choice of a model in the deployed app: routes, and cached answers that need no model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cloud_executor import AdminApplication
from tests.support.cloud_agents.cast import CHEAPER, QUICKER
from tests.support.cloud_agents.plans import plan, say
from tests.support.command_line import Done
from tests.support.offline_cloud import CloudForTests, until

from helix.core.measures import AGENT, NAMESPACE, STAGE
from helix.core.periods import TokenPeriod
from helix.fleet.budgets import BudgetManager

pytestmark = pytest.mark.timeout(300)

LIMIT = 20_000
MOST_OF_IT = 17_000
Json = dict[str, Any]


class Person:
    """A user who asks agents of the deployed app, each time in a new session."""

    def __init__(self, cloud: CloudForTests, name: str) -> None:
        self._cloud, self._name = cloud, name

    async def ask(self, agent: str, message: str) -> tuple[str, Json]:
        """Ask, and return the session's id and the answer that the session stores."""
        async with self._cloud.user(self._name) as client:
            handle = await client.run(agent, message)
            result = await handle.result(60)
            assert result.status == "completed", result.error
            told: dict[str, Any] = await client.get_messages(handle.session_id)
            (answer,) = [message for message in told["messages"] if message["role"] == "assistant"]
        return handle.session_id, answer


def measured(cloud: CloudForTests, agent: str) -> Callable[[str], float]:
    """Return a function that gives the increase of an agent's metric since this call."""

    def total(metric: str) -> float:
        found = cloud.aws("cloudwatch").get_metric_statistics(
            Namespace=NAMESPACE,
            MetricName=metric,
            Dimensions=[{"Name": STAGE, "Value": "test"}, {"Name": AGENT, "Value": agent}],
            StartTime="2020-01-01T00:00:00Z",
            EndTime="2100-01-01T00:00:00Z",
            Period=60,
            Statistics=["Sum"],
        )
        return float(sum(point["Sum"] for point in found["Datapoints"]))

    before = {name: total(name) for name in ("ModelCalls", "CacheHits", "CacheMisses", "CacheSavedUsd")}
    return lambda metric: total(metric) - before[metric]


async def test_an_answer_is_given_again_to_its_tenant_alone(
    fleet: CloudForTests, helix: Callable[..., Done], tmp_path: Path
) -> None:
    """The model leaves a mark at its gate whenever it is asked, so the gate shows which answers came from the cache."""
    gate, mark = tmp_path / "gate", tmp_path / "gate.entered"
    gate.touch()
    since, message = measured(fleet, "mindful"), plan(say("The same.", gate=str(gate)))

    async def ask(name: str) -> tuple[str, Json, bool]:
        mark.unlink(missing_ok=True)
        return *await Person(fleet, name).ask("mindful", message), mark.exists()

    bought, first, asked = await ask("keeper")
    assert asked and "cached" not in first["metadata"]
    kept, again, asked = await ask("keeper")
    assert not asked and again["content"] == first["content"] == "The same."
    assert again["metadata"]["cached"] is True and kept != bought
    _, other, asked = await ask("stranger")
    assert asked and "cached" not in other["metadata"], "a question of another tenant is not the same"

    expected = {"CacheHits": 1, "CacheMisses": 2, "CacheSavedUsd": pytest.approx(7e-6), "ModelCalls": 2}
    until(lambda: {name: since(name) for name in expected} == expected, "hits, misses, and the calls")

    costs = [json.loads(helix("cost", session_id, "--json").out) for session_id in (bought, kept)]
    assert [_paid(cost) for cost in costs] == [[7e-6], [0.0]]


def _paid(cost: Json) -> list[float]:
    """Return the cost of each model call in dollars."""
    return [line["usd"] for line in cost["lines"] if line["service"] == "Model"]


@pytest.fixture
def budgets(fleet: CloudForTests) -> Iterator[BudgetManager]:
    yield BudgetManager(AdminApplication(fleet).store)


async def test_a_route_takes_what_fits_and_the_cheaper_one_when_money_runs_short(
    fleet: CloudForTests, budgets: BudgetManager
) -> None:
    """Sizes and prices come from litellm's table in the functions' layer. 9,000 words exceed the context window of the
    faster model."""
    person = Person(fleet, "chooser")

    async def chosen(*steps: Json) -> str:
        _, answer = await person.ask("routed", plan(*steps))
        return str(answer["metadata"]["model"])

    assert await chosen(say("Short.")) == QUICKER
    assert await chosen(say("Short.", ignored="word " * 9_000)) == CHEAPER
    await budgets.set_budget(LIMIT, TokenPeriod.TOTAL, "routed")
    assert await chosen(say("Short.")) == QUICKER, "the budget is large enough"
    await chosen(say("x" * MOST_OF_IT))
    assert (await budgets.check_budget("routed"))["routed_total"]["alert_level"] == "warning"
    assert await chosen(say("Short.")) == CHEAPER
    await budgets.remove_budget(TokenPeriod.TOTAL, "routed")
    assert await chosen(say("Short.")) == QUICKER
