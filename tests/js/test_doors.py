"""What people do with agents, on pages in Chromium: `useChat` and `HttpAgent`, both unmodified, over HTTP, the TypeScript
client over a WebSocket, and the client of the MCP SDK. The agent of all scenes is in `tests/support/people_desk.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.doors import Page, built, mcp_served, open_page, play_mcp, waits
from tests.support.front_ends import install
from tests.support.people_desk import (
    APPROVAL,
    DONE,
    ELSEWHERE,
    GATES,
    GUARD,
    HANDOFF,
    HOTEL,
    KEY,
    OUTPUT,
    PAGE,
    QUESTION,
    SEAT,
    STEER,
    STOP,
    STORY,
    people_desk_served,
)
from tests.support_run import eventually

pytestmark = pytest.mark.slow


async def history(page: Page, session: str) -> list[Any]:
    return list((await page.desk.executor.sessions.get_messages(session)).messages)


async def a_user_steers_a_run_and_takes_a_message_back(page: Page) -> None:
    scene = await page.steer_and_queue()
    waiting = [item for item in await scene.items() if "waits" in item]
    assert [item.removesuffix(" waits Withdraw") for item in waiting] == [SEAT, HOTEL]
    await scene.panel.locator(".user.waits").filter(has_text=HOTEL).get_by_role("button", name="Withdraw").click()
    await scene.panel.locator(".user").filter(has_text=HOTEL).wait_for(state="detached")
    GATES[scene.session].open()
    await scene.shows("Flight 12 has a window seat.")
    assert await scene.at_rest() == [
        STEER,
        "desk I look.",
        "search(Oslo) done Two flights to Oslo.",
        SEAT,
        "desk Flight 12 has a window seat.",
    ]
    assert await scene.said() == [STEER, SEAT]


async def a_queued_message_gets_its_own_turn(page: Page) -> None:
    scene = await page.scene("steering").begin()
    await GATES[scene.session].reached()
    await scene.say(HANDOFF, "Queue")
    await scene.shows(HANDOFF, ".user.waits")
    GATES[scene.session].open()
    await scene.shows("You paid 84.50 euros.")
    shown = await scene.at_rest()
    assert [item for item in shown if "(" not in item] == [
        STEER,
        "desk I look.",
        "desk Flights 12 and 14.",
        HANDOFF,
        "billing You paid 84.50 euros.",
    ]


async def a_user_answers_a_choice_and_a_form(page: Page) -> None:
    scene = await page.fill_in()
    assert (await scene.items())[-1].startswith("Window or aisle? window aisle Who flies? Name Age")
    await scene.press("Answer")
    await scene.shows("The flight is booked.")
    shown = await scene.at_rest()
    assert (shown[0], shown[-1]) == (QUESTION, "desk The flight is booked.")
    assert any(item.startswith("book() done Booked: Ada, window.") for item in shown)
    assert "booked window for Ada, 36" in DONE


async def a_user_approves_a_call(page: Page) -> None:
    await rule(page, "Approve")
    assert "refunded A7" in DONE


async def a_user_denies_a_call(page: Page) -> None:
    done = list(DONE)
    await rule(page, "Deny")
    assert done == DONE


async def rule(page: Page, button: str) -> None:
    scene = await page.ask_for_approval()
    assert (await scene.items())[-1] == "Allow refund? order A7 euros 84.5 Approve Deny"
    await scene.press(button)
    await scene.shows("It is refunded.")
    shown = await scene.at_rest()
    assert shown[0] == APPROVAL
    (call,) = [item for item in shown if item.startswith("refund(A7, 84.5)")]
    assert ("done 84.50 euros for A7." in call) == (button == "Approve") and ("failed" in call) == (button == "Deny")


async def the_page_executes_its_own_tool(page: Page) -> None:
    scene = await page.scene("page").begin()
    await scene.shows("There it is, on your map.")
    expected = [PAGE, "show_map(Oslo) done Oslo is shown", "desk There it is, on your map."]
    assert await scene.at_rest() == expected
    (result,) = [one for one in await history(page, scene.session) if one.role == "tool"]
    assert result.content == "Oslo is shown"


async def another_system_ends_a_call_while_the_page_is_open(page: Page) -> None:
    scene = await page.hand_to_another_system()
    assert await scene.at_rest() == [ELSEWHERE, "desk I ask the warehouse.", "ship(A7) waits for another system"]
    await page.report(scene, {"parcel": 4711})
    await scene.shows("A7 is on its way.")
    expected = ['ship(A7) done {"parcel":4711}', "desk A7 is on its way."]
    assert (await scene.at_rest())[2:] == expected


async def the_page_names_the_agent_that_speaks(page: Page) -> None:
    scene = await page.scene("handoff").begin()
    await scene.shows("You paid 84.50 euros.")
    shown = await scene.at_rest()
    assert (shown[0], shown[-1]) == (HANDOFF, "billing You paid 84.50 euros.")


async def a_guard_blocks_a_call_and_an_answer(page: Page) -> None:
    scene = await page.scene("guard").begin()
    await scene.shows("I may not tell it to anyone.")
    asked, call, said = await scene.at_rest()
    assert (asked, said) == (GUARD, "desk I may not tell it to anyone.")
    assert call.startswith("send_mail(eve@attacker.test) failed guard 'recipients' blocked the call")
    assert "mailed eve@attacker.test" not in DONE and KEY not in str(await history(page, scene.session))


async def structured_output_grows(page: Page) -> None:
    scene = await page.grow()
    stops = scene.panel.locator(".output li")
    assert await stops.count() < 4, "a part of the output is shown"
    await scene.shows("Dinner at the harbour", ".output")
    shown = await scene.at_rest()
    assert (shown[0], await stops.count()) == (OUTPUT, 4)
    assert shown[-1].startswith("planner A day in Oslo 9:00 The opera house, and its roof")


async def a_stopped_answer_is_kept(page: Page) -> None:
    scene = await page.listen()
    await scene.press("Stop")
    await scene.shows("stopped here")
    asked, _, told = await scene.at_rest()
    kept = told.removeprefix("teller ").removesuffix(" stopped here")
    assert asked == STOP and STORY.startswith(kept) and len(kept) < len(STORY.rstrip())
    assert (await history(page, scene.session))[-1].content.strip() == kept, "the page shows what the session keeps"


@pytest.mark.parametrize("door", ["use_chat", "ag_ui", "client"])
async def test_people_on_a_page(door: str, npm: Any, package: Path, tmp_path: Path) -> None:
    install()
    async with people_desk_served(built(door, package, tmp_path / "pages")) as desk, open_page(desk, door) as page:
        await a_user_steers_a_run_and_takes_a_message_back(page)
        await a_user_answers_a_choice_and_a_form(page)
        await a_user_approves_a_call(page)
        await the_page_executes_its_own_tool(page)
        await another_system_ends_a_call_while_the_page_is_open(page)
        await the_page_names_the_agent_that_speaks(page)
        await a_guard_blocks_a_call_and_an_answer(page)
        await structured_output_grows(page)
        await a_stopped_answer_is_kept(page)
        await page.begin("again")
        await a_queued_message_gets_its_own_turn(page)
        await a_user_denies_a_call(page)


async def test_an_mcp_client_on_a_page_of_another_origin(npm: Any, package: Path, tmp_path: Path) -> None:
    """The client of the official TypeScript SDK. The server allows the page's origin through CORS."""
    install()
    async with people_desk_served(built("mcp", package, tmp_path / "pages")) as desk, mcp_served(desk) as address:
        async with open_page(desk, "mcp", mcp=address) as page:
            question, approval = await play_mcp(page)
            assert DONE == []
            await question.press("Answer")
            await approval.press("Answer")
            await question.shows("The flight is booked.")
            await approval.shows("It is refunded.")
            assert sorted(DONE) == ["booked window for Ada, 36", "refunded A7"]
            story = page.scene("stop")
            await eventually(lambda: waits(desk, story.session, "interrupted"))
            kept = (await history(page, story.session))[-1]
            assert kept.metadata["stop_reason"] == "interrupted" and STORY.startswith(kept.content.strip())
