"""A scripted answer as a stream of events of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from helix.testing.openai_server import ModelAnswer

SEALED = "sealed-by-the-test-server"
"""The encrypted content of each reasoning item."""
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def events(answer: ModelAnswer, response_id: str) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield each event and whether it is a delta. The answer's faults and delays are counted in deltas."""
    response: dict[str, Any] = {"id": response_id, "object": "response", "status": "in_progress", "output": []}
    yield {"type": "response.created", "response": response}, False
    items = list(_items(answer))
    for index, (item, kind, deltas) in enumerate(items):
        about = {"output_index": index, "item_id": item["id"]}
        yield (
            {"type": "response.output_item.added", "output_index": index, "item": {**item, **_EMPTY[item["type"]]}},
            False,
        )
        for delta in deltas:
            yield {"type": kind, **about, "delta": delta}, True
        yield {"type": "response.output_item.done", "output_index": index, "item": item}, False
    yield _end(answer, {**response, "output": [item for item, _, _ in items]}), False


_EMPTY: Mapping[str, dict[str, Any]] = {
    "reasoning": {"summary": []},
    "message": {"content": []},
    "function_call": {"arguments": ""},
}


def _items(answer: ModelAnswer) -> Iterator[tuple[dict[str, Any], str, list[str]]]:
    """Yield each output item, the type of its deltas, and the deltas."""
    if answer.reasoning:
        summary = [{"type": "summary_text", "text": answer.reasoning}]
        item = {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": SEALED}
        yield item, "response.reasoning_summary_text.delta", answer.pieces(answer.reasoning)
    if answer.text or answer.refusal:
        said = {"type": "output_text", "text": answer.text, "annotations": []}
        content = [said] if answer.text else [{"type": "refusal", "refusal": answer.refusal}]
        kind = "response.output_text.delta" if answer.text else "response.refusal.delta"
        item = {"type": "message", "id": "msg_1", "role": "assistant", "content": content}
        yield item, kind, answer.pieces(answer.text or answer.refusal)
    for index, call in enumerate(answer.tool_calls):
        id = f"call_{index + 1}" if call.id is None else call.id
        item = {"type": "function_call", "id": f"fc_{index}", "call_id": id, "name": call.name, "arguments": call.text}
        yield item, "response.function_call_arguments.delta", answer.pieces(call.text)


def _end(answer: ModelAnswer, response: dict[str, Any]) -> dict[str, Any]:
    why = _INCOMPLETE.get(answer.finish)
    status = "incomplete" if why else "completed"
    response |= {"status": status, "incomplete_details": {"reason": why} if why else None}
    if answer.usage:
        used = answer.usage
        response["usage"] = {
            "input_tokens": used.prompt_tokens,
            "output_tokens": used.completion_tokens,
            "total_tokens": used.prompt_tokens + used.completion_tokens,
            "input_tokens_details": {"cached_tokens": used.cached_tokens},
            "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        }
    return {"type": f"response.{status}", "response": response}
