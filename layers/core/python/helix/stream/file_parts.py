"""Files of messages and of tool results in the forms of the AI SDK and of AG-UI.

Law: a file keeps its place in the text. If a client sends the parts of a message back, they make the same message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from helix.core.files import FilePart
from helix.core.json import JsonObject, JsonValue

HELIX: Final = "helix"
"""The provider of AG-UI sources that name a file by its hash, and the key of the metadata of AI SDK files."""


def parts_of(text: str, files: Sequence[FilePart]) -> list[str | FilePart]:
    """Return the texts and files of a stored message in order, as a page shows them. If the page sends them back,
    `helix.http.message_parts` makes the same message of them, unless a file stands within a line."""
    found: list[str | FilePart] = []
    begin = end = 0
    for file in files:
        position = min(file.after_text, len(text))
        if position > end:
            found.append(text[begin:position])
            end = position
            begin = end + (text[end : end + 1] == "\n")  # `Parts` adds this line break again
        found.append(file)
    if end < len(text) or not found:
        found.append(text[begin:])
    return found


def agui_content(text: str, files: Sequence[FilePart]) -> JsonValue:
    """Return the content of an AG-UI message: the text, or parts if there are files."""
    if not files:
        return text
    return [
        {"type": "text", "text": part} if isinstance(part, str) else _agui_file(part) for part in parts_of(text, files)
    ]


def _agui_file(file: FilePart) -> JsonObject:
    """Return the media part of a file. A stored file is named by its hash; `helix.http.message_parts` reads it."""
    top = file.media_type.partition("/")[0]
    kind = top if top in ("image", "audio", "video") else "document"
    source: JsonObject = {"type": "url", "value": file.url}
    if file.url is None:
        source = {"type": "file", "value": file.sha256, "provider": HELIX}
    named: JsonObject = {"metadata": {"filename": file.name}} if file.name is not None else {}
    return {"type": kind, "source": {**source, "mimeType": file.media_type}, **named}


def file_url(file: FilePart, session_id: str, base: str | None) -> str:
    """Return the address of a file that the session holds: a path below `base`, the address of an agent in an encoding of
    `helix.http`. Without a `base`, the address of a stored file is not known and empty."""
    if file.url is not None or base is None:
        return file.url or ""
    query = f"?name={quote(file.name, safe='')}" if file.name is not None else ""
    return f"{base}/{quote(session_id, safe='')}/files/{file.sha256}{query}"


def ui_result_files(files: Sequence[FilePart], session_id: str, shown_id: str, base: str | None) -> list[JsonObject]:
    """Return the AI SDK parts of the files of a call's result. Their metadata has the id of the call on the page, and the
    session that holds the files."""
    found: list[JsonObject] = []
    for file in files:
        about: JsonObject = {"toolCallId": shown_id, "sessionId": session_id}
        about |= {"sha256": file.sha256} if file.sha256 is not None else {}
        about |= {"filename": file.name} if file.name is not None else {}
        url = file_url(file, session_id, base)
        found.append({"type": "file", "url": url, "mediaType": file.media_type, "providerMetadata": {HELIX: about}})
    return found
