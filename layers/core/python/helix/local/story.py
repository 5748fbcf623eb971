"""What a run left behind, as AWS tells it: executions and states, invocations, rows.

Law: everything here was asked of the services' own APIs after the run; nothing comes from Helix's own books. Dollars
are list prices, without free tiers, and what cannot be seen from outside is left out and named.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from helix.local.cloud import OfflineCloud

PRICES_OF = "us-east-1, November 2026"
TRANSITION = 25 / 1_000_000
INVOCATION = 0.20 / 1_000_000
GB_SECOND = 0.0000133334
"""arm64."""
WRITE_UNIT = 0.625 / 1_000_000
"""On demand; one for each KB of a write."""
_REPORT = re.compile(r"REPORT RequestId: \S+\tDuration: (\d+) ms.*Memory Size: (\d+) MB")


@dataclass(frozen=True, slots=True)
class Execution:
    session_id: str
    machine: str
    status: str
    seconds: float
    states: tuple[str, ...]
    """In the order in which they were entered."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Of one partition. `kinds` counts rows by what their sort key begins with."""

    table: str
    partition: str
    kinds: Counter[str]
    size: int
    units: int
    """Write units, if each row was written once."""


@dataclass(frozen=True, slots=True)
class Story:
    executions: tuple[Execution, ...]
    invocations: Mapping[str, tuple[int, float, float]]
    """(invocations, seconds, GB-seconds) by verb."""
    rows: tuple[Rows, ...]

    @property
    def transitions(self) -> int:
        return sum(len(execution.states) for execution in self.executions)

    @property
    def dollars(self) -> dict[str, float]:
        calls, _, gb_s = _sum(self.invocations.values())
        return {
            "Step Functions": self.transitions * TRANSITION,
            "Lambda": calls * INVOCATION + gb_s * GB_SECOND,
            "DynamoDB": sum(rows.units for rows in self.rows) * WRITE_UNIT,
        }


def read_story(cloud: OfflineCloud, session_id: str, since: float) -> Story:
    """Of a session and its sub-agents. `since`: Unix seconds; what began before is another run's."""
    executions = tuple(sorted(_executions(cloud, since), key=lambda pair: pair[0]))
    told = tuple(execution for _, execution in executions)
    sessions = list(dict.fromkeys([session_id, *(execution.session_id for execution in told)]))
    rows = [_rows(cloud, "sessions", name) for name in sessions]
    rows += [_rows(cloud, "streams", name) for name in sessions]
    return Story(told, _invocations(cloud, since), tuple(row for row in rows if row.kinds))


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
            states = tuple(_states(client, listed["executionArn"]))
            name = arn.rpartition(":")[2]
            yield (
                described["startDate"].timestamp(),
                Execution(str(given.get("session_id", "")), name, described["status"], seconds, states),
            )


def _states(client: Any, arn: str) -> Iterator[str]:
    for page in client.get_paginator("get_execution_history").paginate(executionArn=arn):
        for event in page["events"]:
            if (entered := event.get("stateEnteredEventDetails")) is not None:
                yield entered["name"]


# --- Lambda ----------------------------------------------------------------------------------------------------------


def _invocations(cloud: OfflineCloud, since: float) -> dict[str, tuple[int, float, float]]:
    """From the REPORT lines that Lambda writes into each function's log."""
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


def _sum(invocations: Iterable[tuple[int, float, float]]) -> tuple[int, float, float]:
    every = list(invocations)
    return sum(n for n, _, _ in every), sum(s for _, s, _ in every), sum(g for _, _, g in every)


# --- DynamoDB --------------------------------------------------------------------------------------------------------


def _rows(cloud: OfflineCloud, table: str, partition: str) -> Rows:
    asked = {"KeyConditionExpression": "pk = :p", "ExpressionAttributeValues": {":p": {"S": partition}}}
    pages = cloud.client("dynamodb").get_paginator("query").paginate(TableName=cloud.table(table), **asked)
    items = [item for page in pages for item in page["Items"]]
    sizes = [size_of(item) for item in items]
    kinds = Counter(item["sk"]["S"].partition("#")[0] for item in items)
    return Rows(table, partition, kinds, sum(sizes), sum(-(-size // 1024) for size in sizes))


def size_of(item: Mapping[str, Any]) -> int:
    """Bytes, as DynamoDB counts an item: names and values."""
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


# --- in words --------------------------------------------------------------------------------------------------------

ROW_NAMES = {
    "session": "session",
    "r": "run",
    "m": "message",
    "c": "checkpoint",
    "l": "lineage",
    "x": "stop",
    "h": "guard",
}
"""By what sort keys of the sessions table begin with."""


def lines_of(story: Story) -> Iterator[str]:
    """The story, line by line."""
    dollars = story.dollars
    yield f"Step Functions: {_count(len(story.executions), 'execution')}, {_count(story.transitions, 'transition')}"
    for execution in story.executions:
        path = " → ".join(_runs(execution.states))
        yield f"  {execution.session_id}  {execution.status.lower()} in {execution.seconds:.1f} s"
        yield f"    {path}"
    calls, seconds, gb_s = _sum(story.invocations.values())
    yield f"Lambda: {_count(calls, 'invocation')}, {seconds:.1f} s, {gb_s:.2f} GB-s"
    yield "  " + ", ".join(f"{verb} {count}" for verb, (count, _, _) in sorted(story.invocations.items()))
    size = sum(rows.size for rows in story.rows)
    yield f"DynamoDB: {_count(sum(r.kinds.total() for r in story.rows), 'row')}, {size / 1024:.1f} KB"
    for rows in story.rows:
        names = ROW_NAMES if rows.table == "sessions" else {}
        kinds = ", ".join(_count(n, names.get(kind, kind)) for kind, n in sorted(rows.kinds.items()))
        kinds = kinds if names else _count(rows.kinds.total(), "row")
        yield f"  {rows.table}/{rows.partition}: {kinds}, {rows.size / 1024:.1f} KB"
    parts = " + ".join(f"{name} ${value:.6f}" for name, value in dollars.items())
    yield f"At list price ({PRICES_OF}): ${sum(dollars.values()):.6f} = {parts}"
    yield "  DynamoDB as if each row had been written once; reads, Kinesis, WebSocket messages and the model not counted"


def _runs(states: Iterable[str]) -> Iterator[str]:
    """Equal neighbours as one."""
    last, count = "", 0
    for state in [*states, ""]:
        if state == last:
            count += 1
            continue
        if last:
            yield last if count == 1 else f"{last} ×{count}"
        last, count = state, 1


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")
