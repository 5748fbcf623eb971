"""An unmodified `useChat` in Chromium on the deployed app, whose socket is cut at one of many places. The page ends like a
page without a cut, with one run."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.support.chat_page import ChatPage, Messages, chatting
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.offline_cloud import CloudForTests
from tests.support.placed_cuts import AROUND, Place, PlacedCuts, Way, address_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
USER, TABS = "cuts", 2
REST_S = 20.0
SAID = plan(use(call("look", topic="rain"), text="Let me see what there is. "), say("It rains: take a coat with you."))
REQUESTS = {"authenticate": 1, "run": 1, "get_session": 3, "subscribe": 1}
"""The requests, and which occurrence of each is cut. The third `get_session` looks for the started run."""
CHUNKS = ('"type":"messages"', "text_delta", "step_committed", "tool_start", "tool_end", "It rains", '"kind":"end"')


def places() -> list[Place]:
    """Yield the places of a cut: in the handshake, around each request and its reply, before and in the text, in a call,
    and at the end."""
    shaken = [Place("up", None, offset=offset) for offset in (0, 1, 150)]
    shaken += [Place("down", None, offset=offset) for offset in (0, 1, 60)]
    spoken: list[tuple[Way, str, int]] = []
    for action, nth in REQUESTS.items():
        spoken += [("up", f'"action":"{action}"', nth), ("down", f'"action":"{action}"', nth)]
    spoken += [("down", text, 1) for text in CHUNKS]
    return [*shaken, *(Place(way, text, nth, at) for way, text, nth in spoken for at in AROUND)]


async def answered(page: ChatPage, url: str, cloud: CloudForTests, chat: str) -> Messages:
    await page.open(url, cloud.key(USER), chat)
    await page.say(SAID)
    messages = await page.answered("take a coat")
    async with asyncio.timeout(REST_S):  # a page that was cut reads its run once more
        while await page.status() != ("ready", None):
            await asyncio.sleep(0.1)
    return messages


def without_ids(messages: Messages) -> list[Any]:
    return [(message["role"], message["parts"]) for message in messages]


async def test_a_page_whose_socket_is_cut_ends_as_one_whose_socket_is_not(
    cloud: CloudForTests, chat_page: Path
) -> None:
    port, rest = address_of(cloud)
    waiting, numbers = places(), count()
    assert len(set(waiting)) >= 50

    async def play(page: ChatPage, whole: list[Any]) -> None:
        async with cloud.user(USER) as client:
            while waiting:
                place, chat = waiting.pop(), f"cut-{next(numbers)}"
                async with PlacedCuts(port, place) as proxy:
                    try:
                        messages = await answered(page, f"ws://127.0.0.1:{proxy.port}/{rest}", cloud, chat)
                    except AssertionError as error:
                        raise AssertionError(f"{place}, {chat}: {error}") from error
                    assert proxy.cut == 1, place
                assert without_ids(messages) == whole, place
                state = await client.get_session(messages[1]["metadata"]["sessionId"])
                assert (state.turn, state.current_run_id) == (1, messages[1]["id"]), f"one run: {place}"

    async with chatting(chat_page) as tabs:
        pages = [await tabs.new() for _ in range(TABS)]
        whole = without_ids(await answered(pages[0], cloud.url, cloud, "whole"))
        async with asyncio.TaskGroup() as group:
            for page in pages:
                group.create_task(play(page, whole))
