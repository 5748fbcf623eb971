"""The uploads of the Python client: which failures it retries, and what the first failure stops."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from typing import Any

import pytest

from helix.client import uploads
from helix.client.uploads import TRIES, TransferError, upload_files
from helix.core.errors import FileMissingError, HelixError, InvalidFileError
from helix.core.files import FilePart
from helix.core.json import JsonObject
from helix.services.file_inputs import ReadFile

pytestmark = pytest.mark.timeout(30)


def file(text: str) -> ReadFile:
    data, sha256 = text.encode(), hashlib.sha256(text.encode()).hexdigest()
    return ReadFile(FilePart(kind="file", media_type="text/plain", sha256=sha256, size=len(data), name=text), data)


class Service:
    """A service and its storage. `fails` has the errors of the storage, `refuses` those of requests, by name and action."""

    def __init__(self, monkeypatch: Any) -> None:
        self.fails: dict[str, list[HelixError]] = {}
        self.refuses: dict[tuple[str, str], list[HelixError]] = {}
        self.asked = Counter[str]()
        self.sent: list[str] = []
        monkeypatch.setattr(uploads, "_send", self._send)
        monkeypatch.setattr(uploads, "PAUSE_S", 0.01)

    async def ask(self, action: str, fields: JsonObject) -> JsonObject:
        await asyncio.sleep(0)
        name = str(fields["name"])
        self.asked[action] += 1
        if refusals := self.refuses.get((name, action)):
            raise refusals.pop(0)
        if action == "upload":
            return {"stored": False, "upload": {"url": name}}
        return {"file": file(name).part.model_dump(mode="json")}

    def _send(self, target: dict[str, Any], data: bytes, what: str) -> None:
        self.sent.append(target["url"])
        if errors := self.fails.get(target["url"]):
            raise errors.pop(0)


async def test_the_first_refused_file_stops_the_others(monkeypatch: Any) -> None:
    service = Service(monkeypatch)
    service.refuses["bad", "upload"] = [InvalidFileError("file 'bad' is too large")]
    with pytest.raises(InvalidFileError, match="'bad' is too large"):
        await upload_files(service.ask, [file("bad"), *(file(f"{n}") for n in range(12))], None)
    at_once = service.asked.total()
    await asyncio.sleep(0.1)
    assert at_once <= 5 and service.asked.total() == at_once


@pytest.mark.parametrize("status", [None, 400, 403, 408, 409, 429, 500, 503])
async def test_a_failure_that_may_pass_is_retried_with_a_growing_pause(monkeypatch: Any, status: int | None) -> None:
    service, loop = Service(monkeypatch), asyncio.get_running_loop()
    service.fails["a"] = [TransferError("it failed", status) for _ in range(TRIES - 1)]
    begin = loop.time()
    (part,) = await upload_files(service.ask, [file("a")], None)
    assert part == file("a").part and service.sent == ["a"] * TRIES
    assert loop.time() - begin >= 0.01 * (1 + 2 + 4)
    service.fails["a"] = [TransferError("it failed", status) for _ in range(TRIES)]
    with pytest.raises(TransferError):
        await upload_files(service.ask, [file("a")], None)
    assert service.sent == ["a"] * TRIES * 2 and service.asked["upload"] == TRIES * 2


@pytest.mark.parametrize("status", [401, 404, 405, 411, 413])
async def test_a_refusal_of_the_storage_that_will_not_pass_is_final(monkeypatch: Any, status: int) -> None:
    service = Service(monkeypatch)
    service.fails["a"] = [TransferError("it is refused", status)]
    with pytest.raises(TransferError, match="it is refused"):
        await upload_files(service.ask, [file("a")], None)
    assert service.sent == ["a"]


async def test_bytes_that_did_not_arrive_are_sent_again_and_a_bad_file_is_not(monkeypatch: Any) -> None:
    service = Service(monkeypatch)
    service.refuses["a", "finish_upload"] = [FileMissingError("a")]
    await upload_files(service.ask, [file("a")], None)
    assert service.sent == ["a", "a"]
    service.refuses["b", "finish_upload"] = [InvalidFileError("file 'b' is damaged")]
    with pytest.raises(InvalidFileError):
        await upload_files(service.ask, [file("b")], None)
    assert service.sent == ["a", "a", "b"] and service.asked["finish_upload"] == 3
