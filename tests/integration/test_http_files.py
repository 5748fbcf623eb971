"""Files over `helix.http`: parts of messages in each encoding, their repeats and edits."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import httpx
import pytest
from tests.integration.test_http import post, who
from tests.support.asgi_server import serving
from tests.support.front_ends import JS, install
from tests.support.sample_files import pdf, png, wav

import helix.http
from helix import Agent, LLMConfig, LocalExecutor, MemoryStateStore, ScriptedModel
from helix.core.functions import AgentClient
from helix.core.messages import UserMessage, files_of
from helix.core.registry import AgentRegistry
from helix.core.steps import AnyStepResult
from helix.ports.model import LLMGenerateInput
from helix.testing.invariants import check_session

ANN = {"x-user": "ann"}
BOB = {"x-user": "bob"}
PHOTO, PAPER = png(6, 4), pdf(2)
URL = "https://example.com/a.png"
NOTE = sha256(b"A note.").hexdigest()
UI = ["ai-sdk", "ai-sdk-v6"]
desk = Agent(name="desk", system_prompt="Look.", llm_config=LLMConfig(model="scripted"))


class Looks:
    """A model that records the files of each request."""

    def __init__(self) -> None:
        self.seen: list[list[bytes | str]] = []
        self._scripted = ScriptedModel(["One.", "Two.", "Three.", "Four.", "Five."], by="queue")

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        self.seen.append([file.url or await request.files.read(file) for file in files_of(request.messages)])
        return await self._scripted.generate_step(request)


@asynccontextmanager
async def served(**options: Any) -> AsyncIterator[tuple[httpx.AsyncClient, LocalExecutor, Looks]]:
    model = Looks()
    async with LocalExecutor(MemoryStateStore(), model=model) as executor:
        async with serving(helix.http.app(executor, [desk], **{"user": who, **options})) as url:
            async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as client:
                yield client, executor, model


def base64(data: bytes) -> str:
    return b64encode(data).decode()


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def ui_file(data: bytes, media_type: str = "image/png", name: str | None = "a.png") -> dict[str, Any]:
    named = {"filename": name} if name is not None else {}
    return {"type": "file", "mediaType": media_type, **named, "url": f"data:{media_type};base64,{base64(data)}"}


def ui(*parts: dict[str, Any], message_id: str = "u1", **more: Any) -> dict[str, Any]:
    messages = [{"id": message_id, "role": "user", "parts": list(parts)}]
    return {"id": "chat", "messages": messages, "trigger": "submit-message", **more}


def agui(*parts: dict[str, Any], run: str = "r1") -> dict[str, Any]:
    return {"threadId": "chat", "runId": run, "messages": [{"id": "u1", "role": "user", "content": list(parts)}]}


def agui_data(kind: str, data: bytes, media_type: str, name: str) -> dict[str, Any]:
    source = {"type": "data", "value": base64(data), "mimeType": media_type}
    return {"type": kind, "source": source, "metadata": {"filename": name}}


async def said(executor: LocalExecutor) -> UserMessage:
    """Return the newest user message, after checking the session's rows."""
    await check_session(executor.store, executor.streams, "chat", at_rest=True)
    found = [m for m in (await executor.sessions.get_messages("chat")).messages if isinstance(m, UserMessage)]
    return found[-1]


async def run_count(executor: LocalExecutor) -> int:
    return len((await executor.sessions.list_runs("chat")).runs)


PARTS: dict[str, Any] = {
    "ai-sdk": ui(text("What is on"), ui_file(PHOTO), text("and in"), ui_file(PAPER, "application/pdf", "b.pdf")),
    "ai-sdk-v6": ui(text("What is on"), ui_file(PHOTO), text("and in"), ui_file(PAPER, "application/pdf", "b.pdf")),
    "ag-ui": agui(
        text("What is on"),
        agui_data("image", PHOTO, "image/png", "a.png"),
        text("and in"),
        agui_data("document", PAPER, "application/pdf", "b.pdf"),
    ),
    "chunks": {
        "session_id": "chat",
        "message": "What is on\nand in",
        "files": [
            {"data": base64(PAPER), "name": "b.pdf", "after_text": 99},
            {"data": base64(PHOTO), "media_type": "image/png", "name": "a.png", "after_text": 10},
        ],
    },
}


