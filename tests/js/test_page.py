"""An unmodified `useChat` in Chromium on the deployed app: tabs, reloads, users who stop, steer and approve, and a service
that is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.e2e.crash_play import grow_old
from tests.support.chat_page import Tabs, chatting, texts
from tests.support.cloud_agents.plans import ask, call, finish, plan, say, use
from tests.support.offline_cloud import CloudForTests, deployed, until
from tests.support.placed_cuts import PlacedCuts, address_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]
FIRST, SECOND = "Once upon a time there was ", "a service that nobody could stop."
WORDS = ["I", "look.", *FIRST.split(), *SECOND.split()]


@pytest_asyncio.fixture
async def tabs(chat_page: Path) -> AsyncIterator[Tabs]:
    async with chatting(chat_page) as made:
        yield made


async def entered(gate: Path) -> None:
    await asyncio.to_thread(until, Path(f"{gate}.entered").exists, "model or tool at the gate")


def half_said(*steps: Any, gate: Path) -> str:
    """Return a plan whose last text stops at the gate, halfway through."""
    return plan(*steps, say(FIRST.ljust(len(SECOND)) + SECOND, gate=str(gate)))


def stops(cloud: CloudForTests, session_id: str) -> list[Any]:
    return [item for item in cloud.rows("sessions", session_id) if item["sk"]["S"].startswith("x#")]


async def test_a_page_that_is_reloaded(cloud: CloudForTests, tabs: Tabs, tmp_path: Path) -> None:
    """The page shows the earlier text in the middle of the run, and continues. Afterwards it shows the same again. There is
    only one run."""
    gate, user = tmp_path / "gate", "reload"
    page = await (await tabs.new()).open(cloud.url, cloud.key(user), "chat")
    assert await page.messages() == []
    await page.say(half_said(use(call("look", topic="rain"), text="I look. "), gate=gate))
    await entered(gate)
    await page.shows(FIRST)
    before = await page.messages()
    await page.reload()
    await page.shows(FIRST)
    assert await page.messages() == before
    gate.touch()
    done = await page.answered(SECOND)
    assert texts(done[1]).split() == WORDS
    await page.say(plan(use(call("boom"), ask("helper", "x")), finish(summary="Done."), say("And the end.")))
    live = await page.answered("And the end.")
    await page.reload()
    assert await page.at_rest() == live
    async with cloud.user(user) as client:
        state = await client.get_session(live[1]["metadata"]["sessionId"])
        assert (state.turn, state.status, len(live)) == (2, "completed", 4)
    fresh = await (await tabs.new()).open(cloud.url, cloud.key(user), "chat")
    assert await fresh.at_rest() == live


async def test_two_tabs_agree(cloud: CloudForTests, tabs: Tabs, tmp_path: Path) -> None:
    gate, user = tmp_path / "gate", "tabs"
    first, second = [await (await tabs.new()).open(cloud.url, cloud.key(user), "chat") for _ in range(2)]
    await first.say(half_said(gate=gate))
    await entered(gate)
    await first.shows(FIRST)
    await second.reload()
    await second.shows(FIRST)
    gate.touch()
    seen = [await page.answered(SECOND) for page in (first, second)]
    assert seen[0] == seen[1] and len(seen[0]) == 2
    await second.say(plan(use(call("look", topic="rain")), say("It rains.")))
    live = await second.answered("It rains.")
    await first.load()
    assert await first.at_rest() == live and len(live) == 4
    await asyncio.gather(first.reload(), second.reload())
    assert await first.at_rest() == await second.at_rest() == live


async def test_stop_interrupts_the_run_and_another_message_takes_its_place(
    cloud: CloudForTests, tabs: Tabs, tmp_path: Path
) -> None:
    user, stopped, steered = "steering", tmp_path / "stopped", tmp_path / "steered"
    page, other = [await (await tabs.new()).open(cloud.url, cloud.key(user), "chat") for _ in range(2)]

    async def waits(gate: Path) -> None:
        await page.say(plan(use(call("wait", gate=str(gate)), text="I wait."), say("Never said.")))
        await entered(gate)
        await page.shows("I wait.")

    async with cloud.user(user) as client:
        session = f"{(await client.whoami())['prefix']}chat"
        await waits(stopped)
        await page.call("stop")
        await page.at_rest()
        assert await page.status() == ("ready", None)
        await asyncio.to_thread(until, lambda: stops(cloud, session), "stored stop")
        stopped.touch()
        assert (await (await client.handle(session)).result(30)).status == "interrupted"
        await waits(steered)
        await other.say(plan(say("Other plans.")), when_running="interrupt")
        await asyncio.to_thread(until, lambda: len(stops(cloud, session)) > 1, "second stop")
        steered.touch()
        await other.answered("Other plans.")
        assert (await page.at_rest())[-1]["role"] == "assistant"
        for one in (page, other):
            await one.load()
        shown = await other.at_rest()
        assert shown == await page.at_rest()
        assert [texts(one) for one in shown if one["role"] == "assistant"] == ["I wait.", "I wait.", "Other plans."]
        assert (await client.get_session(session)).turn == 3, "one run for each message"


async def test_a_tool_of_the_page_changes_the_page(cloud: CloudForTests, tabs: Tabs) -> None:
    """The page declares the tool, and the deployed run waits for its result. A tab without it shows the same."""
    user = "tools"
    page = await (await tabs.new()).open(cloud.url, cloud.key(user), "chat", tools="own")
    await page.say(plan(use(call("set_title", title="Oslo"), text="Look. "), say("There it is.")))
    live = await page.answered("There it is.")
    assert await page.title() == "Oslo" and await page.status() == ("ready", None)
    (part,) = [part for part in live[1]["parts"] if part["type"] == "dynamic-tool"]
    assert (part["state"], part["input"], part["output"]) == ("output-available", {"title": "Oslo"}, "Oslo")
    other = await (await tabs.new()).open(cloud.url, cloud.key(user), "chat")
    assert await other.at_rest() == live and await other.title() != "Oslo"
    await other.say(plan(use(call("set_title", title="Bergen")), say("It has none.")))
    await other.answered("It has none.")
    assert await other.title() != "Bergen"


async def test_a_message_during_a_run_waits_is_there_after_a_reload_and_is_answered(
    cloud: CloudForTests, tabs: Tabs, tmp_path: Path
) -> None:
    """The page shows both answers once, and a page that loads shows the same."""
    gate, user = tmp_path / "gate", "queue"
    page, other = [await (await tabs.new()).open(cloud.url, cloud.key(user), "chat") for _ in range(2)]
    await page.say(half_said(gate=gate))
    await entered(gate)
    await page.shows(FIRST)
    async with cloud.user(user) as client:
        session = f"{(await client.whoami())['prefix']}chat"
        await page.say(plan(say("The second answer.")))
        while not (waiting := (await client.get_session(session)).inbox):
            await asyncio.sleep(0.05)
        await other.load()
        assert (await other.messages())[-1]["metadata"] == {"queuedId": waiting[0].id, "state": "waiting"}
        gate.touch()
        live = await page.answered("The second answer.")
        answers = [texts(one).split() for one in live if one["role"] == "assistant"]
        assert answers == [[*FIRST.split(), *SECOND.split()], ["The", "second", "answer."]]
        assert (await client.get_session(session)).turn == 2
    await page.reload()
    assert await page.at_rest() == live


async def test_an_approval_with_other_arguments(cloud: CloudForTests, tabs: Tabs) -> None:
    user = "approval"
    page = await (await tabs.new()).open(cloud.url, cloud.key(user), "chat")
    calls = use(call("gated", topic="refund 50"), call("gated", topic="refund 9"), text="May I?")
    await page.say(plan(calls, say("It is done.")))
    await page.answered("approval-requested")
    await page.reload()
    asked = await page.at_rest()
    ids = [part["approval"]["id"] for part in asked[1]["parts"] if part["type"] == "dynamic-tool"]
    edits = {"options": {"body": {"arguments": {ids[0]: {"topic": "refund 45"}}}}}
    await page.call("addToolApprovalResponse", {"id": ids[1], "approved": False, "reason": "too little"})
    await page.call("addToolApprovalResponse", {"id": ids[0], "approved": True, **edits})
    live = await page.answered("It is done.")
    assert [part["state"] for part in live[1]["parts"] if part["type"] == "dynamic-tool"] == [
        "output-available",
        "output-denied",
    ]
    assert live[1]["parts"][-3]["approval"]["reason"] == "denied: too little"
    async with cloud.user(user) as client:
        state = await client.get_session(live[1]["metadata"]["sessionId"])
        assert state.custom_state["seen"] == ["gated refund 45"]
    await page.reload()
    assert await page.at_rest() == live


async def test_workers_that_are_killed_in_mid_stream(cloud: CloudForTests, tabs: Tabs, tmp_path: Path) -> None:
    """The workers of all functions and the socket are killed, and for some seconds nothing answers. The state machine
    repeats the lost work."""
    gate, user = tmp_path / "gate", "workers"
    port, rest = address_of(cloud)
    async with PlacedCuts(port, None) as proxy:
        page = await (await tabs.new()).open(f"ws://127.0.0.1:{proxy.port}/{rest}", cloud.key(user), "chat")
        await page.say(half_said(use(call("look", topic="rain"), text="I look. "), gate=gate))
        await entered(gate)
        await page.shows(FIRST)
        proxy.refuse()
        assert await asyncio.to_thread(cloud.cloud.kill_worker, "call_model") == 1
        await asyncio.to_thread(cloud.cloud.retire_workers)
        gate.touch()
        proxy.accept()
        done = await page.answered(SECOND)
        assert await page.status() == ("ready", None)
        assert texts(done[1]).split() == WORDS
        await page.reload()
        assert await page.at_rest() == done
    async with cloud.user(user) as client:
        state = await client.get_session(done[1]["metadata"]["sessionId"])
        assert (state.turn, state.status) == (1, "completed")


async def test_a_service_that_is_killed_in_mid_stream(chat_page: Path, tmp_path: Path) -> None:
    """The whole service is killed, including the executor of the state machines, which fails their executions when it
    restarts. The sweep finds the run, and the page receives the answer anew."""
    gate, user = tmp_path / "gate", "killed"
    folder = tmp_path / "cloud"
    folder.mkdir()
    with deployed(folder) as cloud:
        async with chatting(chat_page) as tabs:
            page = await (await tabs.new()).open(cloud.url, cloud.key(user), "chat")
            await page.say(half_said(use(call("look", topic="rain"), text="I look. "), gate=gate))
            await entered(gate)
            await page.shows(FIRST)
            (_, answer) = await page.messages()
            assert await asyncio.to_thread(cloud.cloud.save)
            cloud.cloud.emulator.kill()
            gate.touch()
            await asyncio.to_thread(cloud.cloud.emulator.start)
            await asyncio.to_thread(grow_old, cloud, {answer["metadata"]["sessionId"]})
            await asyncio.to_thread(cloud.cloud.tick)
            (_, failed) = await page.at_rest()
            assert (await page.status())[0] == "error"
            assert texts(failed) == "I look. ", "uncommitted text is removed"
            await page.call("regenerate")
            done = await page.answered(SECOND)
            assert len(done) == 2 and texts(done[1]).split() == WORDS
            await page.reload()
            assert await page.at_rest() == done
