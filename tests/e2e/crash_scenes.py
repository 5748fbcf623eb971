"""The scenes that sessions play while workers are killed: once without a crash, and once for each crash point.

Law: a scene does what users and clients do, and repeats requests that were not answered. It never helps the app.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.e2e.crash_play import PATIENCE_S, Idle, Play
from tests.support.cloud_agents.planned import PlannedModel
from tests.support.cloud_agents.plans import ask, call, finish, plan, say, use

from helix.client import HelixClient
from helix.core.chunks import CustomEventChunk, TextDeltaChunk
from helix.core.delivery import Delivery, Position
from helix.core.errors import HelixError
from helix.core.handles import Confirmation
from helix.core.json import JsonValue
from helix.engine.verbs import deliver_model
from helix.runtime.user_adapters import complete_adapter

_POINT = re.compile(r"(\w+)\.(\w+):(before|after)#(\d+)")


@dataclass(frozen=True)
class Scene:
    """A scene and the crash points that it covers.

    `verbs` are the functions whose points it covers, and `only` limits these to some operations if another scene covers the
    rest. `at_once` is the number of sessions that play it concurrently. `times` limits how many occurrences of a frequent
    point are used, because their number depends on how records are batched. `told` delivers the events that announce the
    end of executions. `inline` makes all tools inline. `steps` is the maximum number of steps per invocation, and 0 means
    as many as fit.
    """

    act: Callable[[Play], Awaitable[None]]
    verbs: Sequence[str]
    only: Collection[str] = ()
    at_once: int = 8
    times: int = 1000
    told: bool = True
    inline: bool = False
    steps: int = 0

    def points(self, verb: str, known: Sequence[str]) -> list[str]:
        """Select the points of this scene from all points that were reached. Before a write, the durable state is that of
        the write before it, or that of the delivery's start. So each write has one point before it, and a point after it
        for each occurrence."""
        chosen = []
        for point in known:
            where, what, side, number = _POINT.fullmatch(point).groups()  # type: ignore[union-attr]
            times = self.times if side == "after" else 1
            if where == verb and int(number) < times and (not self.only or what in self.only):
                chosen.append(point)
        return chosen


async def work(play: Play) -> None:
    """Use parallel and sequential tools, an inline tool, state, a sub-agent and an output."""
    child = plan(use(call("look", topic="deep"), text="Digging."), finish(summary="helped", sources=["deep"]))
    steps = [
        use(call("look", topic="a"), call("look", topic="b"), text="Two at once, then more."),
        use(ask("helper", child), call("look", topic="c")),
        use(call("add", amount=2), text="Summing."),
        use(call("count", amount=3)),
        finish(summary="all found", sources=["a", "b", "c"]),
    ]
    boss = play.executor.agents.named("boss")
    handle = await play.executor.execute(boss, plan(*steps), session_id=play.session)
    result = await handle.result(timeout_s=PATIENCE_S)
    assert result.status == "completed", result
    await play.quiet()


async def many(play: Play) -> None:
    """Take so many steps, one per invocation, that the run continues in another execution."""
    steps = [use(call("count", amount=n), text=f"Step {n}.") for n in range(1, 9)]
    talker = play.executor.agents.named("talker")
    handle = await play.executor.execute(talker, plan(*steps, say("Counted.")), session_id=play.session)
    assert (await handle.result(timeout_s=PATIENCE_S)).status == "completed"
    await play.quiet()
    assert (await play.executor.engine.history.run(play.session, handle.run_id)).part > 1, "it rolled over"


async def halted(play: Play) -> None:
    """Interrupt a run in a call of its third step, and continue it with the fourth."""
    steps = [use(call("count", amount=1)), use(call("look", topic="x"), call("count", amount=2))]
    steps += [use(call("wait", gate=play.file("gate")), call("look", topic="beside")), use(call("count", amount=3))]
    talker = play.executor.agents.named("talker")
    handle = await play.executor.execute(talker, plan(*steps, say("On we go.")), session_id=play.session)
    await play.reached("gate")
    await handle.interrupt("enough")
    play.open("gate")
    await play.patiently("interrupted")
    await play.at_rest_patiently()
    again = await play.executor.resume(talker, play.session)
    assert (await again.result(timeout_s=PATIENCE_S)).status == "completed"
    await play.quiet()


async def asked(play: Play) -> None:
    """Start a run as a client, and answer each of its questions with a message."""
    message = plan(use(call("gated", topic="x"), call("look", topic="y")), say("Allowed."))
    async with play.client() as client:
        handle = await play.insist(
            lambda: client.run("talker", message, session_id=play.session, key=f"key of {play.session}")
        )
        await play.patiently("paused")
        (pending,) = (await play.insist(lambda: client.get_session(play.session))).pending

        async def answer() -> None:
            try:
                await client.answer(play.session, pending.call_id, data={"by": "me"})
            except HelixError as error:
                if error.code != "call_not_pending":
                    raise

        await play.insist(answer)
        await play.patiently("completed")
        assert handle.session_id == play.session
    await play.quiet()


async def talked(play: Play) -> None:
    """Steer a run while its tool works, leave the next message, and answer two rounds of questions."""
    talker = play.executor.agents.named("talker")
    first = plan(use(call("wait", gate=play.file("gate"))), say("Never said."))
    wish = plan(use(call("survey"), call("look", topic="y")), say("Noted."))
    await play.executor.execute(talker, first, session_id=play.session)
    await play.reached("gate")
    await play.executor.execute(talker, wish, session_id=play.session, when_running="steer")
    last = plan(use(call("add", amount=1)), say("Next."))
    await play.executor.execute(talker, last, session_id=play.session, when_running="queue")
    play.open("gate")
    answers: tuple[JsonValue, ...] = ("blue", [3, "it fits"])
    for data in answers:
        await play.patiently("paused")
        await play.at_rest_patiently()
        (asked,) = (await play.executor.sessions.get(play.session)).pending
        answer = Confirmation(asked.call_id, data=data, round=asked.round)
        await play.executor.resume(talker, play.session, confirmation=answer)

    async def answered() -> bool:
        state = await play.executor.sessions.get(play.session)
        return (state.status, state.turn, state.inbox) == ("completed", 4, [])

    await play.patiently_until(answered)
    await play.at_rest_patiently()
    said = await play.executor.sessions.load_conversation_messages(play.session)
    assert [m.content for m in said if m.role == "user"] == [first, wish, last]


async def shipped(play: Play) -> None:
    """End a call elsewhere as its client: late, with a forged token, again, and with another result."""
    message = plan(use(call("ship", place=play.file("token")), call("look", topic="y")), say("Shipped."))
    async with play.client() as client:
        await play.insist(lambda: client.run("talker", message, session_id=play.session, key=f"key of {play.session}"))
        await play.patiently("paused")
        await play.at_rest_patiently()
        token = Path(play.file("token")).read_text("utf-8")
        reports = [(token[:-1], 7, "invalid_call_token"), (token, 7, "ok"), (token, 7, "ok"), (token, 8, "call_ended")]
        for given, parcel, wanted in reports:
            assert await play.insist(partial(_report, client, given, parcel)) == wanted
        await play.patiently("completed")
    await play.quiet()


async def _report(client: HelixClient, token: str, parcel: int) -> str:
    """Return `ok` or the code of the error."""
    try:
        await client.complete_call(token, {"parcel": parcel})
    except HelixError as error:
        return error.code
    return "ok"


async def stopped(play: Play) -> None:
    """Stop the execution from outside, so that the run fails, and retry the run."""
    message = plan(use(call("look", topic="x")), use(call("wait", gate=play.file("gate"))), say("At last."))
    talker = play.executor.agents.named("talker")
    handle = await play.executor.execute(talker, message, session_id=play.session)
    await play.reached("gate")
    (running,) = await play.executions(running=True)
    await asyncio.to_thread(play.cloud.stop, running["executionArn"])
    play.open("gate")
    await play.patiently("failed")
    await play.at_rest_patiently()
    result = await handle.result(timeout_s=PATIENCE_S)
    assert (result.status, result.error_code) == ("failed", "runtime_crash")
    again = await play.executor.retry(talker, play.session)
    assert (await again.result(timeout_s=PATIENCE_S)).status == "completed"
    await play.quiet()


async def streamed(play: Play) -> None:
    """Read all chunks of a run as a client: they must arrive without gaps, and each once. They come in at least two
    batches, because the run waits until its beginning was read."""
    steps = [use(call("look", topic="a"), text="One piece of text, and another one.")]
    steps += [use(call("wait", gate=play.file("gate"))), say("That was all of it.")]
    async with play.client() as client:
        handle = await play.insist(
            lambda: client.run("talker", plan(*steps), session_id=play.session, key=f"key of {play.session}")
        )
        sequences, text = [], ""
        async for chunk in await handle.stream():
            sequences.append(chunk.sequence)
            text += chunk.delta if isinstance(chunk, TextDeltaChunk) else ""
            if isinstance(chunk, CustomEventChunk) and chunk.event_name == "waiting":
                play.open("gate")
        assert (await play.insist(lambda: handle.result(PATIENCE_S))).status == "completed"
    assert text == "One piece of text, and another one.That was all of it."
    assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))
    await play.quiet()


async def unstarted(play: Play) -> None:
    """Claim a run that is never started. Later it has ended, but its effects were not applied."""
    engine, talker = play.executor.engine, play.executor.agents.named("talker")
    engine.launcher = Idle()
    await play.executor.execute(talker, plan(use(call("look", topic="x")), say("Started.")), session_id=play.session)
    await play.patiently("completed", sweeps=True)
    await play.at_rest_patiently()
    again = await play.executor.execute(talker, plan(say("Ended.")), session_id=play.session)
    place = Position(play.session, again.run_id, 1, 3)
    model = complete_adapter(PlannedModel())
    engine.models = lambda agent: model
    await deliver_model(engine, place, Delivery("somebody", engine.clock.now() + 60))
    await play.patiently("completed", sweeps=True)
    await play.at_rest_patiently(sweeps=True)


async def interrupted(play: Play) -> None:
    """Interrupt a run as its client, and resume it."""
    message = plan(use(call("look", topic="x")), use(call("wait", gate=play.file("gate"))), say("On we go."))
    key = f"key of {play.session}"
    async with play.client() as client:
        await play.insist(lambda: client.run("talker", message, session_id=play.session, key=key))
        await play.reached("gate")
        await play.insist(lambda: client.interrupt(play.session, "enough"))
        play.open("gate")
        await play.patiently("interrupted")
        await play.at_rest_patiently()
        await play.insist(lambda: client.resume(play.session, key=f"{key} again"))
        await play.patiently("completed")
    await play.quiet()


async def aborted(play: Play) -> None:
    """Abort a run and its sub-agent as its client."""
    child = plan(use(call("wait", gate=play.file("gate"))), finish(summary="late"))
    key = f"key of {play.session}"
    async with play.client() as client:
        message = plan(use(ask("helper", child)), finish(summary="never"))
        await play.insist(lambda: client.run("boss", message, session_id=play.session, key=key))
        await play.reached("gate")
        await play.insist(lambda: client.abort(play.session, "stop it"))
        await play.patiently("failed")
        await play.at_rest_patiently()
        play.open("gate")
        anew = plan(finish(summary="anew"))
        await play.insist(lambda: client.run("boss", anew, session_id=play.session, key=f"{key} again"))
        await play.patiently("completed")
    await play.quiet()


ABORTS = ("stop_abort", "abort", "stop", "append_fail", "effects_done", "drop_token", "report_to_parent", "wake")
SCENES = {
    "work": Scene(work, ("call_model", "call_tool", "start_run", "finish_run"), at_once=6),
    "inline": Scene(work, ("call_model", "start_run"), at_once=6, inline=True),
    "one_step": Scene(
        many, ("call_model",), only=("claim_step", "roll_over", "start"), at_once=6, inline=True, steps=1
    ),
    "halted": Scene(halted, ("call_model",), at_once=6, inline=True),
    "asked": Scene(asked, ("ws_message",), at_once=4),
    "talked": Scene(talked, ("call_model", "call_tool", "finish_run"), at_once=3),
    "shipped": Scene(shipped, ("ws_message", "call_tool"), only=("claim_with_confirmation", "call_later"), at_once=4),
    "interrupted": Scene(interrupted, ("ws_message",), only=("stop_interrupt", "claim_continue"), at_once=4),
    "aborted": Scene(aborted, ("ws_message",), only=ABORTS, at_once=4, times=1, told=False),
    "unstarted": Scene(unstarted, ("sweep",), at_once=4),
    "stopped": Scene(stopped, ("fail_run",), at_once=4),
    "streamed": Scene(streamed, ("project_stream",), at_once=2, times=2),
}
