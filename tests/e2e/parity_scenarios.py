"""The scenarios of the parity suite, each written once for every runtime. Those with people are in `parity_people`.

Law: a scenario waits for states, never for time, so that its result depends only on its actions.
"""

from __future__ import annotations

from hashlib import sha256

from tests.e2e import parity_handoffs as parity_handoffs  # registers its scenarios
from tests.e2e import parity_people as parity_people  # registers its scenarios
from tests.e2e.parity_registry import LONG, scenario
from tests.e2e.parity_registry import SCENARIOS as SCENARIOS
from tests.e2e.parity_stage import Stage
from tests.support.cloud_agents.plans import ask, call, fail, finish, plan, say, see, stumble, use
from tests.support.cloud_agents.tools import portrait

from helix.core.view_row import ViewRow
from helix.fleet.budgets import BudgetManager
from helix.sessions.session_rows import read_session_rows

# --- answers and tools ---------------------------------------------------------------------------------------------------


@scenario
async def text_and_another_turn(stage: Stage) -> None:
    first = await stage.run("talker", plan(say(LONG, think="Let me see what there is to say.")))
    assert (first.status, first.text) == ("completed", LONG)
    assert (await stage.run("talker", {"message": plan(say("Again.")), "state": {"total": 5}})).text == "Again."


@scenario
async def a_search_by_the_provider(stage: Stage) -> None:
    """Its items and the sources of the text are stored, and the next turn is asked with them."""
    assert (await stage.run("talker", plan(say(LONG, think="Hm.", search="tea")))).text == LONG
    assert (await stage.run("talker", plan(say("Again.")))).text == "Again."
    first, _ = [
        m for m in (await stage.executor.sessions.get_messages(stage.session)).messages if m.role == "assistant"
    ]
    assert [block.raw["type"] for block in first.server_blocks] == ["server_tool_use", "web_search_tool_result"]
    assert [(one.title, one.raw) for one in first.citations] == [("Found", {"encrypted_index": "y"})]


@scenario
async def one_tool_after_the_other(stage: Stage) -> None:
    steps = [use(call("look", topic="a"), text=LONG), use(call("add", amount=2)), use(call("note", key="k", text="v"))]
    assert (await stage.run("talker", plan(*steps, say("Done.")))).steps == 4


@scenario
async def parallel_tools_change_the_state(stage: Stage) -> None:
    """Appended values add up and distinct keys are kept. For a conflict, the last value in call order wins, with a
    warning."""
    calls = [call("look", topic="a"), call("add", amount=2), call("look", topic="b")]
    calls += [
        call("note", key="same", text="one"),
        call("note", key="same", text="two"),
        call("note", key="own", text="x"),
    ]
    result = await stage.run("talker", plan(use(*calls, text="All at once."), use(call("add", amount=1)), say("Done.")))
    assert result.status == "completed"
    state = (await stage.executor.sessions.get(stage.session)).custom_state
    assert state["seen"] == ["a", "b"] and state["notes"] == {"same": "two", "own": "x"}


@scenario
async def inline_tools(stage: Stage) -> None:
    steps = [
        use(call("count", amount=1)),
        use(call("count", amount=2), call("look", topic="beside"), call("count", amount=3)),
    ]
    assert (
        await stage.run("talker", plan(*steps, use(call("count", amount=4)), say("Counted.")))
    ).status == "completed"


@scenario
async def tools_that_fail(stage: Stage) -> None:
    """One tool raises, one does not exist, and one gets the wrong arguments. The model reads each error and continues."""
    calls = [call("boom"), call("nobody", x=1), call("look", subject="?"), call("look", topic="fine")]
    assert (await stage.run("talker", plan(use(*calls), use(call("boom")), say("Nevertheless.")))).status == "completed"


@scenario
async def a_file_for_the_model(stage: Stage) -> None:
    result = await stage.run("talker", plan(use(call("draw", of="a cat")), see()))
    assert result.text == f"I see image/png {sha256(portrait('a cat')).hexdigest()}"


@scenario
async def large_values(stage: Stage) -> None:
    steps = [use(call("big", size=1_000_000)), use(call("grow", size=300_000)), use(call("shout", size=90_000))]
    result = await stage.run("talker", plan(*steps, use(call("look", topic="after")), say("Large.")))
    assert result.status == "completed"


