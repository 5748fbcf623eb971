"""Results of calls: their content as the model reads it, and their value as programs read it.

Law: pure. Content over `MAX_RESULT_BYTES` is truncated.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from helix.core.entries import CallRow
from helix.core.errors import InvalidInputError
from helix.core.json import JsonValue, check_json, clean_text, dumps, loads, text_size
from helix.core.messages import ToolResultMessage
from helix.core.tools import FINISH_TOOL_NAME, SUBAGENT_TOOL_PREFIX

MAX_RESULT_BYTES = 100_000
"""The maximum size of a result's content in bytes, without the marker of a truncation."""


def result_content(result: object, success: bool) -> str:
    """Return the content of a result. It is a string verbatim, any other value as JSON, or a failure as `{"error":
    message}`. Content over 100,000 bytes is truncated with a marker. Raises `InvalidInputError` for values that are not
    JSON."""
    if not success:
        text = dumps({"error": clean_text(str(result))})
    elif isinstance(result, str):
        text = result
    else:
        value = to_json(result)
        check_json(value, "the result", limit=None)
        text = dumps(value)
    if text_size(text) <= MAX_RESULT_BYTES:
        return text
    encoded = text.encode()
    return encoded[:MAX_RESULT_BYTES].decode(errors="ignore") + f"\n[truncated: {len(encoded)} bytes in all]"


def to_json(value: object) -> JsonValue:
    """Convert a value to JSON. Nested pydantic models become JSON objects. Raises `InvalidInputError` for other values
    that are not JSON."""
    try:
        return _to_json(value)
    except (RecursionError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"the result is not JSON, or nested too deeply: {error}") from error


def _to_json(value: object) -> JsonValue:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {str(k): _to_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(v) for v in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise InvalidInputError(
        f"a tool result of type {type(value).__name__!r} is not JSON: return str, JSON or a pydantic model"
    )


def has_end(row: CallRow) -> bool:
    """Return whether the call has a `tool_end` on the stream. The framework's own result of `__finish__` does not."""
    return row.by != "plan" or row.tool_name != FINISH_TOOL_NAME


def call_value(row: CallRow) -> JsonValue:
    """Return the call's result as JSON. A text result is returned unparsed, even if it looks like JSON."""
    return row.content or "" if row.plain else parsed_content(row.content)


def call_error(row: CallRow) -> str:
    """Return the error message of a failed call."""
    value = parsed_content(row.content)
    reported = (value.get("error") or value.get("reason")) if isinstance(value, dict) else None
    return str(reported or row.content or "failed")


def parsed_content(content: str | None) -> JsonValue:
    """Parse a result's content as JSON. Return the text itself if it is not JSON."""
    try:
        value: JsonValue = loads(content or "")
        return value
    except ValueError:
        return content


def create_tool_result_message(
    *, tool_call_id: str, tool_name: str, result: object, success: bool = True, **fields: Any
) -> ToolResultMessage:
    return ToolResultMessage(
        tool_call_id=tool_call_id,
        tool_name=tool_name,
        content=result_content(result, success),
        success=success,
        **fields,
    )


def create_sub_agent_result_message(
    *, tool_call_id: str, agent_type: str, output: JsonValue = None, error: str | None = None, success: bool = True
) -> ToolResultMessage:
    return create_tool_result_message(
        tool_call_id=tool_call_id,
        tool_name=SUBAGENT_TOOL_PREFIX + agent_type,
        result=output if success else (error or "the sub-agent failed"),
        success=success,
    )
