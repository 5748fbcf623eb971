"""The stage of a parity scenario: in this process on SQLite, or in the cloud through the deployed functions.

Law: a scenario knows an executor and the files that open gates, but not which runtime it has. At its end no worker works on
its sessions: the effects of every run are applied, and the stream has its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cloud_executor import cloud_executor, deploy_edition
from tests.e2e.parity_story import RunReport, read_report
from tests.support.cloud_agents.cast import CAST, changing
from tests.support.cloud_agents.planned import PlannedModel
from tests.support.offline_cloud import CloudForTests

from helix import Agent, AgentResult, Confirmation, LocalExecutor, SQLiteStateStore
from helix.core.registry import AgentRegistry
from helix.core.rows import Pending
from helix.engine.engine import Settings
from helix.runtime.executor import Executor
from helix.testing.invariants import find_problems

PATIENCE_S = 60.0
LOOK_S, LOOK_MOST_S = 0.02, 0.2
AGENTS = {agent.name: agent for agent in CAST} | {
    tool.agent.name: tool.agent for agent in CAST for tool in agent.tools if tool.agent is not None
}


@dataclass
class Stage:
    """A stage for one scenario. `session` is a new id. A scenario that creates more sessions adds them to `sessions`, and
    all of them are compared."""

    executor: Executor
    folder: Path
    session: str
    cloud: CloudForTests | None = None
    sessions: list[str] = field(default_factory=list)
    agents: dict[str, Agent] = field(default_factory=lambda: dict(AGENTS))

    async def run(self, agent: str, message: Any, **options: Any) -> AgentResult[Any]:
        """Send a new message, and wait for the run's end."""
        options = {"session_id": self.session, **options}
        return await self.end(await self.executor.execute(self.agents[agent], message, **options))

    async def begin(self, agent: str, message: Any, gate: str) -> Any:
        """Start a run, and wait until it has reached its gate."""
        handle = await self.executor.execute(self.agents[agent], message, session_id=self.session)
        await self.reached(gate)
        return handle

    async def end(self, handle: Any) -> AgentResult[Any]:
        result = await handle.result(timeout_s=PATIENCE_S)
        await self.quiet(handle.session_id)
        return result

    async def answer(self, agent: str, pending: Pending | str, **answer: Any) -> AgentResult[Any]:
        """Answer a waiting call of this session or of a sub-agent, and wait for the root's next end."""
        call_id = pending if isinstance(pending, str) else pending.call_id
        who = self.agents[agent]
        await self.executor.answer(who, self.session, Confirmation(call_id, **answer))
        await self.quiet(self.session)
        return await (await self.executor.get_handle(who, self.session)).result(timeout_s=PATIENCE_S)

    # --- gates -----------------------------------------------------------------------------------------------------------

    def file(self, name: str) -> str:
        """Return the path of a gate or a mark."""
        return str(self.folder / name)

    def open(self, name: str) -> None:
        (self.folder / name).touch()

    async def reached(self, name: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not (self.folder / f"{name}.entered").exists():
                await asyncio.sleep(LOOK_S)

    async def recorded(self, tool_name: str) -> None:
        """Wait until the call of that tool in the open step has its result."""
        history = self.executor.engine.history
        async with asyncio.timeout(PATIENCE_S):
            while True:
                rows = await history.open_rows(await history.existing(self.session))
                calls = [row for row in rows.calls if row is not None] if rows is not None else []
                if any((row.tool_name, row.state) == (tool_name, "done") for row in calls):
                    return
                await asyncio.sleep(LOOK_S)

    # --- rest ------------------------------------------------------------------------------------------------------------

    async def quiet(self, session_id: str) -> None:
        """Wait until no worker works on the session, or fail with the remaining problems. Each look reads all rows, so the
        pauses grow."""
        problems, pause = list[str](), LOOK_S
        try:
            async with asyncio.timeout(PATIENCE_S):
                while problems := await find_problems(
                    self.executor.store, self.executor.streams, session_id, at_rest=True
                ):
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LOOK_MOST_S)
        except TimeoutError:
            raise AssertionError(f"session {session_id!r} does not come to rest: {problems}") from None

    async def story(self) -> RunReport:
        told: RunReport = {}
        for n, session_id in enumerate([self.session, *self.sessions]):
            await self.quiet(session_id)
            hide = [str(self.folder), *(s for s in (self.session, *self.sessions) if s != session_id)]
            told[f"session {n}"] = await read_report(self.executor, session_id, hide=hide)
        return told

    async def edition(self, name: str) -> None:
        """Replace the deployed edition of `changing`: new functions in the cloud, a new executor in this process."""
        self.agents["changing"] = changing(name)
        if self.cloud is not None:
            deploy_edition(self.cloud, name)
            return
        await self.executor.store.close()
        self.executor = _local(self.folder)


def _local(folder: Path) -> LocalExecutor:
    store = SQLiteStateStore(folder / "helix.db")
    settings = Settings(stop_poll_s=0.02)
    return LocalExecutor(store, model=PlannedModel(), registry=AgentRegistry(), settings=settings)


@asynccontextmanager
async def stage_of(
    runtime: str, folder: Path, request: pytest.FixtureRequest, session: str = "ses_parity"
) -> AsyncIterator[Stage]:
    folder.mkdir(parents=True, exist_ok=True)
    if runtime == "local":
        stage = Stage(_local(folder), folder, session)
        try:
            yield stage
        finally:
            await stage.executor.close()
        return
    cloud: CloudForTests = request.getfixturevalue("cloud")
    yield Stage(cloud_executor(cloud), folder, session, cloud)