@scenario
async def results_that_are_cleared_and_recalled(stage: Stage) -> None:
    """The usage shows the length of each prompt, so both runtimes clear the same results."""
    steps = [use(call("big", size=5_000)) for _ in range(4)]
    recalled = use(call("recall", call_id="call_0"))
    assert (await stage.run("tidy", plan(*steps, recalled, say("Done.")))).status == "completed"
    views = await _views(stage)
    assert views and all(view.cleared > 0 and not view.hidden for view in views)


@scenario
async def a_history_that_is_summarised(stage: Stage) -> None:
    steps = [use(call("big", size=5_300)) for _ in range(3)]
    assert (await stage.run("terse", plan(*steps, say("Long.")))).status == "completed"
    assert (await stage.run("terse", plan(use(call("look", topic="after")), say("Short.")))).status == "completed"
    assert [view.summary for view in await _views(stage)] == ["A summary of 9 messages."]


async def _views(stage: Stage) -> list[ViewRow]:
    return [*(await read_session_rows(stage.executor.store, stage.session)).views.values()]


# --- outputs -------------------------------------------------------------------------------------------------------------


@scenario
async def an_output(stage: Stage) -> None:
    result = await stage.run("helper", plan(use(call("look", topic="a")), finish(summary="found", sources=["a"])))
    assert result.output is not None and result.output.summary == "found"


@scenario
async def an_output_that_does_not_fit_and_none_at_all(stage: Stage) -> None:
    result = await stage.run("helper", plan(finish(sources="?"), say("Is that not enough?"), finish(summary="at last")))
    assert result.output is not None and result.output.summary == "at last"


# --- sub-agents ----------------------------------------------------------------------------------------------------------


@scenario
async def a_sub_agent(stage: Stage) -> None:
    child = plan(use(call("look", topic="deep"), text="Digging."), finish(summary="dug"))
    result = await stage.run("boss", plan(use(ask("helper", child), text="You do it."), finish(summary="delegated")))
    assert result.status == "completed"


@scenario
async def sub_agents_beside_a_tool(stage: Stage) -> None:
    one, two = plan(use(call("look", topic="one")), finish(summary="one")), plan(finish(summary="two"))
    calls = [ask("helper", one), call("look", topic="own"), ask("helper", two)]
    assert (await stage.run("boss", plan(use(*calls), finish(summary="all")))).status == "completed"


@scenario
async def a_sub_agent_of_a_sub_agent(stage: Stage) -> None:
    inner = plan(use(call("add", amount=1)), finish(summary="inner"))
    outer = plan(use(ask("helper", inner)), finish(summary="outer"))
    assert (await stage.run("boss", plan(use(ask("deputy", outer)), finish(summary="top")))).status == "completed"


@scenario
async def a_sub_agent_that_fails(stage: Stage) -> None:
    result = await stage.run("boss", plan(use(ask("helper", plan(fail("model_error")))), finish(summary="without it")))
    assert result.status == "completed"


# --- failures ------------------------------------------------------------------------------------------------------------


@scenario
async def a_model_call_that_is_repeated(stage: Stage) -> None:
    assert (await stage.run("talker", plan(stumble(LONG), say("Never asked for.")))).text == LONG


@scenario
async def a_failure_and_a_retry(stage: Stage) -> None:
    steps = [use(call("look", topic="x")), fail("overloaded", unless=stage.file("well"), said="Well, ")]
    result = await stage.run("talker", plan(*steps, say("Never said.")))
    assert (result.status, result.error_code) == ("failed", "overloaded")
    stage.open("well")
    assert (await stage.end(await stage.executor.retry(stage.agents["talker"], stage.session))).status == "completed"


@scenario
async def a_failure_and_a_retry_with_a_message(stage: Stage) -> None:
    await stage.run("talker", plan(fail("overloaded")))
    handle = await stage.executor.retry(stage.agents["talker"], stage.session, message=plan(say("Better so.")))
    assert (await stage.end(handle)).text == "Better so."


@scenario
async def a_failure_and_a_retry_from_the_start(stage: Stage) -> None:
    await stage.run("talker", plan(use(call("look", topic="x")), fail("overloaded", unless=stage.file("well"))))
    stage.open("well")
    handle = await stage.executor.retry(stage.agents["talker"], stage.session, mode="from_start")
    assert (await stage.end(handle)).status == "completed"


@scenario
async def a_tool_that_ends_the_run(stage: Stage) -> None:
    result = await stage.run("talker", plan(use(call("fatal"), call("look", topic="beside")), say("Never said.")))
    assert (result.status, result.error_code) == ("failed", "fatal_tool_error")


