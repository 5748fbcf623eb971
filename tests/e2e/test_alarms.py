"""An alarm changes a limit in the deployed app, with its real rights. A queue grows, CloudWatch raises the alarm, and SNS
invokes `govern`. The limit rises and the runs drain in order. When the queue is quiet, the minute lowers the limit again.

The minute runs only if a test runs it, so only the alarm can have raised the limit.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cloud_executor import AdminApplication
from tests.support.cloud_agents.cast import CREW, DEEP
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.offline_cloud import CloudForTests, until

from helix.core.health import CheckType, HealthCheck
from helix.core.periods import TokenPeriod
from helix.fleet.budgets import BudgetManager
from helix.fleet.decisions import DecisionLog, DecisionRow
from helix.fleet.health import HealthChecker
from helix.services.row_slots import RowSlots

ALARM = "helix-test-queue-depth-crew"
HEALTH_ALARM = "helix-test-health-crew"
PATIENCE_S = 150.0
LOOK_S = 0.25
Json = dict[str, Any]

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(autouse=True)
def no_minute(fleet: CloudForTests) -> Iterator[None]:
    events, minute = fleet.aws("events"), fleet.cloud.function("govern")
    events.disable_rule(Name=minute)
    yield
    events.enable_rule(Name=minute)


@pytest.fixture
def app(fleet: CloudForTests) -> AdminApplication:
    return AdminApplication(fleet)


def alarm(fleet: CloudForTests, name: str = ALARM) -> str:
    (found,) = fleet.aws("cloudwatch").describe_alarms(AlarmNames=[name])["MetricAlarms"]
    return str(found["StateValue"])


def govern(fleet: CloudForTests) -> Json:
    """Run the `govern` schedule of the minute."""
    answer = fleet.aws("lambda").invoke(FunctionName=fleet.cloud.function("govern"), Qualifier="live", Payload=b"{}")
    told = json.loads(answer["Payload"].read())
    assert "FunctionError" not in answer, told
    done: Json = told
    return done


async def soon(condition: Callable[[], Awaitable[Any]], what: str) -> Any:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not (value := await condition()):
                await asyncio.sleep(LOOK_S)
            return value
    except TimeoutError:
        raise AssertionError(f"after {PATIENCE_S:.0f} s there is still no {what}") from None


class Crew:
    """Runs of `crew`, each with its own gate. A run that has reached its gate is at work."""

    def __init__(self, app: AdminApplication, folder: Path) -> None:
        self.app, self._folder = app, folder
        self.slots = RowSlots(app.store)
        self.log = DecisionLog(app.store, app.clock, app.ids)

    async def limit(self) -> int | None:
        counter = (await self.slots.counters()).get("crew")
        return counter.bound if counter is not None else None

    async def decisions(self) -> list[DecisionRow]:
        return [row for row in await self.log.history("crew") if row.applied]

    def plan(self, number: int) -> str:
        return plan(use(call("wait", gate=str(self._folder / f"{number}"))), say(f"Run {number} is done."))

    def open(self, number: int) -> None:
        (self._folder / f"{number}").touch()

    async def at_work(self, numbers: set[int]) -> None:
        """Wait until exactly these runs have reached their gates."""

        async def look() -> bool:
            await asyncio.sleep(0)
            return self.begun() >= numbers

        await soon(look, f"work on runs {numbers}, only on {self.begun()}")
        assert self.begun() == numbers

    def begun(self) -> set[int]:
        return {int(path.stem) for path in self._folder.glob("*.entered")}


@asynccontextmanager
async def waiting(fleet: CloudForTests, crew: Crew, count: int) -> AsyncIterator[list[Any]]:
    """Start this many runs, one after the other."""
    async with fleet.user("crew") as client:
        handles = [await client.run("crew", crew.plan(number)) for number in range(count)]
        yield handles


@pytest.fixture
def crew(app: AdminApplication, tmp_path: Path) -> Crew:
    return Crew(app, tmp_path)


async def test_a_queue_raises_the_limit_and_drains_in_order_and_quiet_lowers_it(
    fleet: CloudForTests, crew: Crew
) -> None:
    await crew.slots.set_limit("crew", 1)
    count = 1 + DEEP
    async with waiting(fleet, crew, count) as handles:
        # The last of them made the queue as deep as the alarm's threshold.
        decisions = await soon(crew.decisions, "decision")
        assert await crew.limit() == 2
        (decision,) = decisions
        assert (decision.before, decision.after, decision.action) == (1, 2, "up")
        assert decision.trigger == "queue-depth-crew"
        assert f"{DEEP} runs wait" in decision.reason, "the reason is recorded"
        assert alarm(fleet) == "ALARM"
        await crew.at_work({0, 1})
        for number in range(count):
            crew.open(number)
            await crew.at_work(set(range(min(number + 3, count))))
        results = [await handle.result(60) for handle in handles]
    assert [result.text for result in results] == [f"Run {number} is done." for number in range(count)]
    until(lambda: alarm(fleet) == "OK", "end of the alarm", patience_s=PATIENCE_S)
    warm = fleet.aws("lambda").get_provisioned_concurrency_config
    place = {"FunctionName": fleet.cloud.function("crew-call_model"), "Qualifier": "live"}
    assert warm(**place)["RequestedProvisionedConcurrentExecutions"] == 2

    async def lowered() -> bool:
        await asyncio.to_thread(govern, fleet)
        return await crew.limit() == CREW["min"]

    await soon(lowered, "lower limit")
    last = (await crew.decisions())[-1]
    assert (last.before, last.after, last.action, last.trigger) == (2, 1, "down", "schedule")
    assert warm(**place)["RequestedProvisionedConcurrentExecutions"] == 1


async def test_a_check_that_says_no_raises_an_alarm_until_it_is_well(
    fleet: CloudForTests, app: AdminApplication
) -> None:
    """A check fails in one process, which stores its result in the stage's tables, and the minute counts it. The alarm ends
    when the check passes."""
    alive, health = [False], HealthChecker(app.store)
    kind = CheckType.LIVENESS
    await health.register_check(
        "crew", HealthCheck(name="tools", check_type=kind, failure_threshold=1, check_fn=lambda: alive[0])
    )
    for answer, state in ((False, "ALARM"), (True, "OK")):
        alive[0] = answer
        await health.check_health("crew", run=True)

        async def told(state: str = state) -> bool:
            await asyncio.to_thread(govern, fleet)
            warned = state == "OK" or alarm(fleet, "helix-test-warnings") == state
            return alarm(fleet, HEALTH_ALARM) == state and warned

        await soon(told, f"alarm in the state {state}")
    await health.unregister_check("crew")


async def test_people_are_told_of_a_budget_once(fleet: CloudForTests, app: AdminApplication) -> None:
    """The engine raises the alert, and `govern` publishes it in the next minute."""
    queue, queues = _listening(fleet), fleet.aws("sqs")
    await BudgetManager(app.store).set_budget(1_000, TokenPeriod.HOURLY, "talker")
    async with fleet.user("spender") as client:
        for _ in range(20):
            result = await (await client.run("talker", plan(say("x" * 300)))).result(60)
            if result.status != "completed":
                break
    assert result.error_code == "budget_exceeded"
    await BudgetManager(app.store).remove_budget(TokenPeriod.HOURLY, "talker")
    for _ in range(2):
        govern(fleet)
    heard: list[Json] = []
    while found := queues.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages"):
        for message in found:
            heard.append(json.loads(json.loads(message["Body"])["Message"]))
            queues.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    alerts = [one["alert_id"] for one in heard if one["scope"] == "agent:talker"]
    assert alerts and len(alerts) == len(set(alerts)), "each alert once"


def _listening(fleet: CloudForTests) -> str:
    """Create a queue that receives the notifications."""
    queues, topic = fleet.aws("sqs"), fleet.cloud.outputs["NoticeTopicArn"]
    url: str = queues.create_queue(QueueName="people")["QueueUrl"]
    arn = queues.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    said = {
        "Effect": "Allow",
        "Principal": {"Service": "sns.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": arn,
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [said]})
    queues.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    fleet.aws("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    return url
