"""A streamed answer, assembled from pieces: text, reasoning blocks, tool calls, and the step result they form.

Law: callbacks are called in the order of the stream, and their errors never break it. A call is announced only when the
whole answer is known to be complete, so a partial call is never announced and never returned. Sub-agent calls are
announced under the tool name that the model used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from helix.adapters.models.failures import Failure, failure
from helix.adapters.models.playback import notify
from helix.adapters.models.strict_schema import drop_nulls
from helix.adapters.models.wire import CallPart, Cited, Piece, Redacted, Served, Text, Thinking
from helix.core.json import JsonObject, clean_json
from helix.core.messages import Citation, ServerBlock, ServerCall, ThinkingContent
from helix.core.server_tools import next_call
from helix.core.steps import (
    AnyStepResult,
    ErrorStepResult,
    ParsedSubAgentCall,
    ParsedToolCall,
    StopReason,
    TextStepResult,
    ToolCallsStepResult,
    is_error_stop_reason,
)
from helix.core.stop_reasons import (
    map_anthropic_stop_reason,
    map_bedrock_stop_reason,
    map_gemini_finish_reason,
    map_openai_finish_reason,
)
from helix.core.tools import SUBAGENT_TOOL_PREFIX, is_finish_tool, is_sub_agent_tool
from helix.core.usage import Usage
from helix.ports.model import LLMStreamCallbacks


@dataclass(slots=True)
class _Fragments:
    id: str
    """The call's id. Empty until a fragment has it."""
    name: str
    """The tool's name. Empty until a fragment has it."""
    text: str = ""
    """The arguments so far, as JSON text."""


