"""Runs of all kinds crash at every call to the store and the stream, and a new worker recovers them."""

import pytest
from pydantic import Field
from tests.support.journal import Journal
from tests.support_crash import (
    CONFIG,
    GATED_SCRIPT,
    HELPER,
    LEAD,
    LONG,
    Answer,
    LoggedModel,
    Notes,
    S,
    Sweep,
    call,
    choose,
    executor,
    finish,
    fresh,
    gated,
    lead,
    look,
    model,
    plain,
    quiet,
    settle,
)

from helix import Agent, LocalExecutor, MemoryStateStore, Question, ToolContext, tool
from helix.adapters.models.scripted import Entry
from helix.core.errors import AgentAlreadyRunningError, SessionExistsError
from helix.core.steps import AnyStepResult
from helix.ports.model import LLMGenerateInput
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager
from helix.testing.crash import CrashPoints, Point, crash_everywhere, writes
from helix.testing.invariants import check_session


@pytest.fixture(autouse=True)
def fresh_log() -> None:
    fresh()


@pytest.mark.slow
async def test_tools_state_and_a_sub_agent() -> None:
    sweep = Sweep(lead, model())

    async def act(workers: LocalExecutor) -> None:
        await (await workers.execute(lead, "begin", session_id=S)).result()

    await sweep.everywhere(act)
    assert set(sweep.outcomes) == {"completed"}
    state, output = sweep.states[0]
    assert state == {"seen": ["a", "b", "c"], "total": 5} and output == {
        "summary": "all found",
        "sources": ["a", "b", "c"],
    }
    assert all(found == (state, output) for found in sweep.states)


@pytest.mark.parametrize("approve", [True, False])
async def test_an_approval_and_its_answer(approve: bool) -> None:
    sweep = Sweep(lead, model(lead=GATED_SCRIPT), approve=approve)

    async def act(workers: LocalExecutor) -> None:
        result = await (await workers.execute(lead, "begin", session_id=S)).result()
        assert result.status == "paused"
        await settle(workers, lead, S, approve=approve)

    await sweep.everywhere(act)
    assert set(sweep.outcomes) == {"completed"}
    seen = ["gated x", "y"] if approve else ["y"]
    assert all(sorted(state["seen"]) == seen for state, _ in sweep.states)


async def test_an_approval_with_other_arguments() -> None:
    """The arguments that a person approved are executed wherever a process dies, and never the model's arguments."""
    sweep = Sweep(lead, model(lead=GATED_SCRIPT), arguments={"topic": "z"})

    async def act(workers: LocalExecutor) -> None:
        result = await (await workers.execute(lead, "begin", session_id=S)).result()
        assert result.status == "paused"
        await settle(workers, lead, S, arguments={"topic": "z"})

    await sweep.everywhere(act)
    assert set(sweep.outcomes) == {"completed"}
    assert all(sorted(state["seen"]) == ["gated z", "y"] for state, _ in sweep.states)


@pytest.mark.parametrize("approve", [True, False])
async def test_questions_and_their_answers(approve: bool) -> None:
    """Each question is asked until it has its answer, and no answer is lost or given to another question."""

    @tool
    async def survey(ctx: ToolContext[Notes]) -> str:
        """Ask twice."""
        first, second = await ctx.ask(Question("First?")), await ctx.ask(Question("Second?"))
        with ctx.draft() as notes:
            notes.seen.append(f"{first} {second}")
        return f"{first} {second}"

    asking = Agent(name="asking", system_prompt="Ask.", tools=[survey, look], state_schema=Notes, llm_config=CONFIG)
    script: list[Entry] = [{"tool_calls": [call("survey"), call("look", topic="y")]}, "done"]
    given = {"First?": "one", "Second?": "two"}
    sweep = Sweep(asking, model(asking=script), approve=approve, answers=given)

    async def act(workers: LocalExecutor) -> None:
        result = await (await workers.execute(asking, "begin", session_id=S)).result()
        assert result.status == "paused"
        await settle(workers, asking, S, approve=approve, answers=given)

    await sweep.everywhere(act)
    assert set(sweep.outcomes) == {"completed"}
    seen = ["one two", "y"] if approve else ["y"]
    assert all(sorted(state["seen"]) == seen for state, _ in sweep.states)


@pytest.mark.slow
async def test_an_approval_in_a_sub_agent() -> None:
    script: list[Entry] = [
        {"tool_calls": [call("subagent__careful", message="ask"), call("look", topic="y")]},
        finish("done", "x"),
    ]
    sweep = Sweep(lead, model(lead=script))

    async def act(workers: LocalExecutor) -> None:
        result = await (await workers.execute(lead, "begin", session_id=S)).result()
        assert result.status == "paused"
        await settle(workers, lead, S)

    await sweep.everywhere(act)
    assert set(sweep.outcomes) == {"completed"}


