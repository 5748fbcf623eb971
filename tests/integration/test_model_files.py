"""Files in the requests to each provider: their form, their place in the text, and what is refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.support.model_dialects import ANTHROPIC, BEDROCK, OPENAI, Dialect, DialectServer, Entry, Says
from tests.support.request_files import CSV, PDF, PNG, WAV, Stored, archive, audio, csv, image, link, pdf
from tests.support.responses_dialect import RESPONSES
from tests.support_litellm import request

from helix.adapters.models.adapter import ModelAdapter
from helix.adapters.models.litellm import load_litellm
from helix.core.errors import StoreError
from helix.core.files import FilePart
from helix.core.messages import AnyMessage, AssistantMessage, ToolCallRequest, ToolResultMessage, UserMessage
from helix.core.steps import AnyStepResult, ErrorStepResult, TextStepResult

FINE = Says("fine", stop="end_turn")
NOVA = "bedrock/us.amazon.nova-pro-v1:0"
AUDIO_MODEL = "openai/gpt-audio"
Ask = Callable[..., Any]


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def url(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{b64(data)}"


@pytest.fixture
def servers() -> Iterator[list[DialectServer]]:
    made: list[DialectServer] = []
    yield made
    for server in made:
        server.stop()


@pytest.fixture
def ask(servers: list[DialectServer]) -> Ask:
    async def asked(
        dialect: Dialect, messages: list[AnyMessage], *script: Entry, files: Stored | None = None, **named: Any
    ) -> AnyStepResult:
        servers.append(DialectServer(dialect, list(script) or [FINE]).start())
        options = dialect.options(servers[-1].origin) | named.pop("options", {})
        given = {
            "model": dialect.model,
            "adapter": "native",
            "cache": False,
            "max_retries": 0,
            **dialect.config,
            **named,
        }
        made = request(messages, provider_options=options, **given)
        return await ModelAdapter().generate_step(replace(made, files=files or Stored()))

    return asked


async def accepted(ask: Ask, dialect: Dialect, messages: list[AnyMessage], **named: Any) -> None:
    """Ask, and expect that the server accepts the request."""
    assert isinstance(await ask(dialect, messages, **named), TextStepResult)


def user(text: str, *files: FilePart) -> list[AnyMessage]:
    return [UserMessage(content=text, files=list(files))]


def returned(text: str, *files: FilePart) -> list[AnyMessage]:
    """A conversation in which a tool returned the files."""
    calls = [ToolCallRequest(id="c1", name="look", arguments={}), ToolCallRequest(id="c2", name="look", arguments={})]
    return [
        UserMessage(content="look"),
        AssistantMessage(tool_calls=calls),
        ToolResultMessage(tool_call_id="c1", tool_name="look", content=text, files=list(files)),
        ToolResultMessage(tool_call_id="c2", tool_name="look", content="2"),
    ]


TWO = user("a cat: and a report: done", image(6), pdf(20))


# --- each provider's form ---------------------------------------------------------------------------------------------


async def test_responses(ask: Ask, servers: list[DialectServer]) -> None:
    await accepted(ask, RESPONSES, TWO)
    (item,) = servers[0].requests[0].json["input"]
    assert item == {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "a cat:"},
            {"type": "input_image", "detail": "auto", "image_url": url(PNG, "image/png")},
            {"type": "input_text", "text": " and a report:"},
            {"type": "input_file", "filename": "report.pdf", "file_data": url(PDF, "application/pdf")},
            {"type": "input_text", "text": " done"},
        ],
    }
    assert servers[0].requests[0].headers["content-length"] == str(len(servers[0].requests[0].body))


async def test_responses_in_a_tools_result(ask: Ask, servers: list[DialectServer]) -> None:
    await accepted(ask, RESPONSES, returned("seen", image(), csv(4)))
    assert servers[0].requests[0].json["input"][-2:] == [
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [
                {"type": "input_image", "detail": "auto", "image_url": url(PNG, "image/png")},
                {"type": "input_text", "text": "seen"},
                {"type": "input_text", "text": f"[document 'sums.csv' (text/csv, {len(CSV)} bytes)]\n{CSV.decode()}"},
            ],
        },
        {"type": "function_call_output", "call_id": "c2", "output": "2"},
    ]


async def test_responses_with_urls(ask: Ask, servers: list[DialectServer]) -> None:
    files = Stored()
    await accepted(ask, RESPONSES, user("x", link(), link(1, "document", "application/pdf")), files=files)
    assert servers[0].requests[0].json["input"][0]["content"] == [
        {"type": "input_image", "detail": "auto", "image_url": "https://example.com/cat.png"},
        {"type": "input_text", "text": "x"},
        {"type": "input_file", "file_url": "https://example.com/cat.png"},
    ]
    assert files.reads == []


CHAT_CONTENT = [
    {"type": "text", "text": "a cat:"},
    {"type": "image_url", "image_url": {"url": url(PNG, "image/png")}},
    {"type": "text", "text": " and a report:"},
    {"type": "file", "file": {"filename": "report.pdf", "file_data": url(PDF, "application/pdf")}},
    {"type": "text", "text": " done"},
]


async def test_chat(ask: Ask, servers: list[DialectServer]) -> None:
    await accepted(ask, OPENAI, TWO)
    assert servers[0].requests[0].json["messages"] == [{"role": "user", "content": CHAT_CONTENT}]


async def test_chat_with_audio_and_a_url(ask: Ask, servers: list[DialectServer]) -> None:
    await accepted(ask, OPENAI, user("hear", audio(4)), model=AUDIO_MODEL)
    await accepted(ask, OPENAI, user("see", link(3)))
    assert servers[0].requests[0].json["messages"][0]["content"] == [
        {"type": "text", "text": "hear"},
        {"type": "input_audio", "input_audio": {"data": b64(WAV), "format": "wav"}},
    ]
    assert servers[1].requests[0].json["messages"][0]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}},
    ]


async def test_chat_has_the_files_of_a_step_after_all_its_results(ask: Ask, servers: list[DialectServer]) -> None:
    """A tool's message is text only, and nothing may stand between the results of a step."""
    await accepted(
        ask, OPENAI, [*returned("seen", image(4)), AssistantMessage(content="a cat"), UserMessage(content="so?")]
    )
    shown = f"[image 'cat.png' (image/png, {len(PNG)} bytes)]"
    assert servers[0].requests[0].json["messages"][2:] == [
        {"role": "tool", "tool_call_id": "c1", "content": f"seen\n{shown}"},
        {"role": "tool", "tool_call_id": "c2", "content": "2"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": f"From the result of call c1: {shown}"},
                {"type": "image_url", "image_url": {"url": url(PNG, "image/png")}},
            ],
        },
        {"role": "assistant", "content": "a cat"},
        {"role": "user", "content": "so?"},
    ]


