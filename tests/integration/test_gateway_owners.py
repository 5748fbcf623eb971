"""The owners of sessions, and the expiry of connections: what the gateway lets a principal see and do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support_gateway import ADA, BOB, HOUR, Desk, executor_of, started

from helix.core.requests import ACTIONS

# --- owners -------------------------------------------------------------------------------------------------------------

OF_A_SESSION: dict[str, dict[str, Any]] = {
    "run": {"agent": "helper", "message": "hi"},
    "resume": {},
    "retry": {},
    "interrupt": {},
    "withdraw": {"queued_id": "q"},
    "abort": {},
    "answer": {"tool_call_id": "c"},
    "subscribe": {},
    "unsubscribe": {},
    "get_session": {"snapshot": True},
    "list_checkpoints": {},
    "get_checkpoint": {},
    "diff_checkpoints": {"before": "c"},
    "compare": {"other_session_id": "ses_nothing"},
    "get_step": {"step": 1},
    "get_context": {"step": 1},
    "get_cost": {},
    "get_executions": {},
    "get_logs": {},
    "get_budgets": {},
    "read_stream": {},
    "read_rows": {"stream": True},
    "compact": {"focus": "rows"},
    "rename": {"title": "mine"},
    "change_tags": {"add": ["mine"]},
    "upload": {"sha256": "0" * 64, "size": 1},
    "finish_upload": {"sha256": "0" * 64},
    "get_file": {"sha256": "0" * 64},
    "branch": {},
    "clone": {},
    "delete": {},
}


def test_the_table_has_every_action_that_names_a_session() -> None:
    others = {"authenticate", "list_sessions", "list_agents", "get_usage", "get_fleet", "change_budget", "ping"}
    others.add("report_call")  # its token is the credential: tests/integration/test_later_doors.py
    assert set(OF_A_SESSION) == ACTIONS - others


@pytest.mark.parametrize("action", sorted(OF_A_SESSION))
async def test_a_stranger_gets_the_very_answer_for_a_session_that_is_not(desk: Desk, action: str) -> None:
    place = await started(desk)
    foreign = await desk.error("bob", action, session_id=place["session_id"], **OF_A_SESSION[action])
    nothing = await desk.error("bob", action, session_id="ses_nothing", **OF_A_SESSION[action])
    assert foreign["code"] == "session_not_found"
    assert json.dumps(foreign).replace(place["session_id"], "ses_nothing") == json.dumps(nothing)
    state = await desk.executor.sessions.get(place["session_id"])
    assert (state.status, state.turn) == ("completed", 1)
    (subscriber,) = await desk.connections.subscribers(place["stream_id"])
    assert subscriber.connection_id == "ada"


async def test_ids_of_ones_own_choice_begin_with_ones_own_prefix(desk: Desk) -> None:
    who = await desk.result("ada", "authenticate")
    assert (who["principal"], who["prefix"]) == (ADA, "ada:")
    assert (await started(desk, session_id="ada:notes"))["session_id"] == "ada:notes"
    taken = await desk.error("bob", "run", agent="helper", message="hi", session_id="ada:notes")
    free = await desk.error("bob", "run", agent="helper", message="hi", session_id="ada:other")
    assert json.dumps(taken).replace("notes", "other") == json.dumps(free)
    place = await started(desk)
    for target in ("ada:copy", place["session_id"], "copy"):
        error = await desk.error("bob", "run", agent="helper", message="hi", session_id=target)
        assert error["code"] == "session_not_found" and "begins with 'bob:'" in error["message"]
    assert (await desk.error("ada", "branch", session_id="ada:notes", target="bob:x"))["code"] == "session_not_found"


async def test_a_session_made_by_the_backend_for_nobody_takes_no_message(desk: Desk) -> None:
    helper = desk.executor.agents.named("helper")
    await (await desk.executor.execute(helper, "hi", session_id="ada:theirs")).result()
    error = await desk.error("ada", "run", agent="helper", message="hi", session_id="ada:theirs")
    assert error["code"] == "session_not_found"
    assert (await desk.executor.sessions.get("ada:theirs")).turn == 1


async def test_where_nobody_is_asked_all_sessions_of_nobody_are_everybodys() -> None:
    desk = Desk(executor_of(["Hello."] * 3), anonymous=True)
    async with desk.executor:
        await desk.connect("one", None)
        await desk.connect("two", None)
        place = await started(desk, "one", session_id="shared")
        assert (await desk.result("two", "get_session", session_id="shared"))["session"]["user_id"] is None
        assert place["session_id"] == "shared"
        helper = desk.executor.agents.named("helper")
        await (await desk.executor.execute(helper, "hi", session_id="adas", user_id=ADA)).result()
        assert (await desk.error("two", "get_session", session_id="adas"))["code"] == "session_not_found"


# --- expiry -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", sorted(ACTIONS - {"authenticate"}))
async def test_behind_its_expiry_a_connection_can_do_nothing(desk: Desk, action: str) -> None:
    place = await started(desk)
    desk.clock.ahead_s = HOUR + 1
    fields: dict[str, Any] = {"budget": "global/day/micros", "limit": 1} if action == "change_budget" else {}
    if action in OF_A_SESSION:
        fields = {"session_id": place["session_id"], **OF_A_SESSION[action]}
    if action == "report_call":
        fields = {"token": "call.x.y"}
    error = await desk.error("ada", action, **fields)
    assert (error["code"], error["recoverable"]) == ("not_authenticated", True)


async def test_expired_connections_are_posted_nothing_until_they_renew(desk: Desk) -> None:
    token = await desk.keys.create(desk.executor.engine.ids, _principal(ADA))
    place = await started(desk)
    desk.clock.ahead_s = HOUR + 1
    assert await desk.connections.subscribers(place["stream_id"]) == []
    assert (await desk.error("ada", "authenticate"))["code"] == "not_authenticated"
    renewed = await desk.result("ada", "authenticate", token=token)
    assert renewed["principal"] == ADA and renewed["expires_at"] > desk.clock.now() + HOUR
    (subscriber,) = await desk.connections.subscribers(place["stream_id"])
    assert subscriber.connection_id == "ada"
    assert "now" in await desk.result("ada", "ping")


async def test_a_proof_of_somebody_else_renews_nothing(desk: Desk) -> None:
    token = await desk.keys.create(desk.executor.engine.ids, _principal(BOB))
    error = await desk.error("ada", "authenticate", token=token)
    assert error["code"] == "invalid_input" and "another user" in error["message"]
    assert (await desk.error("ada", "authenticate", token="helix_wrong"))["code"] == "not_authenticated"
    assert (await desk.result("ada", "authenticate"))["principal"] == ADA


async def test_a_connection_that_is_not_there_is_nobodys(desk: Desk) -> None:
    assert (await desk.error("nobody", "ping"))["code"] == "not_authenticated"
    await desk.gateway.disconnect("ada")
    assert (await desk.error("ada", "list_sessions"))["code"] == "not_authenticated"
    assert (await desk.error("ada", "authenticate", token="x"))["code"] == "not_authenticated"


def _principal(user: str) -> Any:
    from helix.gateway.authoriser import Principal

    return Principal(user)
