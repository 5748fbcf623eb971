"""Downloads of a session's files over `helix.http`."""

from __future__ import annotations

import httpx
from tests.integration.test_http import post, who
from tests.integration.test_http_files import ANN, BOB, PHOTO, desk, said, served, ui, ui_file
from tests.support.asgi_server import serving

import helix.http
from helix import LocalExecutor, MemoryStateStore, ScriptedModel
from helix.adapters.memory_blobs import MemoryBlobs


async def test_a_download_is_an_attachment_for_the_owner_of_the_session() -> None:
    page = b"<!doctype html><html><script>alert(1)</script></html>"
    async with served() as (client, executor, _):
        await post(client, "/desk/ai-sdk", ui(ui_file(PHOTO, name="ä.png"), ui_file(page, "text/html", "p.html")))
        photo, html = (await said(executor)).files
        address = f"/desk/ai-sdk/chat/files/{photo.sha256}"
        found = await client.get(address, params={"name": "../ä.png"}, headers=ANN)
        assert (found.status_code, found.content, found.headers["content-type"]) == (200, PHOTO, "image/png")
        assert found.headers["content-disposition"].endswith("filename*=UTF-8''%C3%A4.png")
        found = await client.get(f"/desk/ai-sdk/chat/files/{html.sha256}", headers=ANN)
        assert found.headers["content-disposition"] == "attachment"
        assert (
            found.headers["x-content-type-options"] == "nosniff"
            and "sandbox" in found.headers["content-security-policy"]
        )
        other = await client.get(address, headers=BOB)
        missing = await client.get(address.replace("/chat/", "/none/"), headers=BOB)
        assert other.status_code == missing.status_code == 404
        assert other.json()["error"]["code"] == missing.json()["error"]["code"] == "session_not_found"
        await post(client, "/desk/chunks", {"session_id": "bobs", "message": "Hi"}, user="bob")
        for wrong in (f"bobs/files/{photo.sha256}", "bobs/files/..", "bobs/files/x"):
            assert (await client.get(f"/desk/ai-sdk/{wrong}", headers=BOB)).status_code == 404


class SignedBlobs(MemoryBlobs):
    """Blobs that clients download with presigned requests, as from S3."""

    async def download(self, key: str, name: str | None, expires_s: float) -> str | None:
        return f"https://bucket.example/{key}?name={name}&expires={expires_s:g}"


async def test_a_download_from_s3_is_a_redirect() -> None:
    model = ScriptedModel(["One."])
    async with LocalExecutor(MemoryStateStore(), model=model, blobs=SignedBlobs()) as executor:
        async with serving(helix.http.app(executor, [desk], user=who)) as url:
            async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as client:
                await post(client, "/desk/ai-sdk", ui(ui_file(PHOTO)))
                address = f"/desk/ai-sdk/chat/files/{(await said(executor)).files[0].sha256}?name=a.png"
                found = await client.get(address, headers=ANN)
                assert found.status_code == 307 and "no-store" in found.headers["cache-control"]
                assert found.headers["location"].startswith("https://bucket.example/blobs/")
                assert found.headers["location"].endswith("?name=a.png&expires=900")
                unknown = await client.get(f"/desk/ai-sdk/chat/files/{'0' * 64}", headers=ANN)
                assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "file_missing")
