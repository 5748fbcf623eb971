"""Amazon Bedrock through boto3, over real HTTP on loopback: what is sent, and the responses that only Bedrock gives."""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.support.model_dialects import BEDROCK, DialectServer, Entry, Says, frame
from tests.support.request_files import Stored, image, pdf
from tests.support_litellm import request, tool

from helix.adapters.models.adapter import ModelAdapter
from helix.core.messages import (
    AnyMessage,
    AssistantMessage,
    SystemMessage,
    ThinkingContent,
    ToolCallRequest,
    ToolResultMessage,
    UserMessage,
)
from helix.core.steps import AnyStepResult, ErrorStepResult, StopReason, TextStepResult
from helix.ports.model import LLMStreamCallbacks, NoFiles

FINE = Says("fine", stop="end_turn")
NOVA = "bedrock/us.amazon.nova-pro-v1:0"
PROFILE = "bedrock/arn:aws:bedrock:eu-west-1:111122223333:application-inference-profile/abc"
Ask = Callable[..., Any]


@pytest.fixture
def servers() -> Iterator[list[DialectServer]]:
    made: list[DialectServer] = []
    yield made
    for server in made:
        server.stop()


@pytest.fixture
def ask(servers: list[DialectServer]) -> Ask:
    async def asked(entry: Entry = FINE, options: dict[str, Any] | None = None, **named: Any) -> AnyStepResult:
        servers.append(DialectServer(BEDROCK, [entry]).start())
        given = {**BEDROCK.options(servers[-1].origin), **(options or {})}
        files = named.pop("files", NoFiles())
        wanted = {"model": BEDROCK.model, "adapter": "native", **named}
        return await ModelAdapter().generate_step(replace(request(provider_options=given, **wanted), files=files))

    return asked


HISTORY: list[AnyMessage] = [
    SystemMessage(content="be brief"),
    UserMessage(content="add"),
    AssistantMessage(
        content="adding",
        tool_calls=[
            ToolCallRequest(id="c1", name="add", arguments={"a": 1}),
            ToolCallRequest(id="call.2/x", name="add", arguments={}),
        ],
        thinking=[
            ThinkingContent(text="hm", signature="SIG"),
            ThinkingContent(redacted="RU5D"),
            ThinkingContent(text="x"),
        ],
    ),
    ToolResultMessage(tool_call_id="c1", tool_name="add", content="3"),
    ToolResultMessage(tool_call_id="call.2/x", tool_name="add", content="", success=False),
    UserMessage(content="go on"),
]


async def test_a_conversation_in_turns(ask: Ask, servers: list[DialectServer]) -> None:
    result = await ask(
        messages=HISTORY,
        tools=[tool()],
        temperature=0.5,
        max_output_tokens=77,
        stop=["END"],
        tool_choice="add",
        cache=False,
    )
    assert isinstance(result, TextStepResult)
    sent = servers[0].requests[0]
    assert unquote(sent.path) == "/model/us.anthropic.claude-sonnet-4-5-20250929-v1:0/converse-stream"
    assert "AKIDEXAMPLE" in sent.headers["authorization"] and "us-east-1/bedrock" in sent.headers["authorization"]
    assert sent.json["system"] == [{"text": "be brief"}]
    assert sent.json["inferenceConfig"] == {"maxTokens": 77, "temperature": 0.5, "stopSequences": ["END"]}
    assert sent.json["messages"] == [
        {"role": "user", "content": [{"text": "add"}]},
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "SIG"}}},
                {"reasoningContent": {"redactedContent": "RU5D"}},
                {"text": "adding"},
                {"toolUse": {"toolUseId": "c1", "name": "add", "input": {"a": 1}}},
                {"toolUse": {"toolUseId": "call_2_x", "name": "add", "input": {}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": "c1", "content": [{"text": "3"}]}},
                {"toolResult": {"toolUseId": "call_2_x", "content": [{"text": "(empty)"}], "status": "error"}},
                {"text": "go on"},
            ],
        },
    ]
    spec = {"name": "add", "description": "the tool add"}
    assert sent.json["toolConfig"] == {
        "tools": [{"toolSpec": {**spec, "inputSchema": {"json": {"type": "object", "properties": {}}}}}],
        "toolChoice": {"tool": {"name": "add"}},
    }


