"""OpenAI's Responses API, as one of the dialects of `model_dialects.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.model_dialects import Dialect, Fails, Says, cut, event, interleaved, openai_failure
from tests.support.strict_refusals import openai_refusal

from helix.testing.loopback_server import RecordedRequest

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
    yield event({"type": "response.created", "response": response})
    items = [*_reasoning_items(says), *_answer_items(says)]
    for index, (item, deltas) in enumerate(items):
        yield event({"type": "response.output_item.added", "output_index": index, "item": _begun(item)})
        yield from (event({"output_index": index, **delta}) for delta in deltas)
        if item["type"] != "function_call":
            yield event({"type": "response.output_item.done", "output_index": index, "item": item})
    calls = [(index, item) for index, (item, _) in enumerate(items) if item["type"] == "function_call"]
    for row, part in interleaved(says.calls, says.size):
        kind = "response.function_call_arguments.delta"
        yield event({"type": kind, "output_index": calls[row][0], "delta": part})
    for index, item in calls:
        yield event({"type": "response.output_item.done", "output_index": index, "item": item})
    if says.stop is not None:
        yield event(_ended(says, {**response, "output": [item for item, _ in items]}))


def _begun(item: dict[str, Any]) -> dict[str, Any]:
    empty: dict[str, dict[str, Any]] = {
        "function_call": {"arguments": ""},
        "reasoning": {"summary": []},
        "message": {"content": []},
    }
    return {**item, **empty[item["type"]], "status": "in_progress"}


def _reasoning_items(says: Says) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    for number, (text, sealed) in enumerate([*says.thoughts, *([("", says.redacted)] if says.redacted else [])]):
        summary = [{"type": "summary_text", "text": text}] if text else []
        deltas = [{"type": "response.reasoning_summary_text.delta", "delta": part} for part in cut(text, says.size)]
        item = {"type": "reasoning", "id": f"rs_{number}", "summary": summary, "encrypted_content": sealed}
        yield item, [{"type": "response.reasoning_summary_part.added", "summary_index": 0}, *deltas]


def _answer_items(says: Says) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    refused = says.stop == "refusal"
    kind = "response.refusal.delta" if refused else "response.output_text.delta"
    if says.texts or refused:
        content = [{"type": "refusal" if refused else "output_text", "text": says.texts}]
        phase = "commentary" if says.calls else "final_answer"
        item = {"type": "message", "id": "msg_0", "role": "assistant", "content": content, "phase": phase}
        yield item, [{"type": kind, "delta": part} for part in cut(says.texts or "no", says.size)]
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
    """Return the error of a request that OpenAI refuses, in its words: an unknown field, a reasoning item that was changed
    or that nothing follows, or a tool that does not say whether it is strict."""
    body = request.json
    if not request.path.endswith("/v1/responses"):
        return Fails(404, "invalid_request_error", "", f"Unknown request URL: POST {request.path}")
    for name in body:
        if name not in _FIELDS:
            return _refused(f"Unknown parameter: '{name}'.")
    if body["store"] is not False or (body["model"].startswith("gpt-5") and "include" not in body):
        return _refused("the test wants what is stateless")
    items = body["input"]
    thought = False
    for item, after in zip(items, [*items[1:], {}], strict=True):
        thought = item.get("type") == "reasoning" or (thought and item.get("role") != "user")
        if item.get("type") == "function_call" and "id" in item and not thought:
            return _refused(
                f"Item '{item['id']}' of type 'function_call' was provided without its required 'reasoning' item."
            )
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
    strict = {tool["name"]: tool["parameters"] for tool in body.get("tools", ()) if tool["strict"]}
    if refused := openai_refusal(strict):
        return _refused(refused)
    reasons = body["model"].startswith("gpt-5") and "none" not in str(body.get("reasoning"))
    if reasons and {"temperature", "top_p"} & body.keys():
        return _refused("Unsupported parameter: 'top_p' is not supported with this model.")
    return None


def _refused(message: str) -> Fails:
    return Fails(400, "invalid_request_error", "ValidationException", message)


RESPONSES = Dialect(
    "responses",
    "openai/gpt-5.6",
    "text/event-stream",
    say_responses,
    openai_failure,
    lambda breaks: event({"type": "error", "code": "server_error", "message": "its own words", "param": None}),
    lambda origin: {"api_base": f"{origin}/v1", "api_key": "test"},
    refuses=refuses_responses,
    config={"api": "responses"},
)
