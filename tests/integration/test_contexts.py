"""`get_context`: what the model was shown at a step, from the rows alone."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.context_talk import POLICIES, SUMMARY, WINDOW, S, Talk, agent, lookup, talk, used

from helix import Confirmation, LocalExecutor, MemoryStateStore, ScriptedModel, Usage, tool
from helix.core.context_policy import Context
from helix.core.errors import InvalidInputError, RunNotFoundError
from helix.core.messages import AnyMessage
from helix.core.steps import AnyStepResult, ErrorStepResult, ParsedToolCall, ToolCallsStepResult
from helix.ports.model import LLMGenerateInput
from helix.services.session_calls import session_calls
from helix.sessions.ledger import ledger
from helix.sessions.read import Sessions

DESK = agent(Context(window=WINDOW))


class Steps(Talk):
    """A model that keeps the prompts of steps apart from those of summaries."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.shown: list[list[AnyMessage]] = []

    def __call__(self, request: LLMGenerateInput) -> AnyStepResult | str | Exception:
        answer = super().__call__(request)
        if request.tool_choice != "none" and not isinstance(answer, ErrorStepResult):
            self.shown.append(list(request.messages))
        return answer


def contents(messages: Sequence[AnyMessage]) -> list[tuple[str, str | None]]:
    return [(message.role, message.content) for message in messages]


@pytest.mark.parametrize("name", POLICIES)
async def test_the_context_of_each_step_is_its_prompt(name: str) -> None:
    said = Steps()
    desk = agent(POLICIES[name][0])
    store = await talk(desk, said, turns=40)
    sessions = Sessions(store)
    changed = 0
    for step, prompt in enumerate(said.shown, 1):
        found = await sessions.get_context(S, step, agent=desk)
        assert found.system_prompt == prompt[0].content == "Help."
        assert contents(found.messages) == contents(prompt[1:]), step
        assert found.step == step and found.run_id is not None
        assert len(found.messages) == found.count - found.hidden + bool(found.hidden)
        assert (found.view is None) == (not found.hidden and not found.cleared)
        assert bool(found.summary) == (SUMMARY in str(prompt[1].content))
        changed += found.view is not None
    assert changed > 0
    following = await sessions.get_context(S, agent=desk)
    assert (following.step, following.run_id) == (len(said.shown) + 1, None)
    assert contents(following.messages)[:-1] == contents(said.shown[-1][1:])
    assert following.model_dump() == (await sessions.get_context(S, following.step, agent=desk)).model_dump()


async def test_a_view_names_what_its_summary_cost() -> None:
    said = Steps()
    desk = agent(Context(window=WINDOW, clear_at=None, summariser="same"))
    store = await talk(desk, said, turns=30)
    found = await Sessions(store).get_context(S)
    paid = [call for call in await session_calls(store, S) if call.outcome == "summary"]
    assert found.view is not None and found.system_prompt is None
    last = paid[-1]
    assert (found.view.run_id, found.view.step, found.view.usage) == (last.run_id, last.step, last.usage)
    assert (found.view.model, found.view.cause) == (last.model, "policy") and found.view.tokens > 0
    lines = [line for line in (await ledger(store, S)).lines if line.what.endswith(", summary")]
    assert len(lines) == len(paid) and all(line.how == "it took the place of earlier messages" for line in lines)
    assert [line.quantity for line in lines] == [call.usage.total_tokens for call in paid]
    assert (await ledger(store, S)).agrees


async def test_a_step_that_a_rewind_left_is_found_by_its_run() -> None:
    said = Steps()
    store = await talk(DESK, said, turns=30)
    sessions = Sessions(store)
    old = await sessions.get_context(S, 60)
    early = next(point for point in (await sessions.list_checkpoints(S, limit=1000)).items if point.count == 8)
    again = Steps()
    async with LocalExecutor(store=store, model=again.adapter()) as executor:
        handle = await executor.resume(DESK, S, mode="from_checkpoint", checkpoint_id=early.id, message="and now?")
        assert (await handle.result()).status == "completed"
    assert contents((await sessions.get_context(S, 5)).messages) == contents(again.shown[0][1:])
    with pytest.raises(InvalidInputError, match="step 60 does not exist in session 'ses'; it has steps 1 to 6"):
        await sessions.get_context(S, 60)
    assert await sessions.get_context(S, 60, run_id=old.run_id) == old
    assert old.run_id is not None
    with pytest.raises(InvalidInputError, match="has no answer at step 3"):
        await sessions.get_context(S, 3, run_id=old.run_id)
    with pytest.raises(InvalidInputError, match="run_id needs a step"):
        await sessions.get_context(S, run_id=old.run_id)
    with pytest.raises(RunNotFoundError):
        await sessions.get_context(S, 3, run_id="run_none")


async def test_a_copy_refers_to_its_original_for_steps_under_other_views() -> None:
    said = Steps()
    store = await talk(DESK, said, turns=30)
    async with LocalExecutor(store=store, model=said.adapter()) as executor:
        copy = (await executor.branch(S)).session_id
        found = await executor.sessions.get_context(copy)
        assert contents(found.messages) == contents((await executor.sessions.get_context(S)).messages)
        assert found.view is not None and (found.view.model, found.view.usage) == (None, Usage())
        assert (await executor.sessions.get_context(copy, 1)).count == 1
        with pytest.raises(InvalidInputError, match=r"step 60 .* is a copy, without its view: .* in session 'ses'"):
            await executor.sessions.get_context(copy, 60)


async def test_a_call_that_waits_and_one_that_a_person_edited() -> None:
    @tool(require_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    asked = ToolCallsStepResult(
        tool_calls=[
            ParsedToolCall(id="pay", name="pay", arguments={"amount": 5}),
            ParsedToolCall(id="row", name="lookup", arguments={"row": 1}),
        ],
        usage=used(10),
    )
    shown: list[list[AnyMessage]] = []

    def last(request: LLMGenerateInput) -> str:
        shown.append(list(request.messages))
        return "done"

    desk = agent(Context(), tools=[pay, lookup])
    async with LocalExecutor(store=MemoryStateStore(), model=ScriptedModel([asked, last])) as executor:
        handle = await executor.execute(desk, "go", session_id=S)
        assert (await handle.result()).status == "paused"
        waiting = await executor.sessions.get_context(S)
        assert (waiting.step, [message.role for message in waiting.messages]) == (2, ["user", "assistant", "tool"])
        confirmed = Confirmation(tool_call_id="pay", approved=True, arguments={"amount": 6})
        handle = await executor.resume(desk, S, mode="with_confirmation", confirmation=confirmed)
        assert (await handle.result()).status == "completed"
        found = await executor.sessions.get_context(S, 2)
        assert contents(found.messages) == contents(shown[0][1:])
        assert "A person changed the arguments" in str(found.messages[2].content)
        first = await executor.sessions.get_context(S, 1)
        assert first.count == 1 and first.view is None
