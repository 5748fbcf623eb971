"""Files through the gateway and the Python client: uploaded, named by messages, and downloaded."""

from __future__ import annotations

import asyncio
import hashlib
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_files import Looks
from tests.support.sample_files import pdf, png
from tests.support_gateway import BRISK, executor_of, key_for, keyed, served

from helix import Document, Image
from helix.adapters.memory_blobs import MemoryBlobs
from helix.client import HelixClient
from helix.core.errors import (
    FileMissingError,
    InvalidFileError,
    InvalidInputError,
    ProtocolError,
    SessionNotFoundError,
)
from helix.core.files import FilePart
from helix.core.json import JsonObject, JsonValue
from helix.services.blob_rows import UPLOADED_S
from helix.testing.clocks import ShiftedClock

pytestmark = pytest.mark.timeout(60)


def about(data: bytes, **more: Any) -> JsonObject:
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), **more}


async def files_of(client: HelixClient, session_id: str) -> list[FilePart]:
    page: Any = await client.get_messages(session_id)
    return [FilePart.model_validate(file) for message in page["messages"] for file in message.get("files", [])]


async def test_a_message_with_files_reaches_the_model_and_comes_back(tmp_path: Path) -> None:
    photo = tmp_path / "dog.png"
    photo.write_bytes(png(20, 10))
    model = Looks()
    executor = executor_of(model)
    token = await key_for(executor, "ada")
    async with served(executor, authoriser=keyed(executor), token=token) as (_, client):
        handle = await client.run(
            "helper", ["What is", Image(photo), "and", Document(pdf(3), name="häuser.pdf"), photo]
        )
        assert (await handle.result(5)).status == "completed"
        assert model.seen[-1] == [("image/png", png(20, 10)), ("application/pdf", pdf(3)), ("image/png", png(20, 10))]
        files = await files_of(client, handle.session_id)
        assert [(f.name, f.kind, f.after_text) for f in files] == [
            ("dog.png", "image", 7),
            ("häuser.pdf", "document", 11),
            ("dog.png", "image", 11),
        ]
        assert await client.read_file(handle.session_id, files[1]) == pdf(3)
        again = await handle.retry(message=[files[0]]) if (await handle.can_resume()).can_resume else None
        assert again is None, "a completed run is not retried"
        await (await client.run("helper", [files[0]], session_id=handle.session_id)).result(5)
        assert len(model.seen[-1]) == 4 and (await files_of(client, handle.session_id))[-1].width == 20


async def test_without_a_user_files_belong_to_the_session_that_the_client_named() -> None:
    model = Looks()
    async with served(executor_of(model)) as (_, client):
        handle = await client.run("helper", {"message": ["See", png(4, 4)], "state": {}})
        await handle.result(5)
        assert handle.session_id.startswith("ses_") and model.seen[-1] == [("image/png", png(4, 4))]
        with pytest.raises(InvalidInputError, match="session_id is missing"):
            await client.ask("upload", about(png(4, 4)))
        (part,) = await files_of(client, handle.session_id)
        with pytest.raises(FileMissingError):  # another session did not upload it
            await client.run("helper", [part], session_id="other")


async def test_without_a_user_a_repeat_with_the_key_finds_the_run() -> None:
    """The second client stands for another process, so only the key can connect the two requests."""
    model = Looks()
    async with served(executor_of(model)) as (server, client), HelixClient(server.url, settings=BRISK) as other:
        first = await client.run("helper", ["See", png(4, 4)], key="order-17")
        again = await other.run("helper", ["See", png(4, 4)], key="order-17")
        await first.result(5)
        later = await client.run("helper", ["See", png(4, 4)], key="order-17")
        assert {(h.session_id, h.run_id) for h in (first, again, later)} == {(first.session_id, first.run_id)}
        assert first.session_id == f"ses_{hashlib.sha256(b'order-17').hexdigest()[:32]}" and len(model.seen) == 1
        another = await client.run("helper", ["See", png(4, 4)], key="order-18")
        assert another.session_id != first.session_id
        unkeyed = [await client.run("helper", ["See", png(4, 4)]) for _ in range(2)]
        assert unkeyed[0].session_id != unkeyed[1].session_id


async def test_a_message_as_a_mapping_has_files_and_no_unknown_keys() -> None:
    model = Looks()
    executor = executor_of(model)
    token = await key_for(executor, "ada")
    async with served(executor, authoriser=keyed(executor), token=token) as (_, client):
        first = await client.run("helper", [png(4, 4)])
        await first.result(5)
        (part,) = await files_of(client, first.session_id)
        for given in (part, part.model_dump(mode="json")):
            handle = await client.run("helper", {"message": "hi", "files": [given], "state": {}})
            await handle.result(5)
            assert [file.sha256 for file in await files_of(client, handle.session_id)] == [part.sha256]
            assert model.seen[-1] == [("image/png", png(4, 4))]
        with pytest.raises(InvalidInputError, match="not 'metadata', 'tone'"):
            await client.run("helper", {"message": "hi", "metadata": {}, "tone": 1})
        for broken in ([{"kind": "image"}], "a.png", [png(4, 4)]):
            with pytest.raises(InvalidInputError, match="files"):
                await client.run("helper", {"message": "hi", "files": broken})
        with pytest.raises(InvalidInputError, match="message"):
            await client.run("helper", {"message": ["hi", png(4, 4)], "files": [part]})


