"""A history that outgrows its model's window: the model is shown a view of it, and nothing of it is lost."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.context_talk import (
    BODY,
    POLICIES,
    SUMMARY,
    WINDOW,
    S,
    Talk,
    agent,
    check,
    history,
    lookup,
    talk,
    used,
)

from helix import LocalExecutor, MemoryStateStore, ScriptedModel, tool
from helix.core.context_policy import Change, Clear, Context, Hide, ShownContext
from helix.core.errors import ModelError
from helix.core.messages import ToolResultMessage, UserMessage
from helix.core.steps import AnyStepResult, ErrorStepResult, ParsedToolCall, TextStepResult, ToolCallsStepResult
from helix.core.views import RECALL
from helix.ports.model import LLMGenerateInput
from helix.services.session_calls import session_calls
from helix.sessions.read import Sessions


@pytest.mark.parametrize("name", POLICIES)
async def test_prompts_stay_below_the_threshold_and_history_is_whole(name: str) -> None:
    context, share = POLICIES[name]
    said = Talk()
    store = await talk(agent(context), said, turns=60)
    assert max(said.sizes) <= share * WINDOW
    messages = await history(store)
    assert len(messages) == 60 * 4
    results = [message for message in messages if isinstance(message, ToolResultMessage)]
    assert all(BODY in message.content for message in results)
    assert (said.summaries > 0) == ("summarised" in name)
    await check(store)


async def test_without_a_known_window_everything_is_shown() -> None:
    said = Talk()
    await talk(agent(Context()), said, turns=30)
    assert len(said.prompts[-1]) == 1 + 30 * 4 - 1


async def test_a_summary_is_bought_beside_the_steps() -> None:
    """Its usage counts, it has an attempt row, and it is outside `max_steps`."""
    said = Talk()
    store = await talk(agent(Context(window=WINDOW, clear_at=None, summariser="same"), max_steps=2), said, turns=60)
    calls = await session_calls(store, S)
    summaries = [call for call in calls if call.outcome == "summary"]
    assert len(summaries) == said.summaries > 1 and all(call.usage.calls == 1 for call in summaries)
    state = await Sessions(store).load(S)
    assert state is not None and state.usage.total_tokens == sum(call.usage.total_tokens for call in calls)
    places = [(call.run_id, call.step, call.attempt) for call in calls]
    assert len(set(places)) == len(places)
    shown = said.prompts[-1]
    assert SUMMARY in str(shown[1].content) and "A summary of its beginning" in str(shown[1].content)


BAD: dict[str, AnyStepResult | str | Exception] = {
    "an error": ErrorStepResult(error="overloaded", code="overloaded", usage=used(100)),
    "an exception": ModelError("broken"),
    "an empty text": TextStepResult(content="  ", usage=used(100)),
    "a text longer than what it replaces": TextStepResult(content=BODY * 60, usage=used(100)),
    "a call": ToolCallsStepResult(tool_calls=[ParsedToolCall(id="x", name="lookup", arguments={"row": 1})]),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_summary_that_fails_leaves_the_view_and_is_not_repeated_at_once(name: str) -> None:
    said = Talk(BAD[name])
    store = await talk(agent(Context(window=WINDOW, clear_at=None, summariser="same")), said, turns=40)
    assert max(said.sizes) <= WINDOW * 1.05
    steps = 40 * 2
    assert 1 <= said.summaries <= steps // 4
    assert len(await history(store)) == 40 * 4
    await check(store)


async def test_cleared_results_can_be_recalled() -> None:
    said = Talk()
    store = await talk(agent(Context(window=WINDOW)), said, turns=25)
    cleared = [m for m in said.prompts[-1] if isinstance(m, ToolResultMessage) and "was cleared" in m.content]
    assert cleared and RECALL in said.tools[-1] and RECALL not in said.tools[0]
    asked = cleared[0].tool_call_id

    class Recalls(Talk):
        def __call__(self, request: LLMGenerateInput) -> AnyStepResult | str | Exception:
            self.sizes.append(1)
            if isinstance(request.messages[-1], UserMessage):
                return self.calls(RECALL, call_id=asked)
            self.prompts.append(list(request.messages))
            return "done"

    recalls = Recalls()
    await talk(agent(Context(window=WINDOW)), recalls, turns=1, store=store)
    result = recalls.prompts[0][-1]
    assert isinstance(result, ToolResultMessage) and result.success and result.content.endswith(BODY)
    await check(store)


async def test_recall_reads_a_long_result_piece_by_piece_and_names_an_unknown_call() -> None:
    @tool
    def long() -> str:
        """Give a long text."""
        return "x" * 45_000 + "END"

    script: list[Any] = [{"tool_calls": [{"id": "long", "name": "long", "arguments": {}}]}]
    asks = [
        {"call_id": "long"},
        {"call_id": "long", "start": 40_000},
        {"call_id": "none"},
        {"call_id": "long", "start": 10**9},
    ]
    script += [{"tool_calls": [{"name": RECALL, "arguments": arguments}]} for arguments in asks]
    seen: list[ToolResultMessage] = []

    def last(request: LLMGenerateInput) -> str:
        seen.extend(m for m in request.messages if isinstance(m, ToolResultMessage))
        return "done"

    def hide(shown: ShownContext) -> Change | None:
        return Clear(len(shown.messages)) if shown.cleared == 0 else None

    desk = agent(Context(policies=[hide]), tools=[long])
    async with LocalExecutor(model=ScriptedModel([*script, last])) as executor:
        result = await (await executor.execute(desk, "go")).result()
    assert result.status == "completed", result.error
    _, first, rest, none, beyond = seen
    assert "Characters 0 to 20000 of 45003. Go on with start=20000." in first.content
    assert "ENDx"[:3] in rest.content and "Characters 40000 to 45003 of 45003.]" in rest.content
    assert not none.success and "'none'" in none.content
    assert not beyond.success and "45003 characters" in beyond.content


async def test_an_agents_own_recall_is_left_alone() -> None:
    @tool
    def recall(what: str) -> str:
        """Recall something of the business."""
        return f"own {what}"

    said = Talk()
    store = await talk(agent(Context(window=WINDOW), tools=[lookup, recall]), said, turns=30)
    assert all(names.count("recall") == 1 for names in said.tools)
    notes = [m for m in said.prompts[-1] if isinstance(m, ToolResultMessage) and "was cleared" in m.content]
    assert notes and all("Read it with" not in note.content for note in notes)
    await check(store)


async def test_a_prompt_that_the_provider_refuses_is_shortened_once() -> None:
    said = Talk(limit=9_000)
    store = await talk(agent(Context()), said, turns=30)
    refused = [call for call in await session_calls(store, S) if call.error == "context_too_long"]
    assert 1 <= len(refused) <= 4
    assert len(await history(store)) == 30 * 4
    await check(store)


async def test_a_refused_prompt_whose_summary_fails_is_shortened_to_its_last_step() -> None:
    """Nothing can be cleared, because the user's messages are long and not the results."""
    said, store = Talk(BAD["an error"], limit=9_000), MemoryStateStore()
    said.calls = lambda name, **arguments: "done"  # type: ignore[method-assign,assignment]
    async with LocalExecutor(store, model=said.adapter()) as executor:
        for turn in range(25):
            result = await (await executor.execute(agent(Context()), f"{turn}: {BODY}", session_id=S)).result()
            assert result.status == "completed", result.error
    assert said.summaries > 0 and len(said.prompts[-1]) < 40
    await check(store)


