"""The files of tool results over `helix.http`: live, on a page that loads, and for downloads."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import httpx
import pytest
from pydantic import BaseModel
from tests.integration.test_http import post, who
from tests.integration.test_http_files import ANN, BOB, UI, URL, text
from tests.support.asgi_server import Sent, events, serving
from tests.support.sample_files import png

import helix.http
from helix import Agent, Image, LLMConfig, LocalExecutor, MemoryStateStore, ScriptedModel, create_sub_agent_tool, tool
from helix.core.messages import files_of
from helix.stream.ui_fold import UIMessageFold

PHOTO = png(6, 4)
HASH = sha256(PHOTO).hexdigest()
LLM = LLMConfig(model="scripted")


@tool
def scan() -> Any:
    """Scan the label."""
    return ["The label", Image(PHOTO, name="ä b.png"), "of 1 parcel", Image(URL)]


@tool
def count() -> str:
    """Count the parcels."""
    return "1 parcel"


class Found(BaseModel):
    parcels: int


clerk = Agent(name="clerk", system_prompt="Look.", llm_config=LLM, tools=[scan, count], output_schema=Found)
desk = Agent(name="desk", system_prompt="Help.", llm_config=LLM, tools=[scan, count, create_sub_agent_tool(clerk)])
OWN: list[Any] = [{"tool_calls": [{"name": "count", "arguments": {}}, {"name": "scan", "arguments": {}}]}, "Seen."]
BELOW: list[Any] = [{"tool_calls": [{"name": "subagent__clerk", "arguments": {"message": "Scan"}}]}, OWN[0]]
BELOW += [{"tool_calls": [{"name": "__finish__", "arguments": {"parcels": 1}}]}, "Seen."]


@asynccontextmanager
async def served(script: list[Any]) -> AsyncIterator[tuple[httpx.AsyncClient, LocalExecutor]]:
    model = ScriptedModel(script, by="queue")
    async with LocalExecutor(MemoryStateStore(), model=model) as executor:
        async with serving(helix.http.app(executor, [desk, clerk], user=who)) as url:
            async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as client:
                yield client, executor


def asked(encoding: str) -> dict[str, Any]:
    if encoding == "chunks":
        return {"session_id": "chat", "message": "Scan it"}
    if encoding == "ag-ui":
        return {"threadId": "chat", "runId": "r1", "messages": [{"id": "u1", "role": "user", "content": "Scan it"}]}
    return {"id": "chat", "messages": [{"id": "u1", "role": "user", "parts": [text("Scan it")]}]}


def jsons(sent: list[Sent]) -> list[Any]:
    return [one.json for one in sent if one.data != "[DONE]"]


def folded(parts: list[Any]) -> list[dict[str, Any]]:
    fold = UIMessageFold()
    fold.feed(parts)
    assert fold.message is not None
    found: Any = fold.message["parts"]
    return list(found)


@pytest.mark.parametrize("encoding", UI)
async def test_a_page_gets_the_files_of_a_result_live_and_when_it_loads(encoding: str) -> None:
    async with served(OWN) as (client, executor):
        live = folded(jsons(await post(client, f"/desk/{encoding}", asked(encoding))))
        photo, link = (part for part in live if part["type"] == "file")
        address = f"/desk/{encoding}/chat/files/{HASH}?name=%C3%A4%20b.png"
        about = {"toolCallId": "call_1", "sessionId": "chat"}
        assert photo == {
            "type": "file",
            "url": address,
            "mediaType": "image/png",
            "providerMetadata": {"helix": {**about, "sha256": HASH, "filename": "ä b.png"}},
        }
        assert (link["url"], link["providerMetadata"]) == (URL, {"helix": about})
        call = next(part for part in live if part.get("toolCallId") == "call_1")
        assert call["output"] == "The label\nof 1 parcel"
        assert (await client.get(address, headers=ANN)).content == PHOTO

        async def loaded(session: str = "chat") -> Any:
            found = await client.get(f"/desk/{encoding}/{session}/messages", headers=ANN)
            return found.json()["messages"][1]["parts"]

        assert await loaded() == live
        async with client.stream("GET", f"/desk/{encoding}/chat/stream", headers=ANN) as response:
            assert folded(jsons([one async for one in events(response)])) == live

        await executor.branch("chat", session_id="copy")  # its messages come from history
        copied = [{**part} for part in await loaded("copy")]
        names = ("type", "url", "output", "toolCallId", "mediaType", "providerMetadata")
        kinds = [{name: part[name] for name in names if name in part} for part in copied]
        expected = [{name: part[name] for name in names if name in part} for part in live]
        assert kinds == json.loads(json.dumps(expected).replace("chat", "copy"))
        address = next(part["url"] for part in copied if part["type"] == "file")
        assert (await client.get(address, headers=ANN)).content == PHOTO


async def test_the_files_of_a_sub_agents_result_are_in_its_session() -> None:
    async with served([*BELOW, "Seen again."]) as (client, executor):
        live = folded(jsons(await post(client, "/desk/ai-sdk", asked("ai-sdk"))))
        photo, _link = (part for part in live if part["type"] == "file")
        about = photo["providerMetadata"]["helix"]
        assert about["sessionId"] != "chat" and about["toolCallId"] == f"{about['sessionId']}/call_1"
        assert (await client.get(photo["url"], headers=ANN)).content == PHOTO
        assert (await client.get(photo["url"], headers=BOB)).status_code == 404
        again = {"id": "chat", "messages": [{"id": "u2", "role": "user", "parts": [photo]}]}
        await post(client, "/desk/ai-sdk", again)
        (sent,) = files_of([(await executor.sessions.get_messages("chat")).messages[-2]])
        assert (sent.sha256, sent.name) == (HASH, "ä b.png"), "a page may send the file of a result back"
        other = photo["url"].replace("/desk/", "/clerk/")
        assert (await client.get(other, headers=ANN)).status_code == 404, "the page of the session is that of its root"


async def test_ag_ui_gets_the_files_of_a_result_as_content_parts() -> None:
    async with served(OWN) as (client, _):
        live = jsons(await post(client, "/desk/ag-ui", asked("ag-ui")))
        plain, scanned = (event["content"] for event in live if event["type"] == "TOOL_CALL_RESULT")
        source = {"type": "file", "value": HASH, "provider": "helix", "mimeType": "image/png"}
        assert plain == "1 parcel"
        assert scanned == [
            text("The label"),
            {"type": "image", "source": source, "metadata": {"filename": "ä b.png"}},
            text("of 1 parcel"),
            {"type": "image", "source": {"type": "url", "value": URL, "mimeType": "image/png"}},
        ]
        messages = (await client.get("/desk/ag-ui/chat/messages", headers=ANN)).json()["messages"]
        assert [one["content"] for one in messages if one["role"] == "tool"] == [plain, scanned]


async def test_the_chunk_of_a_result_has_files_only_if_there_are_some() -> None:
    async with served(OWN) as (client, executor):
        messages = jsons(await post(client, "/desk/chunks", asked("chunks")))
        ends = [one["chunk"] for one in messages if (one.get("chunk") or {}).get("type") == "tool_end"]
        plain, scanned = sorted(ends, key=lambda chunk: chunk["tool_call_id"])
        assert "files" not in plain
        assert [(file.get("name"), file.get("sha256"), file["after_text"]) for file in scanned["files"]] == [
            ("ä b.png", HASH, 9),
            (None, None, 21),
        ]
        stored = files_of((await executor.sessions.get_messages("chat")).messages)
        assert [file.model_dump(mode="json", exclude_defaults=True) for file in stored] == scanned["files"]
        assert b64encode(PHOTO).decode() not in str(messages), "the bytes are not on the stream"
