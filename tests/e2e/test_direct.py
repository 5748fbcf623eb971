"""A stage without Kinesis: text arrives live, a reader resumes where it stopped, and a worker may die in the middle of a
stream."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest
from tests.e2e.crash_play import PATIENCE_S, Play, play_of
from tests.e2e.iam_bench import Bench
from tests.e2e.iam_probes_direct import DIRECT
from tests.e2e.test_crashes import PREFIX, configured
from tests.e2e.test_iam import missed, probed, roles_of, without_schedules
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.offline_cloud import CloudForTests, deployed

from helix.core.chunks import CustomEventChunk, TextDeltaChunk
from helix.testing.invariants import check_session

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudForTests]:
    with deployed(tmp_path_factory.mktemp("direct"), context={"streaming": "direct"}) as made:
        with configured(made):
            yield made


def test_there_is_no_kinesis(cloud: CloudForTests) -> None:
    assert cloud.aws("kinesis").list_streams()["StreamNames"] == []
    assert "ChunkStream" not in cloud.cloud.outputs


async def test_a_reader_that_left_goes_on_where_it_stopped(cloud: CloudForTests) -> None:
    """The chunks that it read arrived while the run waited, since the gate opens only afterwards."""
    play = play_of(cloud, f"{PREFIX}direct_resume")
    message = plan(
        use(call("look", topic="a"), text="Live."), use(call("wait", gate=play.file("gate"))), say("And the rest.")
    )
    first: list[str] = []
    last = 0
    async with play.client() as client:
        handle = await client.run("talker", message, session_id=play.session)
        async with contextlib.aclosing(await handle.stream()) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                last = chunk.sequence
                first.append(chunk.delta if isinstance(chunk, TextDeltaChunk) else "")
                if isinstance(chunk, CustomEventChunk) and chunk.event_name == "waiting":
                    break
    assert "".join(first) == "Live."
    play.open("gate")
    async with play.client() as client:
        again = await client.handle(play.session)
        sequences, rest = [], ""
        async for chunk in await again.stream(after=last):
            sequences.append(chunk.sequence)
            rest += chunk.delta if isinstance(chunk, TextDeltaChunk) else ""
    assert rest == "And the rest." and sequences == list(range(last + 1, last + 1 + len(sequences)))
    await play.quiet()


async def test_a_worker_that_dies_in_mid_stream_is_taken_back(cloud: CloudForTests) -> None:
    """The log holds the text of the dead worker. Readers learn that it does not count, and then receive the text of the
    next attempt."""
    calm_play = play_of(cloud, f"{PREFIX}direct_calm")
    assert "step_discarded" not in await told(calm_play)
    points = [p for p in calm_play.points() if "call_model" in p and ".append_attempt" in p]
    play = play_of(cloud, f"{PREFIX}direct_killed", next(point for point in points if ":after" in point))
    found = await told(play)
    assert play.crashed and "step_discarded" in found
    await check_session(play.executor.store, play.executor.streams, play.session, at_rest=True)
    assert play.repeated() == []


async def test_each_right_that_only_such_a_stage_has_is_needed(cloud: CloudForTests) -> None:
    roles = await asyncio.to_thread(roles_of, cloud)
    held = {str(right) for right in roles.rights()}
    used = {str(right) for probe in DIRECT for right in probed(probe.verb, probe)}
    assert not (nowhere := sorted(used - held)), f"probes of rights that no function has: {nowhere}"
    with without_schedules(cloud):
        wrong = [line for probe in DIRECT for line in await missed(cloud, roles, Bench.of(cloud, probe.verb), probe)]
    assert not wrong, "\n".join(wrong)


async def told(play: Play) -> list[str]:
    """Return the types of all chunks of a run with one step, whose last attempt streams the whole text."""
    async with play.client() as client:
        handle = await play.insist(
            lambda: client.run("talker", plan(say("One piece of text, and another one.")), session_id=play.session)
        )
        chunks = [chunk async for chunk in await handle.stream()]
        assert (await play.insist(lambda: handle.result(PATIENCE_S))).status == "completed"
    last = max(chunk.attempt for chunk in chunks if chunk.type == "text_delta")
    text = [chunk.delta for chunk in chunks if isinstance(chunk, TextDeltaChunk) and chunk.attempt == last]
    assert "".join(text) == "One piece of text, and another one."
    assert [chunk.sequence for chunk in chunks] == list(range(chunks[0].sequence, chunks[0].sequence + len(chunks)))
    await play.quiet()
    return [chunk.type for chunk in chunks]