@scenario
async def too_many_steps(stage: Stage) -> None:
    result = await stage.run("brief", plan(use(call("look", topic="x"), times=3), say("Never said.")))
    assert (result.status, result.error_code) == ("failed", "max_steps")


@scenario
async def a_budget_that_ends_between_steps(stage: Stage) -> None:
    """The step after the large result exceeds the budget. A retry continues with that step after a raise."""
    budgets = BudgetManager(stage.executor.store)
    await budgets.set_budget(100_000, "total", session=stage.session)
    steps = [use(call("count", amount=1)), use(call("big", size=60_000)), use(call("count", amount=2))]
    result = await stage.run("talker", plan(*steps, say("Paid.")))
    assert (result.status, result.error_code, result.steps) == ("failed", "budget_exceeded", 3)
    await budgets.set_budget(1_000_000, "total", session=stage.session)
    assert (await stage.end(await stage.executor.retry(stage.agents["talker"], stage.session))).text == "Paid."


@scenario
async def a_budget_that_pauses(stage: Stage) -> None:
    budgets = BudgetManager(stage.executor.store)
    await budgets.set_budget(100_000, "total", session=stage.session, on_exceeded="pause")
    message = plan(
        use(call("big", size=60_000)), use(call("count", amount=2)), use(call("count", amount=3)), say("Paid.")
    )
    result = await stage.run("talker", message)
    assert (result.status, result.steps) == ("paused", 2)
    await budgets.remove_budget("total", session=stage.session)
    assert (await stage.end(await stage.executor.resume(stage.agents["talker"], stage.session))).text == "Paid."


# --- stops ---------------------------------------------------------------------------------------------------------------


@scenario
async def an_interrupt_in_the_answer(stage: Stage) -> None:
    message = plan(use(call("look", topic="x")), say(LONG, gate=stage.file("gate")))
    handle = await stage.begin("talker", message, "gate")
    assert await handle.interrupt("enough")
    assert (await stage.end(handle)).status == "interrupted"
    stage.open("gate")
    assert (await stage.end(await stage.executor.resume(stage.agents["talker"], stage.session))).text == LONG


@scenario
async def an_interrupt_whose_text_is_kept(stage: Stage) -> None:
    message = plan(use(call("look", topic="x")), say(LONG, think="Hm.", gate=stage.file("gate")))
    handle = await stage.begin("swift", message, "gate")
    assert await handle.interrupt("enough")
    assert (await stage.end(handle)).status == "interrupted"
    stage.open("gate")
    cut = (await stage.executor.sessions.get_messages(stage.session)).messages[-1]
    assert cut.role == "assistant" and cut.metadata["stop_reason"] == "interrupted" and not cut.thinking
    assert cut.content and LONG.startswith(cut.content) and cut.content != LONG
    resumed = await stage.executor.resume(stage.agents["swift"], stage.session)
    assert (await stage.end(resumed)).status == "completed"
    assert (await stage.run("swift", plan(say("Other plans.")))).text == "Other plans."
    branch = (await stage.executor.branch(stage.session, session_id=f"{stage.session}_branch")).session_id
    stage.sessions.append(branch)
    assert (await stage.run("swift", plan(say("There.")), session_id=branch)).text == "There."


@scenario
async def an_interrupt_during_tools(stage: Stage) -> None:
    calls = [call("wait", gate=stage.file("gate")), call("look", topic="beside")]
    handle = await stage.begin("talker", plan(use(*calls), use(call("add", amount=1)), say("On we go.")), "gate")
    await stage.recorded("look")  # a call that begins after the interrupt is skipped
    assert await handle.interrupt()
    stage.open("gate")
    assert (await stage.end(handle)).status == "interrupted"
    assert (await stage.end(await stage.executor.resume(stage.agents["talker"], stage.session))).status == "completed"


@scenario
async def an_interrupt_in_a_later_step(stage: Stage) -> None:
    """The steps before it are complete and stay complete."""
    steps = [use(call("count", amount=1)), use(call("look", topic="x")), say(LONG, gate=stage.file("gate"))]
    handle = await stage.begin("talker", plan(*steps), "gate")
    assert await handle.interrupt("enough")
    assert (await stage.end(handle)).status == "interrupted"
    stage.open("gate")
    assert (await stage.end(await stage.executor.resume(stage.agents["talker"], stage.session))).text == LONG
    state = (await stage.executor.sessions.get(stage.session)).custom_state
    assert (state["total"], state["seen"]) == (1, ["x"])


