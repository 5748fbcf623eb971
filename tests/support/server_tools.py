"""Servers on loopback that search the web for the model, as Anthropic and OpenAI document it, and refuse a history that
lost or changed what they said."""

from __future__ import annotations

import json
from typing import Any

from tests.support.model_dialects import event

from helix.testing.loopback_server import LoopbackServer, RecordedRequest, Responder

URL, TITLE = "https://tea.example/kettles", "All about [kettles]"
QUOTE = "A kettle boils in four minutes."
SAID = "I looked. It takes four minutes. Anything else?"
CITED = (10, 32)
USE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "kettle"}}
FOUND = {"type": "web_search_result", "url": URL, "title": TITLE, "encrypted_content": "EqgfCioI", "page_age": "1 day"}
RESULT = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [FOUND]}
SOURCE = {
    "type": "web_search_result_location",
    "url": URL,
    "title": TITLE,
    "encrypted_index": "Eo8BCioI",
    "cited_text": QUOTE,
}
THOUGHT = {"type": "thinking", "thinking": "Let me look.", "signature": "sig"}
BLOCKS: list[dict[str, Any]] = [
    THOUGHT,
    USE,
    RESULT,
    {"type": "text", "text": SAID[: CITED[0]]},
    {"type": "text", "text": SAID[CITED[0] : CITED[1]], "citations": [SOURCE]},
    {"type": "text", "text": SAID[CITED[1] :]},
]
SEARCH = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "kettle", "sources": [{"type": "url", "url": URL}]},
}
NOTE = {"type": "url_citation", "start_index": CITED[0], "end_index": CITED[1], "url": URL, "title": TITLE}


class SearchingServer(LoopbackServer):
    """Answers the first request with a search, and later ones with a text. `bodies`: the bodies of the requests."""

    def __init__(self, *, refuses: str = "") -> None:
        super().__init__(self._reply)
        self.refuses = refuses

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [request.json for request in self.requests]

    async def _reply(self, request: RecordedRequest, responder: Responder) -> None:
        problem = self._problem(request)
        if problem:
            error = {"type": "error", "error": {"type": "invalid_request_error", "message": problem}}
            await responder.send_json(400, error)
            return
        first = len(self.requests) == 1
        await responder.start(200, {"content-type": "text/event-stream"})
        events = _claude(first) if "messages" in request.path else _openai(first)
        for data in events:
            await responder.send(event(data))
        await responder.end()

    def _problem(self, request: RecordedRequest) -> str:
        """Return why the second request does not have the first answer as it was."""
        if len(self.requests) == 1:
            return ""
        if "messages" in request.path:
            content = next(m["content"] for m in request.json["messages"] if m["role"] == "assistant")
            plain = [{name: value for name, value in block.items() if name != "cache_control"} for block in content]
            return "" if plain == BLOCKS else f"the assistant's content was changed: {json.dumps(plain)}"
        items = [item for item in request.json["input"] if item.get("type") == "web_search_call"]
        return "" if items == [SEARCH] else "web_search_call was changed"


def _claude(first: bool) -> list[dict[str, Any]]:
    usage: dict[str, Any] = {"input_tokens": 100, "output_tokens": 1}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"content": [], "usage": usage}}]
    for index, block in enumerate(BLOCKS if first else [{"type": "text", "text": "No."}]):
        empty, deltas = _deltas(block)
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    counted = {"output_tokens": 20, "server_tool_use": {"web_search_requests": 1 if first else 0}}
    events.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": counted})
    return [*events, {"type": "message_stop"}]


def _deltas(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match block["type"]:
        case "text":
            half = len(block["text"]) // 2
            parts = [{"type": "text_delta", "text": part} for part in (block["text"][:half], block["text"][half:])]
            cited = [{"type": "citations_delta", "citation": one} for one in block.get("citations", [])]
            return {"type": "text", "text": ""}, [*cited, *parts]
        case "thinking":
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return (
                {"type": "thinking", "thinking": "", "signature": ""},
                [{"type": "thinking_delta", "thinking": block["thinking"]}, signed],
            )
        case "server_tool_use":
            text = json.dumps(block["input"])
            parts = [{"type": "input_json_delta", "partial_json": part} for part in (text[:4], text[4:])]
            return {**block, "input": {}}, parts
        case _:
            return block, []


def _openai(first: bool) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    output: list[dict[str, Any]] = []
    if first:
        begun = {**SEARCH, "status": "in_progress", "action": {"type": "search", "query": "kettle"}}
        events.append({"type": "response.output_item.added", "output_index": 0, "item": begun})
        events.append({"type": "response.output_item.done", "output_index": 0, "item": SEARCH})
        output.append(SEARCH)
    text = SAID if first else "No."
    message = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text}],
    }
    events.append({"type": "response.output_item.added", "output_index": 1, "item": {**message, "content": []}})
    events.append({"type": "response.content_part.added", "output_index": 1, "content_index": 0})
    events += [
        {"type": "response.output_text.delta", "output_index": 1, "delta": part} for part in (text[:9], text[9:])
    ]
    if first:
        events.append({"type": "response.output_text.annotation.added", "output_index": 1, "annotation": NOTE})
    events.append({"type": "response.output_item.done", "output_index": 1, "item": message})
    usage = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
    response = {"id": "resp_1", "status": "completed", "output": [*output, message], "usage": usage}
    return [*events, {"type": "response.completed", "response": response}]
