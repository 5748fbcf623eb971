"""The comparison of the parity suite works: it names whatever one runtime loses, doubles or changes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.parity_scenarios import SCENARIOS
from tests.e2e.parity_stage import stage_of
from tests.e2e.parity_story import RunReport, differences

from helix.core.sequencer import StreamRecord
from helix.services.segments import SegmentStreams

Spoil = Callable[[dict[str, Any]], None]
LANE = "root turn 1"


def root(told: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = told["sessions"]["root"]
    return found


def calls(told: dict[str, Any]) -> list[Any]:
    return next(chunks for lane, chunks in told["stream"].items() if lane.startswith(f"{LANE} call"))


def swap(told: dict[str, Any]) -> None:
    lane = told["stream"][LANE]
    lane[1], lane[2] = lane[2], lane[1]


def shorter(told: dict[str, Any]) -> None:
    delta = next(chunk for chunk in told["stream"][LANE] if chunk["type"] == "text_delta")
    delta["delta"] = delta["delta"][:-1]


SPOILT: dict[str, tuple[str, Spoil]] = {
    "a lost chunk": ("stream.root turn 1[", lambda told: told["stream"][LANE].pop(1)),
    "a lost lane": ("looking for a: missing", lambda told: told["stream"].pop(f"{LANE} step 1 looking for a")),
    "a doubled tool_end": ("not expected", lambda told: calls(told).append(calls(told)[-1])),
    "chunks in another order": ("stream.root turn 1[1]", swap),
    "a lost character": (".delta", shorter),
    "a lost end": ("missing", lambda told: told["stream"][LANE].pop()),
    "a changed state": ("state.custom_state.total", lambda told: root(told)["state"]["custom_state"].update(total=7)),
    "a missing checkpoint": ("checkpoints[", lambda told: root(told)["checkpoints"].pop(0)),
    "a checkpoint of another step": (".step", lambda told: root(told)["checkpoints"][1].update(step=9)),
    "a state of the past": ("checkpoints[1].state", lambda told: root(told)["checkpoints"][1]["state"].update(total=1)),
    "a changed message": ("messages[1].content", lambda told: root(told)["messages"][1].update(content="?")),
    "another call id": ("tool_call_id", lambda told: root(told)["messages"][2].update(tool_call_id="call_9")),
    "another status": ("runs[0].status", lambda told: root(told)["runs"][0].update(status="failed")),
    "another trigger": ("runs[0].mode", lambda told: root(told)["runs"][0].update(mode="continue")),
    "a call paid twice": ("runs[0].usage[0]", lambda told: root(told)["runs"][0]["usage"].__setitem__(0, 9)),
    "another lineage": ("lineages.1", lambda told: root(told)["lineages"].update({"1": {"start": 0}})),
    "a session more": ("sessions.child", lambda told: told["sessions"].update(child={})),
}


async def play(folder: Path, request: pytest.FixtureRequest, name: str = "one_tool_after_the_other") -> RunReport:
    async with stage_of("local", folder, request) as stage:
        await SCENARIOS[name](stage)
        return await stage.story()


@pytest.mark.parametrize("what", SPOILT)
async def test_a_spoilt_story_is_noticed(what: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    story = await play(tmp_path, request)
    assert not list(differences(story, copy.deepcopy(story)))
    spoilt = copy.deepcopy(story)
    where, spoil = SPOILT[what]
    spoil(spoilt["session 0"])
    found = list(differences(story, spoilt))
    assert any(where in line for line in found), found


class Tampering(SegmentStreams):
    """A log that changes the incoming records of one kind."""

    change: Callable[[list[dict[str, Any]]], None]
    kind = ""

    async def append(self, stream_id: str, records: Sequence[StreamRecord]) -> None:
        for record in records:
            if any(chunk["type"] == self.kind for chunk in record.chunks):
                type(self).change(record.chunks)
        await super().append(stream_id, records)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("custom", lambda chunks: chunks.pop()),
        ("tool_end", lambda chunks: chunks.append(chunks[-1])),
        ("state_patch", lambda chunks: chunks.pop(0)),
        ("text_delta", lambda chunks: chunks[0].update(delta="?")),
    ],
)
async def test_a_log_that_tampers_is_noticed(
    kind: str, change: Callable[[list[dict[str, Any]]], None], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    story = await play(tmp_path / "sound", request)
    async with stage_of("local", tmp_path / "spoilt", request) as stage:
        streams = Tampering(stage.executor.store)
        streams.kind, Tampering.change = kind, staticmethod(change)
        stage.executor.streams = stage.executor.engine.streams = streams
        handle = await stage.executor.execute(stage.agents["talker"], _message(story), session_id=stage.session)
        await handle.result(timeout_s=20)
        stage.quiet = _no_matter  # type: ignore[method-assign]  # what is left is not sound, and is told as it is
        spoilt = await stage.story()
    assert list(differences(story, spoilt))


def _message(story: RunReport) -> str:
    found: str = root(story["session 0"])["messages"][0]["content"]
    return found


async def _no_matter(session_id: str) -> None:
    return None
