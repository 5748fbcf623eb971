"""The results of MCP tools: their text, and the files among their content.

Law: a file that Helix cannot accept never fails a call that the server has executed. A note takes its place, which tells
the model what is missing and why.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from helix.core.errors import InvalidFileError, ToolError
from helix.core.file_checks import check_message, clean_name, describe
from helix.core.files import File, FilePart
from helix.core.json import JsonValue, dumps


def result_content(tool: str, result: Any) -> JsonValue | list[str | File]:
    """Convert a `CallToolResult`: to its texts and files if it has files that Helix accepts, otherwise to its structured
    content if there is any, and otherwise to text. Raises `ToolError` with the text of a failure."""
    if result.is_error:
        text = "\n".join(_note(block) for block in result.content)
        raise ToolError(text or f"{tool!r} failed without a message")
    parts = _read_parts(result.content)
    if not any(isinstance(part, File) for part in parts):
        structured = cast(JsonValue, result.structured_content)
        return structured if structured is not None else "\n".join(str(part) for part in parts)
    if result.structured_content is not None and not any(isinstance(part, str) for part in parts):
        parts.insert(0, dumps(result.structured_content))
    return parts


def without_files(content: JsonValue | list[str | File]) -> JsonValue:
    """Replace the files of a result with notes, for an executor that has no place for files."""
    if not isinstance(content, list) or not any(isinstance(part, File) for part in content):
        return cast(JsonValue, content)
    notes = [_file_note(part) if isinstance(part, File) else str(part) for part in content]
    return "\n".join(notes)


def _read_parts(content: Sequence[Any]) -> list[str | File]:
    parts, files = list[str | File](), list[FilePart]()
    for block in content:
        given = _data_of(block)
        if given is None:
            parts.append(_note(block))
            continue
        data, media_type, name = given
        try:
            file = File(binascii.a2b_base64("".join(data.split()), strict_mode=True), media_type, clean_name(name))
            described = describe(cast(bytes, file.source), media_type=media_type, name=file.name)
            check_message([*files, described])
        except InvalidFileError as error:
            parts.append(f"{_note(block)[:-1]}: {error}]")
        except ValueError:
            parts.append(f"{_note(block)[:-1]}: it is not valid base64]")
        else:
            files.append(described)
            parts.append(file)
    return parts


def _data_of(block: Any) -> tuple[str, str | None, str | None] | None:
    """Return the base64, the declared type and the name of a block with a file. None for other blocks. Helix fetches no
    resource links."""
    if block.type in ("image", "audio"):
        return block.data, block.mime_type, None
    if block.type == "resource" and getattr(block.resource, "blob", None) is not None:
        return block.resource.blob, block.resource.mime_type, _name_in(str(block.resource.uri))
    return None


def _name_in(uri: str) -> str | None:
    try:
        return unquote(urlsplit(uri).path).rpartition("/")[2][-120:]
    except ValueError:
        return None


def _note(block: Any) -> str:
    """Return a text unchanged, and a description of other content."""
    match block.type:
        case "text":
            return str(block.text)
        case "image" | "audio":
            return f"[{block.type}, {block.mime_type}, {len(block.data) * 3 // 4} bytes, not shown]"
        case "resource_link":
            return f"[resource {block.name!r} at {block.uri}]"
        case "resource" if getattr(block.resource, "text", None) is not None:
            return str(block.resource.text)
        case "resource":
            return f"[resource {block.resource.uri}, {block.resource.mime_type}, not shown]"
        case other:
            return f"[{other}, not shown]"


def _file_note(file: File) -> str:
    named = f"{file.name!r}, " if file.name is not None else ""
    return f"[file, {named}{file.media_type}, {len(cast(bytes, file.source))} bytes, not shown]"