async def test_an_interrupt_and_its_resumption() -> None:
    sweep = Sweep(plain, model(plain=[{"content": "one", "tool_calls": [call("look", topic="x")]}, "two", "three"]))

    async def act(workers: LocalExecutor) -> None:
        handle = await workers.execute(plain, "begin", session_id=S)
        await handle.interrupt("enough")
        await handle.result()
        await settle(workers, plain, S)

    await sweep.everywhere(act)
    assert set(sweep.outcomes) == {"completed"}


async def test_a_message_to_an_interrupted_run_closes_its_step() -> None:
    script: list[Entry] = [
        {"tool_calls": [call("gated", topic="x"), call("look", topic="y")]},
        finish("first"),
        finish("second"),
    ]
    sweep = Sweep(careful_pair(), model(pair=script))

    async def act(workers: LocalExecutor) -> None:
        await (await workers.execute(sweep.agent, "begin", session_id=S)).result()
        await (await workers.resume(sweep.agent, S, message="never mind")).result()

    await sweep.everywhere(act)
    assert set(sweep.outcomes) == {"completed"}


def careful_pair() -> Agent:
    return Agent(
        name="pair",
        system_prompt="Pair.",
        tools=[look, gated],
        state_schema=Notes,
        output_schema=Answer,
        llm_config=CONFIG,
    )


class Flaky(LoggedModel):
    """A model whose second answer fails until the test repairs it."""

    failing = True

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        if self.failing and any(m.role == "assistant" for m in request.messages):
            raise RuntimeError("down")
        return await super().generate_step(request)


@pytest.mark.parametrize("how", ["retry", "with a message", "from_start"])
async def test_a_failed_run_and_its_retry(how: str) -> None:
    scripted = Flaky(model(plain=[{"content": "hm", "tool_calls": [call("look", topic="x")]}, "two", "three"])._inner)
    sweep = Sweep(plain, scripted, rebuys=how == "from_start")

    async def act(workers: LocalExecutor) -> None:
        scripted.failing = True
        try:
            handle = await workers.execute(plain, "begin", session_id=S)
            assert (await handle.result()).status == "failed"
            await quiet(workers)
        finally:
            scripted.failing = False
        if how == "retry":
            handle = await workers.retry(plain, S)
        elif how == "from_start":
            handle = await workers.retry(plain, S, mode="from_start")
        else:
            handle = await workers.retry(plain, S, message="try this")
        assert (await handle.result()).status == "completed"

    await sweep.everywhere(act)
    assert set(sweep.outcomes) == {"completed"}


async def test_travel_in_time() -> None:
    script: list[Entry] = [
        {"tool_calls": [call("look", topic="x")]},
        {"tool_calls": [call("add", amount=1)]},
        "three",
        "four",
    ]
    sweep = Sweep(plain, model(plain=script), rebuys=True)

    async def act(workers: LocalExecutor) -> None:
        await (await workers.execute(plain, "begin", session_id=S)).result()
        points = (await workers.sessions.list_checkpoints(S)).items
        one = next(point for point in points if point.step == 1)
        await (await workers.resume(plain, S, mode="from_checkpoint", checkpoint_id=one.id)).result()

    await sweep.everywhere(act)
    assert set(sweep.outcomes) == {"completed"}


async def test_an_abort() -> None:
    sweep = Sweep(lead, model())

    async def act(workers: LocalExecutor) -> None:
        handle = await workers.execute(lead, "begin", session_id=S)
        while (await handle.get_state()).step_count < 1:
            with workers.store.watch("sessions", S) as watch:
                await watch.changed(0.01)
        await handle.abort("stop it")
        await quiet(workers)

    await sweep.everywhere(act)
    assert set(sweep.outcomes) <= {"completed", "failed"}


@pytest.mark.slow
async def test_an_abort_of_a_paused_run_and_its_paused_sub_agent() -> None:
    """Once the abort is answered, or its one transaction is written, no answer is accepted any more."""
    script: list[Entry] = [
        {"tool_calls": [call("subagent__careful", message="ask"), call("look", topic="y")]},
        finish("done", "x"),
    ]
    sweep = Sweep(lead, model(lead=script))

    async def act(workers: LocalExecutor) -> None:
        handle = await workers.execute(lead, "begin", session_id=S)
        assert (await handle.result()).status == "paused"
        await quiet(workers)
        await handle.abort("stop it")
        assert await settle(workers, lead, S) == "failed"

    await sweep.everywhere(act)
    assert set(sweep.outcomes) == {"completed", "failed"}