async def test_signed_thinking_goes_to_claude_alone(ask: Ask, servers: list[DialectServer]) -> None:
    for model in (NOVA, PROFILE):
        await ask(messages=HISTORY, model=model)
    await ask(messages=HISTORY, model=PROFILE, options={"thinking": {"type": "enabled", "budget_tokens": 2000}})
    sent = [server.requests[0].json for server in servers]
    assert ["reasoningContent" in block for block in sent[0]["messages"][1]["content"]] == [False] * 3
    assert ["reasoningContent" in block for block in sent[1]["messages"][1]["content"]] == [False] * 3
    assert ["reasoningContent" in block for block in sent[2]["messages"][1]["content"]] == [True] * 2 + [False] * 3
    assert sent[2]["additionalModelRequestFields"] == {"thinking": {"type": "enabled", "budget_tokens": 2000}}
    assert sent[2]["inferenceConfig"]["maxTokens"] > 2000
    assert [each["toolConfig"]["tools"][0]["toolSpec"]["name"] for each in sent] == ["add"] * 3, "of the history"


async def test_an_arn_names_its_region(ask: Ask, servers: list[DialectServer]) -> None:
    servers.append(DialectServer(BEDROCK, [FINE]).start())
    given = BEDROCK.options(servers[-1].origin)
    del given["aws_region_name"]
    await ModelAdapter().generate_step(request(model=PROFILE, adapter="native", provider_options=given))
    assert "/eu-west-1/bedrock/" in servers[0].requests[0].headers["authorization"]


@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_REGION_NAME", "AWS_DEFAULT_REGION"])
async def test_the_environment_names_the_region(
    servers: list[DialectServer], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    for name in ("AWS_REGION", "AWS_REGION_NAME", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv(variable, "eu-north-1")
    servers.append(DialectServer(BEDROCK, [FINE]).start())
    given = BEDROCK.options(servers[-1].origin)
    del given["aws_region_name"]
    await ModelAdapter().generate_step(request(model=BEDROCK.model, adapter="native", provider_options=given))
    assert "/eu-north-1/bedrock/" in servers[0].requests[0].headers["authorization"]


@pytest.mark.parametrize("name", ["api_key", "aws_role_name"])
async def test_credentials_that_boto3_does_not_take_are_refused_and_sent_nowhere(
    ask: Ask, servers: list[DialectServer], name: str
) -> None:
    result = await ask(options={name: "a-secret-of-mine"})
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.usage.calls) == ("bad_request", 0)
    assert f"provider_options['{name}'] needs litellm" in result.error and "a-secret" not in result.error
    assert not servers[0].requests


async def test_nova_is_not_asked_to_think_as_claude_is(ask: Ask, servers: list[DialectServer]) -> None:
    options = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
    await ask(model=NOVA, options=options, messages=HISTORY, tools=[tool()], tool_choice="add", temperature=0.5)
    sent = servers[0].requests[0].json
    assert "additionalModelRequestFields" not in sent and sent["inferenceConfig"] == {"temperature": 0.5}
    assert "reasoningContent" not in sent["messages"][1]["content"][0]
    assert sent["toolConfig"]["toolChoice"] == {"tool": {"name": "add"}}


@pytest.mark.parametrize(("model", "marks_tools"), [(BEDROCK.model, True), (NOVA, False)])
async def test_cache_points_close_what_does_not_change(
    ask: Ask, servers: list[DialectServer], model: str, marks_tools: bool
) -> None:
    point = {"cachePoint": {"type": "default"}}
    await ask(model=model, tools=[tool("a"), tool("b")], cache=True)
    sent = servers[0].requests[0].json
    assert sent["system"][-1] == point and sent["messages"][-1]["content"][-1] == point
    assert (sent["toolConfig"]["tools"][-1] == point) is marks_tools


async def test_a_claude_without_a_cache_gets_no_cache_points(ask: Ask, servers: list[DialectServer]) -> None:
    await ask(model="bedrock/anthropic.claude-3-opus-20240229-v1:0", tools=[tool()], cache=True)
    assert "cachePoint" not in str(servers[0].requests[0].json)


async def test_guardrails_and_other_options_of_converse_are_its_own_and_the_rest_the_models(
    ask: Ask, servers: list[DialectServer]
) -> None:
    guard = {"guardrailIdentifier": "gr-1", "guardrailVersion": "2", "trace": "enabled"}
    options = {"guardrailConfig": guard, "performanceConfig": {"latency": "optimized"}, "top_p": 0.9, "top_k": 5}
    result = await ask(Says("Sorry.", stop="guardrail_intervened"), options=options)
    sent = servers[0].requests[0].json
    assert (sent["guardrailConfig"], sent["performanceConfig"]) == (guard, {"latency": "optimized"})
    assert sent["inferenceConfig"] == {"topP": 0.9}
    assert sent["additionalModelRequestFields"] == {"top_k": 5}
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.stop_reason) == ("content_filter", StopReason.CONTENT_FILTER)


async def test_redacted_reasoning_comes_back_as_it_went(ask: Ask, servers: list[DialectServer]) -> None:
    result = await ask(Says("so", redacted="bytes \x00", stop="end_turn"))
    data = base64.b64encode(b"bytes \x00").decode()
    assert result.thinking == [ThinkingContent(redacted=data)]


