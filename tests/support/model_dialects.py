"""One script of a model's answers, played by servers on loopback in each provider's dialect: OpenAI's Responses and Chat
Completions, Anthropic's Messages and Amazon Bedrock's Converse.

`Says` holds what a model says; a dialect is a server that says it, and the settings with which an adapter asks it.
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

from helix.testing.loopback_server import LoopbackServer, RecordedRequest, Responder

CUT, STALL = "cut", "stall"


@dataclass(frozen=True)
class Says:
    """`thoughts` are (text, signature). Texts, thoughts and arguments come in fragments of `size` characters. `usage` is
    (fresh input, cache read, cache written, output). `fault` comes after `after` events; `stop` is in Anthropic's words,
    None ends the stream without one. `noise` is sent before the event number `after`."""

    texts: str = ""
    thoughts: tuple[tuple[str, str], ...] = ()
    redacted: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    stop: str | None = None
    usage: tuple[int, int, int, int] | None = (20, 100, 0, 40)
    size: int = 5
    fault: str = ""
    after: int = 1
    noise: bytes = b""


@dataclass(frozen=True)
class Fails:
    """An HTTP error. `kind` is Anthropic's and OpenAI's word, `aws` Bedrock's."""

    status: int
    kind: str
    aws: str
    message: str = "its own words"
    headers: dict[str, str] = field(default_factory=dict)
    param: str | None = None


@dataclass(frozen=True)
class Breaks:
    """An error told within the stream, after a text."""

    kind: str
    aws: str


@dataclass(frozen=True)
class Packed:
    """A body as it goes over the network."""

    body: bytes
    encoding: str = "gzip"
    status: int = 200


Entry = Says | Fails | Breaks | Packed


class DialectServer(LoopbackServer):
    """Plays a script; `dialect` says how."""

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
    """`options` gives an adapter's provider options for a server's address. `signs`: whether thoughts have signatures.
    `refuses`: what the provider does not take, as it says it."""

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


