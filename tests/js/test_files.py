"""Files of messages over `HelixChatTransport` and `HelixAgent`. The messages are those that `helix.http` makes."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import httpx
import pytest
from tests.integration.test_http_files import PHOTO, URL, Looks, agui_data, base64, text, ui_file
from tests.integration.test_http_result_files import BELOW, OWN, desk
from tests.js.test_agent import THREAD, front
from tests.js.test_chat import CHAT, Page, texts
from tests.js.test_loading import loaded
from tests.support.sample_files import png
from tests.support_gateway import executor_of, key_for, keyed, served

from helix import LocalExecutor
from helix.core.errors import HelixError, InvalidFileError
from helix.core.files import FilePart
from helix.core.messages import UserMessage
from helix.http.message_parts import Parts
from helix.services.file_inputs import ReadFile
from helix.testing.invariants import check_session

pytestmark = pytest.mark.slow
OTHER = png(9, 9)
LINK = {"type": "file", "mediaType": "image/png", "url": URL}
NOTE = ui_file(b"A note.", "text/plain", "n.txt")
HASH = sha256(PHOTO).hexdigest()


async def said(executor: LocalExecutor, session_id: str) -> UserMessage:
    await check_session(executor.store, executor.streams, session_id, at_rest=True)
    found = [m for m in (await executor.sessions.get_messages(session_id)).messages if isinstance(m, UserMessage)]
    return found[-1]


async def modes(executor: LocalExecutor, session_id: str) -> list[str]:
    return [run.mode for run in reversed((await executor.sessions.list_runs(session_id)).runs)]


@pytest.mark.parametrize("user", [None, "ann"])
async def test_the_files_of_a_chat(user: str | None, typescript: Any) -> None:
    """A page sends files, shows them when it loads, and sends back what it was given."""
    model = Looks()
    executor = executor_of(model)
    key = await key_for(executor, user) if user is not None else None
    options: dict[str, Any] = {"authoriser": keyed(executor), "token": key} if key is not None else {}
    async with served(executor, **options) as (gateway, client):
        session = f"{(await client.whoami())['prefix']}{CHAT}" if user is not None else CHAT
        async with Page(typescript, gateway.url, token=key) as page:
            first = {"role": "user", "parts": [text("What is on"), ui_file(PHOTO), text("and in"), NOTE, LINK]}
            messages = await page(["send", first])
            assert (page.problems, texts(messages[1])) == ([], "One.")
            assert model.seen == [[PHOTO, b"A note.", URL]]
            stored = await said(executor, session)
            found = [(file.name, file.media_type, file.after_text, file.width) for file in stored.files]
            assert stored.content == "What is on\nand in"
            assert found == [
                ("a.png", "image/png", 10, 6),
                ("n.txt", "text/plain", 17, None),
                (None, "image/png", 17, None),
            ]

            (shown, _) = await loaded(typescript)
            photo, note = shown["parts"][1], shown["parts"][3]
            assert [part["type"] for part in shown["parts"]] == ["text", "file", "text", "file", "file"]
            named = {"filename": "a.png", "providerMetadata": {"helix": {"sha256": HASH}}}
            assert photo == {"type": "file", "mediaType": "image/png", "url": photo["url"], **named}
            assert shown["parts"][4] == LINK
            async with httpx.AsyncClient(trust_env=False) as web:
                assert (await web.get(photo["url"])).content == PHOTO
                assert (await web.get(note["url"])).content == b"A note."

            await page(["regenerate", messages[1]["id"]], ["ready"])
            await page(["regenerate"], ["ready"])
            assert await modes(executor, session) == ["execute", "from_checkpoint", "from_checkpoint"]
            assert (await said(executor, session)).id == stored.id, "the same message is not sent again"
            await page(["load"], ["regenerate"], ["ready"])
            assert (page.problems, (await said(executor, session)).id) == ([], stored.id)
            assert model.seen == [[PHOTO, b"A note.", URL]] * 4

            changed = {"parts": [photo, text("and here?"), ui_file(OTHER, name=None)], "messageId": messages[0]["id"]}
            assert [texts(one) for one in await page(["send", changed], ["ready"])] == ["and here?", "Five."]
            assert (page.problems, model.seen[4:]) == ([], [[PHOTO, OTHER]])
            assert [file.after_text for file in (await said(executor, session)).files] == [0, 9]


async def test_a_message_whose_files_the_page_changed_is_an_edit(typescript: Any) -> None:
    model = Looks()
    executor = executor_of(model)
    async with served(executor) as (gateway, _), Page(typescript, gateway.url) as page:
        messages = await page(["send", {"text": "Look", "files": [ui_file(PHOTO)]}])
        await page(["change parts", messages[0]["id"], [ui_file(OTHER), text("Look")]], ["regenerate"], ["ready"])
        await page(["change parts", messages[0]["id"], [text("Look"), ui_file(OTHER)]], ["regenerate"], ["ready"])
        assert (page.problems, model.seen) == ([], [[PHOTO], [OTHER], [OTHER]])
        assert (await said(executor, CHAT)).files[0].after_text == 4


async def test_a_file_that_is_not_valid_starts_no_run(typescript: Any) -> None:
    model = Looks()
    executor = executor_of(model)
    async with served(executor) as (gateway, _), Page(typescript, gateway.url) as page:
        await page(["send", {"text": "Look", "files": [ui_file(b"<!doctype html><html></html>")]}], ["ready"])
        (problem,) = page.problems
        assert problem["code"] == "invalid_file" and "'a.png' is text/html, not an image" in problem["message"]
        assert model.seen == [] and not await executor.sessions.exists(CHAT)


async def test_a_page_loads_without_the_address_of_a_file_that_is_gone(typescript: Any) -> None:
    executor = executor_of(Looks())
    async with served(executor) as (gateway, _), Page(typescript, gateway.url) as page:
        await page(["send", {"text": "Look", "files": [ui_file(PHOTO)]}])
        gateway.gateway.backend.served_files = None
        (shown, _) = await loaded(typescript)
        assert [part.get("url") for part in shown["parts"]] == ["", None]


async def test_the_files_of_a_front_end_of_ag_ui(typescript: Any) -> None:
    model = Looks()
    executor = executor_of(model)
    link = {"type": "image", "source": {"type": "url", "value": URL}}
    async with served(executor) as (gateway, _):
        content = [text("What is on"), agui_data("image", PHOTO, "image/png", "a.png"), text("and?"), link]
        there = await front(typescript, gateway.url, ["say", content])
        assert (there["problems"], model.seen) == ([], [[PHOTO, URL]])
        joined = await front(typescript, gateway.url, ["connect", None])
        shown = joined["messages"][0]
        source = {"type": "file", "value": HASH, "provider": "helix", "mimeType": "image/png"}
        photo = {"type": "image", "source": source, "metadata": {"filename": "a.png"}}
        url = {"type": "image", "source": {"type": "url", "value": URL, "mimeType": "image/png"}}
        assert shown["content"] == [text("What is on"), photo, text("and?"), url]
        assert shown["id"] == there["messages"][0]["id"]

        steps: list[list[Any]] = [["load", joined["messages"]], ["change", [0, shown["content"]]]]
        known = await front(typescript, gateway.url, *steps)
        assert (known["problems"], await modes(executor, THREAD)) == ([], ["execute"]), "the message is known"
        binary = {"type": "binary", "mimeType": "image/png", "id": HASH}
        steps[1] = ["change", [0, [binary, text("What is on")]]]
        edited = await front(
            typescript, gateway.url, *steps, ["say", [agui_data("image", OTHER, "image/png", "b.png")]]
        )
        assert (edited["problems"], model.seen[1:]) == ([], [[PHOTO], [PHOTO, OTHER]])
        assert await modes(executor, THREAD) == ["execute", "from_checkpoint", "execute"]


# --- the files of tool results ------------------------------------------------------------------------------------------


def without_urls(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages without the addresses of stored files, which differ for each reader."""
    return [
        {**one, "parts": [{**part, "url": None} if "providerMetadata" in part else part for part in one["parts"]]}
        for one in messages
    ]


