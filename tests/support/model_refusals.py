"""The refusals of OpenAI's Chat Completions and Anthropic's Messages, in their words, or None for an accepted request.

They follow the API references and the real answers: unknown fields, a cache mark that lasts longer than one before it,
settings that exclude thinking, and tools of a new model at the wrong address. `strict_refusals.py` has those of strict
schemas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.strict_refusals import claude_refusal, openai_refusal

Body = Mapping[str, Any]

_MESSAGES = frozenset(
    """
    cache_control container context_management inference_geo max_tokens mcp_servers messages metadata model output_config
    output_format service_tier stop_sequences stream system temperature thinking tool_choice tools top_k top_p
    """.split()  # noqa: SIM905
)
_BLOCKS = {
    "text": {"type", "text", "cache_control", "citations"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
    "tool_use": {"type", "id", "name", "input", "cache_control", "caller"},
    "image": {"type", "source", "cache_control"},
    "document": {"type", "source", "title", "context", "citations", "cache_control"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
    "": {"name", "description", "input_schema", "cache_control", "type", "strict"},
}
_LONGER = (
    "{place}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note "
    "that blocks are processed in the following order: `tools`, `system`, `messages`."
)
_CHAT = frozenset(
    """
    audio frequency_penalty logit_bias logprobs max_completion_tokens max_tokens messages metadata modalities model n
    parallel_tool_calls prediction presence_penalty prompt_cache_key prompt_cache_retention reasoning_effort
    response_format safety_identifier seed service_tier stop store stream stream_options temperature tool_choice tools
    top_logprobs top_p user verbosity web_search_options
    """.split()  # noqa: SIM905
)
_OPENAIS = re.compile(r"(gpt-|o\d)")
_NEW = re.compile(r"gpt-5\.([4-9]|\d\d)")


def messages_refusal(body: Body) -> str | None:
    """Return the refusal of Anthropic's Messages."""
    for name in body.keys() - _MESSAGES:
        return f"{name}: Extra inputs are not permitted"
    marks = list[str]()
    for place, block in _blocks(body):
        for name in block.keys() - _BLOCKS.get(block.get("type", ""), _BLOCKS[""]):
            return f"{place}.{name}: Extra inputs are not permitted"
        if block.get("type") == "text" and not block["text"].strip():
            return "messages: text content blocks must contain non-whitespace text"
        if mark := block.get("cache_control"):
            marks.append(mark.get("ttl", "5m"))
            if marks[-1] == "1h" and "5m" in marks:
                return _LONGER.format(place=place)
    if len(marks) > 4:
        return f"A maximum of 4 blocks with cache_control may be provided. Found {len(marks)}."
    strict = {n: tool["input_schema"] for n, tool in enumerate(body.get("tools", ())) if tool.get("strict")}
    return claude_refusal(strict) or _choice_refusal(body) or _thinking_refusal(body)


def _choice_refusal(body: Body) -> str | None:
    choice = body.get("tool_choice") or {}
    names = [tool["name"] for tool in body.get("tools", ())]
    if choice and not names:
        return "tool_choice may only be specified while providing tools."
    if choice.get("type") == "tool" and choice["name"] not in names:
        return f"Tool '{choice['name']}' not found in provided tools"
    if choice.keys() - {"type", "name", "disable_parallel_tool_use"} or (
        choice.get("type") == "none" and len(choice) > 1
    ):
        return "tool_choice: Extra inputs are not permitted"
    if {"temperature", "top_p"} <= body.keys() and "4-5" in body["model"]:
        return "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
    return None


def _blocks(body: Body) -> Iterator[tuple[str, Body]]:
    """Return the blocks in the order in which they are cached. The mark of the request itself belongs to the last one."""
    for n, tool in enumerate(body.get("tools", ())):
        yield f"tools.{n}", tool
    system = body.get("system") or []
    yield from ((f"system.{n}", block) for n, block in enumerate(system if isinstance(system, list) else []))
    for n, message in enumerate(body["messages"]):
        content = message["content"] if isinstance(message["content"], list) else []
        yield from ((f"messages.{n}.content.{at}", block) for at, block in enumerate(content))
    if "cache_control" in body:
        yield "", {"type": "tool_result", "cache_control": body["cache_control"]}


def _thinking_refusal(body: Body) -> str | None:
    thinking = body.get("thinking") or {}
    if thinking.get("type") not in ("enabled", "adaptive"):
        return None
    if body.get("temperature", 1) != 1:
        return "`temperature` may only be set to 1 when thinking is enabled."
    if (body.get("tool_choice") or {}).get("type") in ("any", "tool"):
        return "Thinking may not be enabled when tool_choice forces tool use."
    if thinking.get("budget_tokens", 0) >= body["max_tokens"]:
        return "`max_tokens` must be greater than `thinking.budget_tokens`."
    return None


def chat_refusal(body: Body) -> str | None:
    """Return the refusal of OpenAI's Chat Completions for one of its own models. Other servers accept other requests."""
    model = body["model"]
    if not _OPENAIS.match(model):
        return None
    for name in body.keys() - _CHAT:
        return f"Unrecognized request argument supplied: {name}"
    functions = [tool["function"] for tool in body.get("tools", ())]
    if refused := openai_refusal({f["name"]: f["parameters"] for f in functions if f.get("strict")}):
        return refused
    if "parallel_tool_calls" in body and not functions:
        return (
            "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are specified."
        )
    if re.match(r"o\d", model) and (found := {"parallel_tool_calls", "top_p"} & body.keys()):
        return f"Unsupported parameter: '{min(found)}' is not supported with this model."
    if _NEW.match(model) and body.get("tools") and body.get("reasoning_effort") != "none":
        return (
            f"Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions. To use function "
            "tools, use /v1/responses or set reasoning_effort to 'none'."
        )
    return None
