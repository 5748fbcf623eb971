"""Checks of an output: what they refuse goes back to the model, and what they accepted is not checked again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support_crash import CONFIG, LONG, S, executor, model, quiet, settle
from tests.support_notes import GOOD, Answer, Notes, note
from tests.support_run import World, a_tool, agent, call, calls, chunks_of, history, of_type, play, result_of, results

from helix import (
    Agent,
    DefinitionError,
    FatalToolError,
    LLMConfig,
    LocalExecutor,
    MemoryStateStore,
    OutputContext,
    ResponseCacheConfig,
    ScriptedModel,
    ToolError,
)
from helix.core.entries import AssistantRow
from helix.core.errors import StoreError
from helix.core.prompt import FINISH_NUDGE
from helix.engine.steps import check_output
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager
from helix.runtime.handle import RunStoppedError
from helix.testing.crash import CrashPoints, Point, crash_everywhere, writes
from helix.testing.invariants import check_session, read_tree

LOW = {"summary": "poor", "score": 1}


def finish(arguments: dict[str, Any]) -> dict[str, Any]:
    return calls(call("__finish__", **arguments))


def strict(**fields: Any) -> Agent[Any, Answer]:
    made: Agent[Any, Answer] = agent(output_schema=Answer, **fields)

    @made.output_check
    def good_enough(output: Answer) -> str | None:
        return None if output.score > 5 else f"a score of {output.score} is too low"

    return made


async def test_a_refused_output_goes_back_with_the_reason(world: World) -> None:
    scripted = ScriptedModel([finish(LOW), finish(GOOD)])
    workers = world.executor(scripted)
    handle, result, chunks = await play(workers, strict())
    assert (result.output, result.steps) == (Answer(**GOOD), 2)
    assert [r.tool_choice for r in scripted.requests] == ["auto", "auto"], "a reminder keeps the provider's cache"
    assert scripted.requests[1].messages[-1].content == FINISH_NUDGE
    messages = await history(workers, handle.session_id)
    assert results(messages) == ['{"error":"a score of 1 is too low"}', '{"acknowledged":true}']
    assert [c.error for c in of_type(chunks, "error")] == ["a score of 1 is too low"], "readers see the reason"
    assert [c.output for c in of_type(chunks, "output")] == [GOOD]
    await check_session(workers.store, workers.streams, handle.session_id, at_rest=True)


async def test_a_store_that_does_not_answer_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim cannot be confirmed before the check. The run stops in this process, and goes on when it is resumed."""
    async with LocalExecutor(model=ScriptedModel([finish(GOOD)], repeat=True)) as workers:

        async def silent(*_: Any) -> None:
            raise StoreError("the store does not answer")

        with monkeypatch.context() as patched:
            patched.setattr(check_output, "confirm", silent)
            handle = await workers.execute(strict(), "go", session_id=S)
            with pytest.raises(RunStoppedError):
                await handle.result()
        assert (await workers.sessions.get(S)).error is None, "the output was not judged"
        again = await (await workers.resume(strict(), S)).result()
        assert again.status == "completed" and again.output == Answer(**GOOD)


async def test_checks_run_in_order_and_may_be_async_raise_and_take_the_context(world: World) -> None:
    seen: list[Any] = []
    made: Agent[Notes, Answer] = agent(output_schema=Answer, state_schema=Notes, tools=[note])

    @made.output_check
    async def first(output: Answer, ctx: OutputContext) -> None:
        seen.append((output.score, ctx.step, ctx.state.items))
        if output.score < 5:
            raise ToolError("look again")

    @made.output_check
    def second(output: Answer) -> None:
        seen.append("second")

    workers = world.executor([calls(call("note", text="tea")), finish(LOW), finish(GOOD)])
    handle, result, _ = await play(workers, made)
    assert seen == [(1, 2, ["tea"]), (7, 3, ["tea"]), "second"] and result.status == "completed"
    assert results(await history(workers, handle.session_id))[1] == '{"error":"look again"}'


async def test_refusals_are_bounded(world: World) -> None:
    _handle, result, _ = await play(world.executor([finish(LOW)] * 5), strict(max_completion_retries=1))
    assert (result.status, result.error_code, result.steps) == ("failed", "invalid_output", 2)
    assert result.error == "after 2 tries: the model gave no valid output: a score of 1 is too low"


