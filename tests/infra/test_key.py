"""Stages with and without a customer managed key: which services encrypt with it, its cost at rest, and that a change of
the setting replaces no resource."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.infra.conftest import Synth
from tests.infra.templates import Assembly, text

from helix.core.ledger import NANOS, total
from helix.fleet.idle import idle_lines

pytestmark = [pytest.mark.timeout(400), pytest.mark.slow]  # its own synthesis
ENCRYPTION = {
    "DynamoDB::Table": {"SSESpecification"},
    "S3::Bucket": {"BucketEncryption"},
    "Logs::LogGroup": {"KmsKeyId"},
    "SNS::Topic": {"KmsMasterKeyId"},
    "Kinesis::Stream": {"StreamEncryption"},
}
"""Properties that CloudFormation updates without interruption, according to the reference of each type."""


@pytest.fixture(scope="session")
def direct(synth: Synth) -> Assembly:
    return synth({"streaming": "direct"})


@pytest.fixture(scope="session")
def own(synth: Synth) -> Assembly:
    return synth({"streaming": "direct", "key": "own"})


def month(assembly: Assembly) -> float:
    return total(idle_lines([t.text for t in assembly.templates])) / NANOS


def test_a_stage_without_kinesis_costs_cents_a_month_at_rest(direct: Assembly, own: Assembly) -> None:
    """The cost is the list price, without a free tier."""
    assert month(direct) <= 0.30
    assert month(own) == pytest.approx(month(direct) + 1.00 + 0.40)


def test_without_a_key_each_service_encrypts_by_its_own(direct: Assembly) -> None:
    template = direct.main
    assert not template.of("KMS::Key") and not template.of("KMS::Alias") and not template.of("SecretsManager::Secret")
    (rule,) = template.one("S3::Bucket")["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}
    for table in template.of("DynamoDB::Table").values():
        assert not table.get("SSESpecification", {}).get("SSEEnabled"), "by a key that DynamoDB owns, for nothing"
    for topic in template.of("SNS::Topic").values():
        assert "KmsMasterKeyId" not in topic, "CloudWatch cannot publish to a topic that has the key aws/sns"
    assert "kms:" not in json.dumps(template.text) and "secretsmanager:" not in json.dumps(template.text)
    assert "MetricsSecretArn" not in template.text["Outputs"]
    assert "HELIX_METRICS_SECRET" not in template.function("health")["Environment"]["Variables"]


def test_a_stage_with_kinesis_has_a_key_unless_it_is_told_otherwise(synth: Synth, deployed: Assembly) -> None:
    assert deployed.main.of("KMS::Key")
    stream = synth({"key": "aws"}).main.one("Kinesis::Stream")
    assert stream["StreamEncryption"] == {"EncryptionType": "KMS", "KeyId": "alias/aws/kinesis"}


def test_a_key_that_comes_later_replaces_nothing(direct: Assembly, own: Assembly) -> None:
    for kind, properties in ENCRYPTION.items():
        before, after = direct.main.of(kind), own.main.of(kind)
        assert set(before) == set(after), kind
        for id_ in before:
            assert _without(before[id_], properties) == _without(after[id_], properties), id_


def test_thresholds_reach_govern_and_only_those_that_were_chosen(direct: Assembly, deployed: Assembly) -> None:
    variables = deployed.main.function("govern")["Environment"]["Variables"]
    assert json.loads(variables["HELIX_THRESHOLDS"]) == {"alarm_cost_critical": 20.0, "alarm_queue_depth": 7}
    assert "HELIX_THRESHOLDS" not in direct.main.function("govern")["Environment"]["Variables"]
    assert "HELIX_THRESHOLDS" not in text(direct.main.function("call_model")["Environment"])


def _without(properties: dict[str, Any], left_out: set[str]) -> dict[str, Any]:
    return {name: value for name, value in properties.items() if name not in left_out}
