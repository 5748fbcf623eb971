"""The form in which each provider's interface accepts a file, or the reason why it does not.

Law: the decision depends only on the file, the model's name and its entry in the catalog. A file of the last user
message that the model cannot take is refused before any call is paid for. A note that names the file replaces any other
file that the model cannot take, because an older message, or a tool that has already acted, must not make every later
run of its session fail.
"""

from __future__ import annotations

import mimetypes
from typing import Literal

from helix.core.file_tokens import is_text
from helix.core.files import FilePart
from helix.ports.catalog import PDF, ModelInfo, refusal, takes, unsupported

Interface = Literal["responses", "chat", "messages", "converse", "litellm"]
"""The interfaces: OpenAI's Responses, Chat Completions, Anthropic's Messages, Bedrock's Converse, and litellm's."""
Form = Literal["image", "audio", "document", "video", "text"]
"""The kinds of a provider's content blocks. `text` is a document whose content is sent as text."""

IMAGES = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
"""The types of images that all providers accept, with Converse's names for them."""
CHAT_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
"""The types of audio that OpenAI accepts, with its names for them."""
CONVERSE_AUDIO = {
    **CHAT_AUDIO,
    "audio/flac": "flac",
    "audio/x-flac": "flac",
    "audio/ogg": "ogg",
    "audio/opus": "opus",
    "audio/aac": "aac",
    "audio/mp4": "m4a",
    "audio/x-m4a": "m4a",
    "audio/webm": "webm",
}
CONVERSE_DOCUMENTS = {
    PDF: "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/markdown": "md",
    "text/plain": "txt",
}
CONVERSE_VIDEO = {
    "video/x-matroska": "mkv",
    "video/quicktime": "mov",
    "video/mp4": "mp4",
    "video/webm": "webm",
    "video/x-flv": "flv",
    "video/mpeg": "mpeg",
    "video/x-ms-wmv": "wmv",
    "video/3gpp": "three_gp",
}
_PASSES_URLS = ("openai/", "azure/", "anthropic/")
"""The providers to which litellm passes the URL of an image. For others it may fetch the URL in this process."""
_NAMES = {
    "responses": "OpenAI's Responses API",
    "chat": "Chat Completions",
    "messages": "Anthropic's Messages API",
    "converse": "Amazon Bedrock's Converse API",
    "litellm": "litellm",
}


def form_of(file: FilePart, interface: Interface, info: ModelInfo, *, in_result: bool = False) -> Form | None:
    """Return the form in which a file is sent, or None if the model cannot take it. `in_result`: a tool returned it."""
    if takes(info, file) is False:
        return None
    if file.url is not None and not _takes_url(file, interface, info.model):
        return None
    match file.kind:
        case "image":
            return "image" if file.media_type in IMAGES or file.url is not None else None
        case "audio":
            return "audio" if _takes_audio(file, interface, in_result) else None
        case "document":
            return _document(file, interface)
        case _:
            video = interface == "converse" and info.video and file.media_type in CONVERSE_VIDEO
            return "video" if video else None


def refused(file: FilePart, interface: Interface, info: ModelInfo) -> str | None:
    """Return why a file of the last user message is refused, or None. A file of kind `file` is replaced by a note
    instead."""
    if file.kind == "file" or form_of(file, interface, info) is not None:
        return None
    if (known := unsupported(info, [file])) is not None:
        return known
    name = _NAMES[interface]
    if file.url is not None:
        return refusal(info.model, file, f"{name} does not take this type as a URL", "upload the file itself")
    return refusal(info.model, file, f"{name} does not take this type", "convert it to PDF, PNG, JPEG or text")


def note(file: FilePart, *, readable: bool) -> str:
    """Return the note that names a file and takes its place. `readable`: the prompt also contains the file."""
    size = f", {file.size} bytes" if file.size else ""
    shown = f"{file.kind} {file.name!r}" if file.name else file.kind
    return f"[{shown} ({file.media_type}{size}){'' if readable else ', which this model cannot read'}]"


def file_name(file: FilePart) -> str:
    """Return the name of a file for providers that require one."""
    return file.name or f"{file.kind}{mimetypes.guess_extension(file.media_type) or ''}"


def _takes_url(file: FilePart, interface: Interface, model: str) -> bool:
    match interface:
        case "responses":
            return file.kind in ("image", "document")
        case "chat":
            return file.kind == "image"
        case "messages":
            return file.kind == "image" or file.media_type == PDF
        case "litellm":
            return file.kind == "image" and model.startswith(_PASSES_URLS)
        case "converse":
            return False


def _takes_audio(file: FilePart, interface: Interface, in_result: bool) -> bool:
    if interface == "converse":
        return not in_result and file.media_type in CONVERSE_AUDIO
    return interface in ("chat", "litellm") and file.media_type in CHAT_AUDIO


def _document(file: FilePart, interface: Interface) -> Form | None:
    if file.media_type == PDF or file.url is not None:
        return "document"
    match interface:
        case "converse" if file.media_type in CONVERSE_DOCUMENTS:
            return "document"
        case "responses" if not is_text(file):  # office documents: OpenAI extracts their text
            return "document"
        case _:
            return "text" if is_text(file) else None