ANTHROPIC_IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64(PNG)}}
ANTHROPIC_PDF = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": b64(PDF)},
    "title": "report.pdf",
}


async def test_anthropic(ask: Ask, servers: list[DialectServer]) -> None:
    await accepted(ask, ANTHROPIC, TWO, cache=True)
    (message,) = servers[0].requests[0].json["messages"]
    assert message["content"] == [
        {"type": "text", "text": "a cat:"},
        ANTHROPIC_IMAGE,
        {"type": "text", "text": " and a report:"},
        ANTHROPIC_PDF,
        {"type": "text", "text": " done", "cache_control": {"type": "ephemeral"}},
    ]


async def test_anthropic_in_a_tools_result(ask: Ask, servers: list[DialectServer]) -> None:
    await accepted(ask, ANTHROPIC, returned("", image(), pdf()))
    first, second = servers[0].requests[0].json["messages"][-1]["content"]
    assert first == {"type": "tool_result", "tool_use_id": "c1", "content": [ANTHROPIC_IMAGE, ANTHROPIC_PDF]}
    assert second["content"] == "2"


async def test_anthropic_with_urls_and_a_text(ask: Ask, servers: list[DialectServer]) -> None:
    await accepted(ask, ANTHROPIC, user("x", link(), link(0, "document", "application/pdf"), csv(1)))
    assert servers[0].requests[0].json["messages"][0]["content"] == [
        {"type": "image", "source": {"type": "url", "url": "https://example.com/cat.png"}},
        {"type": "document", "source": {"type": "url", "url": "https://example.com/cat.png"}},
        {"type": "text", "text": "x"},
        {"type": "text", "text": f"[document 'sums.csv' (text/csv, {len(CSV)} bytes)]\n{CSV.decode()}"},
    ]


