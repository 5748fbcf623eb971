"""Measure a short run on DynamoDB: write units by row, and read calls. `python bench/aws_short.py` saves the table to
bench/results/aws_short.md; `bench/aws_calls.py` includes it in its output."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import boto3
from aws.cloud import ENVIRONMENT, cloud, make_tables, tables
from aws.wire import Call, Wire
from aws_calls import MODEL, PLAIN, listing
from moto import mock_aws

from helix import LocalExecutor
from helix.adapters.aws.dynamodb import DynamoDBStateStore
from helix.adapters.system import SystemClock
from helix.core.steps import AnyStepResult
from helix.ports.model import LLMGenerateInput
from helix.services.segments import SegmentStreams
from helix.sessions.read import Sessions

LONG = 100
SHORT_NOTES = """\
Each run is measured from `execute` to `result`, in process on DynamoDB. It is the first run in its tables, so it also
creates the rows of its counters and of its request head. A read is one call: GetItem, BatchGetItem, or each page of a
Query. Periodic checks for a stop are left out. Units are DynamoDB's: 1 for each KB of a row that is put alone, 2 in a
transaction. The number of stream segments depends on time: writes within 50 ms form one. Deployed runs include the claim,
`call_model`, `call_tool`, `finish_run` and `project_stream`, with each Kinesis record in a separate invocation."""


def short_runs(tools: int, turns: Sequence[str] = ("new", "next", "third", "cold")) -> dict[str, list[Call]]:
    """Measure runs with this many tool steps in one `LocalExecutor` on DynamoDB, from `execute` to `result`: the first
    run of a new session and its next turns. `cold`: a later turn in another process, without tools."""
    found: dict[str, list[Call]] = {}
    with patch.dict(os.environ, ENVIRONMENT), mock_aws():
        client = boto3.client("dynamodb")
        make_tables(client)
        wire = Wire(lambda table, key: client.get_item(TableName=table, Key=key)["Item"])
        session = boto3.Session()
        wire.listen(session._session)

        async def play() -> None:
            def process() -> LocalExecutor:
                store = DynamoDBStateStore(session.client("dynamodb"), tables(), clock=SystemClock())
                log = SegmentStreams(store, clock=SystemClock())  # with tombstones, like the log of a stage
                return LocalExecutor(store, model=Asked(wire), streams=log)

            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))  # moto handles one call at a time
            executor, session_id = process(), None
            for n, name in enumerate(turns):
                MODEL.steps = tools * (n + (name != "cold"))
                begun = len(wire.calls)
                executor = process() if name == "cold" else executor
                handle = await executor.execute(PLAIN, "go", session_id=session_id)
                session_id = handle.session_id
                await handle.result()
                found[name] = wire.calls[begun:]

        asyncio.run(play())
    return found


class Asked:
    """A model that records on the wire when it is called."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        with self._wire.at("model"):
            self._wire.calls.append(Call(("model",), "", "asked"))
        return await MODEL.generate_step(request)


def listed(count: int) -> list[Call]:
    """Measure how a process lists this many sessions of a user that other processes created."""
    MODEL.steps = 0
    with patch.dict(os.environ, ENVIRONMENT), mock_aws():
        client = boto3.client("dynamodb")
        make_tables(client)
        wire = Wire(lambda table, key: client.get_item(TableName=table, Key=key)["Item"])
        session = boto3.Session()
        wire.listen(session._session)

        async def play() -> list[Call]:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
            store = DynamoDBStateStore(client, tables(), clock=SystemClock())
            async with LocalExecutor(store, model=MODEL) as executor:
                for _ in range(count):
                    await (await executor.execute(PLAIN, "go", user_id="ada")).result()
            reader = Sessions(DynamoDBStateStore(session.client("dynamodb"), tables(), clock=SystemClock()))
            assert len((await reader.list_sessions(user_id="ada", limit=count)).sessions) == count
            return wire.calls

        return asyncio.run(play())


def deployed_run(tools: int) -> list[Call]:
    """Measure the first run of a new session on the deployed functions, with all reads and writes."""
    MODEL.steps, MODEL.words, MODEL.thinks_s = tools, 0, 0.0
    with cloud("aws_calls") as made:
        handle = made.caller(lambda executor: executor.execute(PLAIN, "go"), "claim", 0)
        made.play({"session_id": handle.session_id, "run_id": handle.run_id})
        return list(made.wire.calls)


def units_by_row(calls: Iterable[Call]) -> dict[str, int]:
    """Sum the write units by kind of row."""
    found: dict[str, int] = {}
    for call in calls:
        for row, paid in zip(call.rows, call.paid, strict=True):
            kind = kind_of(*row[:2])
            found[kind] = found.get(kind, 0) + paid
    return found


def kind_of(table: str, sort: str) -> str:
    if table.endswith("streams"):
        return "stream segments"
    if table.endswith("control"):
        kinds = {"q": "request heads", "activity": "activity of the stage"}
        usage = "#completion" in sort or sort.startswith("agent:")
        return "usage" if usage else kinds.get(sort.partition("#")[0], "open runs")
    kinds = {"m": "messages", "c": "checkpoints", "r": "runs"}
    return "session" if sort == "session" else kinds.get(sort.partition("#")[0], "index of sessions")


def reads_before(calls: Sequence[Call]) -> int:
    """Return the read calls before the first model call."""
    asked = next(place for place, call in enumerate(calls) if call.verb == "asked")
    return sum(call.reads for call in calls[:asked])


def short_table() -> list[str]:
    plain, tool = short_runs(0), short_runs(1)
    columns = {
        "no tool": plain["new"],
        "its next turn": plain["next"],
        "the turn after": plain["third"],
        "one tool step": tool["new"],
        "deployed, no tool": deployed_run(0),
        "deployed, one tool step": deployed_run(1),
    }
    kinds = sorted({kind for calls in columns.values() for kind in units_by_row(calls)})
    lines = ["| write units | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for kind in kinds:
        lines.append(
            f"| {kind} | " + " | ".join(str(units_by_row(calls).get(kind, 0)) for calls in columns.values()) + " |"
        )
    totals = [sum(call.write_units for call in calls) for calls in columns.values()]
    lines.append("| **all** | " + " | ".join(f"**{total}**" for total in totals) + " |")
    lines.append(
        "| calls that read | " + " | ".join(str(sum(c.reads for c in calls)) for calls in columns.values()) + " |"
    )
    lines += ["", f"A list of 50 sessions takes {sum(call.reads for call in listed(50))} reads."]
    cold = short_runs(LONG, ("new", "cold"))["cold"]
    lines += [
        "",
        f"A turn of a session of {LONG} steps by another process makes {reads_before(cold)} reads before the model",
    ]
    lines += [f"is asked, {sum(call.reads for call in cold)} in all.", "", "Its calls:", "", *listing(cold)]
    return lines


def main() -> None:
    table = "\n".join(["# Cost of a short run on DynamoDB", "", SHORT_NOTES, "", *short_table(), ""])
    print(table)
    (Path(__file__).parent / "results" / "aws_short.md").write_text(table)


if __name__ == "__main__":
    main()
