"""The runtime where agents fail, wait, are not healthy or cannot be read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.fleet.conftest import MakeRuntime
from tests.support import worker_agents
from tests.support.alerts import raise_alert
from tests.support_fleet import PATIENCE_S, asked, processes_of, seen

from helix.core.health import CheckType, HealthCheck
from helix.fleet import (
    ProcessFailedError,
    ProcessStatus,
)
from helix.ports.state_store import Delete, Key, Put
from helix.services.budget_rows import UNPUBLISHED


@pytest.mark.slow
async def test_an_agent_that_cannot_be_imported_is_given_up(runtime_of: MakeRuntime, tmp_path: Path) -> None:
    module = tmp_path / "broken_later.py"
    module.write_text("async def broken(query: str) -> str:\n    'Answer.'\n    return query\n")
    runtime = runtime_of()
    await runtime.register_agent("broken", f"{module}:broken")
    module.write_text("raise RuntimeError('no good')\n")
    await runtime.start()
    with pytest.raises(ProcessFailedError, match="no good"):
        await runtime.start_agent("broken")
    status = await runtime.get_agent_status("broken")
    assert (status["status"], status["processes"][0]["status"]) == ("stopped", "failed")
    module.write_text("async def broken(query: str) -> str:\n    'Answer.'\n    return query\n")
    assert len(await runtime.start_agent("broken")) == 1

    async def running() -> bool:
        return bool((await runtime.get_agent_status("broken"))["instances"] == 1)

    await seen(runtime.store, ("control", "fleet#broken"), running)


async def test_waiting_runs_can_be_interrupted_and_aborted(runtime_of: MakeRuntime, tmp_path: Path) -> None:
    """A waiting run has no execution, or one without a worker, so no worker has to hear of it."""
    runtime = runtime_of()
    await runtime.register_agent("steady", worker_agents.steady)
    await runtime.start()
    await runtime.start_agent("steady")
    works = await runtime.execute("steady", "notes 1 block 1")
    await asked(runtime.executor, works, 1, tmp_path)
    first, second = [await runtime.execute("steady", "notes 0") for _ in range(2)]
    assert await first.interrupt("no more")
    await second.abort("no more")
    assert (await first.result(PATIENCE_S)).status == "interrupted"
    assert (await second.result(PATIENCE_S)).error_code == "aborted"
    assert runtime.engine.slots is not None
    assert (await runtime.engine.slots.counters())["steady"].queued == 0
    await works.abort()


async def test_readiness_stops_admission_and_liveness_restarts(runtime_of: MakeRuntime) -> None:
    well = {"ready": True, "live": True}
    runtime = runtime_of()
    check = HealthCheck(name="takes-runs", check_fn=lambda: well["ready"], failure_threshold=1)
    await runtime.register_agent("steady", worker_agents.steady, health_check=check)
    live = HealthCheck(
        name="live", check_type=CheckType.LIVENESS, check_fn=lambda: (well["live"], "hm"), failure_threshold=1
    )
    await runtime.health.register_check("steady", live)
    await runtime.start()
    await runtime.start_agent("steady")
    well["ready"] = False
    await runtime.health.check_health("steady", run=True)
    waits = await runtime.execute("steady", "notes 0")
    assert runtime.engine.slots is not None
    assert (await runtime.engine.slots.counters())["steady"].queued == 1
    well["ready"] = True
    await runtime.health.check_health("steady", run=True)
    assert (await waits.result(PATIENCE_S)).status == "completed"
    well["live"] = False
    await runtime.health.check_health("steady", run=True)
    await processes_of(runtime, "steady", lambda i: (i[0].restart_count, i[0].status) == (1, ProcessStatus.RUNNING))
    assert (await runtime.get_agent_status("steady"))["health"]["status"] == "unhealthy"


async def test_an_alert_that_cannot_be_read_does_not_end_the_publishing(
    runtime_of: MakeRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    """After the unreadable alert is removed, the alerts behind it are published."""
    runtime, came = runtime_of(sweep_s=0.05), asyncio.Event()
    runtime.budgets.register_alert_callback(lambda alert: came.set())
    damaged = Key("control", UNPUBLISHED, "0")
    await runtime.store.transact("by hand", [Put(damaged, {"level": "unheard of"})])
    await raise_alert(runtime.store, "steady", "1", runtime.engine.clock.now())
    await runtime.start()
    async with asyncio.timeout(PATIENCE_S):
        while "publishing budget alerts failed" not in caplog.text:
            await asyncio.sleep(0.01)
        await runtime.store.transact("by hand", [Delete(damaged)])
        await came.wait()
