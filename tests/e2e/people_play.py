"""Random plays on the offline stage, by seed: a client steers, queues, answers, interrupts and withdraws, another system
ends calls, the stage is deployed, and functions are killed meanwhile.

    .venv/bin/python -m tests.e2e.people_play --count 20 [--seed 7]

Law: the seed decides what happens and in which order, and the stage when. A play never helps the app: it repeats requests
that were not answered, and lets minutes pass. At the end, what its client was told is compared with the session.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from tests.e2e.cloud_executor import deploy_edition
from tests.e2e.crash_play import TRIES, USER, Play, play_of
from tests.e2e.people_told import Answer, Report, Sent, Told, check
from tests.e2e.test_crashes import PREFIX, configured
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.offline_cloud import CloudForTests, deployed

from helix.client import HelixClient
from helix.core.elsewhere import CallToken
from helix.core.errors import HelixError
from helix.core.handles import SessionState
from helix.core.rows import Pending
from helix.testing.invariants import check_session

ACTS = 8
"""The number of random acts, beside one of each kind."""
PATIENCE_S = 240.0
GUARDED = "watched"
"""The agent whose guards judge results."""
KILLED = [
    "call_model",
    "call_model",
    "call_tool",
    "call_tool",
    "ws_message",
    "project_stream",
    "start_run",
    "finish_run",
]
AGENTS = ["talker", "swift", GUARDED]
HOWS = ["steer", "queue", "interrupt"]
FORGED = "0" * 32


def _plan(kind: str, tag: str, place: str) -> str:
    """Return the message of a client: a plan whose last text has its tag."""
    steps = {
        "say": [],
        "look": [use(call("look", topic=tag))],
        "slow": [use(call("linger", seconds=1.5, mark=f"{place}.mark"))],
        "survey": [use(call("survey"), call("look", topic=tag))],
        "ship": [use(call("ship", place=place))],
        "gated": [use(call("gated", topic=tag))],
    }[kind]
    return plan(*steps, say(f"It was {tag}."))


KINDS = ["say", "look", "slow", "slow", "survey", "ship", "gated"]


@dataclass
class PeoplePlay:
    """A play of one session."""

    play: Play
    rng: Random
    agent: str
    client: HelixClient
    told: Told = field(default_factory=Told)
    places: list[Path] = field(default_factory=list)
    deployed: bool = False
    figures: Counter[str] = field(default_factory=Counter)

    async def ask(self, request: Callable[[], Awaitable[Any]]) -> tuple[str, Any, bool]:
        """Send a request until it is answered. Return `ok` or the code of its error, its value, and whether an earlier try
        had no answer."""
        for number in range(TRIES):
            try:
                return "ok", await request(), number > 0
            except TimeoutError:
                await self.play.minute()
            except HelixError as error:
                return error.code, None, number > 0
        raise AssertionError(f"{self.play.session}: no answer")

    # --- acts -------------------------------------------------------------------------------------------------------

    async def speak(self, how: str = "", kind: str = "") -> None:
        tag = f"{self.play.session.rpartition('_')[2]}x{len(self.told.sent)}."
        how, kind = how or self.rng.choice(HOWS), kind or self.rng.choice(KINDS)
        place = self.play.place / f"token {tag}"
        sent = Sent(_plan(kind, tag, str(place)), how)
        self.told.sent.append(sent)
        if kind == "ship":
            self.places.append(place)
        options: dict[str, Any] = {"session_id": self.play.session, "when_running": how, "key": f"key of {tag}"}
        for _ in range(self.rng.choice([1, 1, 2])):
            sent.outcome, handle, _ = await self.ask(lambda: self.client.run(self.agent, sent.text, **options))
            if handle is not None:
                sent.runs.add(handle.run_id)
                sent.queued_id = handle.queued_id or sent.queued_id
        self.figures[f"{how}: {sent.outcome}"] += 1

    async def withdraw(self) -> None:
        known = [sent for sent in self.told.sent if sent.queued_id]
        if known:
            sent = self.rng.choice(known[-3:])
            ident = str(sent.queued_id)
            _, value, again = await self.ask(lambda: self.client.withdraw(self.play.session, ident))
            sent.withdrawals.append("unknown" if again and value == "not_found" else str(value))
            self.figures[f"withdraw: {value}"] += 1

    async def interrupt(self) -> None:
        outcome, _, _ = await self.ask(lambda: self.client.interrupt(self.play.session, "enough"))
        self.figures[f"interrupted: {outcome}"] += 1

    async def reply(self) -> None:
        """Answer what the session waits for, if it waits for a person."""
        _, state, _ = await self.ask(lambda: self.client.get_session(self.play.session))
        for pending in state.pending if state is not None else ():
            if pending.kind != "elsewhere":
                await self._answer(pending)

    async def _answer(self, pending: Pending) -> None:
        number = len(self.told.answers) + 1
        data: Any = None
        if pending.kind == "question":
            first = pending.questions[0].text == "Which colour?"
            data = self.rng.choice(["red", "blue"]) if first else [number, f"because of {number}"]
        session, options = self.play.session, {"data": data, "round": pending.round}
        for _ in range(self.rng.choice([1, 1, 2])):
            answer = Answer(pending.call_id, pending.kind, data)
            answer.outcome, _, again = await self.ask(lambda: self.client.answer(session, pending.call_id, **options))
            if again and answer.outcome == "call_not_pending":
                answer.outcome = "unknown"  # the first try may have arrived
            self.told.answers.append(answer)
            self.figures[f"{pending.kind} answered: {answer.outcome}"] += 1

    async def report(self) -> None:
        """End a call elsewhere, after a deployment: with its token, again, otherwise, and with a forged token."""
        left = [place for place in self.places if place.exists() and place.read_text("utf-8")]
        if not left:
            return
        if not self.deployed:
            await self.deploy()
        place = self.rng.choice(left)
        token = place.read_text("utf-8")
        forged = str(CallToken.parse(token)).rpartition(".")[0] + f".{FORGED}"
        values = [f"parcel {place.name}", self.rng.choice([f"parcel {place.name}", f"other {place.name}"])]
        for given, value in [(forged, "forged"), *((token, value) for value in values)]:
            report = Report(place.name, value, given == forged)
            report.outcome, _, _ = await self.ask(lambda: self.client.complete_call(given, value))  # noqa: B023
            self.told.reports.append(report)
            self.figures[f"{'forged' if report.forged else 'report'}: {report.outcome}"] += 1

    async def deploy(self) -> None:
        """Deploy new versions of the functions that execute steps."""
        self.deployed = True
        await asyncio.to_thread(deploy_edition, self.play.cloud, f"of {self.play.session}")
        self.figures["deployed"] += 1

    async def kill(self) -> None:
        """Kill the busy workers of a function, as soon as one of them has any."""
        for _ in range(20):
            for verb in self.rng.sample(KILLED, len(KILLED)):
                if killed := await asyncio.to_thread(self.play.cloud.cloud.kill_worker, verb):
                    self.figures[f"killed: {verb}"] += killed
                    return

    async def rest(self) -> None:
        await asyncio.sleep(self.rng.choice([0.0, 0.3, 1.0, 2.0]))

    # --- the play ---------------------------------------------------------------------------------------------------

    async def act(self) -> None:
        more: list[Callable[[], Awaitable[None]]] = [
            self.speak,
            self.reply,
            self.kill,
            self.kill,
            self.rest,
            self.report,
        ]
        more.append(self.withdraw)
        acts = self.rng.choices(more, k=ACTS)
        each: list[Callable[[], Awaitable[None]]] = [self.interrupt, self.withdraw, self.reply, self.kill, self.kill]
        each += [partial(self.speak, how) for how in HOWS]
        each += [partial(self.speak, "queue", "survey"), partial(self.speak, "steer", "ship")]
        for one in each:
            acts.insert(self.rng.randrange(len(acts) + 1), one)
        await self.speak("queue", "slow")
        for one in acts:
            await one()

    async def settle(self) -> None:
        """Let minutes pass, answer, and go on, until nothing waits."""
        until = time.monotonic() + PATIENCE_S
        number = 0
        while not await self._rests():
            number += 1
            _, state, _ = await self.ask(lambda: self.client.get_session(self.play.session))
            assert time.monotonic() < until, f"{self.play.session} does not come to rest: {state}"
            await self._go_on(state, f"go on {self.play.session} {number}")
            await self.play.minute()
            await asyncio.sleep(0.5)

    async def make_up(self) -> None:
        """Ask a question and leave a call elsewhere, if no answer or report was accepted, because messages came first."""
        happened = {"survey": self.figures["question answered: ok"], "ship": self.figures["report: ok"]}
        for kind in (kind for kind, times in happened.items() if not times):
            await self.speak("queue", kind)
            await self.settle()

    async def _go_on(self, state: SessionState, key: str) -> None:
        session = self.play.session
        if state.status == "paused":
            await self.reply()
            await self.report()
        elif state.status == "interrupted":
            await self.ask(lambda: self.client.resume(session, key=key))
        elif state.status == "failed":
            await self.ask(lambda: self.client.retry(session, key=key))

    async def _rests(self) -> bool:
        state = await self.play.executor.sessions.load(self.play.session)
        if state is None or state.status != "completed" or state.inbox:
            return False
        return not await self.play.executions(running=True)


async def play(cloud: CloudForTests, seed: int) -> Counter[str]:
    """Play one seed. Return how often each kind of thing happened. Raise what is wrong."""
    rng = Random(seed)
    one = play_of(cloud, f"{PREFIX}people_{seed}")
    try:
        async with one.client(USER) as client:
            people = PeoplePlay(one, rng, AGENTS[seed % len(AGENTS)], client)
            numbers: list[int] = []
            await people.speak("queue", "say")
            reader = asyncio.create_task(_follow(client, one.session, numbers))
            try:
                await people.act()
                await people.settle()
                await people.make_up()
                await one.at_rest_patiently(sweeps=True)
                await _has_read(one, numbers)
            finally:
                reader.cancel()
        messages = await one.executor.sessions.load_conversation_messages(one.session)
        assert numbers == list(range(1, len(numbers) + 1)), f"streams have gaps: {numbers}"
        check(people.told, messages, judged=people.agent == GUARDED)
        assert not one.repeated(), one.repeated()
        await check_session(one.executor.store, one.executor.streams, one.session, at_rest=True)
        return people.figures
    except BaseException as error:
        error.add_note(f"python -m tests.e2e.people_play --count 1 --seed {seed} makes the same choices again")
        raise


async def _follow(client: HelixClient, session: str, numbers: list[int]) -> None:
    """Read the session's stream from its beginning, as its client."""
    async with aclosing(await client.follow(session)) as messages:  # type: ignore[type-var]
        async for message in messages:
            numbers.append(message.sequence)


async def _has_read(one: Play, numbers: list[int]) -> None:
    async def read() -> bool:
        info = await one.executor.streams.info(one.session)
        return info is not None and len(numbers) >= info.latest_sequence

    await one.until(read, "the client has read the whole stream")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    logging.getLogger("helix").setLevel(logging.CRITICAL + 1)
    begun, broken, total = time.monotonic(), 0, Counter[str]()
    with tempfile.TemporaryDirectory() as folder, deployed(Path(folder)) as made, configured(made) as cloud:
        for seed in range(given.seed, given.seed + given.count):
            try:
                total += asyncio.run(play(cloud, seed))
            except Exception as error:
                broken += 1
                print(f"{seed}: {type(error).__name__}: {str(error)[:600]}", flush=True)
    for name, number in sorted(total.items()):
        print(f"{number:9,}  {name}")
    print(f"{given.count} plays on the offline stage, {broken} broken: {time.monotonic() - begun:.0f} s")
    raise SystemExit(1 if broken else 0)


if __name__ == "__main__":
    main()
