"""The stores of blobs: in memory, in a folder, and on moto's S3."""

from __future__ import annotations

import base64
import hashlib
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from botocore.config import Config
from tests.support.aws_resources import BUCKET, fresh, moto

from helix.adapters.aws.blobs import S3Blobs
from helix.adapters.folder_blobs import FolderBlobs
from helix.adapters.memory_blobs import MemoryBlobs
from helix.core.errors import StoreError
from helix.ports.blobs import Blobs, attachment
from helix.testing.aws import LockedClient
from helix.testing.contracts import BlobsContract

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
PNG = "image/png"


class TestMemory(BlobsContract):
    @pytest.fixture
    def blobs(self) -> MemoryBlobs:
        return MemoryBlobs()

    async def test_it_has_no_addresses(self, blobs: Blobs) -> None:
        assert await blobs.upload("a", 1, "0" * 64, PNG, 60) is None is await blobs.download("a", None, 60)
        assert blobs.location("a") is None


class TestFolder(BlobsContract):
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return tmp_path / "sessions.db.blobs"

    @pytest.fixture
    def blobs(self, folder: Path) -> FolderBlobs:
        return FolderBlobs(folder)

    @pytest.fixture
    def other(self, folder: Path) -> FolderBlobs:
        return FolderBlobs(folder)

    async def test_it_has_no_addresses(self, blobs: Blobs) -> None:
        assert await blobs.upload("a", 1, "0" * 64, PNG, 60) is None is await blobs.download("a", None, 60)
        assert blobs.location("a") is None

    async def test_files_and_folders_are_private(self, blobs: Blobs, folder: Path) -> None:
        await blobs.put("a/b/c", b"x", PNG)
        modes = {path.relative_to(folder).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}
        assert modes == {"a": 0o700, "a/b": 0o700, "a/b/c": 0o600}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    async def test_nothing_is_left_of_a_deleted_blob(self, blobs: Blobs, folder: Path) -> None:
        """An unfinished file of a process that died is not listed, and goes with its blob."""
        await blobs.put("a/b/c", b"x", PNG)
        (folder / "a" / "b" / ".c.dead.part").write_bytes(b"half")
        (folder / "a" / "d").mkdir()
        assert await blobs.list("") == ["a/b/c"]
        await blobs.delete("a/b/c")
        assert [path.relative_to(folder).as_posix() for path in folder.rglob("*")] == ["a", "a/d"]

    async def test_a_failed_write_leaves_nothing(
        self, blobs: Blobs, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("helix.adapters.folder_blobs.os.fsync", fail)
        with pytest.raises(StoreError, match="No space left"):
            await blobs.put("a/b", b"x", PNG)
        assert [path.name for path in folder.rglob("*")] == ["a"]


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    with moto():
        yield LockedClient(boto3.client("s3", config=Config(signature_version="s3v4")))


class TestS3(BlobsContract):
    @pytest.fixture
    def prefix(self) -> str:
        return f"{fresh()}/"

    @pytest.fixture
    def blobs(self, s3: Any, prefix: str) -> S3Blobs:
        return S3Blobs(s3, BUCKET, prefix)

    @pytest.fixture
    def other(self, s3: Any, prefix: str) -> S3Blobs:
        return S3Blobs(s3, BUCKET, prefix)

    async def test_more_than_a_page_is_listed(
        self, blobs: Blobs, s3: Any, prefix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("helix.adapters.aws.blobs.PAGE", 3)
        keys = [f"a/{number:02d}" for number in range(10)]
        for key in keys:
            s3.put_object(Bucket=BUCKET, Key=prefix + key, Body=b"")
        s3.put_object(Bucket=BUCKET, Key="zzz", Body=b"")
        assert await blobs.list("a/") == keys
        assert await blobs.list("a/", after="a/00", limit=7) == keys[1:8]

    async def test_an_upload_is_bound_to_its_bytes(self, blobs: Blobs, prefix: str) -> None:
        """The signature covers the length, the type and the hash, so S3 takes no other bytes."""
        digest = hashlib.sha256(b"picture").hexdigest()
        upload = await blobs.upload("a/b", 7, digest, PNG, 60)
        assert upload is not None and upload.method == "PUT" and upload.expires_at > 1_700_000_000
        assert upload.headers == {
            "Content-Length": "7",
            "Content-Type": PNG,
            "x-amz-checksum-sha256": base64.b64encode(bytes.fromhex(digest)).decode(),
        }
        given = parse_qs(urlsplit(upload.url).query)
        assert given["X-Amz-SignedHeaders"] == ["content-length;content-type;host;x-amz-checksum-sha256"]
        assert given["X-Amz-Expires"] == ["60"]
        assert urlsplit(upload.url).path.endswith(f"/{prefix}a/b")

    async def test_a_client_without_the_right_signatures_is_refused(self, s3: Any) -> None:
        """botocore presigns with version 2 by default, which would leave the length open."""
        blobs = S3Blobs(LockedClient(boto3.client("s3", region_name="us-east-1")), BUCKET)
        with pytest.raises(StoreError, match="s3v4"):
            await blobs.upload("a/b", 7, "0" * 64, PNG, 60)

    async def test_a_download_is_an_attachment(self, blobs: Blobs) -> None:
        """A browser saves the bytes under the file's name and never shows them as a page."""
        url = await blobs.download("a/b", 'Füße "1".html', 90)
        given = parse_qs(urlsplit(url or "").query)
        assert given["response-content-disposition"] == [attachment('Füße "1".html')]
        assert given["X-Amz-Expires"] == ["90"]

    async def test_it_has_an_address_in_s3(self, blobs: Blobs, prefix: str) -> None:
        assert blobs.location("a/b") == f"s3://{BUCKET}/{prefix}a/b"

    async def test_a_refusal_is_named(self, s3: Any) -> None:
        with pytest.raises(StoreError, match="NoSuchBucket"):
            await S3Blobs(s3, "no-such-bucket").get("a/b")


def test_a_name_cannot_break_the_header() -> None:
    assert attachment(None) == "attachment"
    assert (
        attachment('a";\r\nX: "é')
        == "attachment; filename=\"a____X_ __\"; filename*=UTF-8''a%22%3B%0D%0AX%3A%20%22%C3%A9"
    )
