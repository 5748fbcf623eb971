"""The bytes of files are in the stage's bucket while a session holds them.

The functions have no more than their roles: `call_tool` stores the file, `call_model` reads it, and `sweep` deletes it.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.e2e.cloud_executor import AdminApplication
from tests.support.blob_ages import due_now
from tests.support.cloud_agents.plans import call, plan, see, use
from tests.support.cloud_agents.tools import portrait
from tests.support.command_line import CommandLine
from tests.support.offline_cloud import CloudForTests, until

from helix import FilePart, Image
from helix.core.errors import FileMissingError
from helix.local.cloud import REGION
from helix.ports.state_store import Delete
from helix.services.activity import SWEEP
from helix.services.blob_rows import blob_owner, owner_prefix

PATIENCE_S = 60.0
USER = "painter"
PICTURE = portrait("a lighthouse")
HASH = sha256(PICTURE).hexdigest()
OWNER = blob_owner(USER, "")


def keys_of(cloud: CloudForTests, app: AdminApplication, owner: str = OWNER) -> list[str]:
    found = cloud.aws("s3").list_objects_v2(Bucket=app.settings.bucket, Prefix=owner_prefix(owner))
    return [one["Key"] for one in found.get("Contents", [])]


async def test_a_tools_picture_is_seen_stored_once_and_deleted(cloud: CloudForTests) -> None:
    app = AdminApplication(cloud)
    async with cloud.user(USER) as client:
        sessions = []
        for _ in range(2):
            handle = await client.run("talker", plan(use(call("draw", of="a lighthouse")), see()))
            result = await handle.result(PATIENCE_S)
            assert (result.status, result.text) == ("completed", f"I see image/png {HASH}")
            sessions.append(handle.session_id)
        (key,) = keys_of(cloud, app)
        stored = cloud.aws("s3").get_object(Bucket=app.settings.bucket, Key=key)
        assert (stored["ContentType"], stored["Body"].read()) == ("image/png", PICTURE)
        for session_id in sessions:
            assert await client.delete(session_id)
    await due_now(app.store, OWNER, HASH)
    await asyncio.to_thread(until, lambda: _swept(cloud, app), "the end of the file")


async def test_a_users_picture_goes_to_the_bucket_and_comes_back(cloud: CloudForTests) -> None:
    """The client sends the bytes with a presigned request, and reads them with another one."""
    picture = portrait("a harbour")
    async with cloud.user(USER) as client, cloud.user("stranger") as other:
        handle = await client.run("talker", [plan(see()), Image(picture, name="harbour.png")])
        result = await handle.result(PATIENCE_S)
        assert (result.status, result.text) == ("completed", f"I see image/png {sha256(picture).hexdigest()}")
        page: Any = await client.get_messages(handle.session_id)
        part = FilePart.model_validate(page["messages"][0]["files"][0])
        assert (part.name, part.media_type, part.size) == ("harbour.png", "image/png", len(picture))
        assert await client.read_file(handle.session_id, part) == picture
        copy = await client.branch(handle.session_id)
        assert await client.delete(handle.session_id)
        assert await client.read_file(copy, part) == picture, "the branch holds it"
        with pytest.raises(FileMissingError):
            await other.run("talker", [plan(see()), part])
        begun: Any = await client.ask("upload", {"sha256": "0" * 64, "size": 3})
        await asyncio.to_thread(refused, begun["upload"], b"abc")


async def test_a_stage_exports_files_and_imports_them(cloud: CloudForTests, tmp_path: Path) -> None:
    """The export reads the bytes with presigned requests, by the URL and as the operator. The import puts them in the
    bucket, for another user."""
    picture, session = portrait("an island"), "painter:exported"
    async with cloud.user(USER) as client:
        handle = await client.run("talker", [plan(see()), Image(picture, name="island.png")], session_id=session)
        assert (await handle.result(PATIENCE_S)).status == "completed"
        credentials = {**cloud.cloud.emulator.credentials.variables, "AWS_DEFAULT_REGION": REGION}
        helix = CommandLine(tmp_path, AWS_ENDPOINT_URL=cloud.cloud.emulator.url, **credentials)
        stage = ["--stage", cloud.cloud.stage]
        for name, place in (("url", ["--url", cloud.url, "--key", cloud.key(USER)]), ("stage", stage)):
            done = await asyncio.to_thread(helix, "export", session, "--to", f"{name}.jsonl", *place)
            assert done.code == 0 and "and 1 file of session" in done.err, done
        files = [(tmp_path / f"{name}.jsonl").read_text().splitlines()[-2] for name in ("url", "stage")]
        assert files[0] == files[1] and b64decode(json.loads(files[0])["data"]) == picture
        assert await client.delete(session)
    done = await asyncio.to_thread(helix, "import", "url.jsonl", "--user", "copyist", *stage)
    assert (done.code, done.out) == (0, f"{session}\n"), done
    async with cloud.user("copyist") as client:
        again = await client.run("talker", plan(see()), session_id=session)
        assert (await again.result(PATIENCE_S)).text == f"I see image/png {sha256(picture).hexdigest()}"
    app = AdminApplication(cloud)
    for key in keys_of(cloud, app, blob_owner("copyist", "")):
        cloud.aws("s3").delete_object(Bucket=app.settings.bucket, Key=key)
    done = await asyncio.to_thread(helix, "export", session, "--to", "lost.jsonl", *stage)
    assert done.code == 0 and "'island.png'" in done.err and "do not exist any more" in done.err, done


def refused(target: dict[str, Any], data: bytes) -> None:
    """S3 refuses bytes that do not have the announced hash."""
    answer = httpx.put(target["url"], content=data, headers=target["headers"], trust_env=False)
    assert answer.status_code in (400, 403), answer.text


def _swept(cloud: CloudForTests, app: AdminApplication) -> bool:
    """Let a sweep look through all files that are due, as the first one of an hour at rest does."""
    asyncio.run(app.store.transact("forget", [Delete(SWEEP)]))
    cloud.aws("lambda").invoke(FunctionName=cloud.cloud.function("sweep"), Qualifier="live", Payload=b"{}")
    return not keys_of(cloud, app)
