"""Views after time travel, a branch, an edit and a crash: the model is shown what it saw there."""

import pytest
from tests.support.context_talk import POLICIES, SUMMARY, WINDOW, S, Talk, agent, check, talk, used
from tests.support_crash import LoggedModel, Sweep, fresh

from helix import LocalExecutor, MemoryStateStore, ScriptedModel
from helix.core.context_policy import Context
from helix.core.estimating import estimate_request
from helix.core.initial import AgentInput
from helix.core.json import dumps
from helix.core.messages import ToolResultMessage
from helix.core.steps import AnyStepResult, ParsedToolCall, ToolCallsStepResult
from helix.ports.model import LLMGenerateInput
from helix.runtime.edits import edit
from helix.sessions.read import Sessions


async def test_time_travel_shows_what_the_model_saw_there() -> None:
    """A checkpoint before a view shows the whole history, one after it shows the view, in any order of rewinds."""
    desk, said = agent(Context(window=WINDOW)), Talk()
    store = await talk(desk, said, turns=40)
    points = (await Sessions(store).list_checkpoints(S, limit=1000)).items
    early = next(point for point in points if point.view == 0 and point.count == 8)
    late = points[0]
    assert late.view > 0
    for point in (early, late, early):
        again = Talk()
        async with LocalExecutor(store=store, model=again.adapter()) as executor:
            handle = await executor.resume(desk, S, mode="from_checkpoint", checkpoint_id=point.id, message="and now?")
            assert (await handle.result()).status == "completed"
        shown = again.prompts[0]
        notes = [m for m in shown if isinstance(m, ToolResultMessage) and "was cleared" in m.content]
        assert bool(notes) == (point.view > 0) and len(shown) == 1 + point.count + 1
    await check(store)


async def test_a_branch_and_an_import_are_shown_the_same() -> None:
    desk, said = agent(Context(window=WINDOW, clear_at=None, summariser="same")), Talk()
    store = await talk(desk, said, turns=40)
    async with LocalExecutor(store=store, model=said.adapter()) as executor:
        copy = (await executor.branch(S)).session_id
        assert (await (await executor.execute(desk, "same?", session_id=S)).result()).status == "completed"
        first = said.prompts[-2]
        assert (await (await executor.execute(desk, "same?", session_id=copy)).result()).status == "completed"
        assert [m.content for m in said.prompts[-2]] == [m.content for m in first]
        await check(store, copy)
    await check(store)


@pytest.mark.parametrize("name", ["cleared", "summarised"])
async def test_a_crash_at_any_write_leads_to_the_same_prompts(name: str) -> None:
    """Each prompt of a step is the same byte for byte, whichever worker sends it."""
    fresh()
    context, _ = POLICIES[name]
    context = Context(window=3_000, clear_at=context.clear_at, summariser=context.summariser, keep_steps=2)
    prompts: dict[tuple[str, bool], set[str]] = {}

    def answer(request: LLMGenerateInput) -> AnyStepResult | str:
        wants = request.tool_choice == "none"
        text = dumps([m.model_dump(mode="json", include={"role", "content", "tool_call_id"}) for m in request.messages])
        place = str(request.messages[-2 if wants else -1].content)[:20]
        prompts.setdefault((place, wants), set()).add(text)
        if wants:
            return SUMMARY
        done = request.messages[-1].content or ""
        row = int(done.split(":")[0].removeprefix("row ")) + 1 if str(done).startswith("row ") else 1
        if row > 5:
            return "done"
        call = ParsedToolCall(id=f"call_{row}", name="lookup", arguments={"row": row})
        return ToolCallsStepResult(tool_calls=[call], usage=used(estimate_request(request.messages, request.tools)))

    desk = agent(context)
    sweep = Sweep(desk, LoggedModel(ScriptedModel([answer], repeat=True, record=False)), rebuys=True)

    async def act(workers: LocalExecutor) -> None:
        await (await workers.execute(desk, "begin", session_id=S)).result()

    await sweep.everywhere(act)
    assert set(sweep.outcomes) == {"completed"}
    assert any("was cleared" in text or SUMMARY in text for texts in prompts.values() for text in texts)
    assert all(len(texts) == 1 for texts in prompts.values()), {place: len(texts) for place, texts in prompts.items()}


async def test_an_edit_shows_what_the_model_saw_at_that_message() -> None:
    desk, said = agent(Context(window=WINDOW)), Talk()
    store = MemoryStateStore()
    async with LocalExecutor(store, model=said.adapter()) as executor:
        for turn in range(30):
            given = AgentInput(message=f"question {turn}", metadata={"id": f"u{turn}"})
            assert (await (await executor.execute(desk, given, session_id=S)).result()).status == "completed"
        for turn in (28, 2):
            again = AgentInput(message="another question", metadata={"id": f"u{turn}"})
            mark = len(said.prompts)
            handle = await edit(executor, desk, S, again, user_id=None, key=f"edit-{turn}")
            assert (await handle.result()).status == "completed"
            shown = said.prompts[mark]
            notes = [m for m in shown if isinstance(m, ToolResultMessage) and "was cleared" in m.content]
            assert bool(notes) == (turn == 28)
    await check(store)
