"""The cost of an idle stage, computed from its CloudFormation templates.

Law: every resource type either has a price here or is listed as pay-per-use. Any other type is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from helix.core import aws_prices as prices
from helix.core.ledger import Line, priced

MINUTES = prices.HOURS_A_MONTH * 60
READS = 2
"""The DynamoDB read units per idle minute. The hourly check takes about 30 more, which is 0.5 per minute."""
INVOCATION_S = 0.1
LOG_BYTES = prices.PLATFORM_LOG_BYTES + 200
BY_USE = frozenset(
    f"AWS::{kind}"
    for kind in (
        *("ApiGateway::Account", "CDK::Metadata", "CloudFormation::Stack", "DynamoDB::Table", "Events::Rule"),
        *("IAM::ManagedPolicy", "IAM::Policy", "IAM::Role", "KMS::Alias", "Lambda::Alias", "Lambda::Function"),
        *("Lambda::EventInvokeConfig", "Lambda::EventSourceMapping", "Lambda::LayerVersion", "Lambda::Permission"),
        *("Lambda::Version", "Logs::LogGroup", "S3::Bucket", "S3::BucketPolicy", "SNS::Subscription", "SNS::Topic"),
        *("SNS::TopicPolicy", "SQS::Queue", "SQS::QueuePolicy", "StepFunctions::StateMachine"),
        *(f"CloudFront::{part}" for part in ("Distribution", "OriginAccessControl", "ResponseHeadersPolicy")),
        *(f"ApiGatewayV2::{part}" for part in ("Api", "Authorizer", "Integration", "Route", "Stage")),
    )
) | {"Custom::CDKBucketDeployment"}  # used only while a stack is being deployed


def idle_lines(templates: Iterable[Mapping[str, Any]]) -> list[Line]:
    """Return one line for each price, in US dollars per month. `templates`: the stage's own template, then those of its
    nested stacks."""
    found = [line for template in templates for line in _lines(template["Resources"])]
    lines: dict[tuple[str, str, str], Line] = {}
    for line in found:
        before = lines.get(place := (line.service, line.what, line.how))
        quantity, nanos = (before.quantity, before.nanos) if before else (0.0, 0)
        lines[place] = Line(
            *place[:2], "", quantity + line.quantity, line.unit, nanos + line.nanos, line.basis, line.how
        )
    return sorted(lines.values(), key=lambda line: -line.nanos)


def unpriced(templates: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the resource types that do not have a price here."""
    kinds = {resource["Type"] for template in templates for resource in template["Resources"].values()}
    return sorted(kinds - BY_USE - _PRICED)


_PRICED = frozenset(
    f"AWS::{kind}"
    for kind in (
        *("CloudWatch::Alarm", "CloudWatch::Dashboard", "Kinesis::Stream", "Kinesis::StreamConsumer", "KMS::Key"),
        "SecretsManager::Secret",
    )
)


def _lines(resources: Mapping[str, Mapping[str, Any]]) -> Iterator[Line]:
    shards = sum(
        resource.get("Properties", {}).get("ShardCount", 0)
        for resource in resources.values()
        if resource["Type"] == "AWS::Kinesis::Stream"
    )
    dashboards = 0
    for resource in resources.values():
        properties = resource.get("Properties", {})
        match resource["Type"]:
            case "AWS::KMS::Key":
                yield _line("KMS", "keys", 1, "keys", prices.KMS_KEY_MONTH)
            case "AWS::SecretsManager::Secret":
                yield _line("Secrets Manager", "secrets", 1, "secrets", prices.SECRET_MONTH)
            case "AWS::CloudWatch::Alarm":
                metrics = sum("MetricStat" in one for one in properties.get("Metrics", ())) or 1
                yield _line("CloudWatch", "alarms", metrics, "metrics", prices.ALARM_METRIC_MONTH)
            case "AWS::CloudWatch::Dashboard":
                dashboards += 1
                paid = dashboards > prices.FREE_DASHBOARDS
                how = "" if paid else f"an account's first {prices.FREE_DASHBOARDS} are free"
                yield _line("CloudWatch", "dashboards", 1, "", prices.DASHBOARD_MONTH * paid, how)
            case "AWS::Kinesis::Stream" if shards:
                yield _hours("Kinesis", "shards", shards, "shard hours", prices.KINESIS_SHARD_HOUR)
            case "AWS::Kinesis::Stream":
                yield _hours("Kinesis", "stream on demand", 1, "hours", prices.KINESIS_ON_DEMAND_HOUR)
            case "AWS::Kinesis::StreamConsumer":
                hour, how = prices.KINESIS_CONSUMER_SHARD_HOUR, "enhanced_fan_out"
                yield _hours("Kinesis", "consumer", max(shards, 1), "shard hours", hour, how)
            case "AWS::Lambda::Alias" if warm := properties.get("ProvisionedConcurrencyConfig"):
                memory = resources[properties["FunctionName"]["Ref"]]["Properties"].get("MemorySize", 128) / 1024
                gb_s = warm["ProvisionedConcurrentExecutions"] * memory * MINUTES * 60
                how = "provisioned concurrency"
                yield _line("Lambda", how, gb_s, "GB-seconds", prices.PROVISIONED_GB_S)
            case "AWS::Events::Rule" if properties.get("ScheduleExpression") == "rate(1 minute)":
                yield from _minutes(properties["Name"].rpartition("-")[2])


def _minutes(verb: str) -> Iterator[Line]:
    """Yield the costs of one invocation per minute."""
    how = f"{verb}, each minute"
    yield _line("Lambda", "invocations", MINUTES, "requests", prices.LAMBDA_REQUEST, how)
    gb_s = MINUTES * INVOCATION_S / 2
    yield _line("Lambda", "time", gb_s, "GB-seconds", prices.LAMBDA_GB_S, f"{how}: {INVOCATION_S:g} s of 0.5 GB")
    yield _line("CloudWatch", "logs", MINUTES * LOG_BYTES, "bytes", prices.LOG_BYTE, how)
    yield _line("DynamoDB", "reads", MINUTES * READS, "read units", prices.DYNAMODB_READ_UNIT, how)


def _hours(service: str, what: str, quantity: float, unit: str, price: float, how: str = "") -> Line:
    return _line(service, what, quantity * prices.HOURS_A_MONTH, unit, price, how)


def _line(service: str, what: str, quantity: float, unit: str, price: float, how: str = "") -> Line:
    estimated = " each minute" in f" {how}"
    return Line(
        service, what, "", quantity, unit, priced(quantity, price), "estimated" if estimated else "counted", how
    )
