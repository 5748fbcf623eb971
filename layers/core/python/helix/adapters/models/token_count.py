"""Offline token counts, from the tables that litellm ships or those in `TIKTOKEN_CACHE_DIR`.

Law: counting never fails a run and never uses the network. tiktoken would fetch a table that is missing or damaged, so
it is only called after the file was found intact. Without a table the count is an estimate, and is marked as such.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from helix._log import get_logger
from helix.core.estimating import estimate_text
from helix.core.file_tokens import file_tokens
from helix.core.json import dumps
from helix.core.messages import AssistantMessage, ToolResultMessage, UserMessage

PER_MESSAGE, PER_NAME, PRIMING, PER_TOOL = 3, 1, 3, 8
"""The overheads that OpenAI adds for a message, a name in it, the reply, and a tool."""
IMAGE_TOKENS, SMALL_IMAGE_TOKENS = 765, 85
"""The number of tokens of a 1024 x 1024 image, and of a low-detail image."""
PIECE = 50_000
"""The number of characters that are encoded at once. tiktoken takes too long for a longer text without a space."""
DEFAULT = "cl100k_base"
_TABLES = {
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
}
"""The tables of tiktoken: the name of the cached file (the SHA-1 of its URL), and the SHA-256 of its content."""
_SHIPPED = Path("litellm_core_utils", "tokenizers")
_CACHE = "TIKTOKEN_CACHE_DIR"
_loading = threading.Lock()
logger = get_logger("helix")


@dataclass(frozen=True, slots=True)
class TokenCount:
    """The token count of a text."""

    tokens: int
    """The number of tokens."""
    estimated: bool
    """Whether the count is an estimate, because the model's own table is unknown or not available."""


class TokenCounter:
    """A counter for any model. It is exact for OpenAI's models. For all others it is close enough for choices and
    planning."""

    def count_tokens(self, text: str, model: str = "gpt-4") -> int:
        """Return the number of tokens in `text`, which is 0 for an empty string."""
        return self.count(text, model).tokens

    def count(self, text: str, model: str = "gpt-4") -> TokenCount:
        """Return the number of tokens in `text`, and whether it is an estimate."""
        encoding, exact = _encoding(_table_of(model))
        return TokenCount(_count(encoding, text), not exact or encoding is None)

    def count_messages_tokens(
        self, messages: Iterable[Mapping[str, Any] | BaseModel], model: str = "gpt-4", *, tools: Sequence[Any] = ()
    ) -> int:
        """Return the number of tokens in a request's prompt: its messages (mappings or Helix's own) with their tool
        calls, and the tools' descriptions. Content may be a list of parts; images count by their detail."""
        encoding, _ = _encoding(_table_of(model))
        tokens = PRIMING
        for message in messages:
            tokens += PER_MESSAGE + sum(_count(encoding, text) for text in _texts(message))
            tokens += _count_extra(message, model)
        for tool in tools:
            tokens += PER_TOOL + _count(encoding, _describe_tool(tool))
        return tokens


def _count(encoding: Any, text: object) -> int:
    if not isinstance(text, str) or not text:
        return 0
    if encoding is not None:
        try:
            pieces = (text[start : start + PIECE] for start in range(0, len(text), PIECE))
            return sum(len(encoding.encode(piece, disallowed_special=())) for piece in pieces)
        except Exception as error:  # any error: an estimate is good enough
            logger.debug("a text of %d characters was not encoded: %s", len(text), error)
    return estimate_text(text)


# --- messages ---------------------------------------------------------------------------------------------------------


def _texts(message: Mapping[str, Any] | BaseModel) -> list[str]:
    """Return all strings of a message that the model reads."""
    if isinstance(message, AssistantMessage):
        calls = [text for call in message.tool_calls for text in (call.name, dumps(call.arguments))]
        return [message.role, message.content or "", *(block.text for block in message.thinking), *calls]
    if isinstance(message, ToolResultMessage):
        return [message.role, message.tool_name, message.content]
    value = message.model_dump(mode="json") if isinstance(message, BaseModel) else message
    texts = [str(value.get("role") or ""), str(value.get("name") or "")]
    content = value.get("content")
    if isinstance(content, str):
        texts.append(content)
    elif isinstance(content, Sequence):
        texts += [part if isinstance(part, str) else _part(part) for part in content]
    for call in value.get("tool_calls") or ():
        function = call.get("function", call) if isinstance(call, Mapping) else {}
        arguments = function.get("arguments")
        texts += [str(function.get("name") or ""), arguments if isinstance(arguments, str) else _json(arguments)]
    return texts