async def test_bedrock(ask: Ask, servers: list[DialectServer]) -> None:
    await accepted(ask, BEDROCK, [*TWO, *returned("", image(), csv())])
    sent = servers[0].requests[0].json["messages"]
    report = {"document": {"format": "pdf", "name": "report", "source": {"bytes": b64(PDF)}}}
    assert sent[0]["content"] == [
        {"text": "a cat:"},
        {"image": {"format": "png", "source": {"bytes": b64(PNG)}}},
        {"text": " and a report:"},
        report,
        {"text": " done"},
        {"text": "look"},
    ]
    assert sent[-1]["content"][0]["toolResult"]["content"] == [
        {"image": {"format": "png", "source": {"bytes": b64(PNG)}}},
        {"document": {"format": "csv", "name": "sums", "source": {"bytes": b64(CSV)}}},
        {"text": "(empty)"},
    ]


async def test_bedrock_names_documents_as_it_must(ask: Ask, servers: list[DialectServer]) -> None:
    """Converse refuses other characters, two documents of one name, and a document without a text."""
    names = ["report.pdf", "Report.pdf", "../år_2024 (a).pdf", None, "\n", "x" * 300 + ".pdf"]
    await accepted(
        ask, BEDROCK, [*user("", *(pdf(name=name) for name in names)), AssistantMessage(content="a"), *user("b")]
    )
    content = servers[0].requests[0].json["messages"][0]["content"]
    shown = [block["document"]["name"] for block in content[:-1]]
    assert shown == ["report", "Report (2)", "r 2024 (a)", "document", "document (2)", "x" * 190]
    assert content[-1] == {"text": "(empty)"}


async def test_bedrock_reads_s3_itself(ask: Ask, servers: list[DialectServer]) -> None:
    files = Stored(bucket="mine")
    film = image().model_copy(update={"kind": "file", "media_type": "video/mp4"})
    await accepted(ask, BEDROCK, user("see", image(), film, pdf()), files=files, model=NOVA)
    where = {"s3Location": {"uri": f"s3://mine/blobs/{image().sha256}"}}
    content = servers[0].requests[0].json["messages"][0]["content"]
    assert content[:2] == [
        {"image": {"format": "png", "source": where}},
        {"video": {"format": "mp4", "source": where}},
    ]
    assert content[2]["document"]["source"] == {"s3Location": {"uri": f"s3://mine/blobs/{pdf().sha256}"}}
    assert files.reads == []
    await accepted(ask, BEDROCK, user("see", image()), files=files)
    claude = servers[1].requests[0].json["messages"][0]["content"][0]["image"]["source"]
    assert claude == {"bytes": b64(PNG)}, "Claude cannot read S3"


async def test_litellm(ask: Ask, servers: list[DialectServer]) -> None:
    load_litellm()
    await accepted(ask, OPENAI, TWO, adapter="litellm")
    await accepted(ask, RESPONSES, TWO, adapter="litellm")
    await accepted(ask, ANTHROPIC, returned("seen", image()), adapter="litellm", tools=[])
    assert servers[0].requests[0].json["messages"] == [{"role": "user", "content": CHAT_CONTENT}]
    assert servers[1].requests[0].json["input"][0]["content"][1]["image_url"] == url(PNG, "image/png")
    *_, label, picture = servers[2].requests[0].json["messages"][-1]["content"]
    assert picture == ANTHROPIC_IMAGE and label["text"].startswith("From the result of call c1: [image 'cat.png'")


