"""The content blocks of an answer in Anthropic's Messages: read from a stream, and written back in a later request.

Law: what Claude signs or encrypts is sent back unchanged, at its place between the other blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from helix.adapters.models.turns import Blocks, Passage, call_id, in_order
from helix.adapters.models.wire import CallPart, Cited, Piece, Redacted, Served, Text, Thinking
from helix.core.json import load_object
from helix.core.messages import AssistantMessage, Citation, ServerBlock, ThinkingContent, ToolCallRequest

_USES = ("server_tool_use", "mcp_tool_use")


class ContentBlocks:
    """The blocks of one stream. `read` takes its events and returns their pieces."""

    def __init__(self) -> None:
        self._said = self._text_at = 0
        self._citations: list[dict[str, Any]] = []
        self._uses: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, str] = {}

    def read(self, event: Mapping[str, Any]) -> Sequence[Piece]:
        index = event.get("index") or 0
        match event.get("type"):
            case "content_block_start":
                return self._begin(index, event["content_block"])
            case "content_block_delta":
                return self._go_on(index, event["delta"])
            case "content_block_stop":
                return self._end(index)
        return ()

    def _begin(self, index: int, block: Mapping[str, Any]) -> Sequence[Piece]:
        kind = str(block.get("type"))
        match kind:
            case "text":
                self._text_at, self._citations = self._said, list(block.get("citations") or [])
                return self._text(block.get("text") or "")
            case "thinking":
                return [Thinking(block.get("thinking") or "", block.get("signature") or None)]
            case "redacted_thinking":
                return [Redacted(block.get("data") or "")]
            case "tool_use":
                return [CallPart(index, block.get("id") or "", block.get("name") or "")]
            case _ if kind in _USES:
                self._uses[index], self._inputs[index] = dict(block), ""
                return [Served(dict(block), complete=False)]
            case _ if kind.endswith("_tool_result"):
                return [Served(dict(block))]
        return ()

    def _go_on(self, index: int, delta: Mapping[str, Any]) -> Sequence[Piece]:
        match delta.get("type"):
            case "text_delta":
                return self._text(delta.get("text") or "")
            case "citations_delta":
                self._citations.append(delta["citation"])
            case "thinking_delta":
                return [Thinking(delta.get("thinking") or "")]
            case "signature_delta":
                return [Thinking(signature=delta.get("signature") or None)]
            case "input_json_delta" if index in self._uses:
                self._inputs[index] += delta.get("partial_json") or ""
            case "input_json_delta":
                return [CallPart(index, arguments=delta.get("partial_json") or "")]
        return ()

    def _end(self, index: int) -> Sequence[Piece]:
        if (use := self._uses.pop(index, None)) is not None:
            given = load_object(self._inputs[index]) if self._inputs[index].strip() else None
            return [Served({**use, "input": given if given is not None else use.get("input") or {}})]
        cited, self._citations = self._citations, []
        return [Cited(_citation(one, self._text_at, self._said)) for one in cited]

    def _text(self, text: str) -> Sequence[Piece]:
        self._said += len(text)
        return [Text(text)]


def answer_blocks(message: AssistantMessage) -> Blocks:
    """Return the blocks of a stored answer."""
    return [block for part in in_order(message) for block in _blocks(part, message.citations)]


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _blocks(
    part: ThinkingContent | ServerBlock | ToolCallRequest | Passage, citations: Sequence[Citation]
) -> Sequence[dict[str, Any]]:
    match part:
        case Passage():
            return _cited_text(part, [citation for citation in citations if citation.raw])
        case ServerBlock(raw=raw):
            known = raw.get("type") in _USES or str(raw.get("type")).endswith("_tool_result")
            return [dict(raw)] if known else []  # a copy: the request may mark it for the cache
        case ToolCallRequest():
            return [{"type": "tool_use", "id": call_id(part.id), "name": part.name, "input": part.arguments}]
        case ThinkingContent(redacted=str(data)) if data:
            return [{"type": "redacted_thinking", "data": data}]
        case ThinkingContent(signature=str(signature)) if signature:
            return [{"type": "thinking", "thinking": part.text, "signature": signature}]
        case _:
            return []


def _cited_text(passage: Passage, citations: Sequence[Citation]) -> Blocks:
    """Return the passage as blocks of text, each with its citations. A blank part belongs to the block before it, because
    Claude refuses blank blocks."""
    end = passage.start + len(passage.text)
    edges = {edge for citation in citations for edge in (citation.start, citation.end) if passage.start < edge < end}
    cuts = sorted({passage.start, end, *edges})
    made: Blocks = []
    for begin, stop in pairwise(cuts):
        text = passage.text[begin - passage.start : stop - passage.start]
        if not text.strip() and made:
            made[-1]["text"] += text
            continue
        block = text_block(text)
        if cited := [one.raw for one in citations if one.start <= begin and stop <= one.end]:
            block["citations"] = cited
        made.append(block)
    if len(made) > 1 and not made[0]["text"].strip():
        made[1]["text"] = made.pop(0)["text"] + made[0]["text"]
    return made


def _citation(raw: dict[str, Any], start: int, end: int) -> Citation:
    title = raw.get("title") or raw.get("document_title")
    return Citation(start=start, end=end, url=raw.get("url"), title=title, quote=raw.get("cited_text"), raw=raw)