async def test_the_files_of_results_are_shown_live_and_when_a_page_loads(typescript: Any) -> None:
    script: list[Any] = [*BELOW, *OWN]
    async with served(executor_of(script, desk)) as (gateway, client):
        async with Page(typescript, gateway.url, agent="desk") as page:
            await page(["say", "Scan it"])
            live = await page(["say", "Scan it yourself"])
            assert page.problems == []
            files = [part for part in [*live[1]["parts"], *live[3]["parts"]] if part["type"] == "file"]
            below, _, own, link = files
            about = own["providerMetadata"]["helix"]
            assert about == {"toolCallId": "call_2", "sessionId": CHAT, "sha256": HASH, "filename": "ä b.png"}
            assert link["url"] == URL and below["providerMetadata"]["helix"]["sessionId"] != CHAT
            async with httpx.AsyncClient(trust_env=False) as web:
                for file in (below, own):
                    assert (await web.get(file["url"])).content == PHOTO
            shown = await loaded(typescript)
            assert without_urls(shown) == without_urls(live)
            assert all(part["url"] for message in shown for part in message["parts"] if part["type"] == "file")

            copy = await client.branch(CHAT)  # its messages come from history, without those of sub-agents
            *_, answer = await loaded(typescript, copy)
            (photo, other) = (part for part in answer["parts"] if part["type"] == "file")
            assert photo["providerMetadata"]["helix"] == {**about, "sessionId": copy} and other["url"] == URL
            async with httpx.AsyncClient(trust_env=False) as web:
                assert (await web.get(photo["url"])).content == PHOTO