# --- what cannot be sent ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "named", "file", "why"),
    [
        (OPENAI, {"model": "openai/gpt-3.5-turbo"}, image(), "does not take images; choose a model that takes images"),
        (RESPONSES, {}, audio(), "does not take audio; choose a model that takes audio"),
        (ANTHROPIC, {}, link(0, "document", "text/html"), "Anthropic's Messages API does not take this type as a URL"),
        (BEDROCK, {}, link(), "Amazon Bedrock's Converse API does not take this type as a URL; upload the file itself"),
        (OPENAI, {}, image().model_copy(update={"media_type": "image/tiff"}), "convert it to PDF, PNG, JPEG or text"),
        (BEDROCK, {"adapter": "litellm"}, link(), "litellm does not take this type as a URL"),
    ],
)
async def test_a_file_that_the_model_cannot_take_is_refused(
    ask: Ask, servers: list[DialectServer], dialect: Dialect, named: dict[str, Any], file: FilePart, why: str
) -> None:
    result = await ask(dialect, user("x", file), **named)
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.retryable, result.usage.calls) == ("invalid_file", False, 0)
    assert (
        why in result.error
        and file.media_type in result.error
        and repr(named.get("model", dialect.model)) in result.error
    )
    assert servers[0].requests == [], "and nothing was asked"


@pytest.mark.parametrize("dialect", [OPENAI, RESPONSES, ANTHROPIC, BEDROCK], ids=lambda dialect: dialect.name)
async def test_other_files_that_it_cannot_take_are_named(
    ask: Ask, servers: list[DialectServer], dialect: Dialect
) -> None:
    """A file that no model reads, that of an older message, or that of a tool does not end the run."""
    files = Stored()
    tiff = image().model_copy(update={"media_type": "image/tiff"})
    messages = [*user("old", tiff), AssistantMessage(content="a"), *user("new", archive(3)), *returned("", tiff)[1:]]
    assert isinstance(await ask(dialect, messages, files=files), TextStepResult)
    sent = json.dumps(servers[0].requests[0].json)
    assert sent.count(f"[image 'cat.png' (image/tiff, {len(PNG)} bytes), which this model cannot read]") == 2
    assert "[file 'all.zip' (application/zip, 2 bytes), which this model cannot read]" in sent
    assert files.reads == []


@pytest.mark.parametrize("adapter", ["native", "litellm"])
@pytest.mark.parametrize("dialect", [OPENAI, RESPONSES, ANTHROPIC, BEDROCK], ids=lambda dialect: dialect.name)
async def test_a_missing_file_fails_the_step(
    ask: Ask, servers: list[DialectServer], dialect: Dialect, adapter: str
) -> None:
    result = await ask(dialect, user("see", image()), files=Stored(blobs={}), adapter=adapter, max_retries=3)
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.retryable, result.usage.calls) == ("file_missing", False, 0)
    assert result.error == "file 'cat.png' does not exist: upload it again"
    assert servers[0].requests == []


async def test_a_fallback_that_takes_the_file_is_asked(ask: Ask, servers: list[DialectServer]) -> None:
    result = await ask(OPENAI, user("see", image()), model="openai/gpt-3.5-turbo", fallbacks=[OPENAI.model])
    assert isinstance(result, TextStepResult) and result.model == OPENAI.model
    assert [sent.json["model"] for sent in servers[0].requests] == ["gpt-4o-mini"]


async def test_a_store_that_does_not_respond_is_asked_again(ask: Ask) -> None:
    class Slow(Stored):
        async def read(self, file: FilePart) -> bytes:
            if not self.reads:
                self.reads.append("")
                raise StoreError("S3 did not respond")
            return await super().read(file)

    assert isinstance(await ask(OPENAI, user("see", image()), files=Slow(), max_retries=1), TextStepResult)


async def test_the_same_messages_give_the_same_bytes(ask: Ask, servers: list[DialectServer]) -> None:
    """Prompt caches stay warm: the next step's prompt begins with all of this one. A file is read once per request."""
    for dialect in (OPENAI, RESPONSES, ANTHROPIC, BEDROCK):
        servers.clear()
        files = Stored()
        twice = [*TWO, *user("again", image(), pdf())]
        more = [*twice, AssistantMessage(content="fine"), *user("and?")]
        for messages in (twice, twice, more):
            await ask(dialect, messages, files=files)
        first, second, third = (server.requests[0] for server in servers)
        for server in servers:
            server.stop()
        assert first.body == second.body and len(files.reads) == 3 * 2
        key = "input" if dialect is RESPONSES else "messages"
        assert third.json[key][: len(first.json[key])] == first.json[key]
