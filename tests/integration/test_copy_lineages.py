"""Branches of branches, clones of clones, and rewinds. A copy of the first N messages has the state of that moment."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel
from tests.support_run import Text, World, a_tool, agent, call, calls, result_of

from helix import Agent, LocalExecutor, ToolContext
from helix.core.errors import CheckpointNotFoundError

SAID = 60


class Log(BaseModel):
    lines: list[str] = []


def write(given: Text, ctx: ToolContext[Log]) -> str:
    ctx.update_state(lambda s: s.lines.append(given.text))
    return f"wrote {given.text}"


def scribe() -> Agent[Any, Any]:
    return agent("scribe", tools=[a_tool("write", write, input_schema=Text)], state_schema=Log)


def turn(name: str) -> list[Any]:
    return [calls(call("write", text=name)), f"said {name}"]


class Mark(NamedTuple):
    """A moment of a history. Its checkpoint belongs to the session, or to the session that it was copied from."""

    count: int  # type: ignore[assignment]  # a tuple has a method of this name
    lines: list[str]
    checkpoint: str | None = None


class Family:
    """The sessions and the moments of their histories, oldest first."""

    def __init__(self, executor: LocalExecutor, rng: Random) -> None:
        self.executor, self.rng, self.who = executor, rng, scribe()
        self.marks: dict[str, list[Mark]] = {}
        self.said = 0

    async def say(self, session_id: str, rewind: bool = False) -> None:
        """Play one more turn of four messages. Its tool adds a line to the state."""
        marks, place = self.marks.setdefault(session_id, []), None
        known = [n for n, mark in enumerate(marks) if mark.checkpoint is not None and mark.count % 4 != 1]
        if rewind and known:
            place = marks[self.rng.choice(known)]
            del marks[marks.index(place) + 1 :]
        name, self.said = f"t{self.said}", self.said + 1
        before = marks[-1] if marks else Mark(0, [])
        if place is not None:
            handle = await self.executor.resume(self.who, session_id, checkpoint_id=place.checkpoint, message=name)
        else:
            handle = await self.executor.execute(self.who, name, session_id=session_id)
        assert (await result_of(handle)).status == "completed"
        page = await self.executor.sessions.list_checkpoints(session_id, limit=3)
        for point, grown in zip(reversed(page.items), (1, 3, 4), strict=True):
            assert point.count == before.count + grown
            lines = before.lines if grown == 1 else [*before.lines, name]
            marks.append(Mark(point.count, lines, point.id))

    async def copy(self, source: str, target: str) -> None:
        """Copy at any message. The result ends at the boundary before it, with the newest state that is not later."""
        last = self.marks[source][-1].count
        wanted = self.rng.randrange(last + 2)
        state = await self.executor.clone_session(source, target, from_message_index=wanted)
        left = [mark for mark in self.marks[source] if mark.count <= state.message_count]
        lines = left[-1].lines if left else []
        assert wanted - 2 <= state.message_count <= wanted and state.custom_state["lines"] == lines, (source, wanted)
        await self._copied(target, [Mark(m.count, m.lines) for m in left], Mark(state.message_count, lines))

    async def branch(self, source: str, target: str) -> None:
        """Branch from any checkpoint of the session's own history."""
        own = [n for n, mark in enumerate(self.marks[source]) if mark.checkpoint is not None]
        place = self.rng.choice(own)
        point = self.marks[source][place]
        state = await self.executor.branch(source, point.checkpoint, session_id=target)
        assert (state.message_count, state.custom_state["lines"]) == point[:2]
        left = [Mark(m.count, m.lines) for m in self.marks[source][: place + 1]]
        await self._copied(target, left, Mark(point.count, point.lines))

    async def _copied(self, target: str, marks: list[Mark], first: Mark) -> None:
        page = await self.executor.sessions.list_checkpoints(target, limit=1)
        self.marks[target] = [*marks, first._replace(checkpoint=page.items[0].id)]


@pytest.mark.parametrize("seed", range(8))
async def test_a_copy_has_the_state_of_its_last_message(quick_world: World, seed: int) -> None:
    rng = Random(seed)
    model = [answer for n in range(SAID) for answer in turn(f"t{n}")]
    family = Family(quick_world.executor(model), rng)
    await family.say("s0")
    for n in range(1, 30):
        source = rng.choice(list(family.marks))
        match rng.randrange(5):
            case 0:
                await family.say(source)
            case 1:
                await family.say(source, rewind=True)
            case 2:
                await family.branch(source, f"s{n}")
            case _:
                await family.copy(source, f"s{n}")


async def test_a_copy_of_fewer_messages_than_its_origin_keeps_needs_the_origin(quick_world: World) -> None:
    executor = quick_world.executor([*turn("a"), *turn("b")])
    who = scribe()
    for name in ("a", "b"):
        await result_of(await executor.execute(who, name, session_id="first"))
    await executor.clone_session("first", "second")
    await executor.clone_session("second", "third")
    early = await executor.clone_session("third", "early", from_message_index=4)
    assert early.custom_state["lines"] == ["a"] and early.forked_from is not None
    assert early.forked_from["session_id"] == "first"
    await executor.delete("first")
    with pytest.raises(CheckpointNotFoundError, match="keeps no checkpoint with 4 messages or fewer"):
        await executor.clone_session("third", "none", from_message_index=4)
    whole = await executor.clone_session("third", "whole")
    assert whole.custom_state["lines"] == ["a", "b"]
