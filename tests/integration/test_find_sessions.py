"""Lists by facets and words, from the index of sessions (ADR 87)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.aws_resources import fresh, make_store, make_tables, moto
from tests.support_run import Gate, a_tool, agent, call, calls, eventually, gated

from helix import Hooks, LocalExecutor, MemoryStateStore, ScriptedModel
from helix.adapters.sqlite import SQLiteStateStore
from helix.client import HelixClient
from helix.core.session_requests import ListSessions
from helix.core.session_row import SessionRow
from helix.engine.history import session_key
from helix.gateway.loopback import LoopbackGateway
from helix.ports.state_store import Delete, Put, StateStore, Update
from helix.ports.streams import StreamManager
from helix.services.session_index import facets_key, facets_partition, facets_put, index_partition, moved_put
from helix.sessions import search
from helix.sessions.search import Found, find_sessions
from helix.testing.crash import CrashPoints, Point, crash_everywhere, writes

STATUSES: list[Any] = ["running", "completed", "failed", "interrupted", "paused"]


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StateStore]:
    if request.param == "memory":
        yield MemoryStateStore()
    elif request.param == "sqlite":
        made = SQLiteStateStore(tmp_path / "a.db")
        yield made
        await made.close()
    else:
        with moto() as aws:
            prefix = fresh()
            make_tables(aws["dynamodb"], prefix)
            yield make_store(aws["dynamodb"], aws["s3"], prefix)


async def find(executor: LocalExecutor, *, users: list[str | None] | None = None, **fields: Any) -> Found:
    request = ListSessions.model_validate({"v": 1, "id": "1", "action": "list_sessions", **fields})
    return await find_sessions(executor.sessions, users or [None], request)


async def ids(executor: LocalExecutor, **fields: Any) -> list[str]:
    return sorted(state.session_id for state, _ in (await find(executor, **fields)).sessions)


async def row_of(store: StateStore, session_id: str) -> SessionRow:
    (value,) = await store.get([session_key(session_id)])
    assert value is not None
    return SessionRow.at(session_id, value)


async def run(executor: LocalExecutor, session_id: str, text: str, who: Any = None, **options: Any) -> Any:
    return await (await executor.execute(who or agent(), text, session_id=session_id, **options)).result()


async def test_each_facet_finds_its_sessions_from_the_index_alone(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pay = a_tool("pay", lambda given, ctx: "paid", require_approval=True)
    script: list[Any] = ["Hello.", calls(call("look")), "Seen.", calls(call("pay")), ValueError("no")]
    async with LocalExecutor(store, model=ScriptedModel(script)) as executor:
        await run(executor, "a", "Find the  kettle\nin the hall", tags=["north"])
        looker = agent("looker", tools=[a_tool("look", lambda given, ctx: "a kettle")])
        await run(executor, "b", "Look around", looker, tags=["south"])
        await run(executor, "c", "Pay the bill", agent(tools=[pay]))
        await run(executor, "d", "Fail")
        monkeypatch.setattr(search, "READS", 1)  # the index has all that follows
        monkeypatch.setattr(search._Search, "_read", _refuse)
        (state, title), *_ = (await find(executor, text="kettle HALL", titles=True)).sessions
        assert (state.session_id, title) == ("a", "Find the kettle in the hall")
        assert await ids(executor, agent="looker") == ["b"]
        assert await ids(executor, tag="north") == ["a"]
        assert await ids(executor, tool="look") == ["b"] and await ids(executor, tool="pay") == ["c"]
        assert await ids(executor, status="paused") == ["c"] == await ids(executor, waiting=True)
        code = (await row_of(store, "d")).error
        assert code is not None and await ids(executor, error=code.code) == ["d"] == await ids(
            executor, status="failed"
        )
        spent = {name: (await row_of(store, name)).usage.cost_micros for name in "abcd"}
        most = max(spent.values())
        assert await ids(executor, cost_from=most) == [name for name in "abcd" if spent[name] == most]
        assert await ids(executor, cost_from=most + 1) == []
        moment = (await row_of(store, "b")).updated_at
        assert await ids(executor, since=moment) == ["b", "c", "d"] and await ids(executor, until=moment) == ["a", "b"]
        found = await find(executor, status="completed", facets=True, limit=1)
        assert [state.session_id for state, _ in found.sessions] == ["b"] and found.cursor == "b"
        counts = found.facets
        assert counts is not None and counts.complete and counts.sessions == 4
        assert counts.agent == {"helper": 1, "looker": 1} and counts.tag == {"north": 1, "south": 1}
        assert counts.status == {"completed": 2, "paused": 1, "failed": 1}, "as if the status were not asked for"
        assert counts.tool == {"look": 1}


async def _refuse(*_: Any) -> None:
    raise AssertionError("a session was read that the index describes")


async def test_a_running_session_is_found_as_it_is_now(store: StateStore) -> None:
    gate = Gate()
    async with LocalExecutor(store, model=ScriptedModel(["One.", gated(gate, "Two.")])) as executor:
        await run(executor, "a", "First")
        assert await ids(executor, status="completed") == ["a"]
        handle = await executor.execute(agent(), "Second", session_id="a")
        assert await ids(executor, status="running") == ["a"] and await ids(executor, status="completed") == []
        assert await ids(executor, text="first running") == ["a"], "the title stays that of the first message"
        gate.open()
        await handle.result()
        assert await ids(executor, status="completed") == ["a"] and await ids(executor, status="running") == []


async def test_a_store_without_the_index_is_read_and_then_indexed(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an older Helix left it, page by page: a list reads no more sessions than it may."""
    async with LocalExecutor(store, model=ScriptedModel(["Hello."], repeat=True)) as executor:
        for name in "abcde":
            await run(executor, name, f"Question {name}")
            await _as_before_the_index(store, await row_of(store, name))
        monkeypatch.setattr(search, "READS", 2)
        first = await find(executor, text="question", titles=True)
        assert [title for _, title in first.sessions] == ["Question e", "Question d"] and first.cursor == "d"
        assert await ids(executor, text="question", after="d") == ["b", "c"]
        assert await ids(executor, text="question") == list("abcde"), "d and e, and b and c, are in the index"
        monkeypatch.setattr(search._Search, "_read", _refuse)
        assert await ids(executor, status="completed", text="question") == list("abcde")


