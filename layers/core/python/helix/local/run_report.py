"""A report of the AWS resources that a run used (executions, invocations, rows) and their price, read afterwards from the
services' own APIs.

Law: nothing comes from Helix's own records. Dollar amounts are list prices without free tiers. The report names the costs
that the APIs do not show, and leaves them out.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from helix.core import aws_prices as prices
from helix.local.cloud import OfflineCloud
from helix.runtime.tables import sorts_of

PRICES_OF = f"{prices.REGION}, {prices.DATE}"
ROW_NAMES = {
    "session": "session",
    "r": "run",
    "m": "message",
    "c": "checkpoint",
    "l": "lineage",
    "x": "stop",
    "h": "hook mark",
    "t": "token",
    "u": "lost attempt",
}
"""The display names of rows in the sessions table, by sort key prefix (`core.row_keys`), in the order in which they are
printed."""
RUNS = 1_000
_REPORT = re.compile(r"REPORT RequestId: \S+\tDuration: (\d+) ms.*Memory Size: (\d+) MB")


@dataclass(frozen=True, slots=True)
class Execution:
    session_id: str
    """The session that the execution belongs to."""
    machine: str
    """The name of the state machine."""
    status: str
    """The status that Step Functions reports."""
    seconds: float
    """The duration. 0 while the execution is running."""
    states: tuple[str, ...]
    """The names of the states in the order in which they were entered."""
    retries: int = 0
    """The number of repeated tasks. Step Functions bills each as a transition."""

    @property
    def transitions(self) -> int:
        return len(self.states) + self.retries


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one partition."""

    table: str
    """The table without the stage's prefix, such as `sessions`."""
    partition: str
    """The partition key, which is a session id."""
    kinds: Counter[str]
    """The number of rows by sort key prefix. Packed rows are included."""
    size: int
    """The size of all items in bytes, as DynamoDB counts it."""
    units: int
    """The write units of the rows, assuming that each was written once."""


@dataclass(frozen=True, slots=True)
class RunReport:
    executions: tuple[Execution, ...]
    """The executions, oldest first."""
    invocations: Mapping[str, tuple[int, float, float]]
    """The invocations by verb, as (invocations, seconds, GB-seconds)."""
    rows: tuple[Rows, ...]
    """The partitions that have rows."""

    @property
    def transitions(self) -> int:
        return sum(execution.transitions for execution in self.executions)

    @property
    def dollars(self) -> dict[str, float]:
        calls, _, gb_s = total(self.invocations.values())
        return {
            "Step Functions": self.transitions * prices.TRANSITION,
            "Lambda": calls * prices.LAMBDA_REQUEST + gb_s * prices.LAMBDA_GB_S,
            "DynamoDB": sum(rows.units for rows in self.rows) * prices.DYNAMODB_WRITE_UNIT,
        }


def read_report(cloud: OfflineCloud, session_id: str, since: float) -> RunReport:
    """Read the report of a session and its sub-agents. `since` is in Unix seconds; anything that started earlier belongs to
    another run."""
    executions = tuple(sorted(_executions(cloud, since), key=lambda pair: pair[0]))
    found = tuple(execution for _, execution in executions)
    sessions = list(dict.fromkeys([session_id, *(execution.session_id for execution in found)]))
    rows = [_rows(cloud, "sessions", name) for name in sessions]
    rows += [_rows(cloud, "streams", name) for name in sessions]
    return RunReport(found, _invocations(cloud, since), tuple(row for row in rows if row.kinds))


# --- Step Functions --------------------------------------------------------------------------------------------------


def _executions(cloud: OfflineCloud, since: float) -> Iterator[tuple[float, Execution]]:
    client = cloud.client("stepfunctions")
    for arn in cloud.machines():
        for listed in client.list_executions(stateMachineArn=arn)["executions"]:
            if listed["startDate"].timestamp() < since:
                continue
            described = client.describe_execution(executionArn=listed["executionArn"])
            given = json.loads(described["input"])
            ended = described.get("stopDate") or described["startDate"]
            seconds = (ended - described["startDate"]).total_seconds()
            states, retries = _states(client, listed["executionArn"])
            session, name = str(given.get("session_id", "")), arn.rpartition(":")[2]
            execution = Execution(session, name, described["status"], seconds, states, retries)
            yield described["startDate"].timestamp(), execution


def _states(client: Any, arn: str) -> tuple[tuple[str, ...], int]:
    """Return the states in the order in which they were entered, and the number of repeated tasks."""
    pages = client.get_paginator("get_execution_history").paginate(executionArn=arn)
    events = [event for page in pages for event in page["events"]]
    entered = tuple(
        event["stateEnteredEventDetails"]["name"] for event in events if "stateEnteredEventDetails" in event
    )
    kinds = Counter(event["type"] for event in events)
    return entered, max(0, kinds["TaskScheduled"] - kinds["TaskStateEntered"])


# --- Lambda ----------------------------------------------------------------------------------------------------------


