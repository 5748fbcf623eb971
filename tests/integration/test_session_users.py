"""The owners of sessions in an executor, and invalid ids."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support_run import World, a_tool, agent, call, calls, play, result_of
from tests.support_sub_agents import ask, child, finish, only_child, parent

from helix import Confirmation, InvalidInputError, ScriptedModel, SessionNotFoundError


async def test_another_users_session_does_not_exist(world: World) -> None:
    who = agent(tools=[a_tool("pay", lambda given, ctx: "paid", require_approval=True)])
    executor = world.executor([calls(call("pay")), "done", "again"])
    handle, result, _ = await play(executor, who, session_id="trip", user_id="ada")
    assert result.status == "paused"
    before = await handle.get_state()
    with pytest.raises(SessionNotFoundError) as nowhere:
        await executor.resume(who, "nowhere", user_id="bob")
    verdict = Confirmation("call_0")
    attempts: list[Any] = [
        lambda: executor.execute(who, "hi", session_id="trip", user_id="bob"),
        lambda: executor.execute(who, "hi", branch={"from_session_id": "trip"}, user_id="bob"),
        lambda: executor.resume(who, "trip", message="hi", user_id="bob"),
        lambda: executor.resume(who, "trip", confirmation=verdict, user_id="bob"),
        lambda: executor.retry(who, "trip", user_id="bob"),
        lambda: executor.answer(who, "trip", verdict, user_id="bob"),
        lambda: executor.get_handle(who, "trip", user_id="bob"),
    ]
    for attempt in attempts:
        with pytest.raises(SessionNotFoundError) as refused:
            await attempt()
        assert str(refused.value).replace("trip", "nowhere") == str(nowhere.value)
    assert await handle.get_state() == before
    assert (await executor.sessions.list_sessions(user_id="bob")).sessions == []
    again = await executor.resume(who, "trip", confirmation=verdict, user_id="ada")
    assert (await result_of(again)).text == "done"
    _, result, _ = await play(executor, who, "more", session_id="trip", user_id="ada")
    assert result.text == "again"


async def test_a_session_of_nobody_is_no_users(world: World) -> None:
    executor = world.executor(["one", "two"])
    await play(executor, agent(), session_id="free")
    with pytest.raises(SessionNotFoundError):
        await executor.execute(agent(), "hi", session_id="free", user_id="ada")
    _, result, _ = await play(executor, agent(), "more", session_id="free")  # no owner is checked without a user
    assert result.text == "two"


async def test_two_users_that_want_the_same_id_at_once(world: World) -> None:
    """One of them creates it. For the other it does not exist, whichever was first."""
    executors = {user: world.executor(ScriptedModel([user], repeat=True)) for user in ("ada", "bob")}
    asked = [one.execute(agent(), "hi", session_id="same", user_id=user) for user, one in executors.items()]
    both = await asyncio.gather(*asked, return_exceptions=True)
    (made,) = [found for found in both if not isinstance(found, BaseException)]
    await made.result()
    owner = (await made.get_state()).user_id
    other = "bob" if owner == "ada" else "ada"
    with pytest.raises(SessionNotFoundError):
        await executors[other].execute(agent(), "hi", session_id="same", user_id=other)
    assert len((await executors["ada"].sessions.list_runs("same")).runs) == 1


async def test_a_sub_agents_session_is_its_roots_users(world: World) -> None:
    script = {"boss": [calls(ask()), "The boss is done."], "finder": [finish("blue")]}
    executor = world.executor(script)
    handle, _, _ = await play(executor, parent(child()), user_id="ada")
    ref = await only_child(executor, handle.session_id)
    assert (await executor.get_handle(child(), ref.session_id, user_id="ada")).session_id == ref.session_id
    with pytest.raises(SessionNotFoundError):
        await executor.get_handle(child(), ref.session_id, user_id="bob")


@pytest.mark.parametrize("session_id", ["", " ", "ä", "x" * 257, "a/b"])
async def test_an_id_that_is_none_is_refused_everywhere(quick_world: World, session_id: str) -> None:
    executor = quick_world.executor(["one"])
    who = agent()
    await play(executor, who, session_id="there")
    attempts: list[Any] = [
        lambda: executor.execute(who, "hi", session_id=session_id),
        lambda: executor.execute(who, "hi", session_id=session_id, branch={"from_session_id": "there"}),
        lambda: executor.execute(who, "hi", branch={"from_session_id": session_id}),
        lambda: executor.resume(who, session_id),
        lambda: executor.retry(who, session_id),
        lambda: executor.answer(who, session_id, Confirmation("call_0")),
        lambda: executor.get_handle(who, session_id),
        lambda: executor.branch("there", session_id=session_id),
        lambda: executor.clone_session("there", session_id),
    ]
    for attempt in attempts:
        with pytest.raises(InvalidInputError, match="session_id"):
            await attempt()
    assert len((await executor.sessions.list_sessions()).sessions) == 1
