"""`compact`: a person asks for a summary, which the session's next step makes. The request costs no answer and no run."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.context_talk import SUMMARY, S, Talk, agent, check, history, lookup, talk
from tests.support_crash import LoggedModel, Sweep, fresh
from tests.support_run import Gate

from helix import Agent, AgentClient, Confirmation, LocalExecutor, MemoryStateStore, ScriptedModel, tool
from helix.core.context_policy import Context
from helix.core.errors import InvalidInputError, SessionNotFoundError
from helix.core.messages import AnyMessage, ToolResultMessage, UserMessage
from helix.core.registry import AgentRegistry
from helix.core.session_row import SessionRow
from helix.core.steps import AnyStepResult, ErrorStepResult, ParsedToolCall, TextStepResult, ToolCallsStepResult
from helix.core.view_row import ViewRow
from helix.engine.history import History, session_key
from helix.engine.row_requests import MOST_FOCUS, ask_for_summary
from helix.ports.model import LLMGenerateInput
from helix.ports.state_store import Operation, Put
from helix.services.session_calls import session_calls
from helix.sessions.read import Sessions

DESK = agent(Context())


async def row(store: MemoryStateStore) -> SessionRow:
    return await History(store).existing(S)


async def views(store: MemoryStateStore) -> list[ViewRow]:
    rows = await store.query("sessions", S, start="k#", end="k$")
    return [ViewRow.read(S, found.key.sort, found.value) for found in rows]


async def test_the_next_step_summarises_and_then_answers() -> None:
    """This also holds for a model whose window is not known, and whose policies would change nothing."""
    said = Talk()
    store = await talk(DESK, said, turns=8)
    async with LocalExecutor(store=store, model=said.adapter()) as executor:
        await executor.compact(S, "the rows")
        assert said.summaries == 0
        assert (await (await executor.execute(DESK, "and now?", session_id=S)).result()).status == "completed"
    assert said.summaries == 1
    assert any("attention to: the rows" in str(prompt[-1].content) for prompt in said.prompts)
    assert any(SUMMARY in str(message.content) for message in said.prompts[-1])
    (view,) = await views(store)
    assert (view.cause, view.hidden) == ("request", 6 * 4), "the last four steps are shown"
    assert (await row(store)).context.asked is None and len(await history(store)) == 9 * 4
    await check(store)


async def test_a_repeat_writes_nothing_and_the_last_focus_wins() -> None:
    said = Talk()
    store = await talk(DESK, said, turns=6)
    async with LocalExecutor(store=store, model=said.adapter()) as executor:
        await executor.compact(S)
        first = await row(store)
        await executor.compact(S)
        assert (await row(store)).version == first.version and first.context.asked == ""
        await executor.compact(S, "numbers")
        assert (await row(store)).context.asked == "numbers"
        await (await executor.execute(DESK, "and now?", session_id=S)).result()
    assert said.summaries == 1


@pytest.mark.parametrize("focus", ["x" * (MOST_FOCUS + 1), "\ud800", 7])
async def test_a_focus_that_is_too_long_or_not_a_text_is_refused(focus: Any) -> None:
    store = await talk(DESK, Talk(), turns=1)
    async with LocalExecutor(store=store, model=Talk().adapter()) as executor:
        with pytest.raises(InvalidInputError, match="focus"):
            await executor.compact(S, focus)
        await executor.compact(S, "ü" * MOST_FOCUS)


async def test_a_session_that_does_not_exist_or_is_being_deleted_is_not_found() -> None:
    store = await talk(DESK, Talk(), turns=1)
    async with LocalExecutor(store=store, model=Talk().adapter()) as executor:
        with pytest.raises(SessionNotFoundError):
            await executor.compact("nothing")
        hidden = (await row(store)).dump() | {"status": "deleting"}
        await store.transact("hide", [Put(session_key(S), hidden)])
        with pytest.raises(SessionNotFoundError):
            await executor.compact(S)


async def test_too_little_history_loses_the_request_without_harm() -> None:
    said = Talk()
    async with LocalExecutor(store=(store := MemoryStateStore()), model=said.adapter()) as executor:
        assert (await (await executor.execute(DESK, "hello", session_id=S)).result()).status == "completed"
        said.prompts.clear()
        await executor.compact(S)
        assert (await (await executor.execute(DESK, "again", session_id=S)).result()).status == "completed"
        await executor.compact(S, "again")
        assert (await (await executor.execute(DESK, "and again", session_id=S)).result()).status == "completed"
    assert (await row(store)).context.asked is None and len(await history(store)) == 12
    await check(store)


async def test_an_agent_that_is_a_function_loses_the_request() -> None:
    client = AgentClient(registry=AgentRegistry())

    @client.agent(name="echo")
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    async with LocalExecutor(store=(store := MemoryStateStore())) as executor:
        await (await executor.execute(echo, "hello", session_id=S)).result()
        await executor.compact(S)
        assert (await (await executor.execute(echo, "again", session_id=S)).result()).status == "completed"
    assert (await row(store)).context.asked is None


BAD: dict[str, AnyStepResult | str | Exception] = {
    "an error": ErrorStepResult(error="overloaded", code="overloaded"),
    "an empty text": TextStepResult(content=" "),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_summary_that_fails_uses_the_request_up(name: str) -> None:
    """A new request is followed at once, although a summary has just failed."""
    said = Talk(BAD[name])
    store = await talk(DESK, said, turns=8)
    for asked in (1, 2):
        async with LocalExecutor(store=store, model=said.adapter()) as executor:
            await executor.compact(S)
            assert (await (await executor.execute(DESK, "and now?", session_id=S)).result()).status == "completed"
        assert said.summaries == asked and (await row(store)).context.asked is None
    assert await views(store) == []
    await check(store)


async def test_a_rewind_keeps_the_request() -> None:
    said = Talk()
    store = await talk(DESK, said, turns=8)
    point = (await Sessions(store).list_checkpoints(S)).items[3]
    async with LocalExecutor(store=store, model=said.adapter()) as executor:
        await executor.compact(S)
        handle = await executor.resume(DESK, S, mode="from_checkpoint", checkpoint_id=point.id, message="and now?")
        assert (await handle.result()).status == "completed"
    assert said.summaries == 1
    await check(store)


# --- while others write ---------------------------------------------------------------------------------------------------


async def test_a_request_while_the_model_is_asked_costs_no_answer() -> None:
    """The worker's write is refused. It reads the row again, and writes the same answer on top of the request."""
    said, gate = Talk(), Gate()
    store = await talk(DESK, said, turns=8)
    script: list[Any] = [gated(gate, said)]
    async with LocalExecutor(store=store, model=ScriptedModel(script, repeat=True, record=False)) as executor:
        handle = await executor.execute(DESK, "and now?", session_id=S)
        await gate.reached()
        await executor.compact(S, "rows")
        gate.open()
        assert (await handle.result()).status == "completed"
    outcomes = [call.outcome for call in await session_calls(store, S)]
    assert outcomes.count("answered") == 9 * 2 and outcomes.count("summary") == 1 and len(outcomes) == 9 * 2 + 1
    assert len(said.prompts) == len(outcomes)
    await check(store)


