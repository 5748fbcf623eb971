"""One script of a model's answers, played by servers on loopback in each provider's dialect: OpenAI's Chat Completions,
Anthropic's Messages and Amazon Bedrock's Converse. `responses_dialect.py` has OpenAI's Responses.

`Says` holds an answer of the model. A dialect is a server that sends it, and the settings with which an adapter asks it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import struct
from binascii import crc32
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.model_refusals import chat_refusal, messages_refusal
from tests.support.strict_refusals import converse_refusal

from helix.testing.loopback_server import LoopbackServer, RecordedRequest, Responder

CUT, STALL = "cut", "stall"


@dataclass(frozen=True)
class Says:
    """An answer of the model. `thoughts` are (text, signature). Texts, thoughts and arguments come in fragments of `size`
    characters. `usage` is (fresh input, cache read, cache written, output), and `hour` says that it was written for an
    hour. `fault` comes after `after` events. `stop` is
    in Anthropic's words, and None ends the stream without one. `noise` is sent before the event number `after`."""

    texts: str = ""
    thoughts: tuple[tuple[str, str], ...] = ()
    redacted: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    stop: str | None = None
    usage: tuple[int, int, int, int] | None = (20, 100, 0, 40)
    hour: bool = False
    size: int = 5
    fault: str = ""
    after: int = 1
    noise: bytes = b""


@dataclass(frozen=True)
class Fails:
    """An HTTP error. `kind` is the type of Anthropic and OpenAI, and `aws` that of Bedrock."""

    status: int
    kind: str
    aws: str
    message: str = "its own words"
    headers: dict[str, str] = field(default_factory=dict)
    param: str | None = None


@dataclass(frozen=True)
class Breaks:
    """An error within the stream, after a text."""

    kind: str
    aws: str


@dataclass(frozen=True)
class Packed:
    """A body as it is sent over the network."""

    body: bytes
    encoding: str = "gzip"
    status: int = 200


Entry = Says | Fails | Breaks | Packed


class DialectServer(LoopbackServer):
    """A server that plays a script in a `dialect`."""

    def __init__(self, dialect: Dialect, script: list[Entry]) -> None:
        super().__init__(self._answer)
        self._dialect, self._script = dialect, list(script)

    async def _answer(self, request: RecordedRequest, responder: Responder) -> None:
        entry: Entry | None = self._dialect.refuses(request)
        entry = entry or self._script.pop(0)
        if isinstance(entry, Fails):
            body, headers = self._dialect.failure(entry)
            await responder.send_json(entry.status, body, {**headers, **entry.headers})
            return
        if isinstance(entry, Packed):
            kind = {"content-type": self._dialect.content_type, "content-encoding": entry.encoding}
            await responder.start(entry.status, kind)
            with contextlib.suppress(ConnectionError):
                for number in range(0, len(entry.body), 4096):
                    await responder.send(entry.body[number : number + 4096])
                await responder.end()
            return
        await responder.start(200, {"content-type": self._dialect.content_type})
        if isinstance(entry, Breaks):
            for part in [*self._dialect.say(Says("so far", stop=None))][:3]:
                await responder.send(part)
            await responder.send(self._dialect.breaks(entry))
            await responder.end()
            return
        for number, part in enumerate(self._dialect.say(entry)):
            if entry.fault and number == entry.after:
                if entry.fault == CUT:
                    responder.abort()
                    return
                await asyncio.sleep(60)
            if entry.noise and number == entry.after:
                await responder.send(entry.noise)
            await responder.send(part)
        await responder.end()


@dataclass(frozen=True)
class Dialect:
    """A dialect. `options` returns an adapter's provider options for a server's address. `signs` says whether thoughts have
    signatures. `refuses` returns the provider's error for a request that it does not accept."""

    name: str
    model: str
    content_type: str
    say: Callable[[Says], Iterator[bytes]]
    failure: Callable[[Fails], tuple[dict[str, Any], dict[str, str]]]
    breaks: Callable[[Breaks], bytes]
    options: Callable[[str], dict[str, Any]]
    signs: bool = True
    refuses: Callable[[RecordedRequest], Fails | None] = lambda request: None
    config: dict[str, Any] = field(default_factory=dict)


