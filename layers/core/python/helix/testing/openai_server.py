"""An OpenAI-compatible server that plays a script, for testing agents and adapters over real HTTP on loopback.

    with OpenAIServer([ModelAnswer(tool_calls=[ModelToolCall("add", {"a": 1, "b": 2})]), "the sum is 3"]) as server:
        os.environ.update(server.environment())

Law: each request takes the next entry of the script. Once the script is exhausted, the server returns HTTP 500 with a
message that says so. Every request is recorded in `server.requests`.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, TypeAlias, assert_never

from helix.core.errors import InvalidInputError
from helix.testing.loopback_server import LoopbackServer, RecordedRequest, Responder
from helix.testing.openai_responses import events

__all__ = [
    "CutAfter",
    "HttpFailure",
    "ModelAnswer",
    "ModelToolCall",
    "ModelUsage",
    "OpenAIServer",
    "RecordedRequest",
    "ScriptedResponse",
    "StallAfter",
    "word_vector",
]


@dataclass(frozen=True, slots=True)
class ModelToolCall:
    """A tool call in a scripted answer."""

    name: str
    """The tool to call."""
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    """The arguments. A string is sent unchanged, so it may be malformed JSON."""
    id: str | None = None
    """The id of the call. None means `call_<n>`; "" sends no id."""

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(dict(self.arguments))


@dataclass(frozen=True, slots=True)
class ModelUsage:
    prompt_tokens: int = 10
    """The prompt tokens, including cached ones."""
    completion_tokens: int = 5
    """The completion tokens, including reasoning."""
    reasoning_tokens: int = 0
    """The part of the completion tokens that was reasoning."""
    cached_tokens: int = 0
    """The part of the prompt tokens that came from the provider's cache."""

    def wire(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
        }


@dataclass(frozen=True, slots=True)
class StallAfter:
    """A fault: the server pauses in the middle of an answer, then continues."""

    deltas: int
    """The number of deltas before the pause."""
    seconds: float
    """The length of the pause in seconds."""


@dataclass(frozen=True, slots=True)
class CutAfter:
    """A fault: the server ends the answer early."""

    deltas: int
    """The number of deltas before the end."""
    clean: bool = False
    """Whether the HTTP response ends properly, but without a finish reason. Otherwise the connection is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """A scripted answer: reasoning, then text, then tool calls, whose argument fragments interleave when streamed."""

    text: str = ""
    """The text of the answer. Empty sends none."""
    reasoning: str = ""
    """The reasoning before the text. Empty sends none."""
    tool_calls: Sequence[ModelToolCall] = ()
    """The tool calls after the text."""
    refusal: str = ""
    """The model's refusal to answer. Empty sends none."""
    finish_reason: str | None = None
    """The finish reason. None means `tool_calls` or `stop`, whichever fits."""
    usage: ModelUsage | None = field(default_factory=ModelUsage)
    """The usage that the answer reports. None omits it."""
    delta_length: int = 8
    """The number of characters in each delta of the stream."""
    delay_s: float = 0.0
    """The delay before each delta, in seconds."""
    fault: StallAfter | CutAfter | None = None
    """A fault in the middle of the answer. None: the answer is sent completely."""

    def __post_init__(self) -> None:
        for call in self.tool_calls:
            if not isinstance(call, ModelToolCall):
                raise InvalidInputError(
                    f"tool_calls has {call!r}; it must be a list of ModelToolCall, for example "
                    'ModelToolCall("search", {"query": "bees"})'
                )

    @property
    def finish(self) -> str:
        return self.finish_reason or ("tool_calls" if self.tool_calls else "stop")

    def deltas(self) -> Iterator[dict[str, Any]]:
        for name, text in (("reasoning_content", self.reasoning), ("content", self.text), ("refusal", self.refusal)):
            for piece in self.pieces(text):
                yield {name: piece}
        for index, call in enumerate(self.tool_calls):
            function = {"name": call.name, "arguments": ""}
            yield {"tool_calls": [{"index": index, **_call_id(call, index), "type": "function", "function": function}]}
        for row in zip_longest(*(self.pieces(call.text) for call in self.tool_calls)):
            for index, piece in enumerate(row):
                if piece is not None:
                    yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}

    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self.text or None}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.refusal:
            message["refusal"] = self.refusal
        if self.tool_calls:
            message["tool_calls"] = [
                {**_call_id(call, i), "type": "function", "function": {"name": call.name, "arguments": call.text}}
                for i, call in enumerate(self.tool_calls)
            ]
        return message

    def pieces(self, text: str) -> list[str]:
        return [text[at : at + self.delta_length] for at in range(0, len(text), self.delta_length)]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpFailure:
    """An HTTP error in OpenAI's form."""

    status: int
    """The HTTP status."""
    message: str = "scripted failure"
    """The message in the body's `error.message`."""
    code: str | None = None
    """The body's `error.code`, such as `context_length_exceeded`."""
    retry_after_s: float | None = None
    """The seconds in the `retry-after` header. None omits the header."""


_PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/embeddings")
ScriptedResponse: TypeAlias = ModelAnswer | HttpFailure | str
ReactiveModel: TypeAlias = Callable[[dict[str, Any]], ScriptedResponse | Awaitable[ScriptedResponse]]


class OpenAIServer(LoopbackServer):
    """A server for `POST /v1/chat/completions`, streamed or not, `POST /v1/responses`, streamed, and `POST /v1/embeddings`.
    Use it with `with` or `async with`. `LLMConfig(api="responses")` makes an agent use Responses.

    `script` is a list of responses. A `str` is an answer with that text, and an entry may also be a callable.
    Alternatively, `script` is one callable `(request_json) -> response` for all requests. `embed` returns a text's vector,
    or a failure for the request that contains the text; default: `word_vector`.
    """

    def __init__(
        self,
        script: Iterable[ScriptedResponse | ReactiveModel] | ReactiveModel = (),
        *,
        embed: Callable[[str], Sequence[float] | HttpFailure] | None = None,
    ) -> None:
        super().__init__(self._answer)
        self._model = script if callable(script) else None
        self._embed = embed or word_vector
        self._script = deque(() if callable(script) else script)
        self._answered = 0

    def add(self, *responses: ScriptedResponse | ReactiveModel) -> None:
        """Append to the script, even while the server is running."""
        self._script.extend(responses)

    @property
    def base_url(self) -> str:
        return f"{self.origin}/v1"

    def environment(self) -> dict[str, str]:
        """Return the environment variables that point OpenAI clients at this server."""
        return {"OPENAI_BASE_URL": self.base_url, "OPENAI_API_BASE": self.base_url, "OPENAI_API_KEY": "test"}

    async def _answer(self, request: RecordedRequest, responder: Responder) -> None:
        path = request.path.partition("?")[0]
        response: ScriptedResponse
        if (request.method, path) == ("POST", "/v1/embeddings") and isinstance(request.json, dict):
            await _embed(self._embed, request.json, responder)
            return
        if request.method != "POST" or path not in _PATHS:
            response = HttpFailure(status=404, message=f"{request.method} {path!r}: use POST {' or '.join(_PATHS)}")
        elif not isinstance(request.json, dict):
            response = HttpFailure(status=400, message="the body is not a JSON object")
        else:
            response = await self._next(request.json)
        match response:
            case HttpFailure():
                await _fail(response, responder)
            case ModelAnswer() | str():
                answer = ModelAnswer(text=response) if isinstance(response, str) else response
                head = {"id": f"chatcmpl-{self._answered}", "created": 0, "model": str(request.json.get("model"))}
                say = _stream if request.json.get("stream") else _respond_at_once
                if path == _PATHS[1]:
                    say = _stream_response
                await say(answer, head, request.json, responder)
            case _:
                assert_never(response)

    async def _next(self, body: dict[str, Any]) -> ScriptedResponse:
        self._answered += 1
        entry = self._model or (self._script.popleft() if self._script else None)
        if entry is None:
            played = self._answered - 1
            return HttpFailure(status=500, message=f"script exhausted after {played} responses: add one, or ask less")
        if not callable(entry):
            return entry
        try:
            given = entry(body)
            return await given if inspect.isawaitable(given) else given
        except Exception as error:  # the test's own code failed, so the client's error shows it
            return HttpFailure(status=500, message=f"the scripted callable failed: {error!r}")


