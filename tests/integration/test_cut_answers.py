"""`Agent.keep_partial`: the text of an answer that an interrupt cut off becomes history, and the model is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel
from tests.integration.test_damaged_reads import opened
from tests.support.usage_invariants import find_usage_problems
from tests.support_budgets import WORST, bounded_executor, manager
from tests.support_budgets import says as says_tokens
from tests.support_guards import says
from tests.support_resume import Log, writer
from tests.support_run import Gate, World, agent, call, calls, chunks_of, history, of_type, result_of, told, types

from helix import Allow, Guard, LocalExecutor, MemoryStateStore, Replace, ScriptedModel, create_sub_agent_tool
from helix.adapters.models.playback import notify
from helix.adapters.system import SystemClock, SystemIds
from helix.cli.sessions.files import _export
from helix.core.handles import AgentExecutionHandle
from helix.core.messages import AnyMessage
from helix.core.periods import TokenPeriod
from helix.core.prompt import GO_ON, STOPPED
from helix.core.steps import StopReason
from helix.core.usage import Usage
from helix.ports.model import BaseAdapter, LLMGenerateInput
from helix.services.session_calls import session_calls
from helix.sessions.exports import read_export
from helix.sessions.imports import import_session
from helix.sessions.ledger import ledger
from helix.testing.invariants import check_session

S = "s"
Begin = Callable[[Any], Any]


class Cut(ScriptedModel):
    """A model whose first answer stops after what `begin` streams, until the gate opens."""

    def __init__(self, script: Any, begin: Begin | None = None) -> None:
        super().__init__(script)
        self.gate, self._begin, self._begun = Gate(), begin or text("half a sen"), False

    async def generate_step(self, request: LLMGenerateInput) -> Any:
        if not self._begun:
            self._begun = True
            await self._begin(request.callbacks)
            await self.gate.wait()
        return await super().generate_step(request)


def text(*pieces: str) -> Begin:
    async def begin(callbacks: Any) -> None:
        for piece in pieces:
            await notify(callbacks.on_text_delta, piece)

    return begin


def keeper(**fields: Any) -> Any:
    return agent(keep_partial=True, **fields)


async def stopped(world: World, model: Cut, who: Any = None) -> tuple[Any, AgentExecutionHandle[Any]]:
    """Start a run, and interrupt it in its first model call."""
    executor = world.executor(model)
    handle = await executor.execute(who or keeper(), "go", session_id=S)
    await model.gate.reached()
    assert await handle.interrupt("enough", wait=True)
    assert (await result_of(handle)).status == "interrupted"
    return executor, handle


def prompt(model: ScriptedModel, number: int = -1) -> list[str]:
    """Return the messages of a request without the system prompt."""
    return told([m for m in model.requests[number].messages if m.role != "system"])


async def test_the_text_stays_and_the_model_is_told(world: World) -> None:
    model = Cut(["whole"], text("half ", "a sen"))
    executor, handle = await stopped(world, model)
    chunks = await chunks_of(handle)
    assert types(chunks)[-3:] == ["step_committed", "checkpoint_created", "run_interrupted"]
    assert [chunk.stop_reason for chunk in of_type(chunks, "step_committed")] == ["interrupted"]
    cut: AnyMessage = (await history(executor, S))[-1]
    assert told([cut]) == ["assistant: half a sen"] and cut.metadata["stop_reason"] == "interrupted"  # type: ignore[union-attr]
    await check_session(executor.store, executor.engine.streams, S, at_rest=True)

    again = await executor.execute(keeper(), "shorter", session_id=S)
    assert (await result_of(again)).output == "whole"
    assert prompt(model) == ["user: go", "assistant: half a sen", f"user: {STOPPED}", "user: shorter"]
    assert told(await history(executor, S)) == [
        *["user: go", "assistant: half a sen", "user: shorter", "assistant: whole"],
    ]
    found = await executor.sessions.get_context(S, 2)
    assert told(found.messages) == prompt(model)
    await check_session(executor.store, executor.engine.streams, S, at_rest=True)


async def test_a_resume_without_a_message_goes_on_where_it_ended(world: World) -> None:
    model = Cut(["tence.", "next"])
    executor, handle = await stopped(world, model)
    again = await handle.resume()
    assert (await result_of(again)).output == "tence."
    assert prompt(model) == ["user: go", "assistant: half a sen", f"user: {GO_ON}"]
    assert told(await history(executor, S)) == ["user: go", "assistant: half a sen", "assistant: tence."]
    await result_of(await executor.execute(keeper(), "more", session_id=S))  # the prompt begins as it did
    assert prompt(model)[:4] == ["user: go", "assistant: half a sen", f"user: {GO_ON}", "assistant: tence."]
    await check_session(executor.store, executor.engine.streams, S, at_rest=True)


async def test_without_the_setting_the_text_is_discarded(world: World) -> None:
    model = Cut(["whole"])
    executor, handle = await stopped(world, model, agent())
    assert "step_discarded" in types(await chunks_of(handle))
    assert told(await history(executor, S)) == ["user: go"]


async def whitespace(callbacks: Any) -> None:
    await notify(callbacks.on_text_delta, " \n")


async def thought(callbacks: Any) -> None:
    await notify(callbacks.on_thinking, "hm", False)


async def failed_try(callbacks: Any) -> None:
    await notify(callbacks.on_text_delta, "of a try that failed")
    await notify(callbacks.on_error, RuntimeError("broken"))


async def half_output(callbacks: Any) -> None:
    await notify(callbacks.on_text_delta, "Here it is:")
    await notify(callbacks.on_output_delta, '{"title": "Te')


class Report(BaseModel):
    title: str


@pytest.mark.parametrize("begin", [whitespace, thought, failed_try, half_output])
async def test_what_is_not_an_answer_is_not_kept(quick_world: World, begin: Begin) -> None:
    who = keeper(output_schema=Report) if begin is half_output else keeper()
    executor, handle = await stopped(quick_world, Cut([], begin), who)
    assert told(await history(executor, S)) == ["user: go"]
    assert "step_committed" not in types(await chunks_of(handle))
    await check_session(executor.store, executor.engine.streams, S, at_rest=True)


async def test_calls_and_reasoning_are_dropped_and_the_text_is_kept(quick_world: World) -> None:
    async def begin(callbacks: Any) -> None:
        await notify(callbacks.on_thinking, "hm", True)
        await notify(callbacks.on_text_delta, "I look it up.")
        await notify(callbacks.on_tool_start, "write")

    who = keeper(tools=[writer()], state_schema=Log)
    executor, _ = await stopped(quick_world, Cut([], begin), who)
    (cut,) = (await history(executor, S))[1:]
    assert (cut.content, cut.tool_calls, cut.thinking) == ("I look it up.", [], [])  # type: ignore[union-attr]


async def test_an_abort_keeps_nothing(quick_world: World) -> None:
    model = Cut([])
    executor = quick_world.executor(model)
    handle = await executor.execute(keeper(), "go", session_id=S)
    await model.gate.reached()
    await handle.abort("no")
    assert (await result_of(handle)).status == "failed"
    assert told(await history(executor, S)) == ["user: go"]


async def test_a_second_stop_changes_nothing(world: World) -> None:
    model = Cut(["whole"])
    executor, handle = await stopped(world, model)
    assert await handle.interrupt("again") is False
    assert told(await history(executor, S)) == ["user: go", "assistant: half a sen"]


async def test_a_stop_that_comes_after_the_answer_keeps_the_whole_answer(world: World) -> None:
    """The stop arrives while the answer is written: it is not cut."""

    async def stop(payload: Any, context: Any) -> None:
        await executor.interrupt(context.session_id)

    executor = world.executor(["whole"], hooks={"after_llm_call": stop})
    handle = await executor.execute(keeper(), "go", session_id=S)
    assert (await result_of(handle)).status == "completed"
    assert (await history(executor, S))[-1].metadata["stop_reason"] == "end_turn"  # type: ignore[union-attr]


async def test_a_request_for_a_summary_during_the_call_loses_nothing(world: World) -> None:
    model = Cut([])
    executor = world.executor(model)
    handle = await executor.execute(keeper(), "go", session_id=S)
    await model.gate.reached()
    await executor.compact(S)
    assert await handle.interrupt(wait=True)
    assert told(await history(executor, S)) == ["user: go", "assistant: half a sen"]
    assert (await executor.sessions.get(S)).status == "interrupted"


async def test_another_worker_that_took_over_decides(quick_world: World) -> None:
    """The write of a worker that lost the run is refused, so its text is in no history."""
    model = Cut(["whole"])
    executor = quick_world.executor(model)
    handle = await executor.execute(keeper(), "go", session_id=S)
    await model.gate.reached()
    await executor.abort(keeper(), S, "moved on")  # another writer of the session
    later = await executor.execute(keeper(), "new", session_id=S)
    assert (await result_of(later)).output == "whole"
    model.gate.open()
    assert told(await history(executor, S)) == ["user: go", "user: new", "assistant: whole"]
    assert handle.run_id != later.run_id


async def test_an_interrupting_message_keeps_the_text_before_it(world: World) -> None:
    model = Cut(["whole"])
    executor = world.executor(model)
    await executor.execute(keeper(), "go", session_id=S)
    await model.gate.reached()
    handle = await executor.execute(keeper(), "rather this", session_id=S, when_running="interrupt")
    assert (await result_of(handle)).output == "whole"
    assert prompt(model) == ["user: go", "assistant: half a sen", f"user: {STOPPED}", "user: rather this"]


async def test_a_sub_agent_is_asked_again(world: World) -> None:
    """Its answer is the result of the parent's call, which must be whole."""
    child = keeper(name="child")
    model = Cut(["the whole report", "done"])
    parent = keeper(name="parent", tools=[create_sub_agent_tool(child)])

    own = ScriptedModel([{"tool_calls": [call("subagent__child", message="report")]}, "done"])

    class Both(BaseAdapter):
        async def generate_step(self, request: LLMGenerateInput) -> Any:
            return await (model if request.agent_type == "child" else own).generate_step(request)

    executor = world.executor(Both())
    handle = await executor.execute(parent, "go", session_id=S)
    await model.gate.reached()
    assert await handle.interrupt(wait=True)
    model.gate.open()
    again = await handle.resume()
    assert (await result_of(again)).output == "done"
    assert [m.content for m in await history(executor, S) if m.role == "tool"] == ["the whole report"]