def refusing(refusal: Callable[[dict[str, Any]], str | None]) -> Callable[[RecordedRequest], Fails | None]:
    def refuses(request: RecordedRequest) -> Fails | None:
        message = refusal(request.json)
        return None if message is None else Fails(400, "invalid_request_error", "ValidationException", message)

    return refuses


def cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def interleaved(calls: tuple[tuple[str, str, str], ...], size: int) -> Iterator[tuple[int, str]]:
    parts = [cut(arguments, size) for _, _, arguments in calls]
    for row in range(max((len(part) for part in parts), default=0)):
        yield from ((index, part[row]) for index, part in enumerate(parts) if row < len(part))


# --- OpenAI -----------------------------------------------------------------------------------------------------------

_OPENAI_STOP = {
    "end_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "content_filter",
    "content_filtered": "content_filter",
}


def _sse(data: dict[str, Any], event: str = "") -> bytes:
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def _openai_chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _sse({"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})


def say_openai(says: Says) -> Iterator[bytes]:
    yield _openai_chunk({"role": "assistant", "content": ""})
    for thought, _ in says.thoughts:
        yield from (_openai_chunk({"reasoning_content": part}) for part in cut(thought, says.size))
    yield from (_openai_chunk({"content": part}) for part in cut(says.texts, says.size))
    for index, (id, name, _) in enumerate(says.calls):
        function = {"name": name, "arguments": ""}
        yield _openai_chunk({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]})
    for index, part in interleaved(says.calls, says.size):
        yield _openai_chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    if says.stop is None:
        return
    yield _openai_chunk({}, _OPENAI_STOP[says.stop])
    if says.usage:
        fresh, read, _, output = says.usage
        counts = {"prompt_tokens": fresh + read, "completion_tokens": output, "total_tokens": fresh + read + output}
        usage = {**counts, "prompt_tokens_details": {"cached_tokens": read}}
        yield _sse({"id": "1", "object": "chat.completion.chunk", "created": 1, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def openai_failure(fails: Fails) -> tuple[dict[str, Any], dict[str, str]]:
    code = {"too_long": "context_length_exceeded"}.get(fails.kind)
    return {"error": {"message": fails.message, "type": fails.kind, "param": fails.param, "code": code}}, {}


OPENAI = Dialect(
    "openai",
    "openai/gpt-4o-mini",
    "text/event-stream",
    say_openai,
    openai_failure,
    lambda breaks: _sse({"error": {"message": "its own words", "type": breaks.kind, "code": None}}),
    lambda origin: {"api_base": f"{origin}/v1", "api_key": "test"},
    signs=False,
    refuses=refusing(chat_refusal),
)


# --- Anthropic --------------------------------------------------------------------------------------------------------


def say_anthropic(says: Says) -> Iterator[bytes]:
    fresh, read, written, output = says.usage or (0, 0, 0, 0)
    usage: dict[str, Any] = {"input_tokens": fresh, "output_tokens": 1, "cache_read_input_tokens": read}
    if written:
        usage["cache_creation_input_tokens"] = written
        usage["cache_creation"] = {f"ephemeral_{'1h' if says.hour else '5m'}_input_tokens": written}
    message: dict[str, Any] = {"id": "m", "type": "message", "role": "assistant", "model": "claude"}
    message |= {"content": [], "stop_reason": None}
    yield event({"type": "message_start", "message": {**message, "usage": usage if says.usage else {}}})
    for index, (block, deltas) in enumerate(_anthropic_blocks(says)):
        yield event({"type": "content_block_start", "index": index, "content_block": block})
        yield from (event({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas)
        yield event({"type": "content_block_stop", "index": index})
    if says.stop is not None:
        final = {"output_tokens": output} if says.usage else {}
        yield event(
            {"type": "message_delta", "delta": {"stop_reason": says.stop, "stop_sequence": None}, "usage": final}
        )
        yield event({"type": "message_stop"})


def event(data: dict[str, Any]) -> bytes:
    return _sse(data, data["type"])


def _anthropic_blocks(says: Says) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    for text, signature in says.thoughts:
        parts = [{"type": "thinking_delta", "thinking": part} for part in cut(text, says.size)]
        yield (
            {"type": "thinking", "thinking": "", "signature": ""},
            [
                *parts,
                {"type": "signature_delta", "signature": signature},
            ],
        )
    if says.redacted:
        yield {"type": "redacted_thinking", "data": says.redacted}, []
    if says.texts:
        yield (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": part} for part in cut(says.texts, says.size)],
        )
    for id, name, arguments in says.calls:
        parts = [{"type": "input_json_delta", "partial_json": part} for part in cut(arguments, says.size)]
        yield {"type": "tool_use", "id": id, "name": name, "input": {}}, parts


def _anthropic_failure(fails: Fails) -> tuple[dict[str, Any], dict[str, str]]:
    kind = {"too_long": "invalid_request_error"}.get(fails.kind, fails.kind)
    return {"type": "error", "error": {"type": kind, "message": fails.message}}, {}


ANTHROPIC = Dialect(
    "anthropic",
    "anthropic/claude-sonnet-4-5",
    "text/event-stream",
    say_anthropic,
    _anthropic_failure,
    lambda breaks: event({"type": "error", "error": {"type": breaks.kind, "message": "its own words"}}),
    lambda origin: {"api_base": origin, "api_key": "test"},
    refuses=refusing(messages_refusal),
)


# --- Amazon Bedrock ---------------------------------------------------------------------------------------------------


def frame(kind: str, payload: dict[str, Any], exception: bool = False) -> bytes:
    """Return one message of the event stream encoding: `application/vnd.amazon.eventstream`."""
    names = {":exception-type" if exception else ":event-type": kind, ":content-type": "application/json"}
    names[":message-type"] = "exception" if exception else "event"
    headers = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in names.items()
    )
    body = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    message = prelude + struct.pack(">I", crc32(prelude)) + headers + body
    return message + struct.pack(">I", crc32(message))


def say_bedrock(says: Says) -> Iterator[bytes]:
    yield frame("messageStart", {"role": "assistant"})
    for index, (begin, deltas) in enumerate(_bedrock_blocks(says)):
        if begin:
            yield frame("contentBlockStart", {"start": begin, "contentBlockIndex": index})
        yield from (frame("contentBlockDelta", {"delta": delta, "contentBlockIndex": index}) for delta in deltas)
        yield frame("contentBlockStop", {"contentBlockIndex": index})
    if says.stop is None:
        return
    yield frame("messageStop", {"stopReason": {"refusal": "guardrail_intervened"}.get(says.stop, says.stop)})
    if says.usage:
        fresh, read, written, output = says.usage
        usage: dict[str, Any] = {
            "inputTokens": fresh,
            "outputTokens": output,
            "totalTokens": fresh + read + written + output,
        }
        usage |= {"cacheReadInputTokens": read, "cacheWriteInputTokens": written}
        usage["cacheDetails"] = [{"ttl": "1h" if says.hour else "5m", "inputTokens": written}] if written else []
        yield frame("metadata", {"usage": usage, "metrics": {"latencyMs": 1}})


def _bedrock_blocks(says: Says) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    for text, signature in says.thoughts:
        parts = [{"reasoningContent": {"text": part}} for part in cut(text, says.size)]
        yield {}, [*parts, {"reasoningContent": {"signature": signature}}]
    if says.redacted:
        data = base64.b64encode(says.redacted.encode()).decode()
        yield {}, [{"reasoningContent": {"redactedContent": data}}]
    if says.texts:
        yield {}, [{"text": part} for part in cut(says.texts, says.size)]
    for id, name, arguments in says.calls:
        parts = [{"toolUse": {"input": part}} for part in cut(arguments, says.size)]
        yield {"toolUse": {"toolUseId": id, "name": name}}, parts


def _bedrock_failure(fails: Fails) -> tuple[dict[str, Any], dict[str, str]]:
    return {"message": fails.message}, {"x-amzn-errortype": fails.aws}


def _bedrock_refusal(request: RecordedRequest) -> Fails | None:
    message = converse_refusal(request.path, request.json)
    return None if message is None else Fails(400, "invalid_request_error", "ValidationException", message)


BEDROCK = Dialect(
    "bedrock",
    "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "application/vnd.amazon.eventstream",
    say_bedrock,
    _bedrock_failure,
    lambda breaks: frame(breaks.aws, {"message": "its own words"}, exception=True),
    lambda origin: {
        "aws_bedrock_runtime_endpoint": origin,
        "aws_region_name": "us-east-1",
        "aws_access_key_id": "AKIDEXAMPLE",
        "aws_secret_access_key": "test-secret",
    },
    refuses=lambda request: _bedrock_refusal(request),
)
