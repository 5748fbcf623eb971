"""Probes of the functions that execute a run, and of the sweep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.e2e.iam_bench import HEAVY, LARGE, USER, Bench, Json, of_call, payload, probe, started
from tests.support.blob_ages import due_now
from tests.support.cloud_agents.plans import ask, call, finish, plan, say, see, use
from tests.support.cloud_agents.tools import noise, portrait

from helix import Confirmation
from helix.core.delivery import Position
from helix.core.file_checks import describe
from helix.core.row_keys import run_sort
from helix.engine.history import row_key
from helix.ports.state_store import Delete, Update
from helix.services.activity import SWEEP
from helix.services.blob_rows import blob_owner, held_key
from helix.services.file_inputs import ReadFile


def picture(of: str) -> ReadFile:
    """Return the file that the tool `draw` returns."""
    data = portrait(of)
    return ReadFile(describe(data, name="portrait.png"), data)


# --- call_model ----------------------------------------------------------------------------------------------------------


@probe("call_model", sessions="BatchGetItem Query PutItem", chunks="PutRecord")
async def a_step_with_a_tool(bench: Bench) -> Json:
    return payload(await bench.claimed(use(call("look", topic="x"))))


@probe("call_model", sessions="ConditionCheckItem")
async def a_pause(bench: Bench) -> Json:
    place, _ = await bench.staged(use(call("gated", topic="x")))
    return payload(replace(place, step=2))


@probe("call_model", objects="GetObject PutObject")
async def a_large_state_and_answer(bench: Bench) -> Json:
    return payload(await bench.done(use(call("grow", size=LARGE)), say(noise(LARGE // 2), times=2)))


@probe("call_model", machines="StartExecution")
async def a_roll_over(bench: Bench) -> Json:
    return payload(replace(await bench.done(use(call("look", topic="x")), say("Done.")), events=20_000))


@probe("call_model", files="GetObject")
async def a_step_that_sees_a_file(bench: Bench) -> Json:
    return payload(await bench.done(use(call("draw", of=bench.fresh())), see()))


@probe("call_model", files="PutObject")
async def an_inline_tool_that_returns_a_file(bench: Bench) -> Json:
    return payload(await bench.claimed(use(call("draw", of=bench.fresh())), agent="swift"))


@probe("call_model", guardrails="ApplyGuardrail")
async def a_call_that_a_guardrail_judges(bench: Bench) -> Json:
    return payload(await bench.claimed(use(call("add", amount=1)), agent="shielded"))


# --- call_tool -----------------------------------------------------------------------------------------------------------


@probe("call_tool", sessions="BatchGetItem Query PutItem ConditionCheckItem", chunks="PutRecord")
async def a_tool(bench: Bench) -> Json:
    place, (call_id,) = await bench.staged(use(call("look", topic="x")))
    return of_call(place, call_id)


@probe("call_tool", objects="GetObject PutObject")
async def a_tool_with_a_large_state(bench: Bench) -> Json:
    place, (call_id,) = await bench.staged(use(call("grow", size=LARGE)), state={"notes": {"before": noise(LARGE)}})
    return of_call(place, call_id)


@probe("call_tool", guardrails="ApplyGuardrail")
async def a_result_that_a_guardrail_judges(bench: Bench) -> Json:
    place, (call_id,) = await bench.staged(use(call("look", topic="x")), agent="shielded")
    return of_call(place, call_id)


@probe("call_tool", control="GetItem BatchGetItem PutItem UpdateItem DeleteItem", files="PutObject")
async def a_tool_that_returns_a_file(bench: Bench) -> Json:
    place, (call_id,) = await bench.staged(use(call("draw", of=bench.fresh())))
    return of_call(place, call_id)


@probe("call_tool", files="GetObject")
async def a_tool_that_returns_a_file_that_is_stored_already(bench: Bench) -> Json:
    of = bench.fresh()
    await bench.done(use(call("draw", of=of)))
    place, (call_id,) = await bench.staged(use(call("draw", of=of)))
    return of_call(place, call_id)


@probe("call_tool", control="ConditionCheckItem")
async def a_tool_that_returns_a_file_whose_hold_is_half_lost(bench: Bench) -> Json:
    """The session is among the holders of the file, and its own row of it is missing."""
    of = bench.fresh()
    place, (call_id,) = await bench.staged(use(call("draw", of=of)))
    held = await bench.engine.files.take(USER, place.session_id, place.session_id, [picture(of)])
    (file,) = held.parts
    hold = held_key(place.session_id, file.sha256, blob_owner(USER, place.session_id))
    await bench.app.store.transact("lose", [Delete(hold)])
    return of_call(place, call_id)


# --- start_run -----------------------------------------------------------------------------------------------------------


@probe(
    "start_run",
    sessions="BatchGetItem GetItem Query PutItem ConditionCheckItem",
    control="PutItem",
    streams="Query",
    chunks="PutRecord",
    machines="StartExecution",
)
async def a_sub_agent(bench: Bench) -> Json:
    place, (call_id,) = await bench.staged(use(ask("helper", plan(say("x")))), agent="boss")
    return of_call(place, call_id, token="nobody's")


@probe("start_run", sessions="UpdateItem DeleteItem", control="DeleteItem", tokens="SendTaskSuccess")
async def a_sub_agent_that_has_ended(bench: Bench) -> Json:
    above, below, call_id = await bench.child(finish(summary="done"))
    await bench.bought(below)
    return of_call(above, call_id, token="nobody's")


@probe("start_run", streams="GetItem")
async def a_sub_agent_behind_a_lost_object(bench: Bench) -> Json:
    place, (call_id,) = await bench.staged(use(ask("helper", plan(say("x")))), agent="boss")
    await bench.lost(place.session_id)
    return of_call(place, call_id, token="nobody's")


@probe("start_run", objects="GetObject PutObject")
async def a_sub_agent_with_a_large_message(bench: Bench) -> Json:
    place, (call_id,) = await bench.staged(use(ask("helper", plan(say(noise(LARGE))))), agent="boss")
    return of_call(place, call_id, token="nobody's")


# --- finish_run, fail_run ------------------------------------------------------------------------------------------------


@probe(
    "finish_run",
    sessions="BatchGetItem GetItem Query UpdateItem",
    control="GetItem UpdateItem DeleteItem",
    chunks="PutRecord",
)
async def an_end(bench: Bench) -> Json:
    return payload(await bench.ended())


@probe("finish_run", sessions="PutItem ConditionCheckItem DeleteItem", tokens="SendTaskSuccess")
async def an_end_of_a_sub_agent(bench: Bench) -> Json:
    _, below, _ = await bench.child(finish(summary="done"))
    await bench.bought(below)
    return payload(below)


@probe(
    "fail_run",
    sessions="BatchGetItem GetItem Query PutItem UpdateItem",
    control="GetItem UpdateItem DeleteItem",
    chunks="PutRecord",
)
async def a_failure(bench: Bench) -> Json:
    return payload(await bench.claimed(say("Never said.")))


@probe("fail_run", sessions="ConditionCheckItem DeleteItem", tokens="SendTaskSuccess")
async def a_failure_of_a_sub_agent(bench: Bench) -> Json:
    _, below, _ = await bench.child(finish(summary="done"))
    return payload(below)


async def answered_below(bench: Bench, *, agent: str = "boss", **options: Any) -> Position:
    """A sub-agent works again after an answer. Its parent stays paused, because another call of its own waits."""
    own, asked = call("gated", topic="own"), use(call("gated", topic="x"))
    above, below, _ = await bench.child(asked, finish(summary="done"), beside=[own], agent=agent, **options)
    (gated,) = await bench.calls(above, below)
    await bench.app.executor.answer(bench.app.agents.named(agent), above.session_id, Confirmation(gated))
    state = await bench.app.executor.sessions.get(below.session_id)
    return replace(below, run_id=state.current_run_id, step=2)


@probe("finish_run", control="PutItem", streams="Query", machines="StartExecution", objects="GetObject PutObject")
async def an_end_that_a_paused_parent_waits_for(bench: Bench) -> Json:
    return payload(await bench.to_the_end(await answered_below(bench, metadata=HEAVY)))


@probe("finish_run", streams="GetItem")
async def an_end_behind_a_lost_object(bench: Bench) -> Json:
    below = await bench.to_the_end(await answered_below(bench))
    await bench.lost(await bench.stream_of(below))
    return payload(below)


@probe("fail_run", control="PutItem", streams="Query", machines="StartExecution", objects="GetObject PutObject")
async def a_failure_that_a_paused_parent_waits_for(bench: Bench) -> Json:
    return payload(await answered_below(bench, metadata=HEAVY))


@probe("fail_run", streams="GetItem")
async def a_failure_behind_a_lost_object(bench: Bench) -> Json:
    below = await answered_below(bench)
    await bench.lost(await bench.stream_of(below))
    return payload(below)


# --- sweep ---------------------------------------------------------------------------------------------------------------


@probe(
    "sweep",
    sessions="GetItem",
    control="Query",
    chunks="PutRecord",
    executions="DescribeExecution",
    machines="StartExecution",
)
async def a_run_that_never_started(bench: Bench) -> Json:
    await bench.old(await bench.claimed(say("Never said.")))
    return {}


@probe("sweep", sessions="Query UpdateItem", control="GetItem UpdateItem DeleteItem")
async def a_run_whose_effects_are_open(bench: Bench) -> Json:
    place = await bench.ended()
    await bench.old(place)
    return {}


@probe("sweep", streams="Query PutItem", objects="DeleteObject", bucket="ListBucket")
async def a_deletion_that_was_begun(bench: Bench) -> Json:
    place = await bench.ended(state={"notes": {"before": noise(LARGE)}})
    await bench.finished(place)
    await bench.app.log.append(place.session_id, [started(place.session_id)])
    await bench.hidden(place)
    return {}


@probe(
    "sweep",
    sessions="PutItem ConditionCheckItem",
    control="PutItem",
    objects="GetObject PutObject",
)
async def a_sub_agent_that_is_late(bench: Bench) -> Json:
    await _late(bench, await answered_below(bench, metadata=HEAVY))
    return {}


@probe("sweep", sessions="DeleteItem", tokens="SendTaskSuccess")
async def a_sub_agent_that_is_late_and_waited_for(bench: Bench) -> Json:
    _, below, _ = await bench.child(finish(summary="done"))
    await _late(bench, below)
    return {}


async def _late(bench: Bench, place: Position) -> None:
    run = row_key(place.session_id, run_sort(place.run_id))
    await bench.app.store.transact("late", [Update(run, set={"deadline": 1.0})])
    await bench.old(place)


@probe("sweep", streams="GetItem")
async def a_deletion_behind_a_lost_object(bench: Bench) -> Json:
    place = await bench.ended()
    await bench.finished(place)
    await bench.lost(place.session_id)
    await bench.hidden(place)
    return {}


@probe("sweep", files="DeleteObject")
async def a_file_that_nobody_holds(bench: Bench) -> Json:
    """The next sweep looks through all files that are due, because the last one is forgotten."""
    read, owner = picture(bench.fresh()), blob_owner(USER, "")
    await bench.engine.files.uploads.store(owner, [read])
    await due_now(bench.app.store, owner, read.part.sha256 or "")
    await bench.app.store.transact("forget", [Delete(SWEEP)])
    return {}