async def _as_before_the_index(store: StateStore, row: SessionRow) -> None:
    entry = Put(facets_key(row)._replace(partition=index_partition(row.user_id)), {"agent_type": row.agent_type})
    await store.transact("as_before", [entry, Delete(facets_key(row))])


async def test_a_claim_wins_over_the_end_before_it_and_over_a_repair(store: StateStore) -> None:
    async with LocalExecutor(store, model=ScriptedModel(["One.", "Two."])) as executor:
        await run(executor, "a", "First")
        old = await row_of(store, "a")
        later = old.model_copy(update={"version": old.version + 1})
        await store.transact("claim", [moved_put(later)])
        for first in (True, False):  # the effects of the run before it come late
            with pytest.raises(Exception, match="condition"):
                await store.transact("late", [facets_put(old, first_run=first)])
        assert await ids(executor, status="completed") == ["a"], "a bare row is no answer: the session is read"
        (bare,) = await store.query("sessions", facets_partition(None))
        assert bare.value == {"version": later.version}, "the claim may still come, so no list repairs its row"
        await run(executor, "a", "Second")
        (full,) = await store.query("sessions", facets_partition(None))
        assert full.value["agent"] == "helper"


async def test_a_run_that_begins_before_the_effects_of_the_last_one_are_done(store: StateStore) -> None:
    """A hook sends the next message, so the facets of the first run stay out, and its other effects are done."""
    gate, begun = Gate(), list[Any]()
    async with LocalExecutor(store, model=ScriptedModel(["One.", gated(gate, "Two.")])) as executor:

        async def send_next(payload: Any, ctx: Any) -> None:
            if not begun:
                begun.append(True)
                begun.append(await executor.execute(who, "Second", session_id="a"))

        who = agent(hooks=Hooks(on_agent_complete=send_next))
        await run(executor, "a", "First", who)
        await gate.reached()
        runs = (await executor.sessions.list_runs("a")).runs
        await eventually(lambda: _is_done(executor, runs[-1].run_id))
        assert await ids(executor, status="running") == ["a"] and await ids(executor, status="completed") == []
        gate.open()
        await begun[1].result()
        assert await ids(executor, status="completed") == ["a"] and await ids(executor, status="running") == []


