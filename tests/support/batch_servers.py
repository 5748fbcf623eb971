"""Servers on loopback with the batch interfaces of OpenAI and Anthropic, as their references describe them.

A batch moves on at each look at it, as a provider's does over time. `plays` decides what becomes of each request when its
batch is executed. `executed` counts the executions of each request, which is what a provider bills.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import time
from typing import Any
from urllib.parse import parse_qs

from helix.testing.loopback_server import LoopbackServer, RecordedRequest, Responder
from helix.testing.openai_server import ModelAnswer

EXPIRES = "expires"
ENDPOINTS = ("/v1/chat/completions", "/v1/responses")


@dataclass(frozen=True)
class Refuses:
    """The provider's error for one request."""

    status: int
    kind: str
    code: str | None = None


Plays = Callable[[dict[str, Any]], "ModelAnswer | str | Refuses"]
"""A function from a request's body to its answer, its error, or `EXPIRES`."""


@dataclass
class Sent:
    """A batch at the provider."""

    ident: str
    requests: dict[str, dict[str, Any]]
    metadata: dict[str, str] = field(default_factory=dict)
    endpoint: str = ""
    created_at: float = field(default_factory=time)
    looks: int = 0
    status: str = "validating"
    outcomes: dict[str, ModelAnswer | str | Refuses] = field(default_factory=dict)
    problem: str | None = None


class BatchServer(LoopbackServer):
    """The common part. `looks`: the looks at a batch after which it is executed. `loses`: the number of batches that are
    made, while their client learns nothing of it."""

    def __init__(self, plays: Plays, *, looks: int = 2, loses: int = 0) -> None:
        super().__init__(self._answer)
        self.plays, self.looks, self.loses = plays, looks, loses
        self.batches: dict[str, Sent] = {}
        self.executed: Counter[str] = Counter()
        self.refuses_batches: tuple[int, str] | None = None
        self.problem: str | None = None

    def environment(self) -> dict[str, str]:
        raise NotImplementedError

    async def _answer(self, request: RecordedRequest, responder: Responder) -> None:
        raise NotImplementedError

    def _make(self, requests: dict[str, dict[str, Any]], **fields: Any) -> Sent:
        batch = Sent(f"batch_{len(self.batches)}", requests, problem=self.problem, **fields)
        self.batches[batch.ident] = batch
        return batch

    def _lost(self) -> bool:
        self.loses -= 1
        return self.loses >= 0

    def _look(self, batch: Sent) -> None:
        batch.looks += 1
        if batch.looks >= self.looks and not batch.outcomes and batch.status != "failed":
            self._execute(batch)

    def _execute(self, batch: Sent) -> None:
        if batch.problem is not None:
            batch.status = "failed"
            return
        for ident, body in batch.requests.items():
            outcome = EXPIRES if batch.status == "cancelling" else self.plays(body)
            batch.outcomes[ident] = outcome
            if isinstance(outcome, ModelAnswer):
                self.executed[ident] += 1
        expired = EXPIRES in batch.outcomes.values()
        batch.status = "cancelled" if batch.status == "cancelling" else "expired" if expired else "completed"


