"""Workers of deployed functions are killed at every point of the engine's crash tests, and the session does not show it.

A scene is played once to record its points, and then once for each point, where a worker process is killed. The result must
be that of the first play. No finished tool and no paid answer may be requested again, and the stream must be consistent. CI
plays every fifth point; `make torture` plays all.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any

import pytest
from tests.e2e.cloud_executor import configure, variables_of
from tests.e2e.crash_play import USER, Play, events_lost, play_of, repeated_in
from tests.e2e.crash_scenes import SCENES, Scene
from tests.e2e.parity_story import differences
from tests.support.cloud_agents.cast import INLINE
from tests.support.cloud_agents.crashes import HASTE
from tests.support.offline_cloud import CloudForTests

from helix.gateway.authoriser import Principal, prefix_of
from helix.runtime.cloud_settings import variable
from helix.testing.invariants import check_session

ROLL_OVER_EVENTS = variable("roll_over_events")
STEPS_PER_INVOCATION = variable("steps_per_invocation")
SOON, SOON_INLINE = "250", "50"
"""Events before a roll-over. A call counts with all its retries, and an inline call does not count."""
TIMEOUT_S, CLAIM_S = 8, 4
"""The timeout of functions, and the time that others wait for a dead delivery."""
FEW_INLINE = {INLINE: "", STEPS_PER_INVOCATION: "0"}
PREFIX = prefix_of(str(Principal(USER)))
"""The prefix of the session ids that the user may choose."""
APPENDS = ".append_"
"""Part of the names of points whose number depends on the clock, because records are batched."""
STRIDE = 1 if os.environ.get("HELIX_EXAMPLES") else 5
CASES = [(name, verb) for name, scene in SCENES.items() for verb in scene.verbs]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@contextmanager
def configured(cloud: CloudForTests) -> Iterator[CloudForTests]:
    """Set short timeouts and claims, early roll-overs, and a projector that can be killed."""
    configure(cloud, "call_model", Timeout=TIMEOUT_S, variables={HASTE: str(CLAIM_S), ROLL_OVER_EVENTS: SOON})
    configure(cloud, "call_tool", Timeout=TIMEOUT_S, variables={HASTE: str(CLAIM_S)})
    configure(cloud, "project_stream", Handler="cloud_agents.projector.handler")
    yield cloud
    configure(cloud, "call_model", Timeout=900, variables={HASTE: "", ROLL_OVER_EVENTS: "12000", **FEW_INLINE})
    configure(cloud, "call_tool", Timeout=900, variables={HASTE: ""})
    configure(cloud, "project_stream", Handler="handler.handler")


@pytest.fixture(scope="module")
def hasty(cloud: CloudForTests) -> Iterator[CloudForTests]:
    with configured(cloud) as made:
        yield made


class Learned:
    """The transcript of a scene without a crash, and its points."""

    def __init__(self, transcript: dict[str, Any], points: list[str]) -> None:
        self.transcript, self.points = transcript, points


@pytest.fixture(scope="module")
def learned() -> dict[str, Learned]:
    return {}


def deploy(cloud: CloudForTests, scene: Scene) -> None:
    """Set the variables of `call_model` that the scene needs, unless they are set already."""
    soon = SOON_INLINE if scene.steps else SOON
    wanted = {INLINE: "1" if scene.inline else "", STEPS_PER_INVOCATION: str(scene.steps), ROLL_OVER_EVENTS: soon}
    if FEW_INLINE | variables_of(cloud, "call_model") | wanted != FEW_INLINE | variables_of(cloud, "call_model"):
        configure(cloud, "call_model", variables=wanted)


async def learn(cloud: CloudForTests, known: dict[str, Learned], name: str) -> Learned:
    if name not in known:
        async with _play(cloud, name, "learned", "") as play:
            known[name] = Learned(await play.transcript(), play.points())
    return known[name]


def test_a_repetition_is_noticed() -> None:
    assert repeated_in(["start s call a", "start s call a", "done s call a", "start s step 2"]) == []
    assert repeated_in(["start s call a", "done s call a", "start s call a"]) == ["s call a"]


@pytest.mark.parametrize(("name", "verb"), CASES)
async def test_a_worker_killed_at_any_point(
    name: str, verb: str, hasty: CloudForTests, learned: dict[str, Learned]
) -> None:
    with nullcontext() if SCENES[name].told else events_lost(hasty):
        await _everywhere(name, verb, hasty, learned)


async def _everywhere(name: str, verb: str, hasty: CloudForTests, learned: dict[str, Learned]) -> None:
    deploy(hasty, SCENES[name])
    calm = await learn(hasty, learned, name)
    every = SCENES[name].points(verb, calm.points)
    assert every, f"the scene {name!r} never comes by {verb!r}: {calm.points}"
    points = every[::STRIDE]
    turns = asyncio.Semaphore(SCENES[name].at_once)
    missed: list[str] = []

    async def crash(number: int, point: str) -> list[str]:
        async with turns:
            try:
                for session in (f"{verb}_{number}", f"{verb}_{number}_again"):
                    found, came = await _crash(hasty, calm, name, session, point)
                    if found or came:
                        return found
            except Exception as error:
                return [f"{point}: {type(error).__name__}: {error}"]
            missed.append(point)
            return []

    reports = await asyncio.gather(*(crash(number, point) for number, point in enumerate(points)))
    wrong = [line for lines in reports for line in lines]
    assert not wrong, "\n".join([f"{len(wrong)} of {len(points)} crashes show", *wrong[:40]])
    assert all(APPENDS in point for point in missed), f"nobody was killed at {missed}"
    assert len(missed) * 4 <= len(points), f"too few were killed: not at {missed} of {points}"
    print(f"\n{name}: {verb} was killed at {len(points) - len(missed)} points of {points}")


async def _crash(cloud: CloudForTests, calm: Learned, name: str, session: str, point: str) -> tuple[list[str], bool]:
    """Return the problems after a crash at `point`, and whether that point was reached. Another worker may have been
    faster."""
    async with _play(cloud, name, session, point) as play:
        found = list(differences(calm.transcript, await play.transcript()))
        found += [f"started again: {what}" for what in play.repeated()]
        await check_session(play.executor.store, play.executor.streams, play.session, at_rest=True)
        return [f"{point}: {line}" for line in found], play.crashed


@asynccontextmanager
async def _play(cloud: CloudForTests, name: str, session: str, point: str) -> AsyncIterator[Play]:
    """Play the scene to its end."""
    play = play_of(cloud, f"{PREFIX}{name}_{session}", point)
    await SCENES[name].act(play)

    async def ended() -> bool:
        return not await play.executions(running=True)

    await play.until(ended, "end of its executions")
    yield play
