"""The widgets of the dashboard `plumbing`: functions, state machines, streams, tables, sockets, endpoints, dead letters,
warnings."""

from __future__ import annotations

from aws_cdk import aws_cloudwatch as cloudwatch

from helix.infra.endpoints import Endpoints
from helix.infra.metrics import aws_metric, aws_metrics, helix_metric
from helix.infra.names import Names
from helix.infra.schedules import UNDELIVERED
from helix.infra.sockets import Sockets
from helix.infra.storage import TABLES
from helix.infra.streaming import Streaming
from helix.infra.widgets import graph, heading
from helix.services.warnings import FAILURES, WARNINGS

Rows = list[list[cloudwatch.IWidget]]
EXECUTIONS = ("Started", "Succeeded", "Failed", "TimedOut", "Aborted")


def resource_rows(*, names: Names, streaming: Streaming, sockets: Sockets, endpoints: Endpoints) -> Rows:
    return [
        [heading("Functions")],
        _functions(names),
        [heading("State machines")],
        _machines(names),
        [heading("Chunks")],
        _chunks(names, streaming),
        [heading("Tables")],
        _tables(names),
        [heading("Clients, probes, undelivered messages")],
        _interfaces(names, sockets, endpoints),
    ]


def _functions(names: Names) -> list[cloudwatch.IWidget]:
    def lines(metric: str, statistic: str) -> list[cloudwatch.IMetric]:
        return [aws_metrics("Lambda", metric, statistic, names, "FunctionName")]

    return [
        graph("Errors", lines("Errors", "Sum")),
        graph("Duration, p95", lines("Duration", "p95"), "Milliseconds"),
        graph("At work at once", lines("ConcurrentExecutions", "Maximum")),
        graph("Throttled", lines("Throttles", "Sum")),
        graph("Invocations", lines("Invocations", "Sum")),
        graph("Dropped", lines("AsyncEventsDropped", "Sum")),
    ]


def _machines(names: Names) -> list[cloudwatch.IWidget]:
    def line(metric: str, statistic: str, label: str) -> cloudwatch.IMetric:
        return aws_metrics("States", metric, statistic, names, "StateMachineArn", label=label)

    return [
        graph("Executions", [line(f"Executions{end}", "Sum", end) for end in EXECUTIONS]),
        graph("How long executions take", [line("ExecutionTime", p, p) for p in ("p50", "p95")], "Milliseconds"),
        graph("Steps held back", [line("ExecutionThrottled", "Sum", "throttled")]),
    ]


def _chunks(names: Names, streaming: Streaming) -> list[cloudwatch.IWidget]:
    stream, projector = names.of("chunks"), names.function("project_stream")
    assert streaming.source is not None, "the stream feeds nothing yet"
    age = [aws_metric("Lambda", "IteratorAge", "Maximum", label="project_stream", FunctionName=projector)]
    events = {"refused": "FailedInvokeEventCount", "given up": "OnFailureDestinationDeliveredEventCount"}
    counted = [
        aws_metric("Lambda", metric, "Sum", label=label, EventSourceMappingUUID=streaming.source.ref)
        for label, metric in events.items()
    ]
    shown = [graph("Records refused, or given up and set aside", counted)]
    if streaming.stream is not None:
        if streaming.consumer is None:  # a consumer with enhanced fan-out does not call GetRecords
            behind = "GetRecords.IteratorAgeMilliseconds"
            age.append(aws_metric("Kinesis", behind, "Maximum", label="stream", StreamName=stream))
        written = aws_metric("Kinesis", "IncomingRecords", "Sum", label="written", StreamName=stream)
        refused = "WriteProvisionedThroughputExceeded"
        shown.insert(
            0, graph("Chunks", [written, aws_metric("Kinesis", refused, "Sum", label="refused", StreamName=stream)])
        )
    return [graph("Age of chunks at projection", age, "Milliseconds"), *shown]


def _tables(names: Names) -> list[cloudwatch.IWidget]:
    def lines(metric: str, what: str = "") -> list[cloudwatch.IMetric]:
        known = {table: f"{table} {what}".strip() for table in TABLES}
        return [aws_metric("DynamoDB", metric, "Sum", label=known[t], TableName=names.of(t)) for t in TABLES]

    throttled = [*lines("ReadThrottleEvents", "reads"), *lines("WriteThrottleEvents", "writes")]
    return [
        graph("Throttled", throttled),
        graph("Read units", lines("ConsumedReadCapacityUnits")),
        graph("Write units", lines("ConsumedWriteCapacityUnits")),
    ]


def _interfaces(names: Names, sockets: Sockets, endpoints: Endpoints) -> list[cloudwatch.IWidget]:
    connected = ("ConnectCount", "MessageCount", "ClientError", "ExecutionError", "IntegrationError")
    asked = ("Count", "4xx", "5xx")
    queue, notices, alarms = names.of(UNDELIVERED), names.of("notices"), names.of("alarms")
    missed_commits = "NumberOfNotificationsFailed"
    return [
        graph(
            "Warnings and failures",
            [helix_metric(names, measure, "Sum", label=measure.lower()) for measure in (WARNINGS, FAILURES)],
        ),
        graph("Sockets", [aws_metric("ApiGateway", m, "Sum", label=m, ApiId=sockets.api.ref) for m in connected]),
        graph("Endpoints", [aws_metric("ApiGateway", m, "Sum", label=m, ApiId=endpoints.api.ref) for m in asked]),
        graph(
            "Not delivered",
            [
                aws_metric(
                    "SQS", "ApproximateNumberOfMessagesVisible", "Maximum", label="dead letters", QueueName=queue
                ),
                aws_metric("SNS", missed_commits, "Sum", label="alarms", TopicName=alarms),
                aws_metric("SNS", missed_commits, "Sum", label="notices", TopicName=notices),
            ],
        ),
    ]