@pytest.mark.parametrize("encoding", PARTS)
async def test_the_parts_of_a_message_reach_the_model_at_their_places(encoding: str) -> None:
    async with served() as (client, executor, model):
        await post(client, f"/desk/{encoding}", PARTS[encoding])
        assert model.seen == [[PHOTO, PAPER]]
        message = await said(executor)
        assert message.content == "What is on\nand in"
        found = [(file.name, file.media_type, file.after_text, file.width, file.pages) for file in message.files]
        assert found == [("a.png", "image/png", 10, 6, None), ("b.pdf", "application/pdf", 17, None, 2)]


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("ai-sdk", ui({"type": "file", "mediaType": "image/png", "url": URL})),
        ("ai-sdk-v6", ui({"type": "file", "mediaType": "image", "url": URL})),
        ("ag-ui", agui({"type": "image", "source": {"type": "url", "value": URL}})),
        ("ag-ui", agui({"type": "binary", "mimeType": "image/png", "url": URL})),
        ("chunks", {"session_id": "chat", "files": [{"kind": "image", "media_type": "image/png", "url": URL}]}),
    ],
)
async def test_a_message_of_only_a_url_is_passed_to_the_model_and_not_fetched(encoding: str, body: Any) -> None:
    async with served() as (client, executor, model):
        await post(client, f"/desk/{encoding}", body)
        assert model.seen == [[URL]] and (await said(executor)).content == ""


@pytest.mark.parametrize(
    "part",
    [
        {"type": "binary", "mimeType": "audio/x-wav", "data": base64(wav()), "filename": "a"},
        agui_data("audio", wav(), "audio/wav", "a"),
        agui_data("document", PAPER, "application/pdf", "a"),
    ],
    ids=["binary", "audio", "document"],
)
async def test_each_media_part_of_ag_ui(part: Any) -> None:
    async with served() as (client, executor, model):
        await post(client, "/desk/ag-ui", agui(part))
        assert [file.name for file in (await said(executor)).files] == ["a"] and len(model.seen) == 1


DATA = "data:image/png;base64,"
BAD: list[tuple[str, Any, str]] = [
    ("ai-sdk", ui({**ui_file(PHOTO), "url": f"{DATA}{base64(PHOTO)}!"}), "'a.png' is not valid base64"),
    ("ai-sdk", ui({**ui_file(PHOTO), "url": f"{DATA}{base64(PHOTO)[:-3]}"}), "'a.png' is not valid base64"),
    ("ai-sdk", ui({**ui_file(PHOTO), "url": f"{DATA}QQ==QQ=="}), "'a.png' is not valid base64"),
    ("ai-sdk", ui({**ui_file(PHOTO), "url": "data:text/plain,Hello"}), "without base64"),
    ("ai-sdk", ui({**ui_file(PHOTO), "url": "http://example.com/a.png"}), "not an https URL"),
    ("ai-sdk", ui({**ui_file(PHOTO), "url": "file:///etc/passwd"}), "not an https URL"),
    ("ai-sdk", ui({**ui_file(PHOTO), "url": f"/desk/ai-sdk/other/files/{'0' * 64}"}), "not an https URL"),
    ("ai-sdk", ui({**ui_file(PHOTO), "url": None}), "'a.png'"),
    ("ai-sdk", ui({**ui_file(PHOTO), "url": 7}), "url of a file must be a string"),
    ("ai-sdk", ui(ui_file(b"<!doctype html><html></html>")), "'a.png' is text/html, not an image"),
    ("ai-sdk", ui(ui_file(b"")), "'a.png' is empty"),
    ("ai-sdk", ui(*[ui_file(PHOTO)] * 51), "51 files"),
    ("ag-ui", agui(agui_data("image", PAPER, "application/pdf", "b.pdf")), "'b.pdf' is application/pdf, not an image"),
    ("ag-ui", agui({"type": "image", "source": {"type": "file", "value": "f_1", "provider": "openai"}}), "type 'file'"),
    ("ag-ui", agui({"type": "image", "source": {}}), "type 'None'"),
    ("ag-ui", agui({"type": "image"}), "type 'None'"),
    ("ag-ui", agui({"type": "binary", "mimeType": "a/b"}), "file 1 of the message has neither"),
    ("ag-ui", agui({"type": "binary", "mimeType": "a/b", "id": "../x"}), "neither"),
    ("chunks", {"message": "Hi", "files": [{"data": "A"}]}, "not valid base64"),
    ("chunks", {"message": "Hi", "files": [{"data": base64(PHOTO), "path": "/etc"}]}, "'path'"),
    ("chunks", {"message": "Hi", "files": [{"data": base64(PHOTO), "after_text": -1}]}, "after_text"),
    ("chunks", {"message": "Hi", "files": [{"kind": "image", "media_type": "image/png"}]}, "sha256 or url"),
    ("chunks", {"message": "Hi", "files": [{"kind": "image", "media_type": "image/png", "url": "http://a"}]}, "https"),
]