async def test_a_refused_claim_does_not_hold_up_the_effects_of_a_run(store: StateStore) -> None:
    """It has put its bare row when the run ends. The facets are refused, and the run's other effects are done."""
    async with LocalExecutor(store, model=ScriptedModel(["One."])) as executor:

        async def claim_late(payload: Any, ctx: Any) -> None:
            row = await row_of(store, "a")
            await store.transact("refused_claim", [moved_put(row.model_copy(update={"version": row.version + 1}))])

        await run(executor, "a", "First", agent(hooks=Hooks(on_agent_complete=claim_late)))
        (ended,) = (await executor.sessions.list_runs("a")).runs
        async with asyncio.timeout(20):
            await eventually(lambda: _is_done(executor, ended.run_id))
        assert await ids(executor, status="completed") == ["a"]


async def _is_done(executor: LocalExecutor, run_id: str) -> bool:
    return (await executor.sessions.get_run("a", run_id)).effects == "done"


async def test_lists_are_right_after_a_crash_at_any_write() -> None:
    """Two runs and a deletion, ended at each write. Whatever is left, each status lists the session that has it."""

    async def act(store: StateStore, streams: StreamManager, points: CrashPoints) -> None:
        async with LocalExecutor(store, streams=streams, model=ScriptedModel(["One.", "Two."])) as executor:
            await run(executor, "a", "First")
            await run(executor, "a", "Second")
            await executor.delete("a")

    async def recover(store: StateStore, streams: StreamManager, point: Point) -> None:
        async with LocalExecutor(store, streams=streams, model=ScriptedModel([])) as executor:
            (value,) = await store.get([session_key("a")])
            status = None if value is None or value["status"] == "deleting" else value["status"]
            for wanted in STATUSES:
                assert await ids(executor, status=wanted) == (["a"] if wanted == status else []), wanted

    covered = await crash_everywhere(MemoryStateStore, act, recover, choose=writes)
    assert {"transact:claim_execute", "transact:effects_done", "transact:finish_delete"} <= {
        name.rpartition(":")[0] for name, _ in covered
    }


async def test_a_given_title_is_found_and_shown_and_so_is_the_first_message(store: StateStore) -> None:
    """What a rename writes: the title in the session's row, and the bare row beside it."""
    async with LocalExecutor(store, model=ScriptedModel(["One.", "Two."])) as executor:
        await run(executor, "a", "Find the kettle")
        row = await row_of(store, "a")
        named = row.model_copy(update={"title": "Plans for March", "version": row.version + 1})
        await store.transact(
            "rename",
            [
                Update(session_key("a"), set={"title": named.title, "version": named.version}),
                moved_put(named),
            ],
        )
        for _ in ("read from the session", "from the index"):
            ((_, title),) = (await find(executor, text="march", titles=True)).sessions
            assert title == "Plans for March"
        await run(executor, "a", "More")
        assert await ids(executor, text="plans kettle") == ["a"], "a further run keeps both"


async def test_nothing_of_a_deleted_session_stays_in_the_index(store: StateStore) -> None:
    async with LocalExecutor(store, model=ScriptedModel(["One.", "Two."])) as executor:
        await run(executor, "a", "First")
        row = await row_of(store, "a")
        await executor.delete("a")
        assert await store.query("sessions", facets_partition(None)) == []
        await store.transact("late_claim", [moved_put(row)])  # a claim that the deletion refused
        assert await ids(executor, status="completed") == []
        assert await store.query("sessions", facets_partition(None)) == [], "a list deletes what has no session"


