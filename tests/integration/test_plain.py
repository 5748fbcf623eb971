"""`helix.run`: from a script, from a notebook and from threads. It waits for the end, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import Any, assert_type

import pytest
from pydantic import BaseModel
from tests.support.sample_files import png
from tests.support_run import a_tool, agent, call, calls

import helix
from helix import (
    Agent,
    AgentAlreadyRunningError,
    AgentResult,
    Image,
    InvalidInputError,
    LocalExecutor,
    MemoryStateStore,
    ScriptedModel,
    SessionNotFoundError,
    Usage,
)
from helix.core.steps import TextStepResult
from helix.fleet import BudgetManager

WHO: ContextVar[str] = ContextVar("who", default="nobody")
PATIENCE_S = 30


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def in_a_script(work: Callable[[], Any]) -> Any:
    return work()


def in_a_notebook(work: Callable[[], Any]) -> Any:
    """Call `work` as a cell does: the thread has a running event loop, and the cell is sync code in it."""

    async def cell() -> Any:
        return work()

    return asyncio.run(cell())


def in_a_thread(work: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(work).result()


places = pytest.mark.parametrize("place", [in_a_script, in_a_notebook, in_a_thread])


class Answer(BaseModel):
    text: str


@places
def test_it_returns_the_result_of_the_agent(place: Callable[..., Any]) -> None:
    def work() -> AgentResult[Answer]:
        who: Agent[Any, Answer] = agent(output_schema=Answer)
        result = helix.run(who, "hi", model=ScriptedModel([{"output": {"text": "Hello."}}]))
        assert_type(result, AgentResult[Answer])
        return result

    result = place(work)
    assert (result.status, result.output) == ("completed", Answer(text="Hello."))
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("helix-run")] == []


@places
def test_calls_share_the_file_and_continue_a_session(place: Callable[..., Any], folder: Path) -> None:
    model = ScriptedModel(["One.", "Two.", "Three."])
    first = place(lambda: helix.run(agent(), "1", model=model))
    second = place(lambda: helix.run(agent(), "2", session_id=first.session_id, model=model))
    third = place(lambda: helix.run(agent(), "3", session_id="mine", user_id="ann", store="other.db", model=model))
    assert [r.text for r in (first, second, third)] == ["One.", "Two.", "Three."]
    assert (first.session_id == second.session_id, third.session_id) == (True, "mine")
    assert [message.content for message in model.requests[1].messages[-3:]] == ["1", "One.", "2"]
    assert sorted(path.name for path in folder.glob("*.db")) == ["helix.db", "other.db"]


def test_runs_in_memory_share_nothing_unless_they_have_the_same_store() -> None:
    model, store = ScriptedModel(["One."] * 3), MemoryStateStore()
    for place, messages in ((":memory:", 2), (store, 2), (store, 4)):
        helix.run(agent(), "hi", session_id="s", store=place, model=model)
        assert len(model.requests[-1].messages) == messages


def test_the_input_is_that_of_execute() -> None:
    class Notes(BaseModel):
        name: str = ""

    who = agent(state_schema=Notes, system_prompt=lambda state: f"Help {state.name}.")
    model = ScriptedModel(["Seen.", "Hello."])
    helix.run(who, ["What is this?", Image(png())], model=model)
    helix.run(who, {"message": "hi", "state": {"name": "Ann"}}, model=model)
    (file,) = model.requests[0].messages[-1].files  # type: ignore[union-attr]
    assert (file.media_type, model.requests[1].messages[0].content) == ("image/png", "Help Ann.")


def test_it_accepts_the_options_that_execute_has() -> None:
    """An option has the same name everywhere."""
    elsewhere = {*inspect.signature(LocalExecutor.execute).parameters, *inspect.signature(LocalExecutor).parameters}
    assert set(inspect.signature(helix.run).parameters) - elsewhere == {"budget"}


def costly(request: Any) -> TextStepResult:
    return TextStepResult(content="Yes.", usage=Usage(prompt_tokens=10, cost_micros=400_000, calls=1))


def test_a_budget_limits_the_session_until_it_is_changed() -> None:
    who = agent(model="openai/gpt-4o-mini", llm_config=None)
    model = ScriptedModel([costly] * 5)
    ask: Callable[..., AgentResult[Any]] = lambda **options: helix.run(who, "hi", model=model, **options)  # noqa: E731
    first = ask(budget=0.5)
    assert first.status == "completed"
    assert ask(session_id=first.session_id, budget=0.39).error_code == "budget_exceeded"
    assert ask(session_id=first.session_id).error_code == "budget_exceeded", "it stays"
    assert ask().status == "completed", "another session has no budget"
    assert ask(session_id=first.session_id, budget=5).status == "completed"


@pytest.mark.parametrize(
    "budget", [0, -1, float("nan"), float("inf"), "1", True, 10**5_000, -(10**5_000)], ids=range(8)
)
def test_a_bad_budget_is_refused_before_anything_is_stored(budget: Any, folder: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"amount|at most"):
        helix.run(agent(), "hi", budget=budget)
    assert list(folder.iterdir()) == []


def test_a_session_that_does_not_begin_leaves_no_budget() -> None:
    with pytest.raises(InvalidInputError):
        helix.run(agent(), "", budget=1)

    async def listed() -> int:
        async with LocalExecutor() as executor:
            return len(await BudgetManager(executor.store).list_budgets())

    assert asyncio.run(listed()) == 0
    helix.run(agent(), "hi", budget=1, model=ScriptedModel(["Hello."]))
    assert asyncio.run(listed()) == 1


def test_nobody_changes_the_budget_of_another_users_session() -> None:
    model = ScriptedModel([costly, costly])
    first = helix.run(agent(), "hi", user_id="ann", budget=5, model=model)
    with pytest.raises(SessionNotFoundError):
        helix.run(agent(), "hi", user_id="eve", session_id=first.session_id, budget=0.01, model=model)
    assert helix.run(agent(), "hi", user_id="ann", session_id=first.session_id, model=model).status == "completed"


@places
def test_errors_arrive_and_failures_are_results(place: Callable[..., Any]) -> None:
    with pytest.raises(InvalidInputError, match="message"):
        place(lambda: helix.run(agent(), ""))
    with pytest.raises(InvalidInputError, match="not an Agent"):
        place(lambda: helix.run("helper", "hi"))  # type: ignore[arg-type]
    failed = place(lambda: helix.run(agent(), "hi", model=ScriptedModel([helix.ModelError("no")])))
    assert (failed.status, failed.error) == ("failed", "no")
    ask = agent(tools=[a_tool("act", lambda given, ctx: "done", require_approval=True)])
    paused = place(lambda: helix.run(ask, "hi", model=ScriptedModel([calls(call("act"))])))
    assert (paused.status, [pending.tool_name for pending in paused.pending]) == ("paused", ["act"])


@places
def test_the_callers_context_and_the_dependencies_are_the_runs(place: Callable[..., Any]) -> None:
    log: list[str] = []

    @contextlib.asynccontextmanager
    async def pool() -> AsyncIterator[str]:
        yield "pool"
        log.append("closed")

    async def look(given: Any, ctx: Any) -> str:
        return f"{WHO.get()} {ctx.deps}"

    def work() -> AgentResult[Any]:
        WHO.set("ann")
        who = agent(tools=[a_tool("look", look, finish_with=True)], deps=pool)
        return helix.run(who, "hi", model=ScriptedModel([calls(call("look"))]))

    assert (place(work).output, log) == ("ann pool", ["closed"])


def test_calls_at_once_in_threads_do_not_meet() -> None:
    def ask(number: int) -> str | None:
        return helix.run(agent(), "hi", session_id=f"s{number}", model=ScriptedModel([f"{number}."])).text

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(ask, range(8))) == [f"{number}." for number in range(8)]


def test_a_session_that_runs_elsewhere_is_refused() -> None:
    async def within(given: Any, ctx: Any) -> str:
        with pytest.raises(AgentAlreadyRunningError):
            await asyncio.to_thread(helix.run, agent(), "me too", session_id=ctx.session_id, model=ScriptedModel([]))
        return "refused"

    who = agent(tools=[a_tool("look", within, finish_with=True)])
    assert helix.run(who, "hi", model=ScriptedModel([calls(call("look"))])).output == "refused"


async def test_it_works_in_a_cell_of_ipython() -> None:
    pytest.importorskip("IPython")
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    try:
        shell.push({"helper": agent(), "model": ScriptedModel(["Hello."])})
        code = "import helix\nhelix.run(helper, 'hi', model=model).text"
        done = await shell.run_cell_async(code, transformed_cell=code)
        done.raise_error()
        assert done.result == "Hello."
    finally:
        InteractiveShell.clear_instance()


SCRIPT = """
import asyncio, sys, time, traceback
import helix
from helix import Agent, ScriptedModel, tool