@pytest.mark.parametrize(("encoding", "body", "problem"), BAD)
async def test_a_file_that_is_not_valid_is_refused_by_name(encoding: str, body: Any, problem: str) -> None:
    async with served() as (client, executor, model):
        refused = await client.post(f"/desk/{encoding}", json={**body, "session_id": "chat"}, headers=ANN)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (400, "invalid_file") and problem in error["message"], error
        assert not await executor.sessions.exists("chat") and model.seen == []


@pytest.mark.parametrize("encoding", PARTS)
async def test_a_request_that_comes_twice_starts_one_run(encoding: str) -> None:
    async with served() as (client, executor, model):
        body = {**PARTS[encoding], "key": "k"}
        first, second = await asyncio.gather(*(post(client, f"/desk/{encoding}", body) for _ in range(2)))
        assert [one.data for one in first] == [one.data for one in second]
        await post(client, f"/desk/{encoding}", body)
        assert (await run_count(executor), len(model.seen)) == (1, 1)


@pytest.mark.parametrize("encoding", [*UI, "ag-ui"])
async def test_the_same_text_with_another_file_or_place_is_an_edit(encoding: str) -> None:
    other = png(9, 9)

    def body(run: int, *parts: Any) -> dict[str, Any]:
        if encoding == "ag-ui":
            files = [
                agui_data("image", part, "image/png", "a.png") if isinstance(part, bytes) else part for part in parts
            ]
            return agui(*files, run=f"r{run}")
        files = [ui_file(part) if isinstance(part, bytes) else part for part in parts]
        return ui(*files, **({"messageId": "u1"} if run > 1 else {}))

    async with served() as (client, executor, model):
        await post(client, f"/desk/{encoding}", body(1, text("Look"), PHOTO))
        for number, parts in ((2, (text("Look"), other)), (3, (other, text("Look")))):
            await post(client, f"/desk/{encoding}", body(number, *parts))
            await post(client, f"/desk/{encoding}", body(number, *parts))  # a repeat
        assert model.seen == [[PHOTO], [other], [other]]
        assert (await run_count(executor), (await said(executor)).files[0].after_text) == (3, 0)


