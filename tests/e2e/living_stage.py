"""Sessions in every state that a stage may have when it is upgraded, and what each must do afterwards.

`leave` creates them through a client. `go_on` expects from each what its user may expect: the upgrade is not noticeable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.cloud_executor import AdminApplication
from tests.support.cloud_agents.plans import ask, call, fail, finish, plan, say, use
from tests.support.offline_cloud import CloudForTests

from helix.client import HelixClient
from helix.core.errors import CallNotPendingError
from helix.core.wire import StreamMessage
from helix.testing.invariants import check_session

USER = "ann"
PATIENCE_S = 120.0
LARGE = 500_000
"""The length of a session state that is larger than an item."""
ENDS = ("end", "fail", "paused")
AT_WORK = ("in_model", "in_tool", "died", "parent", "first", "queued")


def ident(name: str) -> str:
    return f"{USER}:{name}"


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(0.1)


@dataclass
class Living:
    """The sessions of a stage that is upgraded.

    `folder` holds the files that runs wait for. `large` is the length of a large state. `keyed` says that repeated requests
    are recognised. `seen` is the stream of `done` as it was read before the upgrade. `plans` and `runs` are the requests
    and the ids of the runs at work.
    """

    cloud: CloudForTests
    folder: Path
    keyed: bool = True
    large: int = LARGE
    seen: list[StreamMessage] = field(default_factory=list)
    plans: dict[str, tuple[str, str]] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)

    def gate(self, name: str) -> str:
        return str(self.folder / name)

    async def entered(self, *gates: str) -> None:
        async def look() -> bool:
            return all(Path(f"{self.gate(name)}.entered").exists() for name in gates)

        await until(look, f"runs at {gates}")

    # --- before ----------------------------------------------------------------------------------------------------------

    async def leave(self, client: HelixClient) -> None:
        slots = AdminApplication(self.cloud).engine.slots
        assert slots is not None
        await slots.set_limit("crew", 1)
        first = plan(use(call("look", topic="tea"), call("add", amount=2), think="Hm."), say("First."))
        await self._ended(client, "done", "talker", first, "completed")
        await self._ended(client, "done", "talker", plan(use(call("count", amount=1)), say("Second.")), "completed")
        self.seen = await self.stream(client, "done")
        await self._ended(
            client, "large", "talker", plan(use(call("grow", size=self.large)), say("Large.")), "completed"
        )
        failing = plan(use(call("look", topic="x")), fail("overloaded", unless=self.gate("well"), said="Well, "))
        await self._ended(client, "failed", "talker", failing, "failed")
        asking = use(call("gated", topic="a"), call("look", topic="b"), call("form", question="Why?"))
        await self._ended(client, "paused", "talker", plan(asking, say("Thanks.")), "paused")
        below = use(ask("helper", plan(use(call("gated", topic="deep")), finish(summary="deep"))))
        await self._ended(client, "below", "boss", plan(below, finish(summary="all")), "paused")
        await self._stopped(client)
        await self._leave_at_work(client)

    async def _ended(self, client: HelixClient, name: str, agent: str, message: str, status: str) -> None:
        handle = await client.run(agent, message, session_id=ident(name))
        result = await handle.result(PATIENCE_S)
        assert result.status == status, result

    async def _stopped(self, client: HelixClient) -> None:
        steps = use(call("look", topic="x")), use(call("wait", gate=self.gate("stopped"))), say("On again.")
        handle = await client.run("talker", plan(*steps), session_id=ident("stopped"))
        await self.entered("stopped")
        assert await client.interrupt(handle.session_id)
        Path(self.gate("stopped")).touch()
        assert (await handle.result(PATIENCE_S)).status == "interrupted"

    async def _leave_at_work(self, client: HelixClient) -> None:
        below = plan(use(call("wait", gate=self.gate("parent"))), finish(summary="below"))
        plans = {
            "in_model": ("talker", [use(call("add", amount=1)), say("All of it.", gate=self.gate("in_model"))]),
            "in_tool": ("talker", [use(call("wait", gate=self.gate("in_tool")), call("add", amount=5)), say("Over.")]),
            "parent": ("boss", [use(ask("helper", below)), finish(summary="with it")]),
            "first": ("crew", [use(call("wait", gate=self.gate("first"))), say("One.")]),
            "queued": ("crew", [say("Two.")]),
            "died": ("talker", [use(call("again", mark=self.gate("died"))), say("Over.")]),
        }
        for name, (agent, steps) in plans.items():
            self.plans[name] = agent, plan(*steps)
            self.runs[name] = await self._asked(client, name)
        await self.entered("in_model", "in_tool", "parent", "first")
        await until(self._has_died, "a death in a tool")

    async def _asked(self, client: HelixClient, name: str) -> str:
        """Send the request and return its run's id. Repeats return the same run."""
        agent, message = self.plans[name]
        return (await client.run(agent, message, session_id=ident(name), key=name)).run_id

    async def _has_died(self) -> bool:
        return Path(self.gate("died")).exists()

    # --- after -----------------------------------------------------------------------------------------------------------

    async def go_on(self, client: HelixClient) -> None:
        assert not (await client.list_sessions(limit=100))["damaged"]
        await self._finish(client)
        await self._read(client)
        await self._resume(client)
        await self._answer(client)
        await self._manage(client)

    async def _finish(self, client: HelixClient) -> None:
        """Finish the runs that were at work and the one in line, as if there had been no upgrade."""
        assert (await client.get_session(ident("queued"))).step_count == 0, "it did not wait"
        if self.keyed:
            assert {name: await self._asked(client, name) for name in AT_WORK} == self.runs
        for name in ("in_model", "in_tool", "parent", "first"):
            Path(self.gate(name)).touch()
        for name in AT_WORK:
            result = await (await client.handle(ident(name))).result(PATIENCE_S)
            assert result.status == "completed", (name, result)
        state = (await client.get_session(ident("in_tool"))).custom_state
        assert state["total"] == 5
        told: dict[str, Any] = await client.get_messages(ident("died"))
        assert [m["content"] for m in told["messages"] if m["role"] == "tool"] == ["done at last"]
        assert (await client.get_session(ident("parent"))).output == {"summary": "with it", "sources": []}

    async def _read(self, client: HelixClient) -> None:
        """Expect all that was stored: messages, state, checkpoints, and the stream from its beginning."""
        session = await client.get_session(ident("done"))
        assert (session.turn, session.status) == (2, "completed")
        assert session.custom_state == {"seen": ["tea"], "total": 3, "notes": {}}
        told: dict[str, Any] = await client.get_messages(ident("done"))
        roles = "".join(str(m["role"])[0] for m in told["messages"])
        assert roles == "uattauata", "users, assistants, tools"
        assert await self.stream(client, "done") == self.seen
        large: dict[str, Any] = (await client.get_session(ident("large"))).custom_state
        assert len(large["notes"]["grown 0"]) == self.large

    async def _resume(self, client: HelixClient) -> None:
        Path(self.gate("well")).touch()
        again = await (await client.retry(ident("failed"))).result(PATIENCE_S)
        assert (again.status, again.text) == ("completed", "well again")
        on = await (await client.resume(ident("stopped"))).result(PATIENCE_S)
        assert (on.status, on.text) == ("completed", "On again.")
        told: dict[str, Any] = await client.get_messages(ident("stopped"))
        assert [m["content"] for m in told["messages"] if m["role"] == "tool"] == ["x: found", "it opened"]

    async def _answer(self, client: HelixClient) -> None:
        gated, form = (await client.get_session(ident("paused"))).pending
        assert (gated.kind, form.kind) == ("approval", "client")
        await client.answer(ident("paused"), form.call_id, data={"because": "so"})
        handle = await client.answer(ident("paused"), gated.call_id)
        assert (await handle.result(PATIENCE_S)).text == "Thanks."
        try:
            await client.answer(ident("paused"), gated.call_id)
            raise AssertionError("a second answer was taken")
        except CallNotPendingError:
            pass
        (deep,) = (await client.get_session(ident("below"))).pending
        assert deep.child_session_id is not None
        asked = await client.get_session(deep.child_session_id)
        handle = await client.answer(ident("below"), asked.pending[0].call_id)
        await until(lambda: self._is(client, "below", "completed"), "an end of the parent")

    async def _is(self, client: HelixClient, name: str, status: str) -> bool:
        return (await client.get_session(ident(name))).status == status

    async def _manage(self, client: HelixClient) -> None:
        """Branch before a turn, clone, start a new turn, and delete."""
        listed: dict[str, Any] = await client.list_checkpoints(ident("done"), limit=100)
        early = next(c for c in reversed(listed["checkpoints"]) if c["turn"] == 1 and c["step"] == 2)
        branch = await client.branch(ident("done"), early["id"])
        assert (await client.get_session(branch)).custom_state["total"] == 2
        clone = await client.clone(ident("done"))
        for session_id, total in ((branch, 12), (clone, 13), (ident("done"), 13), (ident("large"), 10)):
            message = plan(use(call("add", amount=10)), say("Third."))
            result = await (await client.run("talker", message, session_id=session_id)).result(PATIENCE_S)
            assert result.text == "Third."
            assert (await client.get_session(session_id)).custom_state["total"] == total
        assert (await self.stream(client, "done"))[: len(self.seen)] == self.seen

    async def delete_all(self, client: HelixClient) -> None:
        listed: dict[str, Any] = await client.list_sessions(limit=100)
        sessions = [str(one["session_id"]) for one in listed["sessions"]]
        assert len(sessions) >= 12
        for session_id in sessions:
            assert await client.delete(session_id)
        assert (await client.list_sessions(limit=100))["sessions"] == []

    async def stream(self, client: HelixClient, name: str) -> list[StreamMessage]:
        """Return the whole stream, which ends with the run's end."""
        found: list[StreamMessage] = []
        session = await client.get_session(ident(name))
        async with aclosing(await client.follow(ident(name))) as messages:  # type: ignore[type-var]
            async for message in messages:
                found.append(message)
                if message.kind in ENDS and (message.session_id, message.turn) == (ident(name), session.turn):
                    return found
        raise AssertionError("the stream ended")

    async def sound(self, client: HelixClient) -> None:
        """Check every session, which is at rest, by the rules of the current code."""
        executor = AdminApplication(self.cloud).executor
        listed: dict[str, Any] = await client.list_sessions(limit=100)
        for one in listed["sessions"]:
            await check_session(executor.store, executor.streams, str(one["session_id"]), at_rest=True)