async def slow(request):
    print("asked", flush=True)
    await asyncio.sleep(600)

@tool
async def wait() -> str:
    "Wait."
    print("asked", flush=True)
    await asyncio.sleep(600)

agent = Agent(name="slow", system_prompt="Wait.", tools=[wait], model="openai/gpt-4o-mini")
script = [slow] if sys.argv[1] == "model" else [{"tool_calls": [{"name": "wait"}]}]

def work():
    try:
        helix.run(agent, "hi", session_id="s", model=ScriptedModel(script))
    except KeyboardInterrupt as error:
        print(*error.__notes__, flush=True)

async def cell():
    work()

if sys.argv[2] == "script":
    work()
else:  # as a notebook's kernel runs a cell: its loop leaves SIGINT to Python
    asyncio.new_event_loop().run_until_complete(cell())
"""


@pytest.mark.parametrize("place", ["script", "cell"])
@pytest.mark.parametrize("where", ["model", "tool"])
def test_ctrl_c_interrupts_the_run_and_a_message_continues_it(place: str, where: str, folder: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, where, place]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert out == "The session 's' was interrupted. A further message continues it.\n", err
    assert (process.returncode, err) == (0, "")

    async def state() -> Any:
        async with LocalExecutor() as executor:
            return await executor.sessions.get("s")

    if where == "model":  # a tool is not cut off: after 5 s its run is left for `resume`
        assert asyncio.run(state()).status == "interrupted"
    who = agent("slow")
    again = helix.run(who, "Go on.", session_id="s", model=ScriptedModel(["Gone on."]))
    assert (again.status, again.text) == ("completed", "Gone on.")
