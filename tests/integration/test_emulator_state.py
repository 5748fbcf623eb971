"""The state that the emulator keeps on disk: after SIGKILL, with damaged files, its permissions, and the end of its
process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import boto3
import pytest
from tests.support.emulator_desk import ACCOUNT, PATIENCE_S, REGION, Desk, started, until

from helix.local.process import Emulator, OfflineError
from helix.local.project import Assembly, Asset, StackArtifact
from helix.local.stacks import Account, deploy

pytestmark = pytest.mark.xdist_group("cloud")


def make_table(desk: Desk) -> None:
    desk.client("dynamodb").create_table(
        TableName="rows",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
    )


def put(desk: Desk, name: str, size: int = 1) -> None:
    desk.client("dynamodb").put_item(TableName="rows", Item={"pk": {"S": name}, "text": {"S": "x" * size}})


def names(desk: Desk) -> set[str]:
    pages = desk.client("dynamodb").get_paginator("scan").paginate(TableName="rows", ProjectionExpression="pk")
    return {item["pk"]["S"] for page in pages for item in page["Items"]}


@pytest.mark.slow
def test_sigkill_loses_only_what_was_not_saved_yet(tmp_path: Path) -> None:
    saved = tmp_path / "state" / "state.json"
    with started(tmp_path) as desk:
        make_table(desk)
        function = desk.function()
        put(desk, "the first row")
        until(lambda: saved.exists() and "the first row" in saved.read_text())
        desk.emulator.kill()
    with started(tmp_path) as desk:
        assert names(desk) == {"the first row"}
        assert desk.invoke(function)[1] is None, "its code is stored too"
        put(desk, "the second row")
        assert desk.emulator.ask("save") is True
        desk.emulator.kill()
    with started(tmp_path) as desk:
        assert names(desk) == {"the first row", "the second row"}


@pytest.mark.slow
def test_sigkill_during_a_save_leaves_the_save_before(tmp_path: Path) -> None:
    """The file being written is a pipe here, which is full before the save is done."""
    unfinished = tmp_path / "state" / "state.new"
    with started(tmp_path) as desk:
        make_table(desk)
        put(desk, "saved", size=300_000)
        assert desk.emulator.ask("save") is True
        os.mkfifo(unfinished)
        put(desk, "not saved")
        with unfinished.open("rb") as pipe:
            assert len(pipe.read(1_000)) == 1_000
            desk.emulator.kill()
    unfinished.unlink()
    with started(tmp_path) as desk:
        assert names(desk) == {"saved"}
        put(desk, "after")
    with started(tmp_path) as desk:
        assert names(desk) == {"saved", "after"}


def test_a_damaged_state_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "state.json").write_text('{"dynamodb": ')
    emulator = Emulator(tmp_path, environment=os.environ)
    with pytest.raises(OfflineError, match="JSONDecodeError"):
        emulator.start()
    assert (tmp_path / "state" / "state.json").read_text() == '{"dynamodb": '


def test_state_of_earlier_versions_is_read(tmp_path: Path) -> None:
    with started(tmp_path) as desk:
        make_table(desk)
        put(desk, "an old row")
    whole = tmp_path / "state" / "state.json"
    for name, state in json.loads(whole.read_text()).items():
        whole.with_name(f"{name}.json").write_text(json.dumps(state))
    whole.unlink()
    with started(tmp_path) as desk:
        assert names(desk) == {"an old row"}


def test_its_files_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir(mode=0o755)
    (folder / "of an earlier version").touch(mode=0o644)
    with started(folder) as desk:
        desk.client("s3").create_bucket(Bucket="objects")
        desk.client("s3").put_object(Bucket="objects", Key="one", Body=b"1")
        assert desk.invoke(desk.function())[1] is None
        desk.emulator.ask("save")
        found = [folder, *folder.rglob("*")]
        assert {path.name for path in found} >= {"state.json", "one", "handler.py", "emulator.log", "lock"}
        assert [path for path in found if path.stat().st_mode & 0o077] == []


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    emulator = Emulator(tmp_path, environment=os.environ)
    emulator.start()
    process = emulator._process
    assert process is not None and process.stdin is not None
    ended = threading.Thread(target=process.wait)
    ended.start()
    process.stdin.close()
    ended.join(PATIENCE_S)
    assert process.poll() == 0
    emulator.close()


def test_outputs_say_where_the_emulator_is_now(tmp_path: Path) -> None:
    template = tmp_path / "stack.template.json"
    template.write_text(
        json.dumps(
            {
                "Parameters": {"Endpoint": {"Type": "String", "Default": "http://127.0.0.1:4566"}},
                "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
                "Outputs": {"Url": {"Value": {"Fn::Sub": "${Endpoint}/here"}}},
            }
        )
    )
    asset = Asset(template, "assets", "stack", zipped=False)
    assembly = Assembly((StackArtifact("ported", "ported", None, template, {}, {}),), (asset,))
    for _ in range(2):
        with started(tmp_path / "state") as desk:
            session = boto3.Session(**desk.emulator.credentials.options)
            outputs = deploy(Account(session, desk.emulator.url, ACCOUNT, REGION), assembly)
            assert outputs == {"ported": {"Url": f"{desk.emulator.url}/here"}}


LATE = """
import asyncio, sys
from pathlib import Path

from ministack.services import ssm
from helix.local.state_file import StateFile

folder = Path(sys.argv[1])

async def request(scope, receive, send):
    ssm._service_settings["in time"] = "1"

async def saved(what):
    while not (folder / "state.json").exists() or what not in (folder / "state.json").read_text():
        await asyncio.sleep(0.005)

async def main():
    state = StateFile(folder, print, 0.2)
    saving = asyncio.create_task(state.save_periodically())
    await state.watching(request)({}, None, None)
    async with asyncio.timeout(20):
        await saved("in time")
    ssm._service_settings["late"] = "1"
    async with asyncio.timeout(20):
        await saved("late")
    state._closed = True
    await saving

asyncio.run(main())
"""


def test_what_a_request_sets_off_is_saved_although_it_ends_after_a_save(tmp_path: Path) -> None:
    """Two saves follow the last request."""
    subprocess.run([sys.executable, "-c", LATE, str(tmp_path)], check=True, timeout=PATIENCE_S)
