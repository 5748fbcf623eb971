"""Runs on Redis: killed workers, a server that is killed during a run, and two machines on one session."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.redis_server import RedisServer
from tests.support_processes import Worker
from tests.support_run import PATIENCE_S, Gate, Nothing, a_tool, agent, assert_stream, call, calls, chunks_of, told

from helix import AgentAlreadyRunningError, LocalExecutor, ScriptedModel, ToolContext
from helix.adapters.redis import RedisStateStore, open_redis
from helix.core.errors import StoreError
from helix.core.registry import AgentRegistry
from helix.engine.engine import Settings
from helix.runtime.handle import RunStoppedError
from helix.testing.invariants import check_session

QUICK = Settings(claim_s=1.0, stop_poll_s=0.02)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis", appendonly="yes", appendfsync="always") as made:
        yield made


def machine(server: RedisServer, script: Any) -> LocalExecutor:
    store = RedisStateStore(server.url, timeout_s=2)
    return LocalExecutor(store, model=ScriptedModel(script), settings=QUICK, registry=AgentRegistry())


def waiting(gate: Gate) -> Any:
    async def wait(given: Nothing, ctx: ToolContext[Any]) -> str:
        await gate.wait()
        return "waited"

    return a_tool("wait", wait)


@pytest.mark.slow
def test_workers_killed_at_points_of_the_protocol(
    server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL comes before and after calls to the store. The next process reaches the transcript of an undisturbed run."""
    monkeypatch.setenv("REDIS_URL", server.url)
    worker = Worker("redis_crash_worker")
    try:
        points = worker.ask(do="run", db=str(tmp_path / "reference"))["points"]
        transcript = worker.ask(do="resume", db=str(tmp_path / "reference"))["transcript"]
        names = {name for name, _ in points}
        assert {"transact:stage:before", "transact:call_result:after", "append:end:after"} <= names
        chosen, hits = points[5::16], 0
        for number, point in enumerate(chosen):
            for again in range(2):  # on a busy machine a run may not reach its point
                db = str(tmp_path / f"trial{number}_{again}")
                killed = worker.ask(do="run", db=db, at=point)["signal"] == signal.SIGKILL
                answer = worker.ask(do="resume", db=db)
                assert "error" not in answer, f"killed at {point}: {answer['error']}"
                assert answer["transcript"] == transcript, f"another transcript after a kill at {point}"
                if killed:
                    break
            hits += killed
        assert hits >= len(chosen) * 0.8
    finally:
        worker.close()


async def test_a_run_goes_on_over_a_restart_of_the_server(server: RedisServer) -> None:
    """The server is killed while a tool runs, and restarts at once. The run does not notice, and nothing is bought or done
    twice."""
    gate = Gate()
    async with machine(server, [calls(call("wait"), content="First."), "Done."]) as executor:
        handle = await executor.execute(agent(tools=[waiting(gate)]), "go")
        await asyncio.wait_for(gate.reached(), PATIENCE_S)
        server.kill()
        server.start()
        gate.open()
        assert_stream(await chunks_of(handle))
        result = await handle.result(timeout_s=PATIENCE_S)
        assert (result.status, result.text, gate.times) == ("completed", "Done.", 1)
        await check_session(executor.store, executor.streams, handle.session_id, at_rest=True)


async def test_a_server_that_stays_away_ends_the_worker_and_not_the_session(server: RedisServer) -> None:
    """The run stops in its process. Another process takes over the session when the server is back, and the first answer
    stands."""
    gate, again = Gate(), Gate()
    again.open()
    first = machine(server, [calls(call("wait"), content="First."), "Not asked."])
    handle = await first.execute(agent(tools=[waiting(gate)]), "go")
    await asyncio.wait_for(gate.reached(), PATIENCE_S)
    server.kill()
    gate.open()
    with pytest.raises((RunStoppedError, StoreError)):
        await handle.result(timeout_s=PATIENCE_S)
    await first.close()
    server.start()
    async with machine(server, ["Done."]) as second:
        taken = None
        async with asyncio.timeout(PATIENCE_S):
            while taken is None:
                try:
                    taken = await second.resume(agent(tools=[waiting(again)]), handle.session_id)
                except AgentAlreadyRunningError:  # until the dead worker's lease expires
                    await asyncio.sleep(0.05)
        result = await taken.result(timeout_s=PATIENCE_S)
        assert (result.status, result.text) == ("completed", "Done.")
        messages = (await second.sessions.get_messages(handle.session_id, limit=100)).messages
        assert [line for line in told(messages) if line.startswith("assistant")] == [
            "assistant: First.[wait]",
            "assistant: Done.",
        ]
        await check_session(second.store, second.streams, handle.session_id, at_rest=True)


async def test_two_machines_at_one_session(server: RedisServer) -> None:
    """One machine wins the claim, and the other is told. It may follow the run live and stop it."""
    gate, who = Gate(), agent(tools=[waiting(Gate())])
    async with machine(server, [calls(call("wait"), content="Working."), "Done."]) as one:
        async with LocalExecutor(
            open_redis(server.url), model=ScriptedModel([]), settings=QUICK, registry=AgentRegistry()
        ) as two:
            handle = await one.execute(agent(tools=[waiting(gate)]), "go")
            with pytest.raises(AgentAlreadyRunningError):
                await two.execute(who, "me too", session_id=handle.session_id)
            afar = await two.get_handle(who, handle.session_id)
            following = asyncio.ensure_future(chunks_of(afar))
            await asyncio.wait_for(gate.reached(), PATIENCE_S)
            assert await two.interrupt(handle.session_id, "enough")
            gate.open()
            chunks = await asyncio.wait_for(following, PATIENCE_S)
            assert [chunk.sequence for chunk in chunks] == [chunk.sequence for chunk in await chunks_of(handle)]
            assert (await afar.result(timeout_s=PATIENCE_S)).status == "interrupted"


async def test_a_request_key_holds_between_two_machines_behind_later_runs(server: RedisServer) -> None:
    here, there = (machine(server, ["Hello."] * 4) for _ in range(2))
    async with here, there:
        first = await here.execute(agent(), "hi", session_id="s", key="k")
        await first.result(PATIENCE_S)
        for _ in range(3):
            await (await here.execute(agent(), "more", session_id="s")).result(PATIENCE_S)
        again = await there.execute(agent(), "hi", session_id="s", key="k")
        assert (again.session_id, again.run_id) == ("s", first.run_id)
        assert len((await there.sessions.list_runs("s", limit=50)).runs) == 4