def _invocations(cloud: OfflineCloud, since: float) -> dict[str, tuple[int, float, float]]:
    """Read the invocations from the REPORT lines that Lambda writes into each function's log."""
    logs, found = cloud.client("logs"), dict[str, tuple[int, float, float]]()
    for function in cloud.functions():
        group = f"/aws/lambda/{function}"
        try:
            pages = logs.get_paginator("filter_log_events").paginate(logGroupName=group, startTime=int(since * 1000))
            lines = [event["message"] for page in pages for event in page["events"]]
        except logs.exceptions.ResourceNotFoundException:
            continue
        reports = [(int(m[1]) / 1000, int(m[2]) / 1024) for line in lines if (m := _REPORT.match(line))]
        if reports:
            verb = function.removeprefix(cloud.function(""))
            found[verb] = (len(reports), sum(s for s, _ in reports), sum(s * gb for s, gb in reports))
    return found


def total(invocations: Iterable[tuple[int, float, float]]) -> tuple[int, float, float]:
    every = list(invocations)
    return sum(n for n, _, _ in every), sum(s for _, s, _ in every), sum(g for _, _, g in every)


# --- DynamoDB --------------------------------------------------------------------------------------------------------


def _rows(cloud: OfflineCloud, table: str, partition: str) -> Rows:
    asked = {"KeyConditionExpression": "pk = :p", "ExpressionAttributeValues": {":p": {"S": partition}}}
    pages = cloud.client("dynamodb").get_paginator("query").paginate(TableName=cloud.table(table), **asked)
    items = [item for page in pages for item in page["Items"]]
    sizes = [size_of(item) for item in items]
    kinds = Counter(sort.partition("#")[0] for sort in {sort for item in items for sort in sorts_of(item)})
    return Rows(table, partition, kinds, sum(sizes), sum(-(-size // 1024) for size in sizes))


def size_of(item: Mapping[str, Any]) -> int:
    """Return the size of an item in bytes as DynamoDB counts it: attribute names and values."""
    return sum(len(name.encode()) + _value_size(value) for name, value in item.items())


def _value_size(value: Mapping[str, Any]) -> int:
    (kind, content), *_ = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "B":
            return len(content)
        case "N":
            return len(content) // 2 + 1
        case "M":
            return 3 + size_of(content) + len(content)
        case "L":
            return 3 + sum(1 + _value_size(each) for each in content)
        case "SS" | "NS" | "BS":
            return sum(len(each) for each in content)
        case _:
            return 1


# --- the report as text ----------------------------------------------------------------------------------------------


def lines_of(report: RunReport) -> Iterator[str]:
    """Yield the report as lines of text, with an empty line between its parts."""
    yield f"Step Functions ran {_count(len(report.executions), 'execution')}, {_count(report.transitions, 'transition')}:"
    for execution in report.executions:
        yield from _execution(execution)
    yield ""
    calls, seconds, gb_s = total(report.invocations.values())
    yield f"Lambda ran {_count(calls, 'invocation')}, {seconds:.1f} s, {gb_s:.2f} GB-seconds:"
    often = sorted(report.invocations.items(), key=lambda pair: (-pair[1][0], pair[0]))
    yield "  " + ", ".join(f"{verb} {count}" for verb, (count, _, _) in often)
    yield ""
    size = sum(rows.size for rows in report.rows)
    yield f"DynamoDB holds {_count(sum(r.kinds.total() for r in report.rows), 'row')} of it, {size / 1024:.1f} KB:"
    for rows in report.rows:
        yield f"  {rows.table:<8} {rows.partition}: {', '.join(_kinds(rows))}, {rows.size / 1024:.1f} KB"
    yield ""
    dollars, whole = report.dollars, sum(report.dollars.values())
    yield f"At list prices ({PRICES_OF}) that is ${whole:.6f}, ${RUNS * whole:.2f} for {RUNS:,} such runs:"
    yield "  " + ", ".join(f"{name} ${value:.6f}" for name, value in dollars.items())
    yield "  Not counted: reads, rows that were written more than once, Kinesis, WebSocket messages, and the model."


def _execution(execution: Execution) -> Iterator[str]:
    retries = f", {_count(execution.retries, 'retry')} of them" if execution.retries else ""
    many = f"{_count(execution.transitions, 'transition')}{retries}"
    yield f"  {execution.session_id}: {execution.status.lower()} in {execution.seconds:.1f} s, {many}"
    yield f"    {' → '.join(_runs(execution.states))}"


def _kinds(rows: Rows) -> Iterator[str]:
    if rows.table == "sessions":
        order = [*ROW_NAMES, *(kind for kind in sorted(rows.kinds) if kind not in ROW_NAMES)]
        yield from (_count(rows.kinds[kind], ROW_NAMES.get(kind, kind)) for kind in order if rows.kinds[kind])
    else:
        yield _count(rows.kinds.total(), "row")


def _runs(states: Iterable[str]) -> Iterator[str]:
    """Yield the states, with consecutive repeats combined."""
    for state, same in groupby(states):
        count = len(list(same))
        yield state if count == 1 else f"{state} ×{count}"


def _count(number: int, what: str) -> str:
    if number == 1:
        return f"1 {what}"
    return f"{number:,} {what[:-1]}ies" if what.endswith("y") else f"{number:,} {what}s"
