"""Run govern's use of AWS on MiniStack over real HTTP: metrics, provisioned concurrency and topics."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.aws_servers import MiniStack

from helix.adapters.aws.capacity import ProvisionedConcurrency
from helix.adapters.aws.cloudwatch import CloudWatchMetrics
from helix.adapters.aws.emf import EmfMetrics
from helix.adapters.aws.notifier import SnsNotifier
from helix.adapters.system import SystemClock
from helix.core.errors import StoreError
from helix.core.measures import Measures
from helix.local.metrics import data_of
from helix.testing.clocks import ShiftedClock

CLOCK = SystemClock()

pytestmark = pytest.mark.slow  # the same contracts run on moto in `make test`


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniStack]:
    with MiniStack(tmp_path_factory.mktemp("ministack")) as made:
        yield made


def tell(server: MiniStack, stage: str, agent: str, values: list[dict[str, float]], *, ago_s: float = 0) -> None:
    """Forward metrics to CloudWatch as functions log them and `helix dev` forwards them."""
    out = io.StringIO()
    metrics = EmfMetrics(stage, ShiftedClock(-ago_s), out=out)
    for each in values:
        metrics.record(Measures(each, agent=agent))
    client = server.client("cloudwatch")
    for line in out.getvalue().splitlines():
        for namespace, datum in data_of(json.loads(line)):
            client.put_metric_data(Namespace=namespace, MetricData=[datum])


class TestMetrics:
    async def test_sums_are_rates_over_the_window_and_percentiles_are_of_all_calls(self, server: MiniStack) -> None:
        calls = [
            {
                "ModelCalls": 1,
                "TotalTokens": 150,
                "CostUsd": 0.01,
                "ModelLatency": latency,
                "QueueWait": 500,
            }
            for latency in range(1, 101)
        ]
        tell(server, "s1", "a", calls)
        found = await CloudWatchMetrics(server.client("cloudwatch"), "s1", CLOCK).read("a", 300)
        assert 300 <= found.window_s <= 360
        assert found.requests == 100
        assert found.tokens_per_second == pytest.approx(15_000 / found.window_s)
        assert found.requests_per_minute == pytest.approx(6_000 / found.window_s)
        assert found.cost_per_hour == pytest.approx(3600 / found.window_s)
        assert found.total_cost == pytest.approx(1.0) and found.cost_per_request == pytest.approx(0.01)
        assert found.avg_wait_time_ms == 500
        assert found.p95_latency_ms == pytest.approx(95.05, abs=1)
        assert found.p99_latency_ms == pytest.approx(99.01, abs=1)
        assert (found.errors, found.throttles) == (0, 0)

    async def test_other_agents_other_stages_and_older_calls_do_not_count(self, server: MiniStack) -> None:
        for stage, agent, ago_s in (("s2", "other", 0), ("s3", "a", 0), ("s2", "a", 1200)):
            tell(server, stage, agent, [{"ModelCalls": 1, "ModelThrottles": 1, "ModelErrors": 1}], ago_s=ago_s)
        tell(server, "s2", "a", [{"ModelCalls": 1, "ModelThrottles": 2}], ago_s=120)
        found = await CloudWatchMetrics(server.client("cloudwatch"), "s2", CLOCK).read("a", 300)
        assert (found.requests, found.throttles, found.errors) == (1, 2, 0)

    async def test_without_calls_all_is_nought(self, server: MiniStack) -> None:
        found = await CloudWatchMetrics(server.client("cloudwatch"), "s4", CLOCK).read("a", 300)
        assert (found.requests, found.tokens_per_second, found.p95_latency_ms, found.cost_per_hour) == (0, 0, 0, 0)

    async def test_where_nobody_answers_that_is_said(self, server: MiniStack) -> None:
        gone = server.client("cloudwatch", endpoint_url="http://127.0.0.1:9")
        with pytest.raises(StoreError, match="reading metrics"):
            await CloudWatchMetrics(gone, "s1", CLOCK).read("a", 300)


@pytest.fixture(scope="module")
def function(server: MiniStack) -> Any:
    """A Lambda client, after creating the alias `live` of an agent's own call_model."""
    client, code = server.client("lambda"), io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("handler.py", "def handler(event, context): return {}")
    name = "helix-s1-roomy-call_model"
    made = client.create_function(
        FunctionName=name,
        Runtime="python3.13",
        Role="arn:aws:iam::000000000000:role/r",
        Handler="handler.handler",
        Code={"ZipFile": code.getvalue()},
        Publish=True,
    )
    client.create_alias(FunctionName=name, Name="live", FunctionVersion=made["Version"])
    return client


class TestCapacity:
    def kept(self, client: Any) -> int | None:
        try:
            found = client.get_provisioned_concurrency_config(
                FunctionName="helix-s1-roomy-call_model", Qualifier="live"
            )
        except client.exceptions.ProvisionedConcurrencyConfigNotFoundException:
            return None
        return int(found["RequestedProvisionedConcurrentExecutions"])

    async def test_as_many_are_kept_as_were_asked_for_and_none_at_nought(self, function: Any) -> None:
        capacity = ProvisionedConcurrency(function, "s1")
        for instances in (2, 5, 5):
            await capacity.set_instances("roomy", instances)
            assert self.kept(function) == instances
        for _ in range(2):
            await capacity.set_instances("roomy", 0)
            assert self.kept(function) is None

    async def test_without_functions_of_its_own_an_agent_has_cold_starts_and_the_log_says_so(
        self, function: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        capacity = ProvisionedConcurrency(function, "s1")
        await capacity.set_instances("roomy", 2)
        for instances in (3, 0):
            await capacity.set_instances("nobody", instances)
        told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert [line.split(":")[0] for line in told] == [
            f"{verb}_provisioned_concurrency_config of helix-s1-nobody-call_model" for verb in ("put", "delete")
        ]
        assert self.kept(function) == 2

    async def test_where_nobody_answers_that_is_said(self, server: MiniStack) -> None:
        gone = server.client("lambda", endpoint_url="http://127.0.0.1:9")
        with pytest.raises(StoreError, match="helix-s1-roomy-call_model"):
            await ProvisionedConcurrency(gone, "s1").set_instances("roomy", 1)


class TestNotifier:
    async def test_a_message_reaches_who_subscribed(self, server: MiniStack) -> None:
        sns, sqs = server.client("sns"), server.client("sqs")
        topic = sns.create_topic(Name="notices")["TopicArn"]
        url = sqs.create_queue(QueueName="people")["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
        long = "Zeile eins\nund für alle " + "x" * 200
        assert await SnsNotifier(sns, topic).publish(long, {"level": "warning", "said": "größer"})
        [received] = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
        body = json.loads(received["Body"])
        assert json.loads(body["Message"]) == {"level": "warning", "said": "größer"}
        assert body["Subject"].startswith("Zeile eins und f?r alle x") and len(body["Subject"]) == 99

    async def test_without_a_topic_nobody_is_told(self, server: MiniStack) -> None:
        assert not await SnsNotifier(server.client("sns"), "").publish("a", {})

    async def test_a_topic_that_is_gone_is_an_error(self, server: MiniStack) -> None:
        missing = "arn:aws:sns:us-east-1:000000000000:missing"
        with pytest.raises(StoreError, match="publishing 'a'"):
            await SnsNotifier(server.client("sns"), missing).publish("a", {})
