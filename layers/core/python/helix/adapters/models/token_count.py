"""Counting tokens as models do, offline: with the tables that litellm ships, or those in `TIKTOKEN_CACHE_DIR`.

Law: counting never fails a run and never asks the network. tiktoken fetches a table that is missing or damaged, so it is
asked for none before the file was found whole. Where there is no table the count is an estimate, and says so.
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
from helix.core.json import dumps
from helix.core.messages import AssistantMessage, ToolResultMessage

PER_MESSAGE, PER_NAME, PRIMING, PER_TOOL = 3, 1, 3, 8
"""OpenAI's overheads of a message, a name in it, the reply, and a tool."""
IMAGE_TOKENS, SMALL_IMAGE_TOKENS = 765, 85
"""A picture of 1024 x 1024, and one in low detail."""
PIECE = 50_000
"""Characters encoded at once: longer ones without a space take tiktoken too long."""
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
"""tiktoken's tables: the name of the file in its cache (SHA-1 of the address), and SHA-256 of its content."""
_SHIPPED = Path("litellm_core_utils", "tokenizers")
_CACHE = "TIKTOKEN_CACHE_DIR"
_loading = threading.Lock()
logger = get_logger("helix")


@dataclass(frozen=True, slots=True)
class TokenCount:
    """`estimated`: not counted with the model's own table, because that is not known, or not here."""

    tokens: int
    estimated: bool


class TokenCounter:
    """Counts for any model: exact for OpenAI's, and near enough to choose and to plan by for all others."""

    def count_tokens(self, text: str, model: str = "gpt-4") -> int:
        """0 for no text."""
        return self.count(text, model).tokens

    def count(self, text: str, model: str = "gpt-4") -> TokenCount:
        """The same, and whether it is an estimate."""
        encoding, exact = _encoding(_table_of(model))
        return TokenCount(_count(encoding, text), not exact or encoding is None)

    def is_estimated(self, model: str) -> bool:
        encoding, exact = _encoding(_table_of(model))
        return encoding is None or not exact

    def count_messages_tokens(
        self, messages: Iterable[Mapping[str, Any] | BaseModel], model: str = "gpt-4", *, tools: Sequence[Any] = ()
    ) -> int:
        """A request's prompt: messages as mappings or as ours, with their tool calls, and the tools' descriptions. Content
        may be a list of parts; pictures count by their detail."""
        encoding, _ = _encoding(_table_of(model))
        tokens = PRIMING
        for message in messages:
            tokens += PER_MESSAGE + sum(_count(encoding, text) for text in _texts(message)) + _extra(message)
        for tool in tools:
            tokens += PER_TOOL + _count(encoding, _described(tool))
        return tokens


def _count(encoding: Any, text: object) -> int:
    if not isinstance(text, str) or not text:
        return 0
    if encoding is not None:
        try:
            pieces = (text[start : start + PIECE] for start in range(0, len(text), PIECE))
            return sum(len(encoding.encode(piece, disallowed_special=())) for piece in pieces)
        except Exception as error:  # whatever it is: an estimate serves
            logger.debug("a text of %d characters was not encoded: %s", len(text), error)
    return estimate_text(text)


# --- messages ---------------------------------------------------------------------------------------------------------


def _texts(message: Mapping[str, Any] | BaseModel) -> list[str]:
    """All that the model reads of a message."""
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
    """The text of a content part; pictures have none, and are counted by `_extra`."""
    if not isinstance(part, Mapping) or _is_image(part):
        return ""
    text = part.get("text")
    return text if isinstance(text, str) else _json(part)


def _extra(message: Mapping[str, Any] | BaseModel) -> int:
    """What is not text: a name's mark, and pictures."""
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


def _described(tool: Any) -> str:
    """A tool's name, description and schema: of a `ToolSpec`, a `Tool`, or OpenAI's form."""
    if isinstance(tool, Mapping):
        function = tool.get("function", tool)
        return _json(function)
    reported = [getattr(tool, name, "") for name in ("name", "description")]
    return "\n".join([*map(str, reported), _json(getattr(tool, "parameters", {}))])


def _json(value: object) -> str:
    try:
        return "" if value is None else dumps(value)
    except Exception:  # what is no JSON is sent by nobody
        return str(value)


# --- tables -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _table_of(model: str) -> str | None:
    """The name of the model's table; None where tiktoken knows none."""
    try:
        name: str = importlib.import_module("tiktoken").encoding_name_for_model(str(model).rpartition("/")[2])
    except Exception:  # no tiktoken, or no such model
        return None
    return "o200k_base" if name == "o200k_harmony" else name  # the same words, other special ones


def _encoding(name: str | None) -> tuple[Any, bool]:
    """tiktoken's encoding of that table, or the default one; whether it is the one asked for."""
    if name is not None and (found := _load(name)) is not None:
        return found, True
    return _load(DEFAULT), False


@lru_cache(maxsize=8)
def _load(name: str) -> Any:
    """The encoding, if its table is here and whole."""
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
        spec = importlib.util.find_spec("litellm")  # says where it is, and imports nothing of it
    except (ImportError, ValueError):
        spec = None
    places = spec.submodule_search_locations if spec is not None else None
    return folders + [Path(place) / _SHIPPED for place in places or ()]