async def test_a_cache_written_for_an_hour_costs_more(ask: Ask) -> None:
    plain = await ask(Says("ok", stop="end_turn", usage=(0, 0, 1000, 0)))
    usage = {"inputTokens": 0, "outputTokens": 0, "totalTokens": 1000, "cacheWriteInputTokens": 1000}
    details = [{"ttl": "1h", "inputTokens": 1000}]
    events = [
        frame("messageStop", {"stopReason": "end_turn"}),
        frame("metadata", {"usage": {**usage, "cacheDetails": details}, "metrics": {}}),
    ]
    with DialectServer(replace(BEDROCK, say=lambda says: iter(events)), [FINE]) as server:
        asked = request(model=BEDROCK.model, adapter="native", provider_options=BEDROCK.options(server.origin))
        hour = await ModelAdapter().generate_step(asked)
    assert (plain.usage.cost_micros, hour.usage.cost_micros) == (4125, 6600)


@pytest.mark.parametrize("stop", ["malformed_tool_use", "malformed_model_output"])
async def test_a_malformed_answer_may_be_asked_for_again(ask: Ask, stop: str) -> None:
    result = await ask(Says("so", stop=stop), max_retries=0)
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.retryable) == ("server_error", True)


async def test_without_a_region_or_credentials_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    placeless = await ModelAdapter().generate_step(request(model=BEDROCK.model, adapter="native"))
    assert isinstance(placeless, ErrorStepResult)
    assert (placeless.code, placeless.retryable) == ("bad_request", False) and "AWS_REGION" in placeless.error
    options = {"aws_region_name": "us-east-1"}
    nobody = await ModelAdapter().generate_step(
        request(model=BEDROCK.model, adapter="native", provider_options=options)
    )
    assert isinstance(nobody, ErrorStepResult)
    assert (nobody.code, nobody.retryable, nobody.usage.unknown_calls) == ("authentication", False, 0)


@pytest.mark.parametrize("begun", [False, True])
async def test_cancelling_ends_an_encrypted_connection_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, begun: bool
) -> None:
    """The connection is encrypted, as on AWS. The call is cancelled before the answer begins, and while its thread waits
    for more of it."""
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certify(tmp_path)))
    asked, closed = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head.lower())
        assert found is not None
        await reader.readexactly(int(found[1]))
        if begun:
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            for part in [*BEDROCK.say(Says("hello"))][:2]:
                writer.write(b"%x\r\n%s\r\n" % (len(part), part))
        else:
            asked.set()
        await reader.read()
        writer.close()
        closed.set()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "key.pem")
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    options = BEDROCK.options(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    callbacks = LLMStreamCallbacks(on_text_delta=lambda text: asked.set())
    wanted = request(model=BEDROCK.model, adapter="native", provider_options=options, callbacks=callbacks)
    running = asyncio.create_task(ModelAdapter().generate_step(wanted))
    await asyncio.wait_for(asked.wait(), 30)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.wait_for(closed.wait(), 10)
    server.close()
    await server.wait_closed()


def certify(folder: Path) -> Path:
    """Write a self-signed certificate for 127.0.0.1."""
    key, name = (
        ec.generate_private_key(ec.SECP256R1()),
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback")]),
    )
    day, now = timedelta(days=1), datetime.now(UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now - day, now + day)
    signed = made.add_extension(address, False).sign(key, hashes.SHA256())
    (folder / "server.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(key.private_bytes(*plain))
    return folder / "server.pem"


async def test_the_signature_covers_a_body_with_files(ask: Ask, servers: list[DialectServer]) -> None:
    """The body is not the one that boto3 makes. The signature is computed here from the body that arrived."""
    files = [image(3), pdf(3)]
    result = await ask(messages=[*HISTORY[1:], UserMessage(content="see", files=files)], files=Stored(), tools=[tool()])
    assert isinstance(result, TextStepResult)
    (sent,) = servers[0].requests
    signed, signature = re.findall(r"SignedHeaders=(\S+), Signature=(\w+)", sent.headers["authorization"])[0]
    headers = {name: sent.headers[name] for name in signed.split(";")}
    again = AWSRequest("POST", f"{servers[0].origin}{sent.path}", headers, sent.body)
    again.context["timestamp"] = sent.headers["x-amz-date"]
    auth = SigV4Auth(Credentials("AKIDEXAMPLE", "test-secret"), "bedrock", "us-east-1")
    assert auth.signature(auth.string_to_sign(again, auth.canonical_request(again)), again) == signature
    assert sent.json["messages"][1]["content"][1] == {"reasoningContent": {"redactedContent": "RU5D"}}
    assert set(sent.json) == {"messages", "toolConfig"}, "what is not of the body is left out"
