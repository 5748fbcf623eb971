"""A session whose workers are killed: its steps, the waits for it, and the check of what it leaves behind.

Law: a play never helps the app. It waits, repeats requests that were not answered, and lets minutes pass.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.e2e.cloud_executor import cloud_executor
from tests.e2e.parity_story import read_report
from tests.support.offline_cloud import CloudForTests

from helix.client import ClientSettings, HelixClient
from helix.core.row_keys import SESSION
from helix.ports.launcher import ExecutionState, Part
from helix.runtime.executor import Executor
from helix.services.open_runs import PARTITIONS, partition_name
from helix.testing.invariants import find_problems, read_tree

PATIENCE_S = 90.0
LOOK_S = 0.1
UNANSWERED_S = 8.0
"""The time that a client of these tests waits for an answer."""
TRIES = 20
OLD_S = 120
USER = "crashes"
STARTED_AT = "started_at"
T = TypeVar("T")


@dataclass
class Play:
    """One session of a scene. `point` is where its one crash happens. If it is empty, the play only records the points."""

    cloud: CloudForTests
    executor: Executor
    session: str
    point: str = ""

    def __post_init__(self) -> None:
        (self.place / "points").mkdir(parents=True)
        if self.point:
            (self.place / "armed").write_text(self.point)

    @property
    def place(self) -> Path:
        return self.cloud.crashes / self.session

    @property
    def crashed(self) -> bool:
        return (self.place / "fired").exists()

    def points(self) -> list[str]:
        """Return the points that the session reached, in no particular order."""
        found = []
        for path in sorted((self.place / "points").iterdir()):
            found += [f"{path.name}#{n}" for n in range(path.stat().st_size)]
        return found

    def file(self, name: str) -> str:
        return str(self.place / name)

    async def reached(self, gate: str) -> None:
        await self.until(lambda: _now(Path(self.file(gate) + ".entered").exists()), f"{gate} is reached")

    def open(self, gate: str) -> None:
        Path(self.file(gate)).touch()

    # --- waiting ---------------------------------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], Awaitable[T]], what: str) -> T:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not (value := await condition()):
                    await asyncio.sleep(LOOK_S)
                return value
        except TimeoutError:
            raise AssertionError(f"{self.session}, killed at {self.point!r}: never that {what}") from None

    async def status(self, *wanted: str) -> str:
        """Wait until the session has one of these statuses, and return it."""

        async def look() -> str:
            state = await self.executor.sessions.load(self.session)
            return state.status if state is not None and state.status in wanted else ""

        return await self.until(look, f"it is {' or '.join(wanted)}")

    async def quiet(self, session: str = "") -> None:
        """Wait until no worker works on the session and its rows and stream are consistent."""
        problems: list[str] = []
        store, streams = self.executor.store, self.executor.streams
        try:
            async with asyncio.timeout(PATIENCE_S):
                while problems := await find_problems(store, streams, session or self.session, at_rest=True):
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise AssertionError(f"{self.session}, killed at {self.point!r}, is not at rest: {problems}") from None

    async def patiently(self, wanted: str, *, sweeps: bool = False) -> None:
        """Wait until the session has this status. After a crash, or with `sweeps`, minutes pass during the wait."""

        async def reached() -> bool:
            state = await self.executor.sessions.load(self.session)
            return state is not None and state.status == wanted

        await self.patiently_until(reached, sweeps)

    async def at_rest_patiently(self, *, sweeps: bool = False) -> None:
        async def reached() -> bool:
            return not await find_problems(self.executor.store, self.executor.streams, self.session, at_rest=True)

        await self.patiently_until(reached, sweeps)

    async def patiently_until(self, reached: Callable[[], Awaitable[bool]], sweeps: bool = False) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not await reached():
                if self.crashed or sweeps:
                    await self.minute()
                await asyncio.sleep(10 * LOOK_S)

    async def minute(self) -> None:
        """Let a minute pass: age the session's open runs, and run the schedules that are due."""
        family = {rows.session_id for rows in await read_tree(self.executor.store, self.session)}
        await asyncio.to_thread(grow_old, self.cloud, family)
        await asyncio.to_thread(self.cloud.cloud.tick)

    async def executions(self, *, running: bool = False) -> list[dict[str, Any]]:
        """Return the executions of the session and of its sub-agents. Each is read by name, so other tests' executions are
        left out."""
        names = [
            f"{run.run_id}__part-{part}" if part > 1 else run.run_id
            for rows in await read_tree(self.executor.store, self.session)
            for run in rows.runs_in_order()
            for part in range(1, run.part + 1)
        ]
        found = await asyncio.gather(*(asyncio.to_thread(self._execution, name) for name in names))
        return [one for one in found if one is not None and (not running or one["status"] == "RUNNING")]

    def _execution(self, name: str) -> dict[str, Any] | None:
        arn = self.cloud.cloud.machine().replace(":stateMachine:", ":execution:")
        try:
            return self.cloud.describe(f"{arn}:{name}")
        except self.cloud.aws("stepfunctions").exceptions.ExecutionDoesNotExist:
            return None

    # --- clients ---------------------------------------------------------------------------------------------------------

    def client(self, user: str = USER) -> HelixClient:
        return self.cloud.user(user, settings=ClientSettings(request_s=UNANSWERED_S, open_s=30, quiet_s=2))

    async def insist(self, request: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request until it is answered, as a client does, and let a minute pass after each timeout."""
        for _ in range(TRIES):
            try:
                return await request()
            except TimeoutError:
                await self.minute()
        raise AssertionError(f"{self.session}, killed at {self.point!r}: no answer")

    # --- what is left ----------------------------------------------------------------------------------------------------

    async def transcript(self) -> dict[str, Any]:
        """Return what must not depend on crashes: messages, state, output and status of the session and its sub-agents."""
        hide = [str(self.place), self.session]
        story = await read_report(self.executor, self.session, hide=[hide[0]])
        kept = {}
        for name, told in story["sessions"].items():
            state = {
                key: told["state"][key] for key in ("status", "custom_state", "output", "step_count", "agent_type")
            }
            messages = [{k: v for k, v in m.items() if k not in ("run_id", "metadata")} for m in told["messages"]]
            kept[name] = {"state": state, "messages": messages}
        told_plain: dict[str, Any] = json.loads(json.dumps(kept))
        return told_plain

    def repeated(self) -> list[str]:
        """Return the tools and model calls that started again although their result was stored."""
        lines = (self.place / "log").read_text().splitlines()
        assert {line.split()[0] for line in lines} == {"start", "done"}, f"{self.session} has logged nothing: {lines}"
        return repeated_in(lines)


def repeated_in(lines: Sequence[str]) -> list[str]:
    done: set[str] = set()
    again = []
    for line in lines:
        word, _, what = line.partition(" ")
        if word == "done":
            done.add(what)
        elif what in done:
            again.append(what)
    return again


async def _now(value: bool) -> bool:
    return value


def grow_old(cloud: CloudForTests, sessions: Collection[str]) -> None:
    """Move the claims and the last writes of these sessions' open runs two minutes into the past."""
    for session_id in sessions:
        _earlier(cloud, "sessions", {"pk": {"S": session_id}, "sk": {"S": SESSION}}, "updated_at")
    for number in range(PARTITIONS):
        for item in cloud.rows("control", partition_name(number)):
            if item["session_id"]["S"] in sessions:
                _earlier(cloud, "control", {"pk": item["pk"], "sk": item["sk"]}, STARTED_AT)


def _earlier(cloud: CloudForTests, table: str, key: dict[str, Any], field: str) -> None:
    dynamodb = cloud.aws("dynamodb")
    try:
        dynamodb.update_item(
            TableName=cloud.cloud.table(table),
            Key=key,
            UpdateExpression="SET #at = #at - :s",
            ConditionExpression="attribute_exists(#at)",
            ExpressionAttributeNames={"#at": field},
            ExpressionAttributeValues={":s": {"N": str(OLD_S)}},
        )
    except dynamodb.exceptions.ConditionalCheckFailedException:
        return  # the run has ended meanwhile


@contextmanager
def events_lost(cloud: CloudForTests) -> Iterator[None]:
    """Drop the events that announce the end of executions."""
    events, rule = cloud.aws("events"), cloud.cloud.function("ended")
    events.disable_rule(Name=rule)
    try:
        yield
    finally:
        events.enable_rule(Name=rule)


class Idle:
    """A launcher that starts nothing, so that every start is lost."""

    async def start(self, part: Part) -> None:
        return None

    async def state(self, part: Part) -> ExecutionState:
        return "none"

    async def stop(self, part: Part, reason: str) -> None:
        return None

    async def wake(self, token: str) -> None:
        return None


def play_of(cloud: CloudForTests, session: str, point: str = "") -> Play:
    return Play(cloud, cloud_executor(cloud), session, point)
