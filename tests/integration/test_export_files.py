"""Exports contain the bytes of files, and an import stores and holds them, whatever happens in between."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import CommandLine
from tests.support.sample_files import pdf, png
from tests.support_run import agent
from tests.support_sub_agents import ask, child, finish, only_child

from helix import Document, Image, LocalExecutor, MemoryStateStore, ScriptedModel, create_sub_agent_tool, tool
from helix.adapters.memory_blobs import MemoryBlobs
from helix.adapters.system import SystemClock, SystemIds
from helix.core.errors import InvalidFileError, InvalidInputError
from helix.core.files import FilePart
from helix.core.messages import files_of
from helix.core.steps import AnyStepResult
from helix.ports.clock import Clock
from helix.ports.model import LLMGenerateInput
from helix.ports.state_store import StateStore
from helix.services.blob_rows import UPLOADED_S, blob_owner
from helix.services.session_files import SessionFiles
from helix.sessions.export_files import NamedFile
from helix.sessions.exports import Export, read_export
from helix.sessions.imports import import_session
from helix.testing.clocks import ShiftedClock
from helix.testing.invariants import check_session

S = "ses"
PHOTO, DOOR, SCAN = png(20, 10), png(4, 4), pdf(2)
NAMES = {hashlib.sha256(data).hexdigest(): data for data in (PHOTO, DOOR, SCAN)}


@tool
def camera() -> Any:
    """Take a photo of the door."""
    return ["Here it is:", Image(DOOR, name="door.png")]


@tool
def scan() -> Any:
    """Scan the letter."""
    return Document(SCAN, name="scan.pdf")


FINDER = child(tools=[scan])
BOSS = agent("boss", tools=[create_sub_agent_tool(FINDER), camera])


class Looks:
    """A model that records the bytes of the files in each request."""

    def __init__(self, script: Any) -> None:
        self.seen: list[list[bytes]] = []
        self._scripted = ScriptedModel(script)

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        self.seen.append([await request.files.read(file) for file in files_of(request.messages)])
        return await self._scripted.generate_step(request)


def use(name: str) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": {}}]}


async def play(db: Path, user: str | None = None) -> None:
    """Make a session with a file of the user, sent twice, one of a tool, and one of a sub-agent's tool."""
    script = {
        "boss": [use("camera"), {"tool_calls": [ask()]}, "Done.", "Again."],
        "finder": [use("scan"), finish("blue")],
    }
    async with LocalExecutor(db, model=Looks(script)) as executor:
        for text in ("Look", "Again"):
            content = [text, Image(PHOTO, name="photo.png")]
            handle = await executor.execute(BOSS, content, session_id=S, user_id=user)
            result = await handle.result()
            assert result.status == "completed", result.error