def _cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _interleaved(calls: tuple[tuple[str, str, str], ...], size: int) -> Iterator[tuple[int, str]]:
    parts = [_cut(arguments, size) for _, _, arguments in calls]
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
        yield from (_openai_chunk({"reasoning_content": part}) for part in _cut(thought, says.size))
    yield from (_openai_chunk({"content": part}) for part in _cut(says.texts, says.size))
    for index, (id, name, _) in enumerate(says.calls):
        function = {"name": name, "arguments": ""}
        yield _openai_chunk({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]})
    for index, part in _interleaved(says.calls, says.size):
        yield _openai_chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    if says.stop is None:
        return
    yield _openai_chunk({}, _OPENAI_STOP[says.stop])
    if says.usage:
        fresh, read, _, output = says.usage
        usage = {"prompt_tokens": fresh + read, "completion_tokens": output, "total_tokens": fresh + read + output}
        usage |= {"prompt_tokens_details": {"cached_tokens": read}}
        yield _sse({"id": "1", "object": "chat.completion.chunk", "created": 1, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _openai_failure(fails: Fails) -> tuple[dict[str, Any], dict[str, str]]:
    code = {"too_long": "context_length_exceeded"}.get(fails.kind)
    return {"error": {"message": fails.message, "type": fails.kind, "param": fails.param, "code": code}}, {}


OPENAI = Dialect(
    "openai",
    "openai/gpt-4o-mini",
    "text/event-stream",
    say_openai,
    _openai_failure,
    lambda breaks: _sse({"error": {"message": "its own words", "type": breaks.kind, "code": None}}),
    lambda origin: {"api_base": f"{origin}/v1", "api_key": "test"},
    signs=False,
)


# --- OpenAI's Responses -------------------------------------------------------------------------------------------------

_FIELDS = frozenset(
    """
    background conversation include input instructions max_output_tokens max_tool_calls metadata model
    parallel_tool_calls previous_response_id prompt prompt_cache_key prompt_cache_retention reasoning
    safety_identifier service_tier store stream stream_options temperature text tool_choice tools top_logprobs top_p
    truncation user
    """.split()  # noqa: SIM905
)


def say_responses(says: Says) -> Iterator[bytes]:
    response: dict[str, Any] = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}
    yield _event({"type": "response.created", "response": response})
    items = [*_reasoning_items(says), *_answer_items(says)]
    for index, (item, deltas) in enumerate(items):
        yield _event({"type": "response.output_item.added", "output_index": index, "item": _begun(item)})
        yield from (_event({"output_index": index, **delta}) for delta in deltas)
        if item["type"] != "function_call":
            yield _event({"type": "response.output_item.done", "output_index": index, "item": item})
    calls = [(index, item) for index, (item, _) in enumerate(items) if item["type"] == "function_call"]
    for row, part in _interleaved(says.calls, says.size):
        kind = "response.function_call_arguments.delta"
        yield _event({"type": kind, "output_index": calls[row][0], "delta": part})
    for index, item in calls:
        yield _event({"type": "response.output_item.done", "output_index": index, "item": item})
    if says.stop is not None:
        yield _event(_ended(says, {**response, "output": [item for item, _ in items]}))


def _begun(item: dict[str, Any]) -> dict[str, Any]:
    empty = {"function_call": {"arguments": ""}, "reasoning": {"summary": []}, "message": {"content": []}}
    return {**item, **empty[item["type"]], "status": "in_progress"}


def _reasoning_items(says: Says) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    for number, (text, sealed) in enumerate([*says.thoughts, *([("", says.redacted)] if says.redacted else [])]):
        summary = [{"type": "summary_text", "text": text}] if text else []
        deltas = [{"type": "response.reasoning_summary_text.delta", "delta": part} for part in _cut(text, says.size)]
        item = {"type": "reasoning", "id": f"rs_{number}", "summary": summary, "encrypted_content": sealed}
        yield item, [{"type": "response.reasoning_summary_part.added", "summary_index": 0}, *deltas]


def _answer_items(says: Says) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    refused = says.stop == "refusal"
    kind = "response.refusal.delta" if refused else "response.output_text.delta"
    if says.texts or refused:
        content = [{"type": "refusal" if refused else "output_text", "text": says.texts}]
        item = {"type": "message", "id": "msg_0", "role": "assistant", "content": content}
        yield item, [{"type": kind, "delta": part} for part in _cut(says.texts or "no", says.size)]
    for id, name, arguments in says.calls:
        yield {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": name, "arguments": arguments}, []


def _ended(says: Says, response: dict[str, Any]) -> dict[str, Any]:
    why = {"max_tokens": "max_output_tokens", "content_filtered": "content_filter"}.get(says.stop or "")
    status = "incomplete" if why else "completed"
    response |= {"status": status, "incomplete_details": {"reason": why} if why else None}
    if says.usage:
        fresh, read, written, output = says.usage
        usage = {"input_tokens": fresh + read + written, "output_tokens": output}
        usage |= {"total_tokens": fresh + read + written + output}
        details = {"cached_tokens": read, "cache_write_tokens": written}
        response |= {"usage": {**usage, "input_tokens_details": details}}
    return {"type": f"response.{status}", "response": response}


def refuses_responses(request: RecordedRequest) -> Fails | None:
    """A request that OpenAI refuses, in its words: a field that it does not know, a reasoning item that is not as it was
    given or that nothing follows, a tool that is not said to be strict or not."""
    body = request.json
    if not request.path.endswith("/v1/responses"):
        return Fails(404, "invalid_request_error", "", f"Unknown request URL: POST {request.path}")
    for name in body:
        if name not in _FIELDS:
            return _refused(f"Unknown parameter: '{name}'.")
    if body["store"] is not False or (body["model"].startswith("gpt-5") and "include" not in body):
        return _refused("the test wants what is stateless")
    items = body["input"]
    for item, after in zip(items, [*items[1:], {}], strict=True):
        if len(item.get("call_id", "")) > 64:
            return _refused("Invalid 'call_id': string too long. Expected a string with maximum length 64.")
        if item.get("type") != "reasoning":
            continue
        if not item.get("encrypted_content"):
            return Fails(404, "invalid_request_error", "", f"Item with id '{item['id']}' not found.")
        follows = after.get("type") in ("reasoning", "function_call") or after.get("role") == "assistant"
        if not follows:
            return _refused(
                f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
            )
    if not all("strict" in tool for tool in body.get("tools", ())):
        return _refused("the test wants to be told whether a tool is strict")
    return None


def _refused(message: str) -> Fails:
    return Fails(400, "invalid_request_error", "ValidationException", message)


RESPONSES = Dialect(
    "responses",
    "openai/gpt-5.6",
    "text/event-stream",
    say_responses,
    _openai_failure,
    lambda breaks: _event({"type": "error", "code": "server_error", "message": "its own words", "param": None}),
    lambda origin: {"api_base": f"{origin}/v1", "api_key": "test"},
    refuses=refuses_responses,
    config={"api": "responses"},
)


# --- Anthropic --------------------------------------------------------------------------------------------------------


def say_anthropic(says: Says) -> Iterator[bytes]:
    fresh, read, written, output = says.usage or (0, 0, 0, 0)
    usage: dict[str, Any] = {"input_tokens": fresh, "output_tokens": 1, "cache_read_input_tokens": read}
    if written:
        usage["cache_creation_input_tokens"] = written
    message = {"id": "m", "type": "message", "role": "assistant", "model": "claude", "content": [], "stop_reason": None}
    yield _event({"type": "message_start", "message": {**message, "usage": usage if says.usage else {}}})
    for index, (block, deltas) in enumerate(_anthropic_blocks(says)):
        yield _event({"type": "content_block_start", "index": index, "content_block": block})
        yield from (_event({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas)
        yield _event({"type": "content_block_stop", "index": index})
    if says.stop is not None:
        final = {"output_tokens": output} if says.usage else {}
        yield _event(
            {"type": "message_delta", "delta": {"stop_reason": says.stop, "stop_sequence": None}, "usage": final}
        )
        yield _event({"type": "message_stop"})


def _event(event: dict[str, Any]) -> bytes:
    return _sse(event, event["type"])


def _anthropic_blocks(says: Says) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    for text, signature in says.thoughts:
        parts = [{"type": "thinking_delta", "thinking": part} for part in _cut(text, says.size)]
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
            [{"type": "text_delta", "text": part} for part in _cut(says.texts, says.size)],
        )
    for id, name, arguments in says.calls:
        parts = [{"type": "input_json_delta", "partial_json": part} for part in _cut(arguments, says.size)]
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
    lambda breaks: _event({"type": "error", "error": {"type": breaks.kind, "message": "its own words"}}),
    lambda origin: {"api_base": origin, "api_key": "test"},
)


# --- Amazon Bedrock ---------------------------------------------------------------------------------------------------


def frame(kind: str, payload: dict[str, Any], exception: bool = False) -> bytes:
    """One message of the event stream encoding: `application/vnd.amazon.eventstream`."""
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
        usage = {"inputTokens": fresh, "outputTokens": output, "totalTokens": fresh + read + written + output}
        usage |= {"cacheReadInputTokens": read, "cacheWriteInputTokens": written}
        yield frame("metadata", {"usage": usage, "metrics": {"latencyMs": 1}})


def _bedrock_blocks(says: Says) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    for text, signature in says.thoughts:
        parts = [{"reasoningContent": {"text": part}} for part in _cut(text, says.size)]
        yield {}, [*parts, {"reasoningContent": {"signature": signature}}]
    if says.redacted:
        data = base64.b64encode(says.redacted.encode()).decode()
        yield {}, [{"reasoningContent": {"redactedContent": data}}]
    if says.texts:
        yield {}, [{"text": part} for part in _cut(says.texts, says.size)]
    for id, name, arguments in says.calls:
        parts = [{"toolUse": {"input": part}} for part in _cut(arguments, says.size)]
        yield {"toolUse": {"toolUseId": id, "name": name}}, parts


def _bedrock_failure(fails: Fails) -> tuple[dict[str, Any], dict[str, str]]:
    return {"message": fails.message}, {"x-amzn-errortype": fails.aws}


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
)