async def test_a_user_finds_only_their_own_sessions() -> None:
    async with LocalExecutor(MemoryStateStore(), model=ScriptedModel(["Hello."], repeat=True)) as executor:
        for name, user in (("a", "ada"), ("b", "bob")):
            await run(executor, name, "The same words", user_id=user, tags=["one"])
        found = await find(executor, users=["ada"], text="same words", facets=True)
        assert [state.session_id for state, _ in found.sessions] == ["a"]
        assert found.facets is not None and found.facets.tag == {"one": 1} and found.facets.user == {"ada": 1}
        both = await find(executor, users=["ada", "bob", None], text="words", facets=True, limit=1)
        assert both.cursor == "b" and both.facets is not None and both.facets.user == {"ada": 1, "bob": 1}
        rest = await find(executor, users=["ada", "bob", None], text="words", after=both.cursor)
        assert [state.session_id for state, _ in rest.sessions] == ["a"] and rest.cursor is None


async def test_pages_of_many_users_have_each_session_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "ENTRIES", 4)
    monkeypatch.setattr(search, "PAGE", 2)
    users: list[str | None] = ["ada", "bob", None]
    async with LocalExecutor(MemoryStateStore(), model=ScriptedModel(["Hello."], repeat=True)) as executor:
        names = [f"s{n:02}" for n in range(14)]
        for n, name in enumerate(names):
            await run(executor, name, f"Number {n}", user_id=users[n % 3 if n < 9 else 0])
        for filters in ({}, {"status": "completed"}):
            seen: list[str] = []
            after = None
            for _ in range(20):
                page = await find(executor, users=users, limit=3, after=after, **filters)
                seen += [state.session_id for state, _ in page.sessions]
                if (after := page.cursor) is None:
                    break
            assert seen == names[::-1]


async def test_a_client_filters_over_the_wire_and_a_wrong_field_is_named() -> None:
    async with LocalExecutor(MemoryStateStore(), model=ScriptedModel(["Hello."], repeat=True)) as executor:
        await run(executor, "a", "First", tags=["one"])
        async with LoopbackGateway(executor) as gateway, HelixClient(gateway.url) as client:
            page: Any = await client.list_sessions(tag="one", facets=True, titles=True)
            assert [one["title"] for one in page["sessions"]] == ["First"]
            assert page["facets"]["agent"] == {"helper": 1}
            plain: Any = await client.list_sessions()
            assert "facets" not in plain and plain["sessions"][0]["title"] == ""
            with pytest.raises(Exception, match="cost_from"):
                await client.list_sessions(cost_from=-1)


async def test_names_that_a_model_makes_up_do_not_grow_the_session() -> None:
    names = ["look", "x" * 65, "two words", *(f"tool{n}" for n in range(40))]
    script: list[Any] = [calls(*(call(name) for name in names)), "Done."]
    async with LocalExecutor(MemoryStateStore(), model=ScriptedModel(script)) as executor:
        await run(executor, "a", "Call them", agent(tools=[a_tool("look", lambda given, ctx: "seen")]))
        assert (await row_of(executor.store, "a")).tools == ["look", *(f"tool{n}" for n in range(29))]


async def test_two_lists_at_once_index_a_session_once(store: StateStore) -> None:
    async with LocalExecutor(store, model=ScriptedModel(["Hello."])) as executor:
        await run(executor, "a", "First")
        await _as_before_the_index(store, await row_of(store, "a"))
        both = await asyncio.gather(*(ids(executor, status="completed", text="first") for _ in range(3)))
        assert both == [["a"]] * 3
        (full,) = await store.query("sessions", facets_partition(None))
        assert full.value["agent"] == "helper"