async def test_an_agent_that_is_not_a_function_refuses_other_input() -> None:
    model = Looks()
    async with served(executor_of(model)) as (_, client):
        ask: JsonObject = {"agent": "helper", "key": "k"}
        with pytest.raises(InvalidInputError, match="'helper' has only the key 'message', not 'files', 'state'"):
            await client.ask("run", {**ask, "input": {"message": "hi", "files": [], "state": {}}})
        with pytest.raises(InvalidInputError, match="not 'topic'"):
            await client.run("helper", {"topic": "dogs"})
        started: Any = await client.ask("run", {**ask, "input": {"message": "hi"}})
        await (await client.handle(started["session_id"])).result(5)
        assert len(model.seen) == 1


async def test_a_branch_without_a_user_names_the_files_of_its_history() -> None:
    model = Looks()
    async with served(executor_of(model)) as (_, client):
        first = await client.run("helper", ["See", png(4, 4)])
        await first.result(5)
        (part,) = await files_of(client, first.session_id)
        branch = await client.branch(first.session_id)
        copy = await client.clone(branch)
        for session_id in (branch, copy):
            for again in (part, png(4, 4)):
                await (await client.run("helper", ["Again", again], session_id=session_id)).result(5)
            assert model.seen[-1] == [("image/png", png(4, 4))] * 3
            assert await client.read_file(session_id, part) == png(4, 4)


async def test_a_checkpoint_is_resumed_with_files() -> None:
    model = Looks()
    async with served(executor_of(model)) as (_, client):
        handle = await client.run("helper", "hi")
        await handle.result(5)
        listed: Any = await client.list_checkpoints(handle.session_id)
        resumed = await client.resume(
            handle.session_id, message=[png(4, 4)], checkpoint_id=listed["checkpoints"][0]["id"]
        )
        assert (await resumed.result(5)).status == "completed" and model.seen[-1] == [("image/png", png(4, 4))]


async def test_bytes_that_the_user_has_are_not_sent_again() -> None:
    executor = executor_of(Looks())
    ada, bob = await key_for(executor, "ada"), await key_for(executor, "bob")
    async with served(executor, authoriser=keyed(executor), token=ada) as (server, client):
        first = await client.run("helper", [png(4, 4)])
        await first.result(5)
        assert (await client.ask("upload", about(png(4, 4))))["stored"] is True
        async with HelixClient(server.url, bob, settings=BRISK) as stranger:
            begun = await stranger.ask("upload", about(png(4, 4)))
            assert begun["stored"] is False, "another user does not learn that the bytes exist"
            (part,) = await files_of(client, first.session_id)
            with pytest.raises(FileMissingError):
                await stranger.run("helper", [part])
            for session in (first.session_id, "bob:new"):
                with pytest.raises(SessionNotFoundError):
                    await stranger.ask("get_file", {"session_id": session, "sha256": part.sha256})
            with pytest.raises(SessionNotFoundError):
                await stranger.ask("upload", about(png(4, 4), session_id=first.session_id))


async def test_a_session_gives_only_the_files_that_it_holds() -> None:
    async with served(executor_of(Looks())) as (_, client):
        handle = await client.run("helper", [png(4, 4)])
        await handle.result(5)
        (part,) = await files_of(client, handle.session_id)
        with pytest.raises(FileMissingError, match=r"'a\.png' was not found: the session does not hold it"):
            fields: JsonObject = {"session_id": handle.session_id, "sha256": "0" * 64, "name": "a.png"}
            await client.ask("get_file", fields)
        with pytest.raises(FileMissingError, match="does not hold it"):
            await client.read_file(handle.session_id, part.model_copy(update={"sha256": "0" * 64}))
        found = await client.ask("get_file", {"session_id": handle.session_id, "sha256": part.sha256})
        assert await fetch(str(found["url"])) == png(4, 4)


async def test_a_download_of_deleted_bytes_does_not_ask_for_an_upload() -> None:
    blobs = MemoryBlobs()
    async with served(executor_of(Looks(), blobs=blobs)) as (_, client):
        handle = await client.run("helper", [png(4, 4)])
        await handle.result(5)
        (part,) = await files_of(client, handle.session_id)
        for key in await blobs.list("blobs/"):
            await blobs.delete(key)
        with pytest.raises(FileMissingError, match="its bytes were deleted"):
            await client.read_file(handle.session_id, part)