def word_vector(text: str) -> list[float]:
    """Return a hashed bag of words with 64 dimensions. Texts with the same words have the same direction, regardless of
    order, case and punctuation."""
    vector = [0.0] * 64
    for word in re.findall(r"\w+", text.lower()):
        vector[hashlib.sha256(word.encode()).digest()[0] % 64] += 1.0
    return vector


async def _embed(
    embed: Callable[[str], Sequence[float] | HttpFailure], body: dict[str, Any], responder: Responder
) -> None:
    given = body.get("input")
    texts = [given] if isinstance(given, str) else list(given or [])
    vectors = [embed(text) for text in texts]
    failed = next((vector for vector in vectors if isinstance(vector, HttpFailure)), None)
    if failed is not None:
        await _fail(failed, responder)
        return
    data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
    tokens = sum(len(text.split()) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    await responder.send_json(200, {"object": "list", "data": data, "model": body.get("model"), "usage": usage})


async def _fail(failure: HttpFailure, responder: Responder) -> None:
    headers = {} if failure.retry_after_s is None else {"retry-after": f"{failure.retry_after_s:g}"}
    error = {"message": failure.message, "type": "scripted", "param": None, "code": failure.code}
    await responder.send_json(failure.status, {"error": error}, headers)


async def _respond_at_once(
    answer: ModelAnswer, head: dict[str, Any], body: dict[str, Any], responder: Responder
) -> None:
    match answer.fault:
        case CutAfter():
            return responder.abort()
        case StallAfter(seconds=seconds):
            await asyncio.sleep(seconds)
    choice = {"index": 0, "message": answer.message(), "finish_reason": answer.finish}
    usage = answer.usage.wire() if answer.usage else None
    await responder.send_json(200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})
    return None


async def _stream(answer: ModelAnswer, head: dict[str, Any], body: dict[str, Any], responder: Responder) -> None:
    async def event(delta: dict[str, Any], finish: str | None = None) -> None:
        await send([{"index": 0, "delta": delta, "finish_reason": finish}])

    async def send(choices: list[dict[str, Any]], **extra: Any) -> None:
        chunk = {**head, "object": "chat.completion.chunk", "choices": choices, **extra}
        await responder.send(f"data: {json.dumps(chunk)}\n\n".encode())

    await responder.start(200, {"content-type": "text/event-stream"})
    await event({"role": "assistant", "content": ""})
    deltas = list(answer.deltas())
    for position, delta in enumerate([*deltas, None]):
        if answer.fault is not None and position == min(answer.fault.deltas, len(deltas)):
            if isinstance(answer.fault, CutAfter):
                return await responder.end() if answer.fault.clean else responder.abort()
            await asyncio.sleep(answer.fault.seconds)
        if delta is not None:
            await asyncio.sleep(answer.delay_s)
            await event(delta)
    await event({}, answer.finish)
    if answer.usage and (body.get("stream_options") or {}).get("include_usage"):
        await send([], usage=answer.usage.wire())
    await responder.send(b"data: [DONE]\n\n")
    await responder.end()
    return None


async def _stream_response(
    answer: ModelAnswer, head: dict[str, Any], body: dict[str, Any], responder: Responder
) -> None:
    await responder.start(200, {"content-type": "text/event-stream"})
    fault, sent = answer.fault, 0
    for event, is_delta in events(answer, head["id"]):
        if fault is not None and sent == fault.deltas:
            if isinstance(fault, CutAfter):
                return await responder.end() if fault.clean else responder.abort()
            await asyncio.sleep(fault.seconds)
            fault = None
        if is_delta:
            sent += 1
            await asyncio.sleep(answer.delay_s)
        await responder.send(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
    await responder.end()
    return None


def _call_id(call: ModelToolCall, index: int) -> dict[str, str]:
    return {"id": f"call_{index + 1}" if call.id is None else call.id}