@pytest.mark.parametrize("outcome", [KeyError("oops"), FatalToolError("stop"), 7])
async def test_a_check_that_fails_ends_the_run(world: World, outcome: Any) -> None:
    def broken(output: Answer) -> Any:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    workers = world.executor([finish(GOOD), finish(GOOD)])
    handle, result, chunks = await play(workers, agent(output_schema=Answer, output_checks=[broken]))
    assert (result.status, result.error_code, result.output) == ("failed", "output_check_failed", None)
    assert result.error is not None and result.error.startswith("an output check of agent 'helper' raised")
    assert result.usage.calls == 1, "the call is paid for"
    assert of_type(chunks, "step_discarded") and not of_type(chunks, "output")
    await check_session(workers.store, workers.streams, handle.session_id, at_rest=True)


async def test_a_check_that_takes_too_long_ends_the_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_output, "CHECK_S", 0.05)

    async def endless(output: Answer) -> None:
        await asyncio.Event().wait()

    _, result, _ = await play(world.executor([finish(GOOD)]), agent(output_schema=Answer, output_checks=[endless]))
    assert (result.status, result.error_code) == ("failed", "output_check_failed")


async def test_other_calls_of_a_refused_answer_run(world: World) -> None:
    ran: list[str] = []
    tool = a_tool("look", lambda args, ctx: ran.append("look") or "seen")
    workers = world.executor([calls(call("__finish__", **LOW), call("look")), finish(GOOD)])
    handle, result, _ = await play(workers, strict(tools=[tool]))
    assert ran == ["look"] and result.output == Answer(**GOOD)
    assert results(await history(workers, handle.session_id))[:2] == ['{"error":"a score of 1 is too low"}', "seen"]


async def test_a_verdict_survives_a_crash_at_every_write() -> None:
    """An output is checked once for each answer that was bought, and the verdict of a stored answer is never asked for
    again."""
    scripted = model(judge=[finish(LOW), finish(GOOD)])
    judged: list[int] = []
    made: Agent[Any, Answer] = agent("judge", output_schema=Answer, llm_config=CONFIG)

    @made.output_check
    def judge(output: Answer) -> str | None:
        judged.append(output.score)
        return None if output.score > 5 else "too low"

    async def act(store: StateStore, streams: StreamManager, points: CrashPoints) -> None:
        judged.clear()
        handle = await executor(store, streams, scripted).execute(made, "begin", session_id=S)
        await handle.result(timeout_s=20)

    async def recover(store: StateStore, streams: StreamManager, point: Point) -> None:
        rows = await read_tree(store, S)
        stored = [e for one in rows for e in one.entries.values() if isinstance(e, AssistantRow)]
        before = [(LOW if e.finish is None else GOOD)["score"] for e in stored]
        assert all(score in judged for score in before)
        del judged[:]
        workers = executor(store, streams, scripted, LONG)
        if not await workers.sessions.exists(S):
            await (await workers.execute(made, "begin", session_id=S)).result(timeout_s=20)
        assert await settle(workers, made, S) == "completed"
        assert not set(before) & set(judged), f"judged again: {judged}"
        assert (await workers.sessions.get(S)).output == GOOD
        await quiet(workers)
        await check_session(store, streams, S, at_rest=True)

    assert len(await crash_everywhere(MemoryStateStore, act, recover, choose=writes)) > 5


def test_definitions_are_checked() -> None:
    with pytest.raises(DefinitionError, match="output_checks"):
        agent(output_checks=[lambda output: None])
    with pytest.raises(DefinitionError, match="must be a function of the output"):
        agent(output_schema=Answer, output_checks=["good"])
    with pytest.raises(DefinitionError, match="must be a function of the output"):
        agent(output_schema=Answer).output_check(lambda: None)


async def test_an_output_that_may_be_refused_is_not_cached() -> None:
    config = LLMConfig(model="scripted", temperature=0, response_cache=ResponseCacheConfig())
    scripted = ScriptedModel([finish(GOOD), finish(GOOD)])
    made = strict(model=None, llm_config=config)
    async with LocalExecutor(":memory:", model=scripted) as workers:
        for _ in range(2):
            handle = await workers.execute(made, "The same question.")
            assert (await result_of(handle)).status == "completed"
            assert of_type(await chunks_of(handle), "output")
    assert len(scripted.requests) == 2