async def test_one_result_larger_than_the_window_is_cleared() -> None:
    @tool
    def huge() -> str:
        """Give far too much."""
        return BODY * 40

    class Huge(Talk):
        def calls(self, name: str, **arguments: Any) -> ToolCallsStepResult:
            return super().calls("huge")

    said = Huge(limit=9_000)
    store = await talk(agent(Context(), tools=[huge]), said, turns=1)
    assert "was cleared" in str(said.prompts[-1][-1].content)
    await check(store)


async def test_a_message_that_never_fits_fails_the_run_with_the_providers_code() -> None:
    said = Talk(limit=9_000)
    store = MemoryStateStore()
    async with LocalExecutor(store=store, model=said.adapter()) as executor:
        result = await (await executor.execute(agent(Context()), BODY * 40, session_id=S)).result()
    assert result.status == "failed" and "as too long" in str(result.error)
    state = await Sessions(store).get(S)
    assert state.error is not None and state.error.code == "context_too_long"
    assert len(said.prompts) <= 3
    await check(store)


async def test_a_policy_of_the_users_own_and_one_that_raises() -> None:
    asked: list[int] = []

    def own(shown: ShownContext) -> Change | None:
        asked.append(len(shown.messages))
        return Hide(len(shown.messages) - 2) if shown.steps() > 6 else None

    said = Talk()
    store = await talk(agent(Context(policies=[own])), said, turns=10)
    assert asked and max(len(prompt) for prompt in said.prompts) < 20
    await check(store)

    def broken(shown: ShownContext) -> Change | None:
        raise KeyError("no such key")

    async with LocalExecutor(model=Talk().adapter()) as executor:
        result = await (await executor.execute(agent(Context(policies=[broken])), "go")).result()
    assert result.status == "failed" and "KeyError" in str(result.error)


async def test_a_policy_that_asks_for_the_impossible_changes_nothing() -> None:
    said = Talk()
    odd: list[Callable[[ShownContext], Change | None]] = [
        lambda shown: Hide(10**9),
        lambda shown: Hide(-5),
        lambda shown: Clear(-1),
    ]
    store = await talk(agent(Context(policies=odd)), said, turns=5)
    assert len(said.prompts[-1]) == 1 + 5 * 4 - 1
    await check(store)
