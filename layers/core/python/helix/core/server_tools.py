"""The provider's own tools: web search, code execution, file search and remote MCP servers.

Law: Helix executes none of them. The provider does, inside the model call, so their calls are parts of an answer: stored
with it, sent back with it to the model that gave it, and gone if the attempt is discarded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, model_validator

from helix.core.json import JsonObject, JsonValue, load_object
from helix.core.messages import AnyMessage, AssistantMessage, Record, ServerBlock, ServerCall


class WebSearch(Record):
    """Searches the web. OpenAI's Responses API and Anthropic have it."""

    type: Literal["web_search"] = "web_search"
    """The tag of this kind of tool."""
    max_uses: int | None = Field(default=None, ge=1)
    """The maximum number of searches in an answer. None: the provider's limit. Only Anthropic has it."""
    allowed_domains: list[str] = Field(default_factory=list)
    """The only domains in which it searches, such as `example.com`. Empty: all."""
    blocked_domains: list[str] = Field(default_factory=list)
    """The domains in which it does not search. Only Anthropic has it, and not together with `allowed_domains`."""
    country: str | None = Field(default=None, pattern="^[A-Z]{2}$")
    """The user's country, as two letters (ISO 3166-1), which changes what is found. None: not given."""

    @model_validator(mode="after")
    def _one_list(self) -> WebSearch:
        if self.allowed_domains and self.blocked_domains:
            raise ValueError("give allowed_domains or blocked_domains, not both")
        return self


class CodeExecution(Record):
    """Executes code in the provider's sandbox. OpenAI's Responses API and Anthropic have it."""

    type: Literal["code_execution"] = "code_execution"
    """The tag of this kind of tool."""


class FileSearch(Record):
    """Searches files that were uploaded to vector stores. OpenAI's Responses API has it."""

    type: Literal["file_search"] = "file_search"
    """The tag of this kind of tool."""
    stores: list[str] = Field(min_length=1)
    """The ids of the vector stores, such as `vs_123`."""
    max_results: int | None = Field(default=None, ge=1, le=50)
    """The maximum number of results of a search. None: the provider's default."""


class RemoteMcp(Record):
    """The tools of an MCP server that the provider calls. OpenAI's Responses API and Anthropic have it. The server sees
    what the model sends to it, without a person's approval: name `allowed_tools` for a server that can change something."""

    type: Literal["mcp"] = "mcp"
    """The tag of this kind of tool."""
    name: str = Field(pattern="^[A-Za-z0-9_-]{1,64}$")
    """The name of the server, which the model sees."""
    url: str = Field(pattern="^https://")
    """The address of the server."""
    allowed_tools: list[str] = Field(default_factory=list)
    """The only tools that the model may call. Empty: all."""
    token_env: str | None = None
    """The environment variable with the server's access token. The token itself is neither stored nor logged. None: the
    server needs none."""


ServerTool: TypeAlias = Annotated[WebSearch | CodeExecution | FileSearch | RemoteMcp, Field(discriminator="type")]


_ASSUMED_USES = 10
FILE_SEARCH_MICROS: Final = 2_500
"""The list price of a file search at OpenAI, in micro-dollars."""
CONTAINER_MICROS: Final = 30_000
"""The list price of a container for code at OpenAI, in micro-dollars. It lasts 20 minutes."""
_MOST_MICROS = {"web_search": 25_000, "file_search": FILE_SEARCH_MICROS, "code_execution": CONTAINER_MICROS, "mcp": 0}
"""The highest list prices of one use, in micro-dollars."""


def most_fees(tools: Iterable[ServerTool]) -> int:
    """Return what a budget reserves for the fees of the tools in one call, in micro-dollars: ten uses of a search, unless
    `max_uses` is set. The actual fees are settled, even if they are higher."""
    total = 0
    for tool in tools:
        uses = 1 if isinstance(tool, CodeExecution) else _ASSUMED_USES
        if isinstance(tool, WebSearch) and tool.max_uses is not None:
            uses = tool.max_uses
        total += uses * _MOST_MICROS[tool.type]
    return total


def server_calls(blocks: Iterable[ServerBlock]) -> list[ServerCall]:
    """Return the calls in the items of one answer, in order, each as its last item shows it."""
    return list({block.call.id: block.call for block in blocks if block.call is not None}.values())


