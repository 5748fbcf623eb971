"""Work of realistic length on a stage whose claims, retries and state machines take as long as on AWS.

The test waits for real time: a holder renews its claim by its own clock, and the claim expires by the clock of the process
that waits for it. All scenes play concurrently, so the test is as long as the longest one and needs little processor time.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.e2e.cloud_executor import cloud_executor
from tests.support.cloud_agents.plans import ask, call, finish, plan, say, use
from tests.support.offline_cloud import CloudForTests, until

from helix.client import ClientSettings, HelixClient
from helix.client.remote_handle import RemoteHandle
from helix.engine.calls.tool import MAX_DEATHS
from helix.engine.engine import Settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PATIENCE_S = 600.0
LOOK_S = 4.0
CLAIM_S = Settings().claim_s
STARTS_AT_ONCE = 2
"""The number of functions that start at once. Cold starts take processor time."""
EACH = 9
"""More deaths than any call survives."""

Kind = Literal["tool", "inline tool", "model", "sub-agent"]
Fate = Literal["", "crash", "interrupt"]
LENGTHS: tuple[tuple[Kind, float], ...] = (
    ("tool", 12),
    ("tool", 40),
    ("inline tool", 40),
    ("tool", 200),
    ("model", 60),
    ("sub-agent", 90),
)
FATES: tuple[Fate, ...] = ("", "crash", "interrupt")
AGENTS: dict[Kind, str] = {"tool": "talker", "inline tool": "swift", "model": "talker", "sub-agent": "chief"}


@dataclass(frozen=True)
class Scene:
    """One scene. The file `mark` has a line for each start of its work."""

    kind: Kind
    seconds: float
    fate: Fate
    mark: Path

    def __str__(self) -> str:
        return f"{self.kind} of {self.seconds:g} s {self.fate}".strip()

    @property
    def message(self) -> str:
        work: dict[str, Any] = {"mark": str(self.mark), "deaths": self.deaths}
        if self.kind == "model":
            return plan(say("At long last.", lasts=self.seconds, **work))
        lingers = use(call("linger", seconds=self.seconds, **work))
        if self.kind == "sub-agent":
            return plan(use(ask("helper", plan(lingers, finish(summary="it took long")))), finish(summary="all"))
        return plan(lingers, say("Over."))

    @property
    def deaths(self) -> int:
        return int(self.fate == "crash")

    @property
    def starts(self) -> int:
        """The expected number of starts: one, and another one after a death. A model is also asked again after an
        interrupt."""
        return 2 if self.fate == "crash" or (self.fate == "interrupt" and self.kind == "model") else 1


class Deadlines:
    """The deadlines of the claims of sessions and of their sub-agents, by claim, read every few seconds."""

    def __init__(self, cloud: CloudForTests) -> None:
        self._store = cloud_executor(cloud).store
        self._sessions: dict[str, str] = {}
        self.seen: dict[str, dict[str, set[float]]] = defaultdict(lambda: defaultdict(set))

    def follow(self, session_id: str, of: str = "") -> None:
        self._sessions[session_id] = of or session_id

    async def look(self) -> None:
        while True:
            for session_id, of in list(self._sessions.items()):
                for row in await self._store.query("sessions", session_id):
                    self._note(row.value, of)
            await asyncio.sleep(LOOK_S)

    def _note(self, value: dict[str, Any], of: str) -> None:
        if (child := value.get("child")) is not None:
            self.follow(child["session_id"], of)
        claim = value.get("claim")
        if isinstance(claim, dict):
            self.seen[of][claim["attempt_id"]].add(claim["deadline"])
        elif value.get("state") == "claimed" and value.get("deadline"):
            self.seen[of][f"{value['owner']} {claim}"].add(value["deadline"])

    def longest_s(self, session_id: str) -> float:
        """Return the longest time by which one claim was extended."""
        return max((max(seen) - min(seen) for seen in self.seen[session_id].values()), default=0.0)


def scenes(folder: Path) -> Iterator[Scene]:
    for kind, seconds in LENGTHS:
        for fate in FATES:
            yield Scene(kind, seconds, fate, folder / f"{kind} {seconds} {fate}")


async def test_work_of_real_length_is_done_once(unhurried: CloudForTests, tmp_path: Path) -> None:
    """A tool that always kills its process has a result as well, after three starts if it may be repeated."""
    before, deadlines = len(list(unhurried.log)), Deadlines(unhurried)
    async with unhurried.user("patient", settings=ClientSettings(request_s=PATIENCE_S)) as client:
        looking = asyncio.create_task(deadlines.look())
        turns = asyncio.Semaphore(STARTS_AT_ONCE)
        plays = [_played(unhurried, client, scene, deadlines, turns) for scene in scenes(tmp_path)]
        plays += [
            _killed(unhurried, client, agent, tmp_path / f"killer {agent}", turns) for agent in ("talker", "swift")
        ]
        told = await asyncio.gather(*plays)
        looking.cancel()
    wrong = [line for lines in told for line in lines]
    wrong += [line["line"] for line in list(unhurried.log)[before:] if "denies" in line["line"]][:1]
    assert not wrong, "\n".join(wrong)


async def _begun(client: HelixClient, agent: str, message: str, turns: asyncio.Semaphore) -> RemoteHandle:
    async with turns:
        return await client.run(agent, message)


async def _played(
    cloud: CloudForTests, client: HelixClient, scene: Scene, deadlines: Deadlines, turns: asyncio.Semaphore
) -> list[str]:
    """Return the problems of a scene. The claim of a silent worker starts another execution if the sweep sees it before the
    next delivery."""
    handle = await _begun(client, AGENTS[scene.kind], scene.message, turns)
    deadlines.follow(handle.session_id)
    told, runs = [], 1
    if scene.fate == "interrupt":
        await asyncio.to_thread(until, scene.mark.exists, f"start of the {scene}", patience_s=PATIENCE_S)
        await handle.interrupt("enough")
        stopped = await handle.result(PATIENCE_S)
        told += [] if stopped.status == "interrupted" else [f"{scene}: {stopped.status} after an interrupt"]
        handle, runs = await client.resume(handle.session_id), 2
    result = await handle.result(PATIENCE_S)
    if result.status != "completed":
        told.append(f"{scene}: {result.status} {result.error_code} {result.error}")
    if (starts := _starts(scene.mark)) != scene.starts:
        told.append(f"{scene}: started {starts} times, not {scene.starts}")
    if not runs <= (executions := _executions(cloud, handle.session_id)) <= runs + scene.deaths:
        told.append(f"{scene}: {executions} executions of {runs} runs")
    moved_s = deadlines.longest_s(handle.session_id)
    if scene.fate == "" and scene.seconds >= CLAIM_S and moved_s < scene.seconds - CLAIM_S:
        told.append(f"{scene}: its claim was renewed for {moved_s:g} s only")
    return told


async def _killed(
    cloud: CloudForTests, client: HelixClient, agent: str, mark: Path, turns: asyncio.Semaphore
) -> list[str]:
    again = call("linger", seconds=1, mark=str(mark), deaths=EACH)
    once = call("once", mark=f"{mark} once")
    message = plan(use(again, text="Again."), use(once, text="Once."), say("Over."))
    handle = await _begun(client, agent, message, turns)
    result = await handle.result(PATIENCE_S)
    told: dict[str, Any] = await client.get_messages(handle.session_id)
    contents = [json.loads(message["content"]) for message in told["messages"] if message["role"] == "tool"]
    found = (
        result.status,
        _starts(mark),
        [content.get("code") or content.get("status") for content in contents],
        1 <= _executions(cloud, handle.session_id) <= 2 + MAX_DEATHS,  # a death causes one more start at most
    )
    wanted = ("completed", MAX_DEATHS, ["tool_crashed", "unknown"], True)
    return [] if found == wanted else [f"{agent} with a tool that kills: {found}, not {wanted}"]


def _starts(mark: Path) -> int:
    return len(mark.read_text().splitlines()) if mark.exists() else 0


def _executions(cloud: CloudForTests, session_id: str) -> int:
    return sum(json.loads(each["input"])["session_id"] == session_id for each in cloud.executions(session_id))
