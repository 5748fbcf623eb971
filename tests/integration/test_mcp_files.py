"""Files in the results of MCP tools: what the model gets of each kind of content."""

from __future__ import annotations

import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from mcp_types import CallToolResult
from tests.support.sample_files import pdf, png, wav

from helix import Agent, LLMConfig, LocalExecutor, MemoryStateStore, ScriptedModel
from helix.adapters.mcp import MCPServer, mcp_tools
from helix.adapters.mcp_results import result_content, without_files
from helix.core.errors import ToolError
from helix.core.files import File
from helix.core.messages import ToolResultMessage
from helix.testing.invariants import check_session

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"
PHOTO, PAPER = png(6, 4), pdf(2)
TEXT = {"type": "text", "text": "Here:"}
LINK = {"type": "resource_link", "name": "a", "uri": "https://example.com/secret"}


def base64(data: bytes) -> str:
    return b64encode(data).decode()


def image(data: str, media_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "data": data, "mimeType": media_type}


def embedded(**resource: Any) -> dict[str, Any]:
    return {"type": "resource", "resource": resource}


def content_of(*blocks: dict[str, Any], **more: Any) -> Any:
    return result_content("look", CallToolResult.model_validate({"content": list(blocks), **more}))


def test_each_kind_of_content() -> None:
    found = content_of(
        TEXT,
        image(base64(PHOTO)),
        {"type": "audio", "data": base64(wav()), "mimeType": "audio/wav"},
        embedded(uri="file:///tmp/a%20b.pdf", mimeType="application/pdf", blob=base64(PAPER)),
        embedded(uri="file:///tmp/a.txt", mimeType="text/plain", text="A note."),
        LINK,
    )
    assert found == [
        "Here:",
        File(PHOTO, "image/png"),
        File(wav(), "audio/wav"),
        File(PAPER, "application/pdf", "a b.pdf"),
        "A note.",
        "[resource 'a' at https://example.com/secret]",
    ]


def test_results_without_files_stay_as_they_are() -> None:
    assert content_of(TEXT, LINK) == "Here:\n[resource 'a' at https://example.com/secret]"
    assert content_of(TEXT, structuredContent={"a": 1}) == {"a": 1}
    assert content_of() == ""
    with pytest.raises(ToolError, match=r"Here:\n\[image, image/png, \d+ bytes, not shown\]"):
        content_of(TEXT, image(base64(PHOTO)), isError=True)


def test_structured_content_beside_a_file_reaches_the_model() -> None:
    photo = image(base64(PHOTO))
    assert content_of(photo, structuredContent={"a": 1}) == ['{"a":1}', File(PHOTO, "image/png")]
    assert content_of(TEXT, photo, structuredContent={"a": 1}) == ["Here:", File(PHOTO, "image/png")]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("no base64!", "it is not valid base64"),
        (base64(PHOTO)[:-2], "it is not valid base64"),
        ("", "the file is empty"),
        (base64(png(20_000, 20_000)), "20000 x 20000 pixels"),
    ],
)
def test_a_file_that_is_not_accepted_becomes_a_note(data: str, problem: str) -> None:
    found = content_of(TEXT, image(data))
    assert isinstance(found, str) and found.startswith("Here:\n[image, image/png,") and problem in found
    assert found.endswith("]")


def test_too_many_files_become_notes() -> None:
    found = content_of(*[image(base64(png(2, 2, note=b"%d" % n))) for n in range(52)])
    assert [isinstance(part, File) for part in found] == [True] * 50 + [False] * 2 and "51 files" in found[-1]


def test_an_executor_without_a_place_for_files_gets_notes() -> None:
    found = content_of(TEXT, embedded(uri="file:///a.pdf", mimeType="application/pdf", blob=base64(PAPER)))
    note = f"[file, 'a.pdf', application/pdf, {len(PAPER)} bytes, not shown]"
    assert without_files(found) == f"Here:\n{note}"
    plain: list[Any] = ["text", ["a", 1], {"a": 1}]
    assert [without_files(given) for given in plain] == plain


@pytest.mark.parametrize("stores", [True, False])
async def test_the_result_of_a_run_depends_on_the_place_for_files(
    stores: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def call_tool(self: MCPServer, *_: Any, **__: Any) -> Any:
        return content_of(TEXT, image(base64(PHOTO)))

    monkeypatch.setattr(MCPServer, "call", call_tool)
    tools = mcp_tools(MCPServer(command="none"), [{"name": "look"}])
    agent = Agent(name="desk", system_prompt="Look.", tools=tools, llm_config=LLMConfig(model="scripted"))
    model = ScriptedModel([{"tool_calls": [{"name": "look", "arguments": {}}]}, "Seen."])
    async with LocalExecutor(MemoryStateStore(), model=model) as executor:
        executor.engine.files = executor.engine.files if stores else None
        await (await executor.execute(agent, "Look.", session_id="ses")).result()
        messages = (await executor.sessions.get_messages("ses")).messages
        (result,) = [message for message in messages if isinstance(message, ToolResultMessage)]
        note = f"Here:\n[file, image/png, {len(PHOTO)} bytes, not shown]"
        assert result.success and (result.content, len(result.files)) == (("Here:", 1) if stores else (note, 0))


@pytest.mark.slow  # it starts a process
async def test_a_run_stores_the_picture_of_a_server() -> None:
    async with MCPServer(command=sys.executable, args=[str(SERVER), "stdio"], name="test") as server:
        tools = await server.tools(only=["picture"])
        agent = Agent(name="desk", system_prompt="Look.", tools=tools, llm_config=LLMConfig(model="scripted"))
        model = ScriptedModel([{"tool_calls": [{"name": "picture", "arguments": {}}]}, "Seen."])
        async with LocalExecutor(MemoryStateStore(), model=model) as executor:
            assert (await (await executor.execute(agent, "Look.", session_id="ses")).result()).text == "Seen."
            messages = (await executor.sessions.get_messages("ses")).messages
            (result,) = [message for message in messages if isinstance(message, ToolResultMessage)]
            (file,) = result.files
            assert (result.content, file.media_type, file.width) == ("a pixel", "image/png", 1)
            assert len(await executor.read_file("ses", file)) == file.size
            await check_session(executor.store, executor.streams, "ses", at_rest=True)
