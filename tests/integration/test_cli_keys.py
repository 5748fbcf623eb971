"""`helix keys` and `helix forget`: who has access, and that no data of a forgotten user remains."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path

import pytest
from tests.support.command_line import CommandLine
from tests.support.sample_files import png
from tests.support_gateway import keyed
from tests.support_run import Gate, Text, a_tool, agent, call, calls, gated

from helix import Image, LocalExecutor, ScriptedModel, create_sub_agent_tool
from helix.adapters.models.scripted import Entry
from helix.client import HelixClient
from helix.core.errors import NotAuthenticatedError
from helix.core.file_checks import describe
from helix.fleet.budgets import BudgetManager
from helix.gateway.loopback import LoopbackGateway
from helix.services.blob_rows import blob_owner
from helix.services.file_inputs import ReadFile
from helix.sessions.copies import clone_session


@pytest.fixture
def helix(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


# --- keys -------------------------------------------------------------------------------------------------------------


def test_a_key_is_shown_once_opens_a_connection_and_is_refused_once_it_is_revoked(helix: CommandLine) -> None:
    made = helix("keys", "create", "--user", "ada", "--name", "laptop", "--days", "7")
    key = made.out.strip()
    assert made.code == 0 and "shown only now" in made.err and key not in made.err
    listed = helix("keys", "list")
    assert "laptop" in listed.out and "valid until" in listed.out and key.split("_")[2] not in listed.out
    secret = key.split("_")[2].encode()
    assert all(secret not in file.read_bytes() for file in helix.folder.glob("helix.db*")), "only its hash is stored"

    async def connects() -> bool:
        async with LocalExecutor(helix.folder / "helix.db") as executor:
            async with LoopbackGateway(executor, authoriser=keyed(executor)) as service:
                try:
                    async with HelixClient(service.url, key) as client:
                        return (await client.whoami())["principal"] == "ada"
                except NotAuthenticatedError:
                    return False

    assert asyncio.run(connects())
    (known,) = [json.loads(line) for line in helix("keys", "list", "--json").out.splitlines()]
    assert helix("keys", "revoke", known["key_id"]).code == 0
    assert not asyncio.run(connects())
    assert "revoked" in helix("keys", "list").out
    assert "there is no key 'nothing'" in helix("keys", "revoke", "nothing").refusal
    assert "--user" in helix("keys", "create", "--user", "").refusal


def test_an_operators_key_says_so_in_the_list(helix: CommandLine) -> None:
    assert helix("keys", "create", "--user", "ada", "--operator").code == 0
    assert json.loads(helix("keys", "create", "--user", "bob", "--json").out)["operator"] is False
    assert "ada, operator" in helix("keys", "list").out
    listed = [json.loads(line) for line in helix("keys", "list", "--json").out.splitlines()]
    assert {key["principal"]: key["operator"] for key in listed} == {"ada": True, "bob": False}


# --- forget -----------------------------------------------------------------------------------------------------------


async def lived(db: Path) -> None:
    """Create two users, each with a session, a sub-agent, a budget, usage and a key."""
    inner = agent("inner", output_schema=Text)
    refund = a_tool("refund", lambda a, c: "done", require_approval=True)
    outer = agent("outer", tools=[create_sub_agent_tool(inner), refund])
    script: dict[str, list[Entry]] = {
        "outer": [calls(call("subagent__inner", message="find")), "done", calls(call("refund"))],
        "inner": [calls(call("__finish__", text="x"))],
    }
    for user in ("ada", "bob"):
        async with LocalExecutor(db, model=ScriptedModel(script)) as executor:
            budgets = BudgetManager(executor.store)
            await budgets.set_budget(10, "day", unit="usd", tenant=user)
            await budgets.set_budget(100, "total", unit="usd", tenant=user)
            for number in (1, 2):
                handle = await executor.execute(outer, "go", session_id=f"{user}:{number}", user_id=user)
                await handle.result()


def rows_with(db: Path, text: str) -> list[tuple[str, str, str]]:
    connection = sqlite3.connect(db)
    tables = ("sessions", "streams", "control")
    found = [(t, *r) for t in tables for r in connection.execute(f"select partition, sort, value from {t}")]
    connection.close()
    return [(table, part, sort) for table, part, sort, value in found if text in f"{part} {sort} {value}"]


def test_a_user_is_forgotten_and_nothing_of_them_is_left(helix: CommandLine, tmp_path: Path) -> None:
    db = tmp_path / "helix.db"
    asyncio.run(lived(db))
    helix("keys", "create", "--user", "ada")
    before_bob, before_ada = rows_with(db, "bob"), rows_with(db, "ada")
    asked = helix("forget", "--user", "ada", stdin="no\n")
    assert asked.code == 2, "the id must be typed again"
    assert rows_with(db, "ada") == before_ada and rows_with(db, "forget#") == [], "and nothing was written"
    done = helix("forget", "--user", "ada", "--yes", "--json")
    assert done.code == 0, done
    report = json.loads(done.out)
    kinds = ["sessions", "sub-agents' sessions", "rows of sessions", "rows of streams", "usage rows", "api keys"]
    assert all(report["before"][kind] > 0 for kind in [*kinds, "budgets and windows", "draws of runs"]), report
    assert report["before"]["sessions"] == 2 and report["before"]["sub-agents' sessions"] == 1
    assert not any(report["after"].values())
    assert rows_with(db, "ada") == []
    assert rows_with(db, "bob") == before_bob
    again = helix("forget", "--user", "ada", "--yes")
    assert again.code == 0 and "Nothing of user 'ada' is left" in again.out


def test_a_deletion_that_died_halfway_is_found_and_finished(
    helix: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from helix.cli.sessions import forget

    db = tmp_path / "helix.db"
    asyncio.run(lived(db))

    async def dies(*_: object, **__: object) -> None:
        raise OSError("the machine went away")

    monkeypatch.setattr(forget, "_forget", dies)  # after the sessions, and before everything else
    assert "the machine went away" in helix("forget", "--user", "ada", "--yes").refusal
    assert rows_with(db, "ada") and "ada:1" not in helix("sessions").out
    monkeypatch.undo()
    done = helix("forget", "--user", "ada", "--yes", "--json")
    report = json.loads(done.out)
    assert done.code == 0 and report["before"]["draws of runs"] > 0, "of sessions that are gone already"
    assert rows_with(db, "ada") == []


async def send_files(db: Path) -> None:
    """Let ada send a file twice, upload one that no message names, and let bob branch a session with another one."""
    async with LocalExecutor(db, model=ScriptedModel(["done"], repeat=True)) as executor:
        for number in (1, 2):
            await _send(executor, f"ada:{number}", png(1, 1))
        await _send(executor, "ada:3", png(3, 3))
        await clone_session(executor.engine, "ada:3", "bob:1", user_id="bob")
        files = executor.engine.files
        assert files is not None
        unused = ReadFile(describe(png(2, 2)), png(2, 2))
        await files.uploads.store(blob_owner("ada", ""), [unused])
        await files.uploads.begin(blob_owner("ada", ""), "0" * 64, 9, "text/plain", 60)


async def _send(executor: LocalExecutor, session_id: str, data: bytes) -> None:
    handle = await executor.execute(agent("plain"), ["Look.", Image(data)], session_id=session_id, user_id="ada")
    assert (await handle.result()).status == "completed"


def bytes_of(db: Path) -> list[bytes]:
    return [path.read_bytes() for path in db.with_name(f"{db.name}-files").rglob("*") if path.is_file()]


def test_the_files_of_a_user_are_forgotten_unless_another_user_holds_them(helix: CommandLine, tmp_path: Path) -> None:
    db = tmp_path / "helix.db"
    asyncio.run(send_files(db))
    assert sorted(bytes_of(db)) == sorted([png(1, 1), png(2, 2), png(3, 3)])
    report = json.loads(helix("forget", "--user", "ada", "--yes", "--json").out)
    assert (report["before"]["files"], report["after"]["files"]) == (3, 0), "bob's branch holds one more"
    assert bytes_of(db) == [png(3, 3)]
    left = [sort for _, part, sort in rows_with(db, blob_owner("ada", "")) if part.startswith("blob")]
    assert sorted(left) == ["blob", "h#bob:1"]
    report = json.loads(helix("forget", "--user", "bob", "--yes", "--json").out)
    assert not any(report["after"].values())


async def test_a_running_session_is_left_alone_unless_it_may_be_aborted(helix: CommandLine, tmp_path: Path) -> None:
    gate = Gate()
    async with LocalExecutor(tmp_path / "helix.db", model=ScriptedModel([gated(gate, "never")])) as executor:
        handle = await executor.execute(agent("waiting"), "go", session_id="g", user_id="ada")
        await gate.reached()
        key = await asyncio.to_thread(helix, "keys", "create", "--user", "ada")
        before = rows_with(tmp_path / "helix.db", "ada")
        refused = await asyncio.to_thread(helix, "forget", "--user", "ada", "--yes")
        assert key.code == 0 and rows_with(tmp_path / "helix.db", "ada") == before, "the key is there too"
        assert "'g' for example" in refused.refusal
        done = await asyncio.to_thread(helix, "forget", "--user", "ada", "--yes", "--abort")
        assert done.code == 0, done
    gone = await asyncio.to_thread(helix, "show", "g")
    assert handle.session_id == "g" and "there is no session 'g'" in gone.refusal


def test_what_a_service_cannot_have_says_what_to_use_instead(helix: CommandLine) -> None:
    there = ["--url", "ws://127.0.0.1:9"]
    assert "--stage or --db" in helix("forget", "--user", "ada", *there).refusal
    assert "--stage" in helix("logs", "s", *there).refusal
    assert "--stage" in helix("import", "f.jsonl", *there).refusal
    assert "choose one" in helix("show", "s", *there, "--stage", "dev").refusal
    assert "choose one" in helix("show", "s", *there, "--db", "x.db").refusal
    assert "WebSocket URL" in helix("show", "s", "--url", "https://example.com").refusal
    assert "--model" in helix("resume", "desk", "s", "--model", "demo", *there).refusal
