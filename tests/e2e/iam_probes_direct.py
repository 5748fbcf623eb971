"""Probes of a stage without Kinesis, for the rights that its functions have in addition to those with Kinesis, or instead.

Functions append to the log themselves, and `project_stream` reads the change stream of the log's table.
"""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from typing import Any

from tests.e2e.iam_bench import LARGE, PROBES, Bench, Json, Prepare, Probe, of_call, payload, started
from tests.e2e.iam_probes import a_failure, a_step_with_a_tool, a_sub_agent, a_tool, an_end
from tests.e2e.iam_probes_fleet import a_line_that_is_long
from tests.e2e.iam_roles import Right
from tests.support.cloud_agents.plans import call, say, use
from tests.support.cloud_agents.tools import noise

from helix.gateway.connections import Connections
from helix.ports.state_store import Delete
from helix.services.row_slots import RowSlots
from helix.services.stream_ends import segment_sort

GET, QUERY, PUT, DELETE = (("streams", f"dynamodb:{verb}") for verb in ("GetItem", "Query", "PutItem", "DeleteItem"))
UNSEEN: dict[str, str] = {
    r"project_stream: dynamodb:\w+ on changes": "the event source reads the table, in the emulator without any role",
    r"govern: dynamodb:ConditionCheckItem on sessions": "only where a session was deleted, or a sub-agent begins",
    r"govern: dynamodb:GetItem on streams": "only a row whose object is gone is read once more",
}
"""The rights that cannot be missed offline, with the reasons, in addition to those of `iam_roles.UNSEEN`."""


def is_unseen(right: Right) -> bool:
    return any(re.fullmatch(pattern, str(right)) for pattern in UNSEEN)


async def a_step_behind_a_lost_object(bench: Bench) -> Json:
    place = await bench.claimed(say("x"))
    await bench.lost(await bench.stream_of(place))
    return payload(place)


async def a_tool_behind_a_lost_object(bench: Bench) -> Json:
    place, (call_id,) = await bench.staged(use(call("look", topic="x")))
    await bench.lost(await bench.stream_of(place))
    return of_call(place, call_id)


async def a_line_that_was_not_announced(bench: Bench) -> Json:
    """The process that claimed the runs died before the log had a record of them."""
    event, store = await a_line_that_is_long(bench), bench.app.store
    for waiting in await RowSlots(store).queue("crew"):
        rows = await store.query("streams", waiting.candidate.session_id)
        await store.transact("forget", [Delete(row.key) for row in rows])
    return event


async def a_segment_for_somebody_who_hung_up(bench: Bench) -> Json:
    stream_id = bench.fresh()
    await Connections(bench.app.store, bench.app.clock).subscribe(await bench.connected(), stream_id)
    return await followed(bench, stream_id, "Hello?")


async def a_large_segment(bench: Bench) -> Json:
    return await followed(bench, bench.fresh(), noise(LARGE))


async def followed(bench: Bench, stream_id: str, text: str) -> Json:
    """Append a stream's first segment. Return the event that the table's change stream has for it."""
    await bench.app.log.append(stream_id, [started(stream_id, text)])
    key = {"pk": {"S": stream_id}, "sk": {"S": segment_sort(1)}}
    table = {"TableName": bench.app.settings.streams_table}
    found: dict[str, Any] = bench.cloud.aws("dynamodb").get_item(**table, Key=key)["Item"]
    image = {name: _as_text(value) for name, value in found.items()}
    change: dict[str, Any] = {"Keys": key, "NewImage": image, "SequenceNumber": "1"}
    change["ApproximateCreationDateTime"] = bench.app.clock.now()
    return {"Records": [{"eventSource": "aws:dynamodb", "dynamodb": change}]}


def _as_text(attribute: dict[str, Any]) -> dict[str, Any]:
    return {"B": base64.b64encode(attribute["B"]).decode()} if "B" in attribute else attribute


def again(prepare: Prepare, *rights: tuple[str, str]) -> Probe:
    """Reuse a probe that puts chunks on Kinesis. Without Kinesis the same function appends to the log."""
    return replace(PROBES[prepare.__name__], rights=rights)


DIRECT = (
    again(a_step_with_a_tool, QUERY, PUT),
    Probe("call_model", a_step_behind_a_lost_object, (GET,)),
    again(a_tool, QUERY, PUT),
    Probe("call_tool", a_tool_behind_a_lost_object, (GET,)),
    again(a_sub_agent, PUT),
    again(an_end, PUT),
    again(a_failure, PUT),
    Probe("govern", a_line_that_was_not_announced, (QUERY, PUT)),
    Probe(
        "project_stream",
        a_segment_for_somebody_who_hung_up,
        (QUERY, DELETE, ("connections", "execute-api:ManageConnections")),
    ),
    Probe("project_stream", a_large_segment, (("objects", "s3:GetObject"),)),
)
