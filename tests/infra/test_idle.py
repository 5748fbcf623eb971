"""The costs of a stage at rest. Each resource of the real templates has a price, or is paid by use."""

from __future__ import annotations

import pytest
from tests.infra.conftest import Synth
from tests.infra.templates import Assembly

from helix.core import aws_prices as prices
from helix.core.ledger import NANOS, total
from helix.fleet.idle import idle_lines, unpriced

pytestmark = pytest.mark.timeout(400)
MONTH_S = 730 * 3600


def dollars(assembly: Assembly) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for line in idle_lines([t.text for t in assembly.templates]):
        found[line.service, line.what] = found.get((line.service, line.what), 0.0) + line.dollars
    return found


def test_no_kind_of_resource_is_forgotten(deployed: Assembly, production: Assembly, offline: Assembly) -> None:
    for assembly in (deployed, production, offline):
        assert unpriced([t.text for t in assembly.templates]) == []
    assert unpriced([{"Resources": {"Gate": {"Type": "AWS::EC2::NatGateway"}}}]) == ["AWS::EC2::NatGateway"]


def test_a_stage_at_rest_costs_what_is_listed(deployed: Assembly) -> None:
    """The list has a shard with its consumer, a key, a secret, the alarms, provisioned functions, and one function each
    minute."""
    found = dollars(deployed)
    assert found["Kinesis", "shards"] == pytest.approx(0.015 * 730)
    assert found["Kinesis", "consumer"] == pytest.approx(0.015 * 730)
    assert found["KMS", "keys"] == 1.00 and found["Secrets Manager", "secrets"] == pytest.approx(0.40)
    assert found["CloudWatch", "dashboards"] == 0, "an account's first three"
    alarms = [a for t in deployed.templates for a in t.of("CloudWatch::Alarm").values()]
    metrics = sum(len([m for m in a.get("Metrics", ()) if "MetricStat" in m]) or 1 for a in alarms)
    assert found["CloudWatch", "alarms"] == pytest.approx(0.10 * metrics) and len(alarms) <= metrics
    warm = [
        (
            a["ProvisionedConcurrencyConfig"]["ProvisionedConcurrentExecutions"],
            t.of("Lambda::Function")[a["FunctionName"]["Ref"]],
        )
        for t in deployed.templates
        for a in t.of("Lambda::Alias").values()
        if "ProvisionedConcurrencyConfig" in a
    ]
    gb = sum(count * function["MemorySize"] / 1024 for count, function in warm)
    assert (
        found["Lambda", "provisioned concurrency"] == pytest.approx(gb * MONTH_S * prices.PROVISIONED_GB_S) and gb > 3
    )
    assert found["CloudWatch", "alarms"] == pytest.approx(0.10 * (8 + 2 * 9)), "two agents with resources"
    assert 0 < found["Lambda", "invocations"] + found["Lambda", "time"] + found["DynamoDB", "reads"] < 0.06


def test_a_stage_without_kinesis_rests_for_a_dime(synth: Synth) -> None:
    """All costs come from the function that runs each minute."""
    lines = idle_lines([t.text for t in synth({"streaming": "direct"}).templates])
    paid = {(line.service, line.what): line.dollars for line in lines if line.nanos}
    assert set(paid) == {
        ("Lambda", "time"),
        ("Lambda", "invocations"),
        ("CloudWatch", "logs"),
        ("DynamoDB", "reads"),
    }
    assert 0.05 < sum(paid.values()) <= 0.10


def test_a_stream_on_demand_has_a_price_of_its_own(production: Assembly) -> None:
    found = dollars(production)
    assert found["Kinesis", "stream on demand"] == pytest.approx(0.04 * 730)
    assert ("Kinesis", "shards") not in found and ("Kinesis", "consumer") not in found
    assert total(idle_lines([t.text for t in production.templates])) / NANOS == pytest.approx(sum(found.values()))