class OpenAIBatchServer(BatchServer):
    """`/v1/files` and `/v1/batches` of OpenAI."""

    def __init__(self, plays: Plays, *, looks: int = 2, loses: int = 0) -> None:
        super().__init__(plays, looks=looks, loses=loses)
        self._files: dict[str, bytes] = {}

    def environment(self) -> dict[str, str]:
        base = f"{self.origin}/v1"
        return {"OPENAI_BASE_URL": base, "OPENAI_API_BASE": base, "OPENAI_API_KEY": "test"}

    async def _answer(self, request: RecordedRequest, responder: Responder) -> None:
        path, _, query = request.path.partition("?")
        if "authorization" not in request.headers:
            return await _fail(responder, 401, "no key", "invalid_api_key")
        match request.method, path.removeprefix("/v1/").split("/"):
            case "POST", ["files"]:
                name = f"file_{len(self._files)}"
                self._files[name] = _upload(request)
                await responder.send_json(
                    200,
                    {
                        "id": name,
                        "object": "file",
                        "purpose": "batch",
                        "bytes": 1,
                        "created_at": int(time()),
                        "filename": "a.jsonl",
                        "status": "processed",
                    },
                )
            case "POST", ["batches"]:
                await self._create(request.json, responder)
            case "GET", ["batches"]:
                await self._list(parse_qs(query), responder)
            case "GET", ["batches", ident] if ident in self.batches:
                self._look(self.batches[ident])
                await responder.send_json(200, self._shown(self.batches[ident]))
            case "POST", ["batches", ident, "cancel"] if ident in self.batches:
                self.batches[ident].status = "cancelling"
                await responder.send_json(200, self._shown(self.batches[ident]))
            case "GET", ["files", name, "content"] if name.partition("-")[2] in self.batches:
                await self._content(self.batches[name.partition("-")[2]], name.startswith("errors"), responder)
            case _:
                await _fail(responder, 404, f"no such path: {request.method} {path}", "not_found")
        return None

    async def _create(self, body: dict[str, Any], responder: Responder) -> None:
        if self.refuses_batches is not None:
            return await _fail(responder, *self.refuses_batches, None)
        metadata = body.get("metadata") or {}
        if body.get("completion_window") != "24h" or body.get("endpoint") not in ENDPOINTS or len(metadata) > 16:
            return await _fail(responder, 400, "not a batch", "invalid_value")
        if body.get("input_file_id") not in self._files:
            return await _fail(responder, 400, "no such file", "invalid_file")
        lines = [json.loads(line) for line in self._files[body["input_file_id"]].splitlines()]
        requests = {line["custom_id"]: line["body"] for line in lines}
        batch = self._make(requests, metadata=metadata, endpoint=body["endpoint"])
        alike = {line["url"] for line in lines} == {body["endpoint"]} and {line["method"] for line in lines} == {"POST"}
        models = {line["body"].get("model") for line in lines}
        streams = any(line["body"].get("stream") for line in lines)
        if not alike or len(requests) != len(lines) or len(models) > 1 or streams or len(lines) > 50_000:
            batch.problem = "invalid_json_line"
        if self._lost():
            responder.abort()
            return None
        await responder.send_json(200, self._shown(batch))
        return None

    async def _list(self, query: dict[str, list[str]], responder: Responder) -> None:
        shown = [self._shown(batch) for batch in reversed(self.batches.values())]
        after = query.get("after", [""])[0]
        start = next((n + 1 for n, one in enumerate(shown) if one["id"] == after), 0)
        page = shown[start : start + min(int(query.get("limit", ["20"])[0]), 100)]
        more = start + len(page) < len(shown)
        await responder.send_json(200, {"object": "list", "data": page, "has_more": more})

    def _shown(self, batch: Sent) -> dict[str, Any]:
        over = batch.status in ("completed", "expired", "cancelled")
        failed = [one for one in batch.outcomes.values() if not isinstance(one, ModelAnswer)]
        errors = {"object": "list", "data": [{"code": batch.problem, "message": "refused", "line": 1}]}
        return {
            "id": batch.ident,
            "object": "batch",
            "endpoint": batch.endpoint,
            "completion_window": "24h",
            "created_at": int(batch.created_at),
            "input_file_id": "file",
            "status": batch.status,
            "metadata": batch.metadata,
            "errors": errors if batch.status == "failed" else None,
            "output_file_id": f"output-{batch.ident}" if over and len(failed) < len(batch.outcomes) else None,
            "error_file_id": f"errors-{batch.ident}" if over and failed else None,
        }

    async def _content(self, batch: Sent, errors: bool, responder: Responder) -> None:
        await responder.start(200, {"content-type": "application/octet-stream"})
        for ident, outcome in reversed(batch.outcomes.items()):
            if isinstance(outcome, ModelAnswer) != errors:
                await responder.send(json.dumps(_openai_line(batch, ident, outcome)).encode() + b"\n")
        await responder.end()


def _openai_line(batch: Sent, ident: str, outcome: ModelAnswer | str | Refuses) -> dict[str, Any]:
    line: dict[str, Any] = {"id": f"req_{ident}", "custom_id": ident, "response": None, "error": None}
    match outcome:
        case ModelAnswer():
            made = _chat(outcome) if batch.endpoint == ENDPOINTS[0] else _response(outcome)
            body = {"model": batch.requests[ident]["model"], **made}
            return {**line, "response": {"status_code": 200, "request_id": "r", "body": body}}
        case Refuses():
            error = {"message": "refused", "type": outcome.kind, "code": outcome.code}
            return {**line, "response": {"status_code": outcome.status, "request_id": "r", "body": {"error": error}}}
        case _:
            message = "This request could not be executed before the completion window expired."
            return {**line, "error": {"code": "batch_expired", "message": message}}


def _chat(answer: ModelAnswer) -> dict[str, Any]:
    choice = {"index": 0, "message": answer.message(), "finish_reason": answer.finish}
    usage = answer.usage.wire() if answer.usage is not None else None
    return {"id": "chatcmpl", "object": "chat.completion", "choices": [choice], "usage": usage}


def _response(answer: ModelAnswer) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if answer.reasoning:
        summary = [{"type": "summary_text", "text": answer.reasoning}]
        output.append({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "sealed"})
    if answer.text:
        output.append(
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": answer.text}]}
        )
    for number, call in enumerate(answer.tool_calls):
        ids = {"call_id": f"call_{number}", "id": f"fc_{number}"}
        output.append({"type": "function_call", **ids, "name": call.name, "arguments": call.text})
    usage = None
    if answer.usage is not None:
        given = answer.usage
        usage = {
            "input_tokens": given.prompt_tokens,
            "output_tokens": given.completion_tokens,
            "input_tokens_details": {"cached_tokens": given.cached_tokens},
            "output_tokens_details": {"reasoning_tokens": given.reasoning_tokens},
        }
    return {"id": "resp", "object": "response", "status": "completed", "output": output, "usage": usage}


