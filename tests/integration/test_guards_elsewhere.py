"""Guards where functions execute the calls, in wide steps, and through an export: the verdicts decide, wherever a call
is claimed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.integration.test_damaged_reads import opened
from tests.support.delivery_stage import Stage
from tests.support_guards import ASKED, DONE, call, pay, says, send
from tests.support_guards import play as run
from tests.support_run import QUICK, World, agent, history, play, results

from helix import Allow, Ask, Block, Confirmation, Guard, MemoryStateStore, Replace
from helix.adapters.system import SystemClock, SystemIds
from helix.cli.sessions.files import _export
from helix.core.entries import AssistantRow
from helix.core.guards import GuardContext
from helix.core.row_keys import message_sort
from helix.core.verdicts import Verdict
from helix.ports.state_store import Key
from helix.sessions.exports import read_export
from helix.sessions.imports import import_session


@pytest.fixture(autouse=True)
def fresh() -> None:
    DONE.clear()
    ASKED.clear()


def judge(value: Any, context: GuardContext) -> Any:
    ASKED[context.on, context.call_id or str(value)] += 1
    text = str(value)
    if context.on == "result":
        return Replace("judged")
    if "eve" in text:
        return Replace({"to": "bob"})
    return Block("never") if "mallory" in text else Ask("risky") if "risky" in text else Allow()


def to(*names: str) -> dict[str, Any]:
    return {"tool_calls": [call("send", f"c{n}", to=name) for n, name in enumerate(names)]}


def guarded(**fields: Any) -> Any:
    return agent(tools=[send, pay], guards=[Guard(name="judge", call=judge, result=judge)], **fields)


async def test_functions_execute_what_the_guards_allow() -> None:
    """Each call runs in another delivery than the one that judged it, and every delivery comes twice."""
    stage = Stage([to("eve", "mallory", "carol"), "Done."], guarded())
    event = await stage.begin(stage.agents.named("helper"))
    told = await stage.deliver("call_model", event)
    assert DONE == []
    for _ in range(2):
        for one in told["calls"]:
            await stage.deliver("call_tool", {**told, "call": one})
    told = await stage.follow({**event, "step": event["step"] + 1})
    assert told["next"] == "finish"
    assert sorted(DONE) == ["sent to bob", "sent to carol"]
    found = await stage.results(event)
    assert [success for _, success in found] == [True, False, True] and found[0][0] == "judged"
    assert set(ASKED.values()) == {1}


async def test_a_wide_step_keeps_the_verdicts_of_all_its_calls(quick_world: World) -> None:
    names = ["eve", "mallory", "risky", *(f"n{n}" for n in range(9))]
    executor = quick_world.executor([to(*names), "Done."], settings=replace(QUICK, calls_at_once=4))
    who = guarded()
    handle, result, _ = await play(executor, who)
    assert result.status == "paused"
    handle = await executor.resume(
        who, handle.session_id, mode="with_confirmation", confirmation=Confirmation("c2", approved=True)
    )
    assert (await handle.result(timeout_s=20)).text == "Done."
    assert sorted(DONE) == sorted(["sent to bob", "sent to risky", *(f"sent to n{n}" for n in range(9))])
    found = results(await history(executor, handle.session_id))
    assert found[0] == "judged" and "never" in found[1] and found[2:] == ["judged"] * 10
    assert set(ASKED.values()) == {1}


async def test_an_export_has_the_verdicts_and_an_import_restores_them() -> None:
    guards = [Guard(name="names", input=says(Replace("someone"), "Eve"), output=says(Replace("x"), "secret"))]
    played = await run(["secret"], guards, "I am Eve")
    store, other = played.workers.store, MemoryStateStore()
    assert isinstance(store, MemoryStateStore)
    async with opened(store) as (client, _):
        export = await _export(client, "s")
    await import_session(other, read_export([*export.lines()]), SystemClock(), SystemIds())
    (value,) = await other.get([Key("sessions", "s", message_sort(0, 1))])
    assert value is not None
    verdicts = AssistantRow.read("sessions", "s", value).verdicts
    assert [(v.on, v.verdict, v.before) for v in verdicts] == [
        ("input", "replace", None),
        ("output", "replace", "secret"),
    ]


def test_a_verdict_of_a_later_version_can_be_read() -> None:
    verdict = Verdict.model_validate({"guard": "g", "on": "thought", "verdict": "escalate", "new": 1})
    assert str(verdict.on) == "thought" and not verdict.refuses