def _part(part: object) -> str:
    """Return the text of a content part, or an empty string for an image, which `_count_extra` counts."""
    if not isinstance(part, Mapping) or _is_image(part):
        return ""
    text = part.get("text")
    return text if isinstance(text, str) else _json(part)


def _count_extra(message: Mapping[str, Any] | BaseModel, model: str) -> int:
    """Return the number of tokens other than text: the overhead of a name, images and other files."""
    if isinstance(message, UserMessage | ToolResultMessage):
        return sum(file_tokens(file, model) for file in message.files)
    if not isinstance(message, Mapping):
        return 0
    content = message.get("content")
    parts = content if isinstance(content, Sequence) and not isinstance(content, str) else ()
    images = [part for part in parts if isinstance(part, Mapping) and _is_image(part)]
    return (PER_NAME if message.get("name") else 0) + sum(
        SMALL_IMAGE_TOKENS if _detail(image) == "low" else IMAGE_TOKENS for image in images
    )


def _is_image(part: Mapping[str, Any]) -> bool:
    return str(part.get("type", "")).endswith(("image_url", "image", "input_image"))


def _detail(part: Mapping[str, Any]) -> object:
    inner = part.get("image_url")
    return inner.get("detail") if isinstance(inner, Mapping) else part.get("detail")


def _describe_tool(tool: Any) -> str:
    """Return a tool's name, description and schema, from a `ToolSpec`, a `Tool`, or OpenAI's form."""
    if isinstance(tool, Mapping):
        function = tool.get("function", tool)
        return _json(function)
    reported = [getattr(tool, name, "") for name in ("name", "description")]
    return "\n".join([*map(str, reported), _json(getattr(tool, "parameters", {}))])


def _json(value: object) -> str:
    try:
        return "" if value is None else dumps(value)
    except Exception:  # a value that is not JSON is never sent
        return str(value)


# --- tables -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _table_of(model: str) -> str | None:
    """Return the name of the model's table, or None if tiktoken does not know the model."""
    try:
        name: str = importlib.import_module("tiktoken").encoding_name_for_model(str(model).rpartition("/")[2])
    except Exception:  # tiktoken is not installed, or does not know the model
        return None
    return "o200k_base" if name == "o200k_harmony" else name  # the same tables, except for special tokens


def _encoding(name: str | None) -> tuple[Any, bool]:
    """Return tiktoken's encoding of that table, or the default one, and whether it is the requested one."""
    if name is not None and (found := _load(name)) is not None:
        return found, True
    return _load(DEFAULT), False


@lru_cache(maxsize=8)
def _load(name: str) -> Any:
    """Return the encoding if its table is available and intact."""
    with _loading:
        folder = _folder_of(name)
        if folder is None:
            return None
        before = os.environ.get(_CACHE)
        os.environ[_CACHE] = str(folder)
        try:
            return importlib.import_module("tiktoken").get_encoding(name)
        except Exception as error:
            logger.info("tokens are estimated: tiktoken cannot use %s: %s", name, error)
            return None
        finally:
            if before is None:
                del os.environ[_CACHE]
            else:
                os.environ[_CACHE] = before


def _folder_of(name: str) -> Path | None:
    if name not in _TABLES:
        return None
    file, digest = _TABLES[name]
    for folder in _folders():
        try:
            content = (folder / file).read_bytes()
        except OSError:
            continue
        if hashlib.sha256(content).hexdigest() == digest:
            return folder
    return None


def _folders() -> list[Path]:
    own = os.environ.get(_CACHE)
    folders = [Path(own)] if own else []
    try:
        spec = importlib.util.find_spec("litellm")  # finds the package without importing it
    except (ImportError, ValueError):
        spec = None
    places = spec.submodule_search_locations if spec is not None else None
    return folders + [Path(place) / _SHIPPED for place in places or ()]