class AnthropicBatchServer(BatchServer):
    """`/v1/messages/batches` of Anthropic."""

    def environment(self) -> dict[str, str]:
        return {"ANTHROPIC_BASE_URL": self.origin, "ANTHROPIC_API_KEY": "test"}

    async def _answer(self, request: RecordedRequest, responder: Responder) -> None:
        path, _, query = request.path.partition("?")
        if not {"x-api-key", "authorization"} & request.headers.keys():
            return await _fail(responder, 401, "no key", "authentication_error")
        match request.method, path.removeprefix("/v1/messages/").split("/"):
            case "POST", ["batches"]:
                await self._create(request.json, responder)
            case "GET", ["batches"]:
                after = parse_qs(query).get("after_id", [""])[0]
                shown = [self._shown(batch) for batch in reversed(self.batches.values())]
                start = next((n + 1 for n, one in enumerate(shown) if one["id"] == after), 0)
                page = shown[start : start + 100]
                more = start + len(page) < len(shown)
                last = page[-1]["id"] if page else None
                await responder.send_json(200, {"data": page, "has_more": more, "first_id": None, "last_id": last})
            case "GET", ["batches", ident] if ident in self.batches:
                self._look(self.batches[ident])
                await responder.send_json(200, self._shown(self.batches[ident]))
            case "POST", ["batches", ident, "cancel"] if ident in self.batches:
                self.batches[ident].status = "cancelling"
                await responder.send_json(200, self._shown(self.batches[ident]))
            case "GET", ["batches", ident, "results"] if self.batches[ident].outcomes:
                await responder.start(200, {"content-type": "application/x-jsonl"})
                for call, outcome in reversed(self.batches[ident].outcomes.items()):
                    line = {"custom_id": call, "result": _anthropic_result(outcome)}
                    await responder.send(json.dumps(line).encode() + b"\n")
                await responder.end()
            case _:
                await _fail(responder, 404, f"no such path: {request.method} {path}", "not_found_error")
        return None

    async def _create(self, body: dict[str, Any], responder: Responder) -> None:
        if self.refuses_batches is not None:
            return await _fail(responder, *self.refuses_batches, "invalid_request_error")
        given = body.get("requests") or []
        requests = {one["custom_id"]: one["params"] for one in given}
        named = all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", ident) for ident in requests)
        if not given or len(requests) != len(given) or not named or any(one.get("stream") for one in requests.values()):
            return await _fail(responder, 400, "not a batch", "invalid_request_error")
        batch = self._make(requests)
        if self._lost():
            responder.abort()
            return None
        await responder.send_json(200, self._shown(batch))
        return None

    def _shown(self, batch: Sent) -> dict[str, Any]:
        ended, url = bool(batch.outcomes), f"{self.origin}/v1/messages/batches/{batch.ident}/results"
        counts = Counter(_anthropic_result(outcome)["type"] for outcome in batch.outcomes.values())
        names = ("succeeded", "errored", "canceled", "expired")
        created = datetime.fromtimestamp(batch.created_at, UTC).isoformat()
        return {
            "id": batch.ident,
            "type": "message_batch",
            "processing_status": "ended" if ended else "in_progress",
            "request_counts": {
                "processing": 0 if ended else len(batch.requests),
                **{name: counts[name] for name in names},
            },
            "created_at": created,
            "expires_at": created,
            "ended_at": created if ended else None,
            "archived_at": None,
            "cancel_initiated_at": None,
            "results_url": url if ended else None,
        }


def _anthropic_result(outcome: ModelAnswer | str | Refuses) -> dict[str, Any]:
    match outcome:
        case ModelAnswer():
            content: list[dict[str, Any]] = []
            if outcome.reasoning:
                content.append({"type": "thinking", "thinking": outcome.reasoning, "signature": "signed"})
            if outcome.text:
                content.append({"type": "text", "text": outcome.text})
            for number, call in enumerate(outcome.tool_calls):
                given = json.loads(call.text)
                content.append({"type": "tool_use", "id": f"toolu_{number}", "name": call.name, "input": given})
            usage = outcome.usage
            assert usage is not None
            tokens = {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens}
            reason = "tool_use" if outcome.tool_calls else "end_turn"
            ids = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "stop_sequence": None}
            return {"type": "succeeded", "message": {**ids, "content": content, "stop_reason": reason, "usage": tokens}}
        case Refuses():
            error = {"type": outcome.kind, "message": "refused"}
            return {"type": "errored", "error": {"type": "error", "request_id": "r", "error": error}}
        case _:
            return {"type": "expired"}


def _upload(request: RecordedRequest) -> bytes:
    """Return the file of a multipart form."""
    found = re.search(r"boundary=([^;]+)", request.headers["content-type"])
    assert found is not None
    parts = request.body.split(b"--" + found[1].strip('"').encode())
    part = next(part for part in parts if b'name="file"' in part)
    assert any(b'name="purpose"' in other and b"batch" in other for other in parts)
    return part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")


async def _fail(responder: Responder, status: int, message: str, code: str | None) -> None:
    error = {"message": message, "type": code or "invalid_request_error", "code": code, "param": None}
    await responder.send_json(status, {"type": "error", "error": error})