async def test_ag_ui_gets_the_files_of_results_live_and_when_it_joins(typescript: Any) -> None:
    async with served(executor_of([*OWN, "Seen again."], desk)) as (gateway, _):
        there = await front(typescript, gateway.url, ["say", "Scan it"], agent="desk")
        results = [message["content"] for message in there["messages"] if message["role"] == "tool"]
        assert results[0] == "1 parcel"
        assert [part["type"] for part in results[1]] == ["text", "image", "text", "image"]
        source = {"type": "file", "value": HASH, "provider": "helix", "mimeType": "image/png"}
        assert results[1][1] == {"type": "image", "source": source, "metadata": {"filename": "ä b.png"}}
        await front(typescript, gateway.url, ["say", "Again"], agent="desk")
        joined = await front(typescript, gateway.url, ["connect", None], agent="desk")
        assert [message["content"] for message in joined["messages"] if message["role"] == "tool"] == results


# --- the parts of messages ----------------------------------------------------------------------------------------------

DATA = f"data:image/png;base64,{base64(PHOTO)}"
STORED = {"type": "file", "value": HASH, "provider": "helix"}
UI_MESSAGES: list[list[Any]] = [
    [text("Look"), text(""), text("again")],
    [text("😀"), ui_file(PHOTO), text("there"), ui_file(OTHER, name=None)],
    [{**LINK, "mediaType": "image"}],
    [{**LINK, "filename": "a.png", "providerMetadata": {"helix": {"sha256": HASH}}}],
    [{**LINK, "providerMetadata": {"helix": {"sha256": HASH, "filename": "b.png"}}}],
    [{**LINK, "providerMetadata": {"helix": {"sha256": "../x"}}}],
    [{**LINK, "providerMetadata": {"helix": 7, "other": {"sha256": HASH}}}],
    [{**LINK, "mediaType": "audio"}],
    [{**LINK, "url": "http://a.test/a.png"}],
    [{**LINK, "url": "/desk/ai-sdk/chat/files/x"}],
    [{**LINK, "url": 7}],
    [{**LINK, "url": DATA + "!"}],
    [{**LINK, "url": DATA[:-3]}],
    [{**LINK, "url": "data:image/png;base64,QQ==QQ=="}],
    [{**LINK, "url": "data:text/plain,Hello"}],
    [{"type": "reasoning", "text": "Hm."}],
    [text("")],
    [],
]
AGUI_MESSAGES: list[Any] = [
    "Look",
    None,
    [text("Look"), agui_data("document", PHOTO, "image/png", "a.png"), text("there")],
    [{"type": "binary", "mimeType": "image/png", "data": base64(PHOTO), "filename": "a"}],
    [{"type": "binary", "mimeType": "image/png", "url": URL}],
    [{"type": "binary", "mimeType": "image/png", "id": HASH}],
    [{"type": "binary", "mimeType": "image/png", "id": "../x"}],
    [{"type": "image", "source": {"type": "url", "value": URL}, "metadata": None}],
    [{"type": "video", "source": STORED}],
    [{"type": "image", "source": {**STORED, "provider": "openai"}}],
    [{"type": "image", "source": {}}],
    [{"type": "image"}],
    [{"type": "sound"}, text("Look")],
    ["Look"],
]


def read_in_python(protocol: str, message: Any) -> dict[str, Any]:
    found = Parts("chat")
    add = found.add_agui_part if protocol == "ag-ui" else found.add_ui_part
    try:
        for part in message if isinstance(message, list) else [text(message)]:
            add(part if isinstance(part, dict) else {})
        read = found.content()
    except HelixError as error:
        return {"error": error.code}
    return {"text": read.text, "files": [_shown(file) for file in read.files]}


def _shown(file: ReadFile) -> list[Any]:
    part: FilePart = file.part
    return [part.sha256, part.url, part.name, part.after_text]


@pytest.mark.parametrize(("protocol", "messages"), [("ai-sdk", UI_MESSAGES), ("ag-ui", AGUI_MESSAGES)])
async def test_parts_are_read_as_python_reads_them(protocol: str, messages: Sequence[Any], typescript: Any) -> None:
    found = (await typescript("contents", protocol=protocol, messages=messages))["contents"]
    read = [
        {"error": one["error"]["code"]}
        if "error" in one
        else {"text": one["text"], "files": [file[:4] for file in one["files"]]}
        for one in found
    ]
    assert read == [read_in_python(protocol, message) for message in messages]
    assert sum("error" in one for one in read) > 5 and InvalidFileError.code == "invalid_file"
