"""AgentRuntime runs agents in the wanted number of worker processes, whichever process sets that number."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.fleet.conftest import MakeRuntime
from tests.support import worker_agents
from tests.support.worker_agents import logged
from tests.support_fleet import PATIENCE_S, asked, processes_of
from tests.support_run import eventually

from helix import SQLiteStateStore
from helix.adapters.system import SystemClock
from helix.compat.teleon import TokenTracker, get_token_tracker
from helix.core.errors import AgentNotFoundError, CallNotPendingError, DefinitionError, InvalidInputError
from helix.fleet import (
    AgentStoppedError,
    DuplicateAgentError,
    FleetControl,
    InvalidScaleError,
    ProcessStatus,
    ResourceConfig,
    get_runtime,
    get_token_budget_manager,
)
from helix.fleet.rows import AgentEntry
from helix.workers.supervisor import Supervisor

TWO = ResourceConfig(min_instances=1, max_instances=2)


async def test_runs_are_executed_by_a_process(runtime_of: MakeRuntime, tmp_path: Path) -> None:
    runtime = runtime_of()
    await runtime.register_agent("steady", worker_agents.steady, TWO)
    await runtime.start()
    (process_id,) = await runtime.start_agent("steady")
    handle = await runtime.execute("steady", "notes 2")
    result = await handle.result(PATIENCE_S)
    assert (result.status, logged(tmp_path)) == ("completed", ["note 1", "note 2"])
    status = await runtime.get_agent_status("steady")
    assert (status["status"], status["instances"]) == ("running", 1)
    assert status["processes"][0]["process_id"] == process_id
    assert status["processes"][0]["pid"] not in (None, os.getpid())
    assert "serves steady" in runtime.processes.read_log(process_id)


@pytest.mark.parametrize("seat", ["aisle", "window"])  # for a window seat, the process dies once it has the answer
async def test_a_tool_in_a_process_asks(runtime_of: MakeRuntime, tmp_path: Path, seat: str) -> None:
    runtime = runtime_of()
    await runtime.register_agent("steady", worker_agents.steady, ResourceConfig(min_instances=1, max_instances=1))
    await runtime.start()
    await runtime.start_agent("steady")
    handle = await runtime.execute("steady", "tool book")
    (pending,) = (await handle.result(PATIENCE_S)).pending
    assert [question.text for question in pending.questions] == ["Which seat?"]
    with pytest.raises(InvalidInputError, match="must be one of 'window', 'aisle'"):
        await handle.answer("call_0", data="roof", round=pending.round)
    handle = await handle.answer("call_0", data=seat, round=pending.round)
    (again,) = (await handle.result(PATIENCE_S)).pending
    assert [question.text for question in again.questions] == ["For whom?"] and again.round > pending.round
    with pytest.raises(CallNotPendingError):
        await handle.answer("call_0", data=seat, round=pending.round)

    async def reminded() -> bool:
        return (await runtime.executor.sessions.get(handle.session_id)).pending[0].reminded == 1

    await eventually(reminded)  # by the sweep of the runtime
    handle = await handle.answer("call_0", data="Ada", round=again.round)
    assert (await handle.result(PATIENCE_S)).status == "completed"
    messages = (await runtime.executor.sessions.get_messages(handle.session_id)).messages
    assert [m.content for m in messages if m.role == "tool"] == [f"{seat} for Ada"]
    assert logged(tmp_path).count("book") == (3 if seat == "aisle" else 4)


async def test_starting_twice_starts_no_more(runtime_of: MakeRuntime) -> None:
    runtime = runtime_of()
    await runtime.register_agent("steady", worker_agents.steady, ResourceConfig(min_instances=2, max_instances=3))
    await runtime.start()
    await runtime.start()
    assert get_runtime() is runtime
    first = await runtime.start_agent("steady")
    assert sorted(await runtime.start_agent("steady")) == sorted(first) and len(first) == 2


async def test_an_agent_is_registered_once(runtime_of: MakeRuntime) -> None:
    """Registering the same definition again changes nothing. Another definition is an error unless `replace` is set."""
    runtime = runtime_of()
    await runtime.register_agent("steady", worker_agents.steady, TWO)
    await runtime.register_agent("steady", worker_agents.steady, TWO)
    with pytest.raises(DuplicateAgentError) as error:
        await runtime.register_agent("steady", worker_agents.steady, ResourceConfig(max_instances=5))
    assert error.value.code == "DUPLICATE_AGENT"
    await runtime.register_agent("steady", worker_agents.steady, ResourceConfig(max_instances=5), replace=True)
    assert (await runtime.get_agent_status("steady"))["resources"]["max_instances"] == 5


async def test_an_error_at_one_agent_leaves_the_others_supervised(
    runtime_of: MakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead = Supervisor._hold_lease

    async def fails_at_the_first(self: Supervisor, entry: AgentEntry) -> bool:
        if entry.agent_id == "broken":
            raise ValueError("unexpected")
        return await lead(self, entry)

    monkeypatch.setattr(Supervisor, "_hold_lease", fails_at_the_first)
    runtime = runtime_of()
    await runtime.register_agent("broken", worker_agents.steady, TWO)
    await runtime.register_agent("steady", worker_agents.steady, TWO)
    await runtime.start()
    assert len(await runtime.start_agent("steady")) == 1


async def test_functions_decorated_agents_and_places_can_be_served(runtime_of: MakeRuntime) -> None:
    runtime = runtime_of()
    await runtime.register_agent("plain", worker_agents.plain)
    await runtime.register_agent("greeter", worker_agents.greeter)
    await runtime.register_agent("renamed", f"{worker_agents.__file__}:plain")
    await runtime.start()
    assert (await runtime.get_agent_status("greeter"))["resources"]["max_instances"] == 3
    outputs = [
        (await (await runtime.execute(agent_id, "Ada")).result(PATIENCE_S)).output
        for agent_id in ("plain", "greeter", "renamed")
    ]
    assert outputs == ["plain Ada", "Hello, Ada", "plain Ada"]


async def test_what_worker_processes_cannot_import_is_refused(runtime_of: MakeRuntime) -> None:
    async def inner(query: str) -> str:
        """Answer."""
        return query

    with pytest.raises(DefinitionError, match="is not in a module"):
        await runtime_of().register_agent("inner", inner)


async def test_a_run_starts_the_first_instance(runtime_of: MakeRuntime) -> None:
    """Without auto_start an instance starts with the first run; with it, at once."""
    runtime = runtime_of()
    await runtime.register_agent("steady", worker_agents.steady, ResourceConfig(min_instances=0, max_instances=1))
    await runtime.register_agent("plain", worker_agents.plain, ResourceConfig(auto_start=True))
    await runtime.start()
    await processes_of(runtime, "plain", lambda infos: [info.status for info in infos] == [ProcessStatus.RUNNING])
    assert await runtime.start_agent("steady") == []
    assert (await runtime.get_agent_status("steady"))["status"] == "stopped"
    assert (await (await runtime.execute("steady", "notes 0")).result(PATIENCE_S)).status == "completed"
    assert (await runtime.get_agent_status("steady"))["instances"] == 1


async def test_scaling_stays_within_the_bounds_and_drains(runtime_of: MakeRuntime, tmp_path: Path) -> None:
    runtime = runtime_of()
    await runtime.register_agent("steady", worker_agents.steady, ResourceConfig(min_instances=1, max_instances=3))
    await runtime.start()
    assert len(await runtime.scale_agent("steady", instances=3)) == 3
    for instances in (0, 4):
        with pytest.raises(InvalidScaleError) as error:
            await runtime.scale_agent("steady", instances=instances)
        assert error.value.code == "INVALID_SCALE"
    handles = [await runtime.execute("steady", f"notes 2 block 2 {name}") for name in "ab"]
    for handle in handles:
        await asked(runtime.executor, handle, 2, tmp_path)
    busy = {row.value["owner"] for row in await runtime.queue.open_work()}
    left = await runtime.scale_agent("steady", instances=1)
    assert len(left) == 1
    draining = await processes_of(
        runtime, "steady", lambda infos: sum(info.status is ProcessStatus.STOPPED for info in infos) == 1
    )
    idle = [info for info in draining if info.status is ProcessStatus.STOPPED]
    assert idle[0].worker_id not in busy  # an idle worker is stopped first, and a busy one only when its run is done
    assert {info.worker_id for info in draining if info.alive} >= busy - {None}


async def test_a_stop_interrupts_the_runs_and_a_start_goes_on(runtime_of: MakeRuntime, tmp_path: Path) -> None:
    runtime = runtime_of()
    await runtime.register_agent("steady", worker_agents.steady, TWO)
    await runtime.start()
    await runtime.start_agent("steady")
    handle = await runtime.execute("steady", "notes 2 block 2")
    await asked(runtime.executor, handle, 2, tmp_path)
    await runtime.stop_agent("steady")
    assert (await handle.result(PATIENCE_S)).status == "interrupted"
    status = await runtime.get_agent_status("steady")
    assert (status["status"], status["instances"], status["wanted"]) == ("stopped", 0, 0)
    with pytest.raises(AgentStoppedError):
        await runtime.execute("steady", "notes 0")
    await runtime.start_agent("steady")
    again = await handle.resume()
    assert (await again.result(PATIENCE_S)).status == "completed"
    assert [line for line in logged(tmp_path) if line.startswith("note")] == ["note 1", "note 2"]


async def test_a_forced_stop_aborts_the_runs(runtime_of: MakeRuntime, tmp_path: Path) -> None:
    runtime = runtime_of()
    await runtime.register_agent("steady", worker_agents.steady, TWO)
    await runtime.start()
    await runtime.start_agent("steady")
    handle = await runtime.execute("steady", "notes 2 block 2")
    await asked(runtime.executor, handle, 2, tmp_path)
    await runtime.stop_agent("steady", force=True)
    result = await handle.result(PATIENCE_S)
    assert (result.status, result.error_code) == ("failed", "aborted")


@pytest.mark.slow
async def test_a_restart_hands_the_run_over(runtime_of: MakeRuntime, tmp_path: Path) -> None:
    runtime = runtime_of()
    await runtime.register_agent("steady", worker_agents.steady, ResourceConfig(shutdown_timeout=5))
    await runtime.start()
    (process_id,) = await runtime.start_agent("steady")
    before = await runtime.processes.get_process(process_id)
    handle = await runtime.execute("steady", "notes 2 block 2")
    await asked(runtime.executor, handle, 2, tmp_path)
    assert await runtime.restart_agent("steady") == [process_id]
    after = await runtime.processes.get_process(process_id)
    assert (after.pid != before.pid, after.restart_count) == (True, 1)
    result = await handle.result(PATIENCE_S)
    assert (result.status, result.run_id) == ("completed", handle.run_id)
    assert [line for line in logged(tmp_path) if line.startswith("note")] == ["note 1", "note 2"]


async def test_another_process_scales_by_rows(runtime_of: MakeRuntime, tmp_path: Path) -> None:
    """A control object on the same file and without a runtime scales agents, as the command line does."""
    runtime = runtime_of()
    await runtime.register_agent("steady", worker_agents.steady, ResourceConfig(min_instances=1, max_instances=3))
    await runtime.start()
    store = SQLiteStateStore(tmp_path / "helix.db")
    desk = FleetControl(store, SystemClock())
    await desk.scale("steady", 2)
    await processes_of(runtime, "steady", lambda infos: [info.status for info in infos] == [ProcessStatus.RUNNING] * 2)
    assert (await desk.status("steady"))["instances"] == 2
    await desk.restart("steady")
    await processes_of(
        runtime,
        "steady",
        lambda infos: all(info.restart_count == 1 and info.status is ProcessStatus.RUNNING for info in infos),
    )
    await desk.stop("steady")
    await processes_of(runtime, "steady", lambda infos: all(info.status is ProcessStatus.STOPPED for info in infos))
    assert [(found["agent_id"], found["status"]) for found in await desk.list()] == [("steady", "stopped")]
    await store.close()


async def test_who_is_not_there(runtime_of: MakeRuntime) -> None:
    runtime = runtime_of()
    await runtime.start()
    assert (await runtime.get_agent_status("nobody"))["status"] == "not_found"
    for verb in (runtime.start_agent, runtime.stop_agent, runtime.restart_agent):
        with pytest.raises(AgentNotFoundError):
            await verb("nobody")
    with pytest.raises(AgentNotFoundError):
        await runtime.scale_agent("nobody", 1)
    with pytest.raises(AgentNotFoundError):
        await runtime.execute("nobody", "hi")


async def test_no_more_workers_than_the_runtime_may_have(runtime_of: MakeRuntime, tmp_path: Path) -> None:
    runtime = runtime_of(max_workers=2)
    await runtime.register_agent("steady", worker_agents.steady, ResourceConfig(min_instances=2, max_instances=4))
    await runtime.register_agent("plain", worker_agents.plain)
    await runtime.start()
    assert len(await runtime.scale_agent("steady", instances=4)) == 2
    assert await runtime.start_agent("plain") == []
    handles = [await runtime.execute("steady", f"notes 1 block 2 {name}") for name in "ab"]
    waits = await runtime.execute("plain", "hi")
    for handle in handles:
        await asked(runtime.executor, handle, 2, tmp_path)
    assert runtime.engine.slots is not None
    counters = await runtime.engine.slots.counters()
    assert (counters[None].running, counters["plain"].queued) == (2, 1)
    for handle in handles:
        await handle.abort()
    await runtime.scale_agent("steady", instances=2)
    await runtime.stop_agent("steady")
    assert (await waits.result(PATIENCE_S)).output == "plain hi"


async def test_two_runtimes_on_one_store_do_not_fight(runtime_of: MakeRuntime) -> None:
    """One runtime supervises by its lease. The other writes the wanted numbers and takes over when the first is gone."""
    first, second = runtime_of(), runtime_of()
    for runtime in (first, second):
        await runtime.register_agent("steady", worker_agents.steady, TWO)
        await runtime.start()
        await runtime.start_agent("steady")
    assert len(await second.scale_agent("steady", 2)) == 2
    await processes_of(first, "steady", lambda infos: [info.status for info in infos] == [ProcessStatus.RUNNING] * 2)
    assert (len(await first.processes.list_processes()), await second.processes.list_processes()) == (2, [])
    with pytest.raises(DuplicateAgentError, match="another runtime"):
        await runtime_of().register_agent("steady", worker_agents.steady, ResourceConfig(max_instances=7))
    await first.shutdown()
    infos = await processes_of(
        second, "steady", lambda infos: [info.status for info in infos if info.alive] == [ProcessStatus.RUNNING] * 2
    )
    assert {info.pid for info in infos if info.alive} == {i.pid for i in await second.processes.list_processes()}


@pytest.mark.slow
async def test_a_signal_shuts_down_in_order(runtime_of: MakeRuntime, tmp_path: Path) -> None:
    """Runs stay open and nothing is lost. The next runtime continues them."""
    runtime = runtime_of()
    await runtime.register_agent("steady", worker_agents.steady, ResourceConfig(shutdown_timeout=5))
    await runtime.start()
    (process_id,) = await runtime.start_agent("steady")
    handle = await runtime.execute("steady", "notes 2 block 2", session_id="s1")
    await asked(runtime.executor, handle, 2, tmp_path)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(runtime.wait_for_shutdown(), PATIENCE_S)
    assert (await runtime.processes.get_process(process_id)).status is ProcessStatus.STOPPED
    following = runtime_of()
    await following.register_agent("steady", worker_agents.steady, ResourceConfig(shutdown_timeout=5))
    await following.start()
    again = await following.executor.get_handle(following.agent("steady"), "s1")
    result = await again.result(PATIENCE_S)
    assert (result.status, result.run_id) == ("completed", handle.run_id)


async def test_a_runtime_that_was_shut_down_leaves_no_closed_store_bound(runtime_of: MakeRuntime) -> None:
    first, second = runtime_of(), runtime_of()
    assert get_token_budget_manager() is second.budgets
    await second.shutdown()
    assert get_token_budget_manager() is first.budgets
    await get_token_tracker().record_tokens("steady", "gpt-4", 10, 5)
    assert await TokenTracker(first.store).get_tokens("steady") == 15
    await first.shutdown()
    with pytest.raises(InvalidInputError, match="no store is bound"):
        get_token_budget_manager()