# --- guards -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "guard",
    [
        Guard(output=says(Allow())),
        Guard(output=says(Allow()), hold="step"),
        Guard(input=says(Allow()), when="beside"),
        Guard(call=says(Allow()), hold="step"),
    ],
)
async def test_text_that_a_guard_may_still_refuse_is_not_kept(quick_world: World, guard: Guard) -> None:
    executor, _ = await stopped(quick_world, Cut([]), keeper(guards=[guard]))
    assert told(await history(executor, S)) == ["user: go"]
    await check_session(executor.store, executor.engine.streams, S, at_rest=True)


async def test_the_verdicts_on_the_message_are_stored_with_the_cut_answer(quick_world: World) -> None:
    """Otherwise the model would see a blocked or replaced message in the next step."""
    model = Cut(["whole"])
    who = keeper(guards=[Guard(name="names", input=says(Replace("[name]"), "go"))])
    executor, _ = await stopped(quick_world, model, who)
    await result_of(await executor.execute(who, "next", session_id=S))
    assert prompt(model) == ["user: [name]", "assistant: half a sen", f"user: {STOPPED}", "user: next"]


# --- money --------------------------------------------------------------------------------------------------------------


async def test_the_call_is_in_the_ledger_once_with_what_is_known(quick_world: World) -> None:
    """The provider bills a call that was stopped, but reports no usage. Its attempt has the reservation."""
    model = Cut([says_tokens("whole", 40)])
    executor = bounded_executor(quick_world, model)
    await manager(executor).set_budget(1000, TokenPeriod.TOTAL)
    handle = await executor.execute(keeper(), "go", session_id=S)
    await model.gate.reached()
    assert await handle.interrupt(wait=True)
    (cut,) = await session_calls(executor.store, S)
    assert (cut.outcome, cut.step, cut.usage, cut.assumed_tokens) == ("cancelled", 1, Usage(), WORST)
    await result_of(await executor.execute(keeper(), "more", session_id=S))
    assert told(await history(executor, S))[1] == "assistant: half a sen"
    outcomes = [(c.step, c.outcome) for c in await session_calls(executor.store, S)]
    assert outcomes == [(1, "cancelled"), (2, "answered")]
    assert (await ledger(executor.store, S)).agrees
    assert not await find_usage_problems(executor.store, S)