@pytest.mark.parametrize("encoding", UI)
async def test_a_page_that_loads_gets_its_files_and_sends_them_back(encoding: str) -> None:
    """A page that was loaded names a file by its address, and not by its bytes. An unchanged message is then the same."""
    link = {"type": "file", "mediaType": "image/png", "url": URL}
    parts = [text("What is on"), ui_file(PHOTO, name="ä b.png"), text("and in"), link, text("\n\nand here?")]
    async with served() as (client, executor, model):
        await post(client, f"/desk/{encoding}", ui(*parts))
        loaded = (await client.get(f"/desk/{encoding}/chat/messages", headers=ANN)).json()["messages"][0]
        stored = (await said(executor)).files[0].sha256
        address = f"/desk/{encoding}/chat/files/{stored}?name=%C3%A4%20b.png"
        assert loaded["parts"] == [parts[0], {**parts[1], "url": address}, *parts[2:]]
        again = {"id": "chat", "messages": [loaded], "trigger": "submit-message"}
        await post(client, f"/desk/{encoding}", again)
        assert await run_count(executor) == 1, "the message is known"
        absolute = {**loaded["parts"][1], "url": f"https://desk.example{address}"}
        await post(
            client, f"/desk/{encoding}", {**again, "messages": [{**loaded, "parts": [absolute]}], "messageId": "u1"}
        )
        assert model.seen == [[PHOTO, URL], [PHOTO]]
        regenerated = {"id": "chat", "messages": [{**loaded, "parts": [absolute]}], "trigger": "regenerate-message"}
        await post(client, f"/desk/{encoding}", regenerated)
        assert model.seen[2] == [PHOTO]


async def test_another_answer_to_a_shown_message_sends_its_files_again() -> None:
    async with served() as (client, executor, model):
        await post(client, "/desk/ai-sdk", ui(text("Look"), ui_file(PHOTO)))
        run = (await executor.sessions.list_runs("chat")).runs[0].run_id
        body = {"id": "chat", "messages": [], "trigger": "regenerate-message", "messageId": run}
        await post(client, "/desk/ai-sdk", body)
        assert model.seen == [[PHOTO], [PHOTO]]
        assert [file.name for file in (await said(executor)).files] == ["a.png"]


async def test_a_branch_without_a_user_answers_a_copied_message_anew() -> None:
    """The files of the message belong to the session from which the branch was copied."""
    async with served(user=None) as (client, executor, model):
        await post(client, "/desk/ai-sdk", ui(text("Look"), ui_file(PHOTO)))
        await executor.branch("chat", session_id="copy")
        (asked, _) = (await client.get("/desk/ai-sdk/copy/messages")).json()["messages"]
        body = {"id": "copy", "messages": [asked], "trigger": "regenerate-message"}
        await post(client, "/desk/ai-sdk", body)
        edited = {**asked, "parts": [text("Look again"), *asked["parts"][1:]]}
        await post(
            client,
            "/desk/ai-sdk",
            {"id": "copy", "messages": [edited], "trigger": "submit-message", "messageId": asked["id"]},
        )
        assert model.seen == [[PHOTO]] * 3
        await check_session(executor.store, executor.streams, "copy", at_rest=True)


async def test_an_ag_ui_client_sends_back_what_a_snapshot_gave_it() -> None:
    async with served() as (client, executor, model):
        await post(client, "/desk/ag-ui", PARTS["ag-ui"])
        loaded = (await client.get("/desk/ag-ui/chat/messages", headers=ANN)).json()["messages"][0]
        first, photo, *_ = loaded["content"]
        stored = (await said(executor)).files[0].sha256
        source = {"type": "file", "value": stored, "provider": "helix", "mimeType": "image/png"}
        assert (first, photo) == (
            text("What is on"),
            {"type": "image", "source": source, "metadata": {"filename": "a.png"}},
        )
        await post(client, "/desk/ag-ui", {"threadId": "chat", "runId": "r2", "messages": [loaded]})
        assert await run_count(executor) == 1, "the message is known"
        binary = {"type": "binary", "mimeType": "image/png", "id": stored}
        await post(
            client, "/desk/ag-ui", {"threadId": "chat", "runId": "r3", "messages": [{**loaded, "content": [binary]}]}
        )
        assert model.seen == [[PHOTO, PAPER], [PHOTO]]