def gated(gate: Gate, said: Talk) -> Any:
    async def answer(request: LLMGenerateInput) -> AnyStepResult | str | Exception:
        await gate.wait()
        return said(request)

    return answer


class Hammered(MemoryStateStore):
    """A store in which somebody asks for a summary before each of a worker's writes succeeds."""

    executor: LocalExecutor | None = None
    asked = 0

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        worker = name in ("claim_step", "stage", "commit", "summary", "overflow") or name.startswith("end_")
        if self.executor is not None and worker:
            self.asked += 1
            if self.asked % 2:  # else the worker's repeat, which is let through
                await ask_for_summary(self.executor.engine, S, f"focus {self.asked}")
        await super().transact(name, operations)


@pytest.mark.parametrize("limit", [None, 9_000])
async def test_a_request_before_every_write_costs_no_answer(limit: int | None) -> None:
    said = Talk() if limit is None else Talk(limit=limit)
    store = Hammered()
    async with LocalExecutor(store=store, model=said.adapter()) as executor:
        store.executor = executor
        for turn in range(6):
            handle = await executor.execute(DESK, f"question {turn}", session_id=S)
            result = await handle.result()
            assert result.status == "completed", result.error
        store.executor = None
    calls = await session_calls(store, S)
    assert {call.outcome for call in calls} <= {"answered", "summary", "failed"}
    assert all(call.error in ("context_too_long", "long_summary") for call in calls if call.outcome == "failed")
    assert len(said.prompts) == len(calls), "no answer was bought twice"
    assert sum(call.outcome == "answered" for call in calls) == 6 * 2 and len(await history(store)) == 6 * 4
    assert said.summaries > 2
    await check(store)


