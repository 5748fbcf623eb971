"""Only the owner may read files in `.helix`, whatever the umask is and whichever command writes first."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.command_line import CommandLine

from helix._private_files import make_folder, new_file
from helix.adapters.sqlite import SQLiteStateStore
from helix.cli.cloud.dev import CloudOptions, make_cloud
from helix.cli.output import RefusedError
from helix.local.process import Emulator, OfflineError
from helix.ports.state_store import Key


@pytest.fixture(autouse=True)
def generous() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_folder_is_private(tmp_path: Path) -> None:
    make_folder(tmp_path / "project" / ".helix" / "logs")
    assert [mode(tmp_path / "project" / name) for name in (".helix", ".helix/logs")] == [0o700, 0o700]
    make_folder(tmp_path / "elsewhere")
    assert mode(tmp_path / "elsewhere") == 0o777, "other files follow the user's umask"


def test_an_open_folder_is_repaired_and_its_links_are_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("")
    stored = tmp_path / ".helix"
    (stored / "state").mkdir(parents=True)
    (stored / "api-key").write_text("helix_x")
    (stored / "link").symlink_to(other)
    (stored / "gone").symlink_to(tmp_path / "nowhere")
    make_folder(stored / "state")
    assert [mode(stored / name) for name in (".", "state", "api-key")] == [0o700, 0o700, 0o600]
    assert (mode(other), mode(other / "file")) == (0o777, 0o666)


@pytest.mark.parametrize(("folder", "wanted"), [(".helix", 0o700), ("data", 0o777)])
async def test_a_database_is_private(tmp_path: Path, folder: str, wanted: int) -> None:
    file = tmp_path / folder / "sessions.db"
    store = SQLiteStateStore(file)
    assert await store.get([Key("sessions", "nobody", "session")]) == [None]
    try:
        assert mode(file.parent) == wanted
        assert {path.name: mode(path) for path in file.parent.iterdir()} == dict.fromkeys(
            (file.name, f"{file.name}-wal", f"{file.name}-shm"), 0o600
        )
    finally:
        await store.close()


async def test_a_database_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "shared.db"
    await SQLiteStateStore(file).close()
    file.touch()
    file.chmod(0o660)
    store = SQLiteStateStore(file)
    await store.get([Key("sessions", "nobody", "session")])
    assert {mode(path) for path in tmp_path.iterdir()} == {0o660}
    await store.close()


def test_exports_and_pages_are_private(tmp_path: Path) -> None:
    helix = CommandLine(tmp_path)
    assert helix("run", "agents.py:talker", "hello", "--session", "s", "--db", "s.db").code == 0
    (tmp_path / "s.jsonl.part").write_text("left by a command that was killed")
    assert helix("export", "s", "--to", "s.jsonl", "--db", "s.db").code == 0
    assert helix("show", "s", "--html", "s.html", "--db", "s.db").code == 0
    assert helix("import", "s.jsonl", "--db", "t.db").code == 0
    made = [path for path in tmp_path.iterdir() if path.suffix in (".db", ".jsonl", ".html")]
    assert len(made) == 4 and {mode(path) for path in made} == {0o600}


def test_a_new_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(RefusedError), new_file(tmp_path / "x") as file:
        file.write("the beginning")
        file.flush()
        assert [path.name for path in tmp_path.iterdir()] == ["x.part"]
        raise RefusedError("stop")
    assert list(tmp_path.iterdir()) == []
    with new_file(tmp_path / "x") as file:
        file.write("all")
    assert [(path.name, path.read_text(), mode(path)) for path in tmp_path.iterdir()] == [("x", "all", 0o600)]


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    """A project of another user may contain a link that makes Helix change the permissions of the user's folder."""
    (tmp_path / "precious").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / ".helix").symlink_to(tmp_path / "precious")
    with pytest.raises(RefusedError, match="is a symbolic link"):
        make_cloud(CloudOptions(str(tmp_path / "project")), tmp_path / "project", {})
    assert mode(tmp_path / "precious") == 0o777 and list((tmp_path / "precious").iterdir()) == []


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator = Emulator(tmp_path / "state", environment=os.environ)
    (tmp_path / "state").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    with pytest.raises(OfflineError, match="belongs to another user"):
        emulator.start()
    assert not emulator.alive and list((tmp_path / "state").iterdir()) == []