async def test_a_missing_file_has_its_own_error_in_the_client() -> None:
    """Bytes that were deleted are no failure of the transfer, which the caller may repeat."""
    executor = executor_of(Looks(), blobs=(blobs := MemoryBlobs()))
    async with served(executor) as (_, client):
        handle = await client.run("helper", [png(4, 4)])
        await handle.result(5)
        page: Any = await client.get_messages(handle.session_id)
        file = FilePart.model_validate(page["messages"][0]["files"][0])
        for key in await blobs.list("blobs/"):
            await blobs.delete(key)
        with pytest.raises(FileMissingError):
            await client.read_file(handle.session_id, file)


async def test_an_upload_that_never_came_is_refused_and_expires() -> None:
    clock = ShiftedClock()
    executor = executor_of(Looks(), clock=clock)
    async with served(executor) as (_, client):
        data = png(4, 4)
        begun: Any = await client.ask("upload", about(data, session_id="s", name="a.png"))
        with pytest.raises(FileMissingError, match=r"a\.png"):
            await client.ask("finish_upload", {"sha256": about(data)["sha256"], "session_id": "s", "name": "a.png"})
        clock.ahead_s += 901
        with pytest.raises(urllib.error.HTTPError, match="403"):
            await send(begun["upload"], data)
        clock.ahead_s += UPLOADED_S
        await executor.expire()
        assert await rows_of_blobs(executor) == []


async def test_only_the_announced_bytes_are_taken() -> None:
    async with served(executor_of(Looks())) as (_, client):
        data = png(4, 4)
        begun: Any = await client.ask("upload", about(data, session_id="s"))
        for other in (data + b"x", data[:-1] + b"x", b""):
            with pytest.raises(urllib.error.HTTPError, match="400"):
                await send(begun["upload"], other)
        with pytest.raises(urllib.error.HTTPError, match="405"):
            await fetch(begun["upload"]["url"])
        await send(begun["upload"], data)
        await send(begun["upload"], data)  # a client may send them twice
        found: Any = await client.ask("finish_upload", {"sha256": about(data)["sha256"], "session_id": "s"})
        assert found["file"]["media_type"] == "image/png" and found["file"]["width"] == 4


async def test_the_type_comes_from_the_bytes() -> None:
    """A page that is announced as a picture is what its bytes are."""
    async with served(executor_of(Looks())) as (_, client):
        page = b"<!DOCTYPE html><script>alert(1)</script>"
        begun: Any = await client.ask("upload", about(page, session_id="s", media_type="image/png", name="../a.png"))
        await send(begun["upload"], page)
        found: Any = await client.ask(
            "finish_upload", {"sha256": about(page)["sha256"], "session_id": "s", "name": "../a.png"}
        )
        assert found["file"]["kind"] != "image" and found["file"]["name"] == "a.png"


async def test_what_is_too_large_is_refused_before_it_is_sent() -> None:
    async with served(executor_of(Looks())) as (_, client):
        with pytest.raises(InvalidFileError, match="at most"):
            await client.ask("upload", {"sha256": "0" * 64, "size": 10**9, "session_id": "s"})
        with pytest.raises(InvalidFileError, match="empty"):
            await client.ask("upload", {"sha256": "0" * 64, "size": 0, "session_id": "s"})
        with pytest.raises(ProtocolError, match="files"):
            part = FilePart(kind="image", media_type="image/png", url="https://example.com/a.png").model_dump()
            many: JsonValue = [part] * 51
            await client.ask("run", {"agent": "helper", "message": "x", "files": many, "key": "k"})


async def test_an_edit_with_the_same_text_and_another_file_is_another_message() -> None:
    model = Looks()
    async with served(executor_of(model)) as (_, client):
        first = await client.run("helper", [png(4, 4)])
        await first.result(5)
        parts: JsonValue = [part.model_dump(mode="json") for part in await files_of(client, first.session_id)]
        given: JsonObject = {"agent": "helper", "message": "Look", "message_id": "m", "session_id": first.session_id}
        one: Any = await client.ask("run", {**given, "key": "1"})
        await (await client.handle(first.session_id, one["run_id"])).result(5)
        two: Any = await client.ask("run", {**given, "key": "2", "edits": True, "files": parts})
        assert two["run_id"] != one["run_id"]
        await (await client.handle(first.session_id, two["run_id"])).result(5)
        three: Any = await client.ask("run", {**given, "key": "3", "edits": True, "files": parts})
        assert three["run_id"] == two["run_id"]


async def send(target: JsonObject, data: bytes) -> None:
    headers: Any = target["headers"]
    await fetch(str(target["url"]), data=data, headers=dict(headers), method=str(target["method"]))


async def fetch(url: str, **request: Any) -> bytes:
    def read() -> bytes:
        with urllib.request.urlopen(urllib.request.Request(url, **request), timeout=5) as answer:
            return bytes(answer.read())

    return await asyncio.to_thread(read)


async def rows_of_blobs(executor: Any) -> list[Any]:
    found = []
    for number in range(8):
        found += await executor.store.query("control", f"blobs-due#{number}")
    return found