async def test_branch_and_clone() -> None:
    """A copy does not exist, or it is complete. A second attempt after a crash works once the old copier's lease has
    expired."""
    scripted = model(plain=[{"tool_calls": [call("look", topic="x")]}, "two", "three", "four"])

    async def act(store: StateStore, streams: StreamManager, points: CrashPoints) -> None:
        workers = executor(store, streams, scripted)
        await (await workers.execute(plain, "begin", session_id=S)).result()
        await workers.clone_session(S, "clone")
        handle = await workers.execute(plain, "go on", branch={"from_session_id": S}, session_id="branch")
        await handle.result()

    async def recover(store: StateStore, streams: StreamManager, point: Point) -> None:
        workers = executor(store, streams, scripted, LONG)
        for ident in (S, "clone", "branch"):
            await check_session(store, streams, ident)
        if not await workers.sessions.exists(S):
            await (await workers.execute(plain, "begin", session_id=S)).result()
        await settle(workers, plain, S)
        for ident in ("clone", "branch"):
            try:
                await workers.clone_session(S, ident)
            except SessionExistsError:
                assert await workers.sessions.exists(ident), point
            await settle(workers, plain, ident)
        await (await workers.execute(plain, "and more", session_id=S)).result()
        for ident in (S, "clone", "branch"):
            await check_session(store, streams, ident, at_rest=True)

    covered = await crash_everywhere(MemoryStateStore, act, recover, choose=choose)
    assert covered


@pytest.mark.slow
async def test_delete() -> None:
    """Any caller that asks again can finish a started deletion, and then nothing is left."""
    scripted = model(helper=HELPER)

    async def act(store: StateStore, streams: StreamManager, points: CrashPoints) -> None:
        workers = executor(store, streams, scripted)
        await (await workers.execute(lead, "begin", session_id=S)).result()
        await workers.delete(S)

    async def recover(store: StateStore, streams: StreamManager, point: Point) -> None:
        workers = executor(store, streams, scripted, LONG)
        await check_session(store, streams, S)
        try:
            await workers.delete(S)
        except AgentAlreadyRunningError as error:
            raise AssertionError(point) from error
        assert isinstance(store, MemoryStateStore)
        kept = ("usage", "head#")  # usage stays counted, and other sessions share the request head
        left = [key for key in store._rows if not key.partition.startswith(kept)]
        assert not left, (point, left)
        await (await workers.execute(lead, "again", session_id=S)).result()
        await check_session(store, streams, S, at_rest=True)

    covered = await crash_everywhere(MemoryStateStore, act, recover, choose=choose)
    assert covered


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["a new message", "from_start", "from_checkpoint"])
async def test_whoever_goes_on_otherwise(verb: str) -> None:
    """Open calls are closed or abandoned. Sub-agents at work in them end as well, and nothing waits for them."""
    scripted = model(lead=[*LEAD, finish("again"), finish("once more")])

    async def act(store: StateStore, streams: StreamManager, points: CrashPoints) -> None:
        await (await executor(store, streams, scripted).execute(lead, "begin", session_id=S)).result()

    async def recover(store: StateStore, streams: StreamManager, point: Point) -> None:
        journal, workers = Journal(), executor(store, streams, scripted, LONG)
        await journal.check(store, streams, S)
        state = await workers.sessions.load(S)
        if state is None or verb == "a new message":
            handle = await workers.execute(lead, "instead", session_id=S)
        elif verb == "from_start" and state.status == "running":
            handle = await workers.retry(lead, S, mode="from_start")
        else:
            first = (await workers.sessions.list_checkpoints(S, limit=100)).items[-1]
            handle = await workers.resume(lead, S, mode="from_checkpoint", checkpoint_id=first.id)
        assert (await handle.result(timeout_s=20)).status == "completed"
        await quiet(workers)
        await journal.check(store, streams, S, at_rest=True)

    assert await crash_everywhere(MemoryStateStore, act, recover, choose=writes)


async def test_a_call_whose_changes_the_merge_refuses() -> None:
    """The call fails in the transaction that folds its step, wherever the worker dies. It is always the same call."""

    class Short(Notes):
        seen: list[str] = Field(default_factory=list, max_length=1)

    short = Agent(name="short", system_prompt="Look.", tools=[look], state_schema=Short, llm_config=CONFIG)
    sweep = Sweep(short, model(short=[{"tool_calls": [call("look", topic="a"), call("look", topic="b")]}, "Done."]))

    async def act(workers: LocalExecutor) -> None:
        await (await workers.execute(short, "begin", session_id=S)).result()

    await sweep.everywhere(act)
    assert set(sweep.outcomes) == {"completed"}
    assert all(state == {"seen": ["a"], "total": 0} for state, _ in sweep.states)