@scenario
async def an_interrupt_and_another_message(stage: Stage) -> None:
    handle = await stage.begin("talker", plan(say(LONG, gate=stage.file("gate"))), "gate")
    await handle.interrupt("other plans")
    assert (await stage.end(handle)).status == "interrupted"
    assert (await stage.run("talker", plan(say("Other plans.")))).text == "Other plans."


@scenario
async def an_interrupt_of_a_sub_agent_at_work(stage: Stage) -> None:
    child = plan(use(call("look", topic="deep")), use(call("wait", gate=stage.file("gate"))), finish(summary="late"))
    handle = await stage.begin("boss", plan(use(ask("helper", child)), finish(summary="done")), "gate")
    assert await handle.interrupt()
    stage.open("gate")
    assert (await stage.end(handle)).status == "interrupted"
    assert (await stage.end(await stage.executor.resume(stage.agents["boss"], stage.session))).status == "completed"


@scenario
async def an_abort(stage: Stage) -> None:
    handle = await stage.begin("talker", plan(use(call("look", topic="x")), say(LONG, gate=stage.file("gate"))), "gate")
    await stage.executor.abort(stage.agents["talker"], stage.session, "stop it")
    result = await stage.end(handle)
    assert (result.status, result.error_code) == ("failed", "aborted")
    assert (await stage.run("talker", plan(say("A new day.")))).text == "A new day."


@scenario
async def an_abort_with_a_sub_agent_at_work(stage: Stage) -> None:
    child = plan(say(LONG, gate=stage.file("gate")))
    handle = await stage.begin("boss", plan(use(ask("helper", child)), finish(summary="done")), "gate")
    await stage.executor.abort(stage.agents["boss"], stage.session, "stop it")
    assert (await stage.end(handle)).error_code == "aborted"


# --- the past ------------------------------------------------------------------------------------------------------------


@scenario
async def travel_in_time(stage: Stage) -> None:
    steps = [use(call("look", topic="x")), use(call("add", amount=1)), say("Three.")]
    await stage.run("talker", plan(*steps))
    await stage.run("talker", plan(use(call("look", topic="later")), say("Later.")))
    points = (await stage.executor.sessions.list_checkpoints(stage.session)).items
    first = min((point for point in points if point.step == 1), key=lambda point: point.created_at)
    handle = await stage.executor.resume(
        stage.agents["talker"], stage.session, mode="from_checkpoint", checkpoint_id=first.id
    )
    assert (await stage.end(handle)).text == "Three."


@scenario
async def branch_and_clone(stage: Stage) -> None:
    steps = [use(call("look", topic="x"), call("add", amount=1)), use(call("grow", size=1000)), say("Three.")]
    await stage.run("talker", plan(*steps))
    points = (await stage.executor.sessions.list_checkpoints(stage.session)).items
    first = min((point for point in points if point.step == 1), key=lambda point: point.created_at)
    branch = {"from_session_id": stage.session, "checkpoint_id": first.id}
    stage.sessions = [f"{stage.session}_branch", f"{stage.session}_clone"]
    message = plan(use(call("add", amount=5)), say("Elsewhere."))
    assert (await stage.run("talker", message, session_id=stage.sessions[0], branch=branch)).text == "Elsewhere."
    await stage.executor.clone_session(stage.session, stage.sessions[1])
    assert (await stage.run("talker", plan(say("A copy.")), session_id=stage.sessions[1])).text == "A copy."


@scenario
async def another_edition_is_deployed_between_two_runs(stage: Stage) -> None:
    """The resumed run uses the new edition: its fingerprint, its prompt and its tools."""
    await stage.edition("1")
    steps = [use(call("edited")), say(LONG, gate=stage.file("gate")), use(call("edited")), say("Both.")]
    handle = await stage.begin("changing", plan(use(call("edited")), say(LONG, gate=stage.file("gate"))), "gate")
    await handle.interrupt("a new edition comes")
    await stage.end(handle)
    await stage.edition("2")
    stage.open("gate")
    assert (await stage.end(await stage.executor.resume(stage.agents["changing"], stage.session))).text == LONG
    assert (await stage.run("changing", plan(*steps[2:]))).text == "Both."
    state = (await stage.executor.sessions.get(stage.session)).custom_state
    assert state["seen"] == ["edition 1", "edition 2"]
