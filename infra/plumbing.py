"""What the plumbing's dashboard shows: functions, state machines, streams, tables, sockets, endpoints, dead letters."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.endpoints import Endpoints
from infra.function import SIZES
from infra.metrics import aws_metric
from infra.names import Names
from infra.profile import PROFILE_VERBS
from infra.schedules import UNDELIVERED
from infra.sockets import Sockets
from infra.storage import TABLES
from infra.streaming import Streaming
from infra.widgets import graph, heading

Rows = list[list[cloudwatch.IWidget]]
EXECUTIONS = ("Started", "Succeeded", "Failed", "TimedOut", "Aborted")


def plumbing_rows(
    scope: Construct,
    *,
    names: Names,
    profiles: Sequence[str],
    streaming: Streaming,
    sockets: Sockets,
    endpoints: Endpoints,
) -> Rows:
    """`profiles` begins with the shared one."""
    return [
        [heading("Functions")],
        _functions(names, profiles),
        [heading("State machines")],
        *_machines(scope, names, profiles),
        [heading("Chunks")],
        _chunks(names, streaming),
        [heading("Tables")],
        _tables(names),
        [heading("Clients, probes, and what was not delivered")],
        _edges(names, sockets, endpoints),
    ]


def _functions(names: Names, profiles: Sequence[str]) -> list[cloudwatch.IWidget]:
    shared, *own = profiles
    functions = [
        *(names.function(verb, shared) for verb in SIZES),
        *(names.function(verb, profile) for profile in own for verb in PROFILE_VERBS),
    ]

    def lines(metric: str, statistic: str) -> list[cloudwatch.IMetric]:
        return [aws_metric("Lambda", metric, statistic, label=name, FunctionName=name) for name in functions]

    def of(metric: str, *verbs: str, label: str = "") -> list[cloudwatch.IMetric]:
        return [
            aws_metric("Lambda", metric, "Sum", label=f"{verb} {label}".strip(), FunctionName=names.function(verb))
            for verb in verbs
        ]

    dropped = of("AsyncEventsDropped", "sweep", "govern", label="dropped")
    return [
        graph("Errors", lines("Errors", "Sum")),
        graph("Duration, p95", lines("Duration", "p95"), "Milliseconds"),
        graph("At work at once", lines("ConcurrentExecutions", "Maximum")),
        graph("Throttled", lines("Throttles", "Sum")),
        graph("Whether it runs", [*of("Invocations", "sweep", "govern"), *dropped]),
    ]


def _machines(scope: Construct, names: Names, profiles: Sequence[str]) -> Rows:
    rows: Rows = []
    for profile in profiles:
        arn, name = names.machine_arn(Stack.of(scope), profile), names.machine(profile)
        ends = [aws_metric("States", f"Executions{e}", "Sum", label=e, StateMachineArn=arn) for e in EXECUTIONS]
        times = [aws_metric("States", "ExecutionTime", p, label=p, StateMachineArn=arn) for p in ("p50", "p95")]
        throttled = [aws_metric("States", "ExecutionThrottled", "Sum", label="throttled", StateMachineArn=arn)]
        rows.append(
            [
                graph(f"Executions of {name}", ends),
                graph(f"How long {name} takes", times, "Milliseconds"),
                graph(f"{name}: steps held back", throttled),
            ]
        )
    return rows


def _chunks(names: Names, streaming: Streaming) -> list[cloudwatch.IWidget]:
    stream, projector = names.of("chunks"), names.function("project_stream")
    assert streaming.source is not None, "the stream feeds nothing yet"
    given_up = "OnFailureDestinationDeliveredEventCount"
    return [
        graph(
            "How old chunks are when they are projected",
            [
                aws_metric("Lambda", "IteratorAge", "Maximum", label="project_stream", FunctionName=projector),
                aws_metric(
                    "Kinesis", "GetRecords.IteratorAgeMilliseconds", "Maximum", label="stream", StreamName=stream
                ),
            ],
            "Milliseconds",
        ),
        graph(
            "Chunks",
            [
                aws_metric("Kinesis", "IncomingRecords", "Sum", label="written", StreamName=stream),
                aws_metric("Kinesis", "WriteProvisionedThroughputExceeded", "Sum", label="refused", StreamName=stream),
            ],
        ),
        graph(
            "Refused; given up, and put aside",
            [
                aws_metric("Lambda", metric, "Sum", label=label, EventSourceMappingUUID=streaming.source.ref)
                for label, metric in (("refused", "FailedInvokeEventCount"), ("given up", given_up))
            ],
        ),
    ]


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


def _edges(names: Names, sockets: Sockets, endpoints: Endpoints) -> list[cloudwatch.IWidget]:
    connected = ("ConnectCount", "MessageCount", "ClientError", "ExecutionError", "IntegrationError")
    asked = ("Count", "4xx", "5xx")
    queue, notices, alarms = names.of(UNDELIVERED), names.of("notices"), names.of("alarms")
    missed_commits = "NumberOfNotificationsFailed"
    return [
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