@pytest.fixture
def helix(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.fixture
async def exported(tmp_path: Path, helix: CommandLine) -> list[str]:
    """The lines of the session's export: the header, the rows, three files and the end."""
    await play(tmp_path / "a.db")
    return await asyncio.to_thread(export, helix)


def export(helix: CommandLine) -> list[str]:
    done = helix("export", S, "--to", "a.jsonl", "--db", "a.db")
    assert done.code == 0 and "and 3 files of session ses" in done.err, done
    return (helix.folder / "a.jsonl").read_text().splitlines()


async def goes_on(db: Path) -> list[bytes]:
    """Continue the session, and return the files that the model then sees."""
    model = Looks({"boss": ["Yes."]})
    async with LocalExecutor(db, model=model) as executor:
        assert (await (await executor.execute(BOSS, "And now?", session_id=S)).result()).status == "completed"
        await check_session(executor.store, executor.streams, S, at_rest=True)
    return model.seen[-1]


# --- there and back ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("user", "given"), [(None, None), ("ann", None), ("ann", "bob")])
async def test_the_model_sees_the_files_of_an_imported_session(
    tmp_path: Path, helix: CommandLine, user: str | None, given: str | None
) -> None:
    await play(tmp_path / "a.db", user)
    lines = await asyncio.to_thread(export, helix)
    assert json.loads(lines[0])["helix_export"] == 2 and json.loads(lines[-1])["files"] == 3
    shown = [json.loads(line) for line in lines if '"data"' in line]
    assert [base64.b64decode(line["data"]) for line in shown] == [PHOTO, DOOR, SCAN]
    assert shown[0]["file"] == {
        "sha256": hashlib.sha256(PHOTO).hexdigest(),
        "media_type": "image/png",
        "size": len(PHOTO),
    }
    there = ["--db", "b.db", *(["--user", given] if given else [])]
    done = await asyncio.to_thread(helix, "import", "a.jsonl", *there)
    assert (done.code, done.out, done.err) == (0, f"{S}\n", "")
    assert await goes_on(tmp_path / "b.db") == [PHOTO, DOOR, PHOTO]
    async with LocalExecutor(tmp_path / "b.db", model=Looks({})) as executor:
        below = (await only_child(executor, S)).session_id
        file = FilePart(kind="file", media_type="*/*", sha256=hashlib.sha256(SCAN).hexdigest())
        assert await executor.read_file(below, file) == SCAN
        owner = blob_owner(given or user, S)
        for session_id, count in ((S, 2), (below, 1)):
            held = await executor.store.query("sessions", session_id, start="b#", end="b$")
            assert [row.key.sort.split("#")[2] for row in held] == [owner] * count
        await executor.delete(S)
    async with LocalExecutor(tmp_path / "b.db", model=Looks({}), clock=ShiftedClock(UPLOADED_S)) as executor:
        await executor.expire()
    assert [path for path in (tmp_path / "b.db-files").rglob("*") if path.is_file()] == []


async def test_files_are_left_out_of_an_export_or_of_an_import(
    tmp_path: Path, helix: CommandLine, exported: list[str]
) -> None:
    def act() -> None:
        done = helix("export", S, "--to", "bare.jsonl", "--no-files", "--db", "a.db")
        assert done.code == 0 and "file" not in done.err.replace("bare.jsonl", "")
        first, *_, last = (tmp_path / "bare.jsonl").read_text().splitlines()
        assert json.loads(first)["helix_export"] == 1, "earlier versions of Helix read it"
        assert json.loads(last) == {"end": True, "rows": len(exported) - 5}
        assert helix("import", "bare.jsonl", "--db", "b.db").code == 0
        assert helix("import", "a.jsonl", "--no-files", "--db", "c.db").code == 0

    await asyncio.to_thread(act)
    for db in ("b.db", "c.db"):
        assert await goes_on(tmp_path / db) == []
        assert not (tmp_path / f"{db}-files").exists()


async def test_standard_output_and_standard_input(tmp_path: Path, helix: CommandLine, exported: list[str]) -> None:
    def act() -> None:
        written = helix("export", S, "--db", "a.db").out
        assert len(written.splitlines()) == len(exported)
        assert helix("import", "-", "--db", "b.db", stdin=written).out == f"{S}\n"

    await asyncio.to_thread(act)
    assert await goes_on(tmp_path / "b.db") == [PHOTO, DOOR, PHOTO]


async def test_a_file_whose_bytes_are_gone_is_reported_and_left_out(tmp_path: Path, helix: CommandLine) -> None:
    await play(tmp_path / "a.db")
    for path in (tmp_path / "a.db-files").rglob("*.*"):
        if path.name.startswith(hashlib.sha256(DOOR).hexdigest()):
            path.unlink()
        if path.name.startswith(hashlib.sha256(SCAN).hexdigest()):
            path.write_bytes(b"%PDF-1.7 other bytes")
    done = await asyncio.to_thread(helix, "export", S, "--to", "a.jsonl", "--db", "a.db")
    assert done.code == 0 and "and 1 file of session" in done.err
    assert "'door.png'" in done.err and "do not exist any more" in done.err
    assert "'scan.pdf'" in done.err and "are damaged" in done.err
    assert (await asyncio.to_thread(helix, "import", "a.jsonl", "--db", "b.db")).code == 0
    assert await goes_on(tmp_path / "b.db") == [PHOTO, PHOTO]


async def test_a_session_that_exists_gets_no_files(tmp_path: Path, helix: CommandLine, exported: list[str]) -> None:
    async with LocalExecutor(tmp_path / "b.db", model=Looks({"boss": ["Hi."]})) as executor:
        await (await executor.execute(BOSS, "Hello", session_id=S)).result()
    assert "exists here" in (await asyncio.to_thread(helix, "import", "a.jsonl", "--db", "b.db")).refusal
    assert not (tmp_path / "b.db-files").exists()


# --- damaged files ----------------------------------------------------------------------------------------------------


def damaged(lines: list[str], how: str) -> list[str]:
    place = len(lines) - 4  # the first file
    line = json.loads(lines[place])
    match how:
        case "hash":
            line["data"] = base64.b64encode(PHOTO[:-1] + b"x").decode()
        case "size":
            line["file"]["size"] += 1
        case "base64":
            line["data"] = line["data"][:-1] + "?"
        case "unnamed":
            line["file"]["sha256"] = "0" * 64
        case "form":
            line["file"] = [line["file"]]
        case "number":
            line["file"]["size"] = [1]
        case "twice":
            return [*lines[: place + 1], *lines[place:]]
        case "row":
            return [*lines[: place + 1], *lines[place - 1 :]]
        case "count":
            return [*lines[:place], *lines[place + 1 :]]
        case "cut":
            return lines[:-2]
        case "more":
            return [*lines, lines[place]]
    return [*lines[:place], json.dumps(line), *lines[place + 1 :]]


SAYS = {
    "hash": "'photo.png' with the hash {hash} has other bytes",
    "size": "'photo.png' with the hash {hash} has other bytes",
    "base64": "'photo.png' with the hash {hash} are not base64",
    "unnamed": "no message or result names the file with the hash '000",
    "form": "is not a file of an export",
    "number": "is not a file of an export",
    "twice": "the file with the hash {hash} twice",
    "row": "is not a file of an export",
    "count": "says that it has 3 files, and 2 are here",
    "cut": "is incomplete",
    "more": "there is more after the end",
}


@pytest.mark.parametrize("how", SAYS)
async def test_a_damaged_file_is_refused_and_the_session_does_not_exist(
    tmp_path: Path, helix: CommandLine, exported: list[str], how: str
) -> None:
    (tmp_path / "bad.jsonl").write_text("\n".join(damaged(exported, how)))

    def act() -> None:
        refusal = helix("import", "bad.jsonl", "--db", "b.db").refusal
        assert SAYS[how].format(hash=hashlib.sha256(PHOTO).hexdigest()) in refusal
        assert how in ("count", "cut") or "line " in refusal
        assert helix("show", S, "--db", "b.db").code == 2
        assert helix("import", "a.jsonl", "--db", "b.db").code == 0, "the id is free at once"

    await asyncio.to_thread(act)
    assert await goes_on(tmp_path / "b.db") == [PHOTO, DOOR, PHOTO]


async def test_a_changed_character_of_a_file_is_refused_or_changes_nothing(exported: list[str]) -> None:
    chance, place = random.Random(1), len(exported) - 4
    before = [(file.part, file.data) for file in read_export(exported).files or ()]
    for _ in range(100):
        text = exported[place]
        at = chance.randrange(len(text))
        changed = text[:at] + chance.choice('"{}[]:,\\0A=z \x00é') + text[at + 1 :]
        try:
            after = [
                (file.part, file.data)
                for file in read_export([*exported[:place], changed, *exported[place + 1 :]]).files or ()
            ]
        except InvalidInputError as error:
            assert "line" in str(error) or "files" in str(error), (changed, error)
        else:
            assert after == before, changed


async def test_a_store_without_a_place_for_files_takes_none(helix: CommandLine, exported: list[str]) -> None:
    done = await asyncio.to_thread(helix, "import", "a.jsonl", "--db", "redis://127.0.0.1:1/0")
    assert "has no place for them: import it with --no-files" in done.refusal


async def test_a_file_over_a_limit_is_refused(exported: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helix.core.file_checks.MAX_PAGES", 1)
    with pytest.raises(InvalidInputError, match=r"line \d+: file 'scan.pdf' has 2 pages"):
        list(read_export(exported).files or ())


async def test_files_in_the_format_without_files_are_refused(exported: list[str]) -> None:
    lines = [exported[0].replace('"helix_export": 2', '"helix_export": 1'), *exported[1:]]
    with pytest.raises(InvalidInputError, match="is not a row of an export"):
        read_export(lines)


# --- in Python --------------------------------------------------------------------------------------------------------


def place(store: StateStore, blobs: MemoryBlobs, clock: Clock | None = None) -> SessionFiles:
    return SessionFiles(store, blobs, clock or SystemClock(), SystemIds())


async def test_a_program_exports_and_imports_with_files(exported: list[str]) -> None:
    async with LocalExecutor(":memory:", model=Looks({"boss": ["Yes."]})) as executor:
        engine, read = executor.engine, read_export(exported)
        with pytest.raises(InvalidFileError, match="give `files`, or read the export with with_files=False"):
            await import_session(executor.store, read, engine.clock, engine.ids)
        await import_session(executor.store, read, engine.clock, engine.ids, files=engine.files)
        with pytest.raises(InvalidInputError, match="were read already"):
            await import_session(MemoryStateStore(), read, engine.clock, engine.ids, files=engine.files)

        async def bytes_of(file: NamedFile) -> bytes:
            return await executor.read_file(file.session_ids[0], file.part)

        text = "".join([piece async for piece in Export(read.header, read.rows).text(bytes_of)])
    assert [*text.splitlines()][-4:-1] == exported[-4:-1]


# --- several exports in one file ----------------------------------------------------------------------------------------


async def test_a_file_with_several_exports_is_imported_session_by_session(
    tmp_path: Path, helix: CommandLine, exported: list[str]
) -> None:
    async with LocalExecutor(tmp_path / "c.db", model=ScriptedModel(["Hello."])) as executor:
        await (await executor.execute(agent("boss"), "Hello", session_id="other")).result()

    def act() -> None:
        assert helix("export", "other", "--to", "c.jsonl", "--db", "c.db").code == 0
        both = [*exported, *(tmp_path / "c.jsonl").read_text().splitlines()]
        (tmp_path / "both.jsonl").write_text("\n".join(both))
        assert helix("import", "both.jsonl", "--db", "b.db").out == f"{S}\nother\n"
        assert helix("import", "a.jsonl", "--db", "d.db").code == 0
        again = helix("import", "both.jsonl", "--db", "d.db")
        assert (again.code, again.out) == (2, "other\n"), "a session that exists does not keep the others out"
        assert f"session {S!r} exists here" in again.err and "1 of 2 sessions are not imported" in again.err
        assert helix("import", "both.jsonl", "--no-files", "--db", "e.db").out == f"{S}\nother\n"
        (tmp_path / "cut.jsonl").write_text("\n".join(both[:-1]))
        cut = helix("import", "cut.jsonl", "--db", "f.db")
        assert (cut.code, cut.out) == (2, f"{S}\n") and "the export is incomplete" in cut.err
        with pytest.raises(InvalidInputError, match="there is more after the end of the export"):
            list(read_export(both).files or ())

    await asyncio.to_thread(act)
    assert await goes_on(tmp_path / "b.db") == [PHOTO, DOOR, PHOTO]