async def test_only_helix_says_that_an_answer_was_interrupted(quick_world: World) -> None:
    entry = {"content": "whole", "stop_reason": StopReason.INTERRUPTED}
    executor = quick_world.executor([entry])
    await result_of(await executor.execute(keeper(), "go", session_id=S))
    assert (await history(executor, S))[-1].metadata["stop_reason"] == "unknown"  # type: ignore[union-attr]


# --- time travel --------------------------------------------------------------------------------------------------------


async def test_a_branch_and_an_import_know_the_cut(world: World) -> None:
    model = Cut(["other", "third"])
    executor, _ = await stopped(world, model)
    expected = ["user: go", "assistant: half a sen", f"user: {STOPPED}", "user: there"]
    branch = (await executor.branch(S)).session_id
    await result_of(await executor.execute(keeper(), "there", session_id=branch))
    assert prompt(model) == expected
    async with opened(executor.store) as (client, _):
        export = await _export(client, S)
    store = MemoryStateStore()
    await import_session(store, read_export([*export.lines()]), SystemClock(), SystemIds())
    async with LocalExecutor(store, model=model) as elsewhere:
        await result_of(await elsewhere.execute(keeper(), "there", session_id=S))
        await check_session(store, elsewhere.engine.streams, S, at_rest=True)
    assert prompt(model) == expected


async def test_a_resume_to_the_checkpoint_before_forgets_the_cut(world: World) -> None:
    model = Cut(["anew"])
    executor, handle = await stopped(world, model)
    points = (await executor.sessions.list_checkpoints(S)).items
    again = await handle.resume(mode="from_checkpoint", checkpoint_id=points[-1].id)
    assert (await result_of(again)).output == "anew"
    assert prompt(model) == ["user: go"]
    assert told(await history(executor, S)) == ["user: go", "assistant: anew"]


async def test_an_agent_that_took_over_keeps_what_it_said(world: World) -> None:
    pal = keeper(name="pal")
    front = agent(name="front", handoffs=[pal])
    first = world.executor([calls(call("transfer_to_pal")), "Pal speaks."])
    await result_of(await first.execute(front, "begin", session_id=S))
    executor, _ = await stopped(world, Cut(["whole"]), front)
    cut: AnyMessage = (await history(executor, S))[-1]
    assert told([cut]) == ["assistant: half a sen"] and cut.metadata["agent"] == "pal"  # type: ignore[union-attr]
    await check_session(executor.store, executor.engine.streams, S, at_rest=True)