async def test_a_stored_file_is_named_by_its_hash_only_within_its_owners_sessions() -> None:
    async with served() as (client, executor, model):
        await post(client, "/desk/chunks", PARTS["chunks"])
        part = (await said(executor)).files[0].model_dump(mode="json")
        body = {"message": "Again", "files": [part]}
        await post(client, "/desk/chunks", body)
        assert model.seen[-1] == [PHOTO]
        for wrong in (body, {**body, "files": [{**part, "sha256": "0" * 64}]}):
            refused = await client.post("/desk/chunks", json=wrong, headers=BOB)
            assert (refused.status_code, refused.json()["error"]["code"]) == (404, "file_missing")


@pytest.mark.slow  # it starts Node
async def test_the_clients_of_the_front_ends_send_files_and_get_them_back() -> None:
    """`Chat` with `DefaultChatTransport` (the core of `useChat`) and `HttpAgent` are both unmodified."""
    install()
    async with served(user=None) as (client, executor, model):
        node = await asyncio.create_subprocess_exec(
            *(JS / "node_modules/.bin/node", JS / "files.mjs", str(client.base_url).rstrip("/")),
            stdout=asyncio.subprocess.PIPE,
        )
        found = json.loads((await node.communicate())[0])
        assert found["chat"]["errors"] == [] and found["chat"]["saved"] == "A note."
        asked, answer = found["chat"]["messages"]
        assert [part["type"] for part in asked["parts"]] == ["file", "text"]
        assert asked["parts"][0]["filename"] == "a.txt" and answer["parts"][-1]["text"] == "Two."
        assert model.seen == [[b"A note."]] * 4 + [[b"A note."] * 2]
        file = {"type": "document", "metadata": {"filename": "a.txt"}}
        file["source"] = {"type": "file", "provider": "helix", "mimeType": "text/plain", "value": NOTE}
        assert found["agent"]["file"] == file
        contents = [message["content"] for message in found["agent"]["messages"]]
        assert contents == [[text("Read it again"), file], "Four.", [file], "Five."]
        stored = (await executor.sessions.get_messages("thread")).messages
        assert [(message.content, len(files_of([message]))) for message in stored] == [
            ("Read it again", 1),
            ("Four.", 0),
            ("", 1),
            ("Five.", 0),
        ]


@pytest.mark.parametrize("encoding", PARTS)
async def test_files_do_not_count_towards_the_limit_of_a_message(encoding: str) -> None:
    """The body may have 8 MB in this test (the default is 32)."""
    large, huge = png(note=b"x" * 4_200_000), png(note=b"x" * 6_100_000)
    bodies: dict[str, Any] = {
        "ag-ui": lambda data: agui(agui_data("image", data, "image/png", "a.png")),
        "chunks": lambda data: {"session_id": "chat", "files": [{"data": base64(data)}]},
    }
    body = bodies.get(encoding, lambda data: ui(ui_file(data)))
    async with served(max_body_bytes=8_000_000) as (client, _, model):
        await post(client, f"/desk/{encoding}", body(large))
        assert model.seen == [[large]]
        refused = await client.post(f"/desk/{encoding}", json=body(huge), headers=ANN)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (413, "body_too_large") and "smaller files" in error["message"]


async def test_a_function_agent_takes_no_files() -> None:
    @AgentClient(api_key="ignored", registry=AgentRegistry()).agent(name="double")
    async def double(number: int) -> int:
        return 2 * number

    async with LocalExecutor(MemoryStateStore(), model=ScriptedModel([])) as executor:
        async with serving(helix.http.app(executor, [double])) as url:
            async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as client:
                body = {"message": "2", "files": [{"data": base64(PHOTO)}]}
                refused = await client.post("/double/chunks", json=body)
                error = refused.json()["error"]
                assert (error["code"], "takes no files" in error["message"]) == ("invalid_file", True), error
