"""The actions of the WebSocket gateway on sessions: reading, lists, checkpoints, copies, deletion."""

from __future__ import annotations

import pytest
from tests.support_gateway import ADA, Desk, desk_of, started
from tests.support_run import Gate, gated

from helix.gateway.authoriser import prefix_of


async def test_looking_at_a_session(desk: Desk) -> None:
    place = await started(desk)
    sid = place["session_id"]
    await started(desk, session_id=sid)
    found = await desk.result("ada", "get_session", session_id=sid, messages=3, snapshot=True, run_id=place["run_id"])
    assert (found["session"]["status"], found["session"]["message_count"]) == ("completed", 4)
    assert found["can_resume"] == {"can_resume": False, "reason": "completed"}
    assert (found["offset"], [m["role"] for m in found["messages"]]) == (1, ["assistant", "user", "assistant"])
    assert len(found["snapshot"]["messages"]) == 4 and found["snapshot"]["sequence"] > place["after"]
    assert (found["run"]["text"], found["run"]["turn"], found["run"]["start_sequence"]) == ("Hello.", 1, 0)
    page = await desk.result("ada", "get_session", session_id=sid, messages=2, before=2)
    assert (page["offset"], [m["content"] for m in page["messages"]]) == (0, ["hi", "Hello."])
    assert (await desk.result("ada", "get_session", session_id=sid, messages=2, before=0))["messages"] == []
    assert (await desk.error("ada", "get_session", session_id=sid, run_id="run_x"))["code"] == "run_not_found"


async def test_a_run_that_is_not_over_has_nothing_to_tell() -> None:
    gate = Gate()
    desk = desk_of([gated(gate, "Done.")])
    async with desk.executor:
        await desk.connect("ada", ADA)
        place = await desk.result("ada", "run", agent="helper", message="hi")
        found = await desk.result("ada", "get_session", session_id=place["session_id"], run_id=place["run_id"])
        assert found["run"]["status"] == "running" and "output" not in found["run"]
        gate.open()
        await desk.ended(place["session_id"])


async def test_everybody_lists_their_own_sessions_page_by_page(desk: Desk) -> None:
    mine = [(await started(desk))["session_id"] for _ in range(3)]
    await started(desk, "bob")
    first = await desk.result("ada", "list_sessions", limit=2)
    rest = await desk.result("ada", "list_sessions", limit=2, after=first["cursor"])
    assert [s["session_id"] for s in first["sessions"] + rest["sessions"]] == mine[::-1]
    assert rest["cursor"] is None
    assert "custom_state" not in first["sessions"][0]


async def test_checkpoints_branches_and_clones(desk: Desk) -> None:
    place = await started(desk)
    sid = place["session_id"]
    await started(desk, session_id=sid)
    page = await desk.result("ada", "list_checkpoints", session_id=sid, limit=100)
    assert page["cursor"] is None and "state" not in page["checkpoints"][0]
    early = next(c for c in page["checkpoints"] if c["count"] == 2)
    branched = await desk.result("ada", "branch", session_id=sid, checkpoint_id=early["id"])
    copy = (await desk.result("ada", "get_session", session_id=branched["session_id"]))["session"]
    assert (copy["message_count"], copy["user_id"], copy["forked_from"]["session_id"]) == (2, ADA, sid)
    cloned = await desk.result("ada", "clone", session_id=sid, target=f"{prefix_of(ADA)}copy", message_index=1)
    assert cloned == {"session_id": "ada:copy"}
    assert (await desk.error("ada", "clone", session_id=sid, target="ada:copy"))["code"] == "session_exists"
    twice = [await desk.result("ada", "branch", session_id=sid, key="b") for _ in range(2)]
    assert twice[0] == twice[1]
    assert (await desk.error("ada", "branch", session_id=sid, checkpoint_id="x"))["code"] == "checkpoint_not_found"


async def test_checkpoints_are_paged_by_cursor_and_by_id(desk: Desk) -> None:
    place = await started(desk)
    sid = place["session_id"]
    await started(desk, session_id=sid)
    page = await desk.result("ada", "list_checkpoints", session_id=sid, limit=100)
    ids = [point["id"] for point in page["checkpoints"]]
    assert len(ids) > 3
    for number, point in enumerate(ids[:-1], 1):
        rest = await desk.result("ada", "list_checkpoints", session_id=sid, limit=100, after=point)
        assert [found["id"] for found in rest["checkpoints"]] == ids[number:]
    first = await desk.result("ada", "list_checkpoints", session_id=sid, limit=2)
    assert first["cursor"] == ids[1]
    older = f"c#{int(ids[1].rpartition('-')[2], 16):010d}"  # a cursor of an earlier version
    for after in (first["cursor"], older):
        rest = await desk.result("ada", "list_checkpoints", session_id=sid, limit=100, after=after)
        assert [found["id"] for found in rest["checkpoints"]] == ids[2:]


@pytest.mark.parametrize("after", ["z", "a", "c", "c$", "r#", "\0", "cpv1-", "cpv1-other-s1-t1-000001", "zzz" * 100])
async def test_an_after_that_is_no_checkpoint_is_refused(desk: Desk, after: str) -> None:
    place = await started(desk)
    error = await desk.error("ada", "list_checkpoints", session_id=place["session_id"], after=after)
    assert error["code"] == "checkpoint_not_found"


@pytest.mark.parametrize("after", ["\0", "ä", "x" * 300, "a b"])
async def test_an_after_that_is_no_session_is_refused(desk: Desk, after: str) -> None:
    assert (await desk.error("ada", "list_sessions", after=after))["code"] == "invalid_input"


async def test_a_deleted_session_is_gone_with_those_who_follow_it(desk: Desk) -> None:
    place = await started(desk)
    assert await desk.result("ada", "delete", session_id=place["session_id"]) == {"deleted": True}
    assert await desk.connections.subscribers(place["stream_id"]) == []
    for action in ("get_session", "delete", "subscribe"):
        assert (await desk.error("ada", action, session_id=place["session_id"]))["code"] == "session_not_found"
