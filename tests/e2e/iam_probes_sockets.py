"""Probes of the functions between the writers, the stream's log and the sockets."""

from __future__ import annotations

import base64
from hashlib import sha256
from typing import Any

from tests.e2e.iam_bench import LARGE, USER, Bench, Json, event_of, probe, started
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.cloud_agents.tools import noise

from helix.adapters.system import SystemClock
from helix.core.log_records import pack
from helix.gateway.connections import Connections
from helix.ports.state_store import Key, Put
from helix.services.blob_rows import blob_owner


def kinesis(stream_id: str, *records: bytes) -> Json:
    told = [
        {
            "eventSource": "aws:kinesis",
            "kinesis": {
                "partitionKey": stream_id,
                "sequenceNumber": str(number),
                "data": base64.b64encode(data).decode(),
                "approximateArrivalTimestamp": SystemClock().now(),
            },
        }
        for number, data in enumerate(records, 1)
    ]
    return {"Records": told}


@probe("project_stream", streams="Query PutItem")
async def a_record(bench: Bench) -> Json:
    stream_id = bench.fresh()
    return kinesis(stream_id, *pack(stream_id, [started(stream_id)]))


@probe("project_stream", streams="DeleteItem", connections="ManageConnections")
async def a_record_for_somebody_who_hung_up(bench: Bench) -> Json:
    stream_id = bench.fresh()
    await Connections(bench.app.store, bench.app.clock).subscribe(await bench.connected(), stream_id)
    return kinesis(stream_id, *pack(stream_id, [started(stream_id, "Hello?")]))


@probe("project_stream", streams="GetItem")
async def a_record_behind_a_lost_object(bench: Bench) -> Json:
    stream_id = bench.fresh()
    await bench.lost(stream_id)
    return kinesis(stream_id, *pack(stream_id, [started(stream_id)]))


@probe("project_stream", sessions="ConditionCheckItem")
async def a_record_of_a_session_after_a_deletion(bench: Bench) -> Json:
    stream_id, created_at = bench.fresh(), bench.app.clock.now()
    await bench.app.log.delete(stream_id)  # its tombstone makes the next record prove its session
    await bench.app.store.transact("make", [Put(Key("sessions", stream_id, "session"), {"created_at": created_at})])
    record = started(stream_id, "Hello?").model_copy(update={"created_at": created_at})
    return kinesis(stream_id, *pack(stream_id, [record]))


@probe("project_stream", sessions="GetItem")
async def a_record_of_a_deleted_stream_that_cannot_be_read(bench: Bench) -> Json:
    stream_id = bench.fresh()
    await bench.app.log.delete(stream_id)
    return kinesis(stream_id, b"?")


@probe("project_stream", objects="GetObject PutObject")
async def a_record_that_kinesis_did_not_take(bench: Bench) -> Json:
    stream_id = bench.fresh()
    assert bench.app.overflow is not None
    offload = bench.app.overflow.writer(Key("streams", stream_id, "records"))
    return kinesis(stream_id, *pack(stream_id, [started(stream_id, noise(3_000_000))], offload))


@probe("project_stream", failed="PutObject")
async def a_record_that_cannot_be_read(bench: Bench) -> Json:
    return kinesis(bench.fresh(), b"?")


# --- sockets -------------------------------------------------------------------------------------------------------------


async def message(bench: Bench, action: str, **fields: Any) -> Json:
    """Return the event of a request. It comes from an operator if only operators may send it."""
    connection = await bench.connected(operator=action == "get_logs")
    return event_of(connection, {"v": 1, "id": "r1", "action": action, **fields})


@probe("ws_authorize", control="GetItem")
async def a_key(bench: Bench) -> Json:
    token = bench.cloud.key(USER)
    return event_of("x=", methodArn="arn:aws:execute-api:x", headers={"Authorization": f"Bearer {token}"})


@probe("ws_connect", streams="PutItem")
async def somebody_connects(bench: Bench) -> Json:
    return event_of(f"{bench.fresh()}=")


@probe("ws_disconnect", streams="Query DeleteItem")
async def somebody_hangs_up(bench: Bench) -> Json:
    name = await bench.connected()
    await Connections(bench.app.store, bench.app.clock).subscribe(name, bench.fresh())
    return event_of(name)


@probe("ws_message", control="GetItem", streams="GetItem UpdateItem", connections="ManageConnections")
async def a_new_proof(bench: Bench) -> Json:
    return await message(bench, "authenticate", token=bench.cloud.key(USER))


@probe(
    "ws_message",
    sessions="GetItem Query PutItem",
    control="PutItem",
    streams="Query PutItem ConditionCheckItem",
    chunks="PutRecord",
    machines="StartExecution",
)
async def a_new_run(bench: Bench) -> Json:
    return await message(bench, "run", agent="talker", message=plan(say("Never said.")))


@probe("ws_message", objects="GetObject PutObject")
async def another_turn_with_a_large_state(bench: Bench) -> Json:
    place = await bench.ended(state={"notes": {"before": noise(LARGE)}})
    await bench.finished(place)
    fields = {"message": plan(say("Never said.")), "session_id": place.session_id, "state": {"total": 1}}
    return await message(bench, "run", agent="talker", **fields)


@probe("ws_message", files="GetObject")
async def the_end_of_an_upload(bench: Bench) -> Json:
    data, owner = bench.fresh().encode(), blob_owner(USER, "")
    digest, uploads = sha256(data).hexdigest(), bench.engine.files.uploads
    await uploads.begin(owner, digest, len(data), "text/plain", 60)
    await uploads.receive(owner, digest, data)
    return await message(bench, "finish_upload", sha256=digest)


@probe("ws_message", sessions="ConditionCheckItem")
async def an_interrupt(bench: Bench) -> Json:
    place = await bench.claimed(say("Never said."))
    return await message(bench, "interrupt", session_id=place.session_id)


@probe("ws_message", sessions="UpdateItem", tokens="SendTaskSuccess", executions="StopExecution")
async def an_abort(bench: Bench) -> Json:
    above, _, _ = await bench.child(use(call("look", topic="x")))
    return await message(bench, "abort", session_id=above.session_id)


@probe(
    "ws_message",
    sessions="DeleteItem",
    control="DeleteItem",
    streams="DeleteItem",
    objects="DeleteObject",
    bucket="ListBucket",
)
async def a_deletion(bench: Bench) -> Json:
    place = await bench.ended(state={"notes": {"before": noise(LARGE)}})
    await bench.finished(place)
    await bench.app.log.append(place.session_id, [started(place.session_id)])
    return await message(bench, "delete", session_id=place.session_id)


@probe("ws_message", logs="FilterLogEvents")
async def the_log_of_a_run(bench: Bench) -> Json:
    place = await bench.claimed(say("Never said."))
    return await message(bench, "get_logs", session_id=place.session_id)


@probe("ws_message", sessions="BatchGetItem")
async def a_list_of_sessions(bench: Bench) -> Json:
    for _ in range(2):
        await bench.claimed(say("Never said."))
    return await message(bench, "list_sessions")