async def test_a_request_during_a_summary_that_fails_is_followed() -> None:
    said, gate = Talk(BAD["an empty text"]), Gate()
    store = await talk(DESK, said, turns=8)

    async def answer(request: LLMGenerateInput) -> AnyStepResult | str | Exception:
        if request.tool_choice == "none" and said.summaries == 0:
            await gate.wait()
        return said(request)

    async with LocalExecutor(store=store, model=ScriptedModel([answer], repeat=True, record=False)) as executor:
        await executor.compact(S, "first")
        handle = await executor.execute(DESK, "and now?", session_id=S)
        await gate.reached()
        await executor.compact(S, "second")
        gate.open()
        assert (await handle.result()).status == "completed"
    focuses = [re.findall(r"attention to: (\w+)", str(prompt[-1].content)) for prompt in said.prompts]
    assert [focus for focus in focuses if focus] == [["first"], ["second"]]
    await check(store)


async def test_an_approval_waits_while_the_view_changes() -> None:
    """A request comes while a call waits for a person, and again after the answer. The call is executed once, and its
    result follows it."""
    paid: list[int] = []

    @tool(require_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    class Pays(Talk):
        def calls(self, name: str, **arguments: Any) -> ToolCallsStepResult:
            if len(self.prompts) < 9 * 2 - 1:
                return super().calls(name, **arguments)
            return ToolCallsStepResult(tool_calls=[ParsedToolCall(id="pay", name="pay", arguments={"amount": 5})])

    desk = agent(Context(), tools=[lookup, pay])
    said = Pays()
    store = await talk(desk, said, turns=8)
    async with LocalExecutor(store=store, model=said.adapter()) as executor:
        handle = await executor.execute(desk, "pay, please", session_id=S)
        assert (await handle.result()).status == "paused"
        await executor.compact(S)
        assert (await row(store)).status == "paused" and paid == []
        confirmed = Confirmation(tool_call_id="pay", approved=True)
        handle = await executor.resume(desk, S, mode="with_confirmation", confirmation=confirmed)
        assert (await handle.result()).status == "completed"
    assert paid == [5] and said.summaries == 1
    shown = said.prompts[-1]
    place = next(
        i for i, message in enumerate(shown) if isinstance(message, ToolResultMessage) and "paid" in message.content
    )
    assert [call.id for call in getattr(shown[place - 1], "tool_calls", [])] == ["pay"]
    await check(store)


@pytest.mark.parametrize("status", ["interrupted", "failed"])
async def test_a_session_that_stopped_or_failed_goes_on_with_a_summary(status: str) -> None:
    said, gate = Talk(), Gate()
    store = await talk(DESK, said, turns=8)

    async def stuck(request: LLMGenerateInput) -> AnyStepResult | str | Exception:
        if status == "failed":
            return ErrorStepResult(error="down", code="down")
        await gate.wait()
        return "late"

    async with LocalExecutor(store=store, model=ScriptedModel([stuck], record=False)) as executor:
        handle = await executor.execute(DESK, "and now?", session_id=S)
        if status == "interrupted":
            await gate.reached()
            await executor.interrupt(S)
        assert (await handle.result()).status == status
        await executor.compact(S)
    async with LocalExecutor(store=store, model=said.adapter()) as executor:
        again = executor.resume(DESK, S) if status == "interrupted" else executor.retry(DESK, S)
        assert (await (await again).result()).status == "completed"
    assert said.summaries == 1
    await check(store)


async def test_a_crash_at_any_write_keeps_the_request_or_the_summary() -> None:
    fresh()
    seen: list[Sequence[AnyMessage]] = []

    def answer(request: LLMGenerateInput) -> AnyStepResult | str:
        seen.append(request.messages)
        if request.tool_choice == "none":
            return TextStepResult(content="short")
        if isinstance(request.messages[-1], UserMessage):
            number = len(request.messages)
            return ToolCallsStepResult(
                tool_calls=[ParsedToolCall(id=f"c{number}", name="lookup", arguments={"row": 1})]
            )
        return "done"

    desk: Agent[Any, Any] = agent(Context(keep_steps=1))
    sweep = Sweep(desk, LoggedModel(ScriptedModel([answer], repeat=True, record=False)), rebuys=True)

    async def act(workers: LocalExecutor) -> None:
        await (await workers.execute(desk, "begin", session_id=S)).result()
        await workers.compact(S)
        await (await workers.execute(desk, "go on", session_id=S)).result()

    await sweep.everywhere(act)
    assert set(sweep.outcomes) <= {"completed"}
    assert any(message.content and "short" in str(message.content) for prompt in seen for message in prompt)
