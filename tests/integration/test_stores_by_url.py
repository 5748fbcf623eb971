"""Stores by path or URL: those of Helix, and those that another distribution adds with an entry point."""

from __future__ import annotations

import json
import random
import re
import string
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.aws_resources import BUCKET, fresh, make_tables, moto, tables
from tests.support.command_line import CommandLine

from helix import Agent, LLMConfig, LocalExecutor, MemoryStateStore, ScriptedModel, SQLiteStateStore
from helix.core.errors import DefinitionError, InvalidInputError
from helix.ports.state_store import Key, Put
from helix.runtime.stores import _OPENERS, open_store, store_exists

FAKE = """
from pathlib import Path

from helix import SQLiteStateStore


def open_fake(url):
    return SQLiteStateStore(Path(__file__).parent / (url.removeprefix("fake://") + ".rows"))
"""
TALKER = Agent(name="talker", system_prompt="Talk.", llm_config=LLMConfig(model="scripted"))
ROW = Key("sessions", "s", "row")


def distribution(folder: Path, name: str, **entry_points: str) -> None:
    """An installed distribution with the module `fake_store`."""
    (folder / "fake_store.py").write_text(FAKE)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"{scheme} = {value}" for scheme, value in entry_points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[helix.stores]", *lines, ""]))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    yield folder
    sys.modules.pop("fake_store", None)


async def run(url: str) -> None:
    async with LocalExecutor(url, model=ScriptedModel(["Hi."])) as executor:
        result = await (await executor.execute(TALKER, "Hello.", session_id="a")).result(timeout_s=30)
        assert (result.status, result.text) == ("completed", "Hi.")


# --- other distributions --------------------------------------------------------------------------------------------------


async def test_an_entry_point_opens_a_store_for_an_executor(installed: Path) -> None:
    distribution(installed, "fake-stores", fake="fake_store:open_fake")
    await run("fake://x")
    assert (installed / "x.rows").is_file() and store_exists("fake://x")


def test_an_entry_point_opens_a_store_for_the_command_line(installed: Path, tmp_path: Path) -> None:
    distribution(installed, "fake-stores", fake="fake_store:open_fake")
    helix = CommandLine(tmp_path)
    assert helix("run", "agents.py:talker", "hello", "--session", "b", "--db", "fake://x").code == 0
    (listed,) = [json.loads(line) for line in helix("sessions", "--json", "--db", "fake://x").out.splitlines()]
    assert (listed["session_id"], listed["status"]) == ("b", "completed")
    assert "'b'" not in helix("sessions", "--db", "fake://y").out


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "sqlite:///own.db"])
def test_an_entry_point_does_not_replace_a_store_of_helix(installed: Path, url: str) -> None:
    distribution(installed, "fake-stores", redis="fake_store:nothing", sqlite="fake_store:nothing")
    open_store(url)


def test_an_entry_point_that_cannot_be_imported(installed: Path) -> None:
    distribution(installed, "fake-stores", fake="fake_store:missing", other="no_such_module:open_other")
    for url, value in (("fake://x", "fake_store:missing"), ("other://x", "no_such_module:open_other")):
        with pytest.raises(DefinitionError, match=f"'{value}' of the package 'fake-stores' cannot be imported"):
            open_store(url)


def test_two_distributions_with_one_scheme(installed: Path) -> None:
    distribution(installed, "fake-stores", fake="fake_store:open_fake")
    distribution(installed, "more-stores", fake="fake_store:open_fake")
    with pytest.raises(DefinitionError, match="is defined by 'fake-stores' and 'more-stores'"):
        open_store("fake://x")


# --- unknown URLs ---------------------------------------------------------------------------------------------------------


def test_an_unknown_scheme_is_refused_with_the_known_ones(installed: Path) -> None:
    distribution(installed, "fake-stores", fake="fake_store:open_fake")
    with pytest.raises(InvalidInputError) as refused:
        LocalExecutor("mysql://ada:secret@db/helix")
    message = str(refused.value)
    assert "'mysql://'" in message and "secret" not in message
    assert "dynamodb://, fake://, redis://, rediss://, sqlite://, unix://" in message
    assert "entry point of the group 'helix.stores'" in message


def test_the_command_line_refuses_an_unknown_scheme(tmp_path: Path) -> None:
    helix = CommandLine(tmp_path)
    for words in (["sessions"], ["show", "a"], ["run", "agents.py:talker", "hello"]):
        assert "'mysql://'" in helix(*words, "--db", "mysql://db/helix").refusal
    assert {path.name for path in tmp_path.iterdir()} <= {"agents.py", "__pycache__"}, "no file has the name of the URL"


# --- stores of Helix ------------------------------------------------------------------------------------------------------


def test_paths(tmp_path: Path) -> None:
    mine = MemoryStateStore()
    assert open_store(mine) is mine
    assert isinstance(open_store(":memory:"), MemoryStateStore) and not store_exists(":memory:")
    for place in (tmp_path / "a.db", str(tmp_path / "b:c.db"), f"sqlite:///{tmp_path}/d.db"):
        assert isinstance(open_store(place), SQLiteStateStore) and not store_exists(str(place))
    (tmp_path / "a.db").touch()
    assert store_exists(str(tmp_path / "a.db")) and store_exists(f"sqlite:///{tmp_path}/a.db")
    with pytest.raises(InvalidInputError, match="sqlite:///FILE"):
        open_store("sqlite://a.db")


async def test_dynamodb() -> None:
    with moto() as aws:
        prefix = fresh()
        make_tables(aws["dynamodb"], prefix)
        named = "&".join(f"{table}={name}" for table, name in tables(prefix).items())
        url = f"dynamodb://?{named}&region=us-east-1&bucket={BUCKET}"
        assert store_exists(url)
        store, again = open_store(url), open_store(url)
        value = {"text": "".join(random.choices(string.ascii_letters, k=800_000))}  # too large, even compressed
        await store.transact("put", [Put(ROW, value)])
        assert await again.get([ROW]) == [value]
        assert aws["s3"].list_objects_v2(Bucket=BUCKET)["KeyCount"] == 1
        await store.close()
        await again.close()


@pytest.mark.parametrize(
    "url",
    [
        "dynamodb://",
        "dynamodb://?sessions=a&streams=b",
        "dynamodb://?sessions=a&streams=b&control=",
        "dynamodb://?sessions=a&streams=b&control=c&colour=red",
        "dynamodb://?sessions=a&streams=b&control=c&control=d",
        "dynamodb://host/?sessions=a&streams=b&control=c",
    ],
)
def test_a_url_that_does_not_name_tables(url: str) -> None:
    with pytest.raises(InvalidInputError, match="does not name a DynamoDB store"):
        open_store(url)


def test_dynamodb_without_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(InvalidInputError, match="You must specify a region"):
        open_store("dynamodb://?sessions=a&streams=b&control=c")


def test_the_guide_has_every_scheme() -> None:
    guide = Path(__file__).parents[2] / "docs/guide/durability.md"
    table = guide.read_text("utf-8").partition("## Stores by URL\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(\w+)://", table.partition("```")[0])) == set(_OPENERS)
