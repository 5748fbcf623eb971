"""Real runs emit every metric of Helix that an alarm or a dashboard of the deployed stage uses.

The metrics in use are read from the deployed stage, and the emitted ones from its CloudWatch. AWS's own metrics are
compared with AWS's documentation in tests/infra/test_alarms.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cloud_executor import AdminApplication
from tests.infra.observed import of_body
from tests.support.cloud_agents.plans import call, fail, plan, say, use
from tests.support.offline_cloud import CloudForTests, until

from helix.core.health import HealthCheck
from helix.core.measures import AGENT, NAMESPACE, STAGE, UNITS
from helix.core.periods import TokenPeriod
from helix.fleet.budgets import BudgetManager
from helix.fleet.health import HealthChecker
from helix.services.row_slots import RowSlots

ROOT = Path(__file__).parents[2]
Series = tuple[str, frozenset[str]]
"""A metric's name, and the names of its dimensions."""

pytestmark = pytest.mark.timeout(300)


def looked_at(cloud: CloudForTests) -> Iterator[tuple[str, Series]]:
    """Return pairs of a place and a metric of Helix, for every alarm and every graph."""
    cloudwatch = cloud.aws("cloudwatch")
    for page in cloudwatch.get_paginator("describe_alarms").paginate():
        for alarm in page["MetricAlarms"]:
            if alarm["Namespace"] == NAMESPACE:
                yield alarm["AlarmName"], (alarm["MetricName"], frozenset(d["Name"] for d in alarm["Dimensions"]))
    for output in ("AgentsDashboard", "PlumbingDashboard"):
        name = cloud.cloud.outputs[output]
        body = json.loads(cloudwatch.get_dashboard(DashboardName=name)["DashboardBody"])
        for shown in of_body(name, body):
            if shown.namespace == NAMESPACE:
                yield shown.where, (shown.name, shown.dimension_names)


def emitted(cloud: CloudForTests) -> set[Series]:
    pages = cloud.aws("cloudwatch").get_paginator("list_metrics").paginate(Namespace=NAMESPACE)
    listed = [m for page in pages for m in page["Metrics"]]
    return {(m["MetricName"], frozenset(d["Name"] for d in m["Dimensions"])) for m in listed}


def unit_of(cloud: CloudForTests, metric: str) -> str:
    """Return the unit of the metric for the whole stage."""
    found = cloud.aws("cloudwatch").get_metric_statistics(
        Namespace=NAMESPACE,
        MetricName=metric,
        Dimensions=[{"Name": STAGE, "Value": "test"}],
        StartTime="2020-01-01T00:00:00Z",
        EndTime="2100-01-01T00:00:00Z",
        Period=60,
        Statistics=["Sum"],
    )
    return str(found["Datapoints"][0]["Unit"])


def end_failed(cloud: CloudForTests, session_id: str, run_id: str) -> None:
    """Send the event that EventBridge sends for a failed execution, for a run that is already over."""
    event = json.loads((ROOT / "events" / "fail_run_status.json").read_text())
    place = {"session_id": session_id, "run_id": run_id, "part": 1, "step": 1, "events": 0}
    event["detail"] |= {"status": "FAILED", "input": json.dumps(place)}
    name = cloud.cloud.function("fail_run")
    answer = cloud.aws("lambda").invoke(FunctionName=name, Qualifier="live", Payload=json.dumps(event))
    assert "FunctionError" not in answer, answer["Payload"].read()


async def play(cloud: CloudForTests, folder: Path) -> None:
    """Let everything happen once that can happen to runs."""
    app = AdminApplication(cloud)
    async with cloud.user("measured") as client:

        async def run(agent: str, *steps: dict[str, Any]) -> str:
            result = await (await client.run(agent, plan(*steps))).result(60)
            return result.status if result.error_code is None else result.error_code

        assert await run("talker", use(call("look", topic="x"), call("boom")), say("Done.")) == "completed"
        assert await run("talker", fail("rate_limited", said="Soon.")) == "rate_limited"
        written = {"prompt_tokens": 9_000, "written_tokens": 9_000}  # the next step does not read it from the cache
        steps = [use(call("look", topic="x"), tokens=written), say("Lost.", tokens={"prompt_tokens": 9_500})]
        assert await run("talker", *steps) == "completed"
        for _ in range(2):
            assert await run("mindful", say("Asked once.")) == "completed"
        handle = await client.run("talker", plan(use(call("wait", gate=str(folder / "stop"))), say("Never said.")))
        until(lambda: (folder / "stop.entered").exists(), "work on the run that is stopped")
        await handle.interrupt()
        (folder / "stop").touch()
        assert (await handle.result(60)).status == "interrupted"
        end_failed(cloud, handle.session_id, handle.run_id)

        await BudgetManager(app.store).set_budget(1, TokenPeriod.HOURLY, "brief")
        assert await run("brief", say("Too dear.")) == "budget_exceeded"

        health = HealthChecker(app.store)
        unwell = HealthCheck(name="tools", failure_threshold=1, check_fn=lambda: False)  # this logs a warning
        await health.register_check("crew", unwell)
        await health.check_health("crew", run=True)

        await BudgetManager(app.store).set_budget(1_000_000, TokenPeriod.HOURLY, "crew")
        await RowSlots(app.store).set_limit("crew", 1)
        first = await client.run("crew", plan(use(call("wait", gate=str(folder / "crew"))), say("First.")))
        behind = [await client.run("crew", plan(say("Later."))) for _ in range(5)]
        cloud.cloud.tick()
        (folder / "crew").touch()
        for waiting in (first, *behind):
            assert (await waiting.result(60)).status == "completed"


async def test_whatever_is_looked_at_was_emitted(fleet: CloudForTests, tmp_path: Path) -> None:
    """The name and the dimensions agree, the unit is that of the graphs' axes, and every emitted metric is in the table."""
    wanted: dict[Series, str] = {series: where for where, series in looked_at(fleet)}
    assert {name for name, _ in wanted} == set(UNITS), "every metric is on a dashboard"
    await play(fleet, tmp_path)
    missing: list[str] = []

    def none_missing() -> bool:
        left = wanted.keys() - emitted(fleet)
        missing[:] = [f"{name} by {sorted(dimensions)}: {wanted[name, dimensions]}" for name, dimensions in left]
        return not missing

    try:
        until(none_missing, "metric missing")
    except AssertionError:
        raise AssertionError(f"looked at, and never emitted: {sorted(missing)}") from None
    for name, unit in UNITS.items():
        assert unit_of(fleet, name) == unit, name
    ours = {name for name, dimensions in emitted(fleet) if dimensions in ({STAGE}, {STAGE, AGENT})}
    assert ours == set(UNITS)