def is_paused(message: AnyMessage) -> bool:
    """Return whether the answer has a call that the provider has not executed yet. It goes on only if the answer is the
    last message of the next request."""
    return isinstance(message, AssistantMessage) and any(not call.done for call in server_calls(message.server_blocks))


def with_known_blocks(message: AssistantMessage, tools: Iterable[ServerTool], *, last: bool) -> AssistantMessage:
    """Return the answer with the items that its provider takes back: those of tools that the request offers, and no call
    without its result, unless the answer is the `last` message. Citations belong to the items."""
    kinds = {tool.type for tool in tools}
    done = {call.id for call in server_calls(message.server_blocks) if call.done}
    known = [
        block
        for block in message.server_blocks
        if _kind(block.raw) in kinds and (last or block.call is None or block.call.id in done)
    ]
    if len(known) == len(message.server_blocks):
        return message
    plain = [citation.model_copy(update={"raw": {}}) for citation in message.citations]
    cited = message.citations if any(_kind(block.raw) == "web_search" for block in known) else plain
    return message.model_copy(update={"server_blocks": known, "citations": cited})


def _kind(raw: Mapping[str, Any]) -> str:
    """Return the tool of an item of the provider."""
    name = f"{raw.get('type')} {raw.get('name')}"
    if "mcp" in name:
        return "mcp"
    return next((kind for kind in ("web_search", "file_search") if kind in name), "code_execution")


def next_call(raw: Mapping[str, Any], begun: Mapping[str, ServerCall]) -> ServerCall | None:
    """Return the call that an item of the provider begins or ends. `begun`: the calls of the items before it, by id. None:
    the item is no call, such as a list of tools."""
    kind = str(raw.get("type"))
    match kind:
        case "server_tool_use" | "mcp_tool_use":
            name = f"{raw.get('server_name')}.{raw.get('name')}" if kind == "mcp_tool_use" else str(raw.get("name"))
            given = raw.get("input")
            return ServerCall(id=str(raw.get("id")), name=name, arguments=given if isinstance(given, dict) else {})
        case _ if kind.endswith("_tool_result"):
            ident = str(raw.get("tool_use_id"))
            call = begun.get(ident) or ServerCall(id=ident, name=kind.removesuffix("_tool_result"))
            return _ended_by_claude(call, raw)
        case "web_search_call":
            action = raw.get("action")
            given = {k: v for k, v in action.items() if k != "sources"} if isinstance(action, dict) else {}
            sources = action.get("sources") if isinstance(action, dict) else None
            return _ended_by_openai(raw, "web_search", given, _sources(sources))
        case "file_search_call":
            return _ended_by_openai(raw, "file_search", {"queries": raw.get("queries") or []}, raw.get("results"))
        case "code_interpreter_call":
            return _ended_by_openai(raw, "code_execution", {"code": raw.get("code") or ""}, raw.get("outputs"))
        case "mcp_call":
            arguments = load_object(str(raw.get("arguments") or "{}")) or {}
            return _ended_by_openai(raw, f"{raw.get('server_label')}.{raw.get('name')}", arguments, raw.get("output"))
        case _:
            return None


def _ended_by_claude(call: ServerCall, raw: Mapping[str, Any]) -> ServerCall:
    content = raw.get("content")
    code = content.get("error_code") if isinstance(content, dict) else None
    if code is not None or raw.get("is_error"):
        return call.model_copy(update={"done": True, "error": str(code or content)})
    shown = [_visible(item) for item in content] if isinstance(content, list) else _visible(content)
    return call.model_copy(update={"done": True, "result": shown})


def _ended_by_openai(raw: Mapping[str, Any], name: str, arguments: JsonObject, result: JsonValue) -> ServerCall:
    failed = raw.get("status") == "failed" or raw.get("error")
    error = str(raw.get("error") or "the call failed") if failed else None
    done = error is not None or raw.get("status") not in ("in_progress", "searching", "interpreting", "calling")
    about: dict[str, Any] = {"done": done, "result": None if failed else result, "error": error}
    return ServerCall(id=str(raw.get("id")), name=name, arguments=arguments, **about)


def _visible(item: Any) -> JsonValue:
    """Return a part of a result without what only the provider can read."""
    if not isinstance(item, dict):
        return str(item) if item is not None else None
    return {name: value for name, value in item.items() if not name.startswith("encrypted_") and name != "type"}


def _sources(sources: Any) -> JsonValue:
    return [_visible(source) for source in sources] if isinstance(sources, list) else None