class PartialAnswer:
    """The answer of one attempt. Feed it the pieces in order, then call `result`."""

    def __init__(self, callbacks: LLMStreamCallbacks, strict: Mapping[str, JsonObject]) -> None:
        self._callbacks, self._strict = callbacks, strict
        self._text: list[str] = []
        self._blocks: list[ThinkingContent] = []
        self._open, self._length = "", 0
        self._phase: str | None = None
        self._server_blocks: list[ServerBlock] = []
        self._served: dict[str, ServerCall] = {}
        self._citations: list[Citation] = []
        self._calls: list[_Fragments] = []
        self._at: dict[int, _Fragments] = {}
        self._output: _Fragments | None = None
        self._output_shown = 0

    @property
    def text_so_far(self) -> str:
        """All billable text so far, from which its tokens are estimated."""
        thoughts = [block.text or block.redacted or "" for block in self._blocks]
        return "".join([*thoughts, self._open, *self._text, *(call.name + call.text for call in self._calls)])

    async def feed(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            match piece:
                case Text():
                    self._phase = piece.phase or self._phase
                    await self._add_text(replace_surrogates(piece.text))
                case Thinking():
                    await self._thinking(replace_surrogates(piece.text))
                    if piece.signature is not None:
                        await self._close_block(replace_surrogates(piece.signature), piece.id)
                case Redacted():
                    await self._close_block()
                    self._add_block(redacted=replace_surrogates(piece.data))
                case CallPart():
                    await self._close_block()
                    if self._add_fragment(piece):
                        await notify(self._callbacks.on_tool_start, self._calls[-1].name)
                    await self._show_output()
                case Served():
                    await self._serve(piece)
                case Cited():
                    citation = Citation.model_validate(clean_json(piece.citation.model_dump()))
                    self._citations.append(citation)
                    await notify(self._callbacks.on_citation, citation)
                case _:
                    assert_never(piece)

    async def result(self, model: str, finish_reason: str, refusal: str, usage: Usage) -> AnyStepResult:
        """Return the step result of a stream that ended with `finish_reason`, and announce its calls."""
        await self._close_block()
        reason = stop_reason(finish_reason, refusal, has_calls=bool(self._calls))
        content = "".join(self._text)
        common: dict[str, Any] = {"thinking": self._blocks, "stop_reason": reason, "usage": usage, "model": model}
        common |= {"phase": self._phase, "server_blocks": self._server_blocks, "citations": self._within(len(content))}
        if is_error_stop_reason(reason):
            failed = _failure_of_stop(model, reason, finish_reason, refusal or content)
            return ErrorStepResult(error=failed.message, code=failed.code, retryable=failed.retryable, **common)
        if not self._calls:
            return TextStepResult(content=content, should_stop=finish_reason != "pause_turn", **common)
        return await self._tool_calls(content or None, common)

    def _within(self, length: int) -> list[Citation]:
        """Return the citations, none of which ends after the text."""
        return [
            citation.model_copy(update={"start": min(citation.start, length), "end": min(citation.end, length)})
            for citation in self._citations
        ]

    async def _tool_calls(self, content: str | None, common: dict[str, Any]) -> ToolCallsStepResult:
        calls = [self._parse(fragments, position) for position, fragments in enumerate(self._calls)]
        for call in calls:
            await notify(self._callbacks.on_tool_call, call)
        own = [call for call in calls if not is_sub_agent_tool(call.name)]
        sub_agents = [
            ParsedSubAgentCall(
                id=call.id,
                agent_type=call.name.removeprefix(SUBAGENT_TOOL_PREFIX),
                input=call.arguments,
                malformed=call.malformed,
            )
            for call in calls
            if is_sub_agent_tool(call.name)
        ]
        order = [call.id for call in calls]
        return ToolCallsStepResult(content=content, tool_calls=own, sub_agent_calls=sub_agents, order=order, **common)

    async def _add_text(self, text: str) -> None:
        if text:
            await self._close_block()
            self._text.append(text)
            self._length += len(text)
            await notify(self._callbacks.on_text_delta, text)

    async def _thinking(self, text: str) -> None:
        if text:
            self._open += text
            await notify(self._callbacks.on_thinking, text, False)

    async def _close_block(self, signature: str | None = None, id: str | None = None) -> None:
        if not self._open and signature is None:
            return
        text, self._open = self._open, ""
        self._add_block(text=text, signature=signature, id=id)
        if text:
            await notify(self._callbacks.on_thinking, text, True)

    def _add_block(self, **block: Any) -> None:
        place = {"after_text": self._length, "after_calls": len(self._calls)}
        self._blocks.append(ThinkingContent(**block, **place))

    async def _serve(self, piece: Served) -> None:
        await self._close_block()
        raw = clean_json(piece.raw)
        if (call := next_call(raw, self._served)) is not None:
            self._served[call.id] = call
            await notify(self._callbacks.on_server_call, call)
        if piece.complete:
            place = {"after_text": self._length, "after_calls": len(self._calls), "after_thinking": len(self._blocks)}
            self._server_blocks.append(ServerBlock(raw=raw, call=call, **place))

    def _add_fragment(self, part: CallPart) -> bool:
        """Add a fragment of a call. Returns whether it begins a new call."""
        call_id, name = replace_surrogates(part.id), replace_surrogates(part.name)
        current, before = self._at.get(part.index), len(self._calls)
        # Some servers give every call index 0: a new id together with a name starts a new call.
        if current is None or (name and call_id and current.id and call_id != current.id):
            current = self._at[part.index] = _Fragments(call_id, name)
            self._calls.append(current)
        current.id = current.id or call_id
        current.name = current.name or name
        current.text += replace_surrogates(part.arguments)
        return len(self._calls) > before

    async def _show_output(self) -> None:
        """Show the part of the first `__finish__` call's arguments that has arrived since the last time."""
        if self._output is None:
            self._output = next((call for call in self._calls if is_finish_tool(call.name)), None)
        if self._output is not None and (delta := self._output.text[self._output_shown :]):
            self._output_shown += len(delta)
            await notify(self._callbacks.on_output_delta, delta)

    def _parse(self, fragments: _Fragments, position: int) -> ParsedToolCall:
        taken = [call.id for call in self._calls[:position]]
        if not fragments.id or fragments.id in taken:
            fragments.id = f"call_{position}"
        arguments = parse_arguments(fragments.text)
        if arguments is None:
            return ParsedToolCall(id=fragments.id, name=fragments.name, malformed=fragments.text)
        if schema := self._strict.get(fragments.name):
            arguments = drop_nulls(schema, arguments)
        return ParsedToolCall(id=fragments.id, name=fragments.name, arguments=arguments)


def stop_reason(finish_reason: str, refusal: str, *, has_calls: bool) -> StopReason:
    """Map any provider's finish reason to a stop reason. The providers' terms do not conflict."""
    mapped = map_openai_finish_reason(finish_reason, refusal=refusal)
    for of_another in (map_anthropic_stop_reason, map_bedrock_stop_reason, map_gemini_finish_reason):
        if mapped is StopReason.UNKNOWN:
            mapped = of_another(finish_reason)
    # OpenAI reports "stop" for a forced tool call, and Gemini for every tool call.
    return StopReason.TOOL_USE if has_calls and mapped in (StopReason.END_TURN, StopReason.STOP_SEQUENCE) else mapped


def parse_arguments(text: str) -> JsonObject | None:
    """Return the JSON object in `text`, or None if it is not one. Empty text is the empty object."""
    try:
        value = json.loads(text, parse_constant=_no_constant) if text.strip() else {}
        json.dumps(value, ensure_ascii=False).encode()  # an escaped lone surrogate parses, but cannot be stored
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _failure_of_stop(model: str, reason: StopReason, finish_reason: str, text: str) -> Failure:
    match reason:
        case StopReason.MAX_TOKENS:
            return failure(model, "max_tokens", f"the answer was cut at its token limit ({finish_reason})")
        case StopReason.REFUSAL:
            return failure(model, "refusal", text or "the model refused")
        case StopReason.CONTENT_FILTER:
            return failure(model, "content_filter", f"the answer was filtered ({finish_reason})")
        case _:
            return failure(model, "server_error", f"the model stopped with {finish_reason!r}")


def replace_surrogates(value: Any) -> str:
    """Return `value` if it is text, with lone surrogates (halves of split characters) replaced, because they cannot be
    stored."""
    if not isinstance(value, str):
        return ""
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return value
