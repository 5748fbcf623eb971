"""Estimates of the tokens of a file in a prompt. A fair value serves choices, and an upper bound serves reservations.

Law: the functions are pure and do not read the file. An upper bound is never less than the providers' published formulas
give. If the size of an image or the number of pages is unknown, it is that of the largest file that the provider
accepts, so callers cap it by the model's window.

Sources:
- OpenAI, platform.openai.com/docs/guides/images-vision#calculating-costs: tiles of 512 pixels for gpt-4o, gpt-4.1,
  gpt-5, o1 and o3, patches of 32 pixels with a factor for all others; docs/guides/pdf-files: text and image of each page.
- Anthropic, docs.claude.com/en/docs/build-with-claude/vision: width * height / 750 after the image was scaled to 1568
  pixels, on newer models to 2576 pixels (4784 tokens); .../pdf-support: 1,500 to 3,000 tokens of text on each page, and
  its image.
- Google, ai.google.dev/gemini-api/docs/tokens: 258 tokens for each tile of 256 to 768 pixels, 258 for a page, 32 for a
  second of audio; docs/media-resolution: up to 2240 tokens for an image of Gemini 3.
- Amazon Nova, docs.aws.amazon.com/nova/latest/userguide/modalities-video.html: 288 tokens for a second of video, and at
  most 960 seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import ceil

from helix.core.files import FilePart

_TEXTS = frozenset(
    {
        *("application/json", "application/xml", "application/yaml", "application/x-yaml", "application/javascript"),
        *("application/x-ndjson", "application/jsonl", "application/toml", "application/sql"),
    }
)
"""The types of texts besides `text/...`."""
_TILED = (
    (re.compile(r"gpt-4o-mini"), 2833, 5667),
    (re.compile(r"gpt-4o|gpt-4\.5|gpt-4\.1(?!-(mini|nano))|gpt-4-turbo"), 85, 170),
    (re.compile(r"\bo1|\bo3(?!-mini)"), 75, 150),
    (re.compile(r"gpt-5(-chat|-codex|-pro)?(-\d{4}|$)"), 70, 140),
)
"""OpenAI's models with tiles: the tokens of an image, and of each tile."""
_MOST_TILES = 8
"""The tiles of the largest image, which is scaled to 768 x 2048 pixels."""
_PATCHED = ((re.compile(r"nano"), 2.46), (re.compile(r"o4-mini"), 1.72), (re.compile(r"mini"), 1.62))
_PATCH, _FAIR_PATCHES, _MOST_PATCHES, _MOST_FACTOR = 32, 1536, 10_000, 2.46
_OPENAI = re.compile(r"gpt-|\bo\d|openai/")
_CLAUDE_SIDE, _CLAUDE_MOST_SIDE, _CLAUDE_MOST = 1568, 2576, 4784
_GEMINI_TILE, _GEMINI_MOST = 258, 2240
_OTHER_PATCH, _OTHER_MOST = 28, 16_384
"""The patches of Qwen's models, which use the most tokens of the open models with vision."""
_FAIR_SIDE = 1024
"""The width and height that are assumed of an image whose size is unknown."""
_LARGEST_SIDE = 1_000_000
"""A width and height beyond all limits, for the bound of an image whose size is unknown."""
_MOST_PAGES = 1000
_LEAST_PAGE_BYTES, _FAIR_PAGE_BYTES = 256, 50_000
_MOST_PER_PAGE = 12_000
"""The most tokens of a page: the largest image, and a page that is full of small print."""
_VIDEO_PER_S, _VIDEO_S, _VIDEO_BYTES_PER_S = 288, 960, 250_000
_AUDIO_PER_S = 32
_BYTES_PER_TOKEN = 4
_MOST_EXPANSION = 20
"""The growth of the text of an office document when it is unpacked."""
_FRAME = 160
"""The most tokens around a file: the text that names it, and the provider's own marks."""


def is_text(file: FilePart) -> bool:
    """Return whether the file is a text, which any model can read."""
    return file.media_type.startswith("text/") or file.media_type in _TEXTS


def file_tokens(file: FilePart, model: str = "") -> int:
    """Return the tokens that the file probably adds to a prompt for `model`."""
    match file.kind:
        case "image":
            return _image(file.width or _FAIR_SIDE, file.height or _FAIR_SIDE, model)
        case "audio":
            bytes_per_s = 32_000 if "wav" in file.media_type else 16_000
            return ceil(file.size / bytes_per_s * _audio_per_s(model))
        case "document" if is_text(file):
            return file.size // _BYTES_PER_TOKEN
        case "document":
            pages = file.pages or max(1, file.size // _FAIR_PAGE_BYTES)
            return pages * (_GEMINI_TILE if "gemini" in model else 3000 if "claude" in model else 1500)
        case _:
            return min(file.size // _VIDEO_BYTES_PER_S, _VIDEO_S) * _VIDEO_PER_S if _is_video(file) else _FRAME // 4


def most_file_tokens(file: FilePart, models: Iterable[str]) -> int:
    """Return an upper bound of the tokens that the file adds to a prompt, whichever of the models is called."""
    return max(_most(file, model) for model in [*models] or [""]) + _FRAME + 4 * len(file.name or "")


def _most(file: FilePart, model: str) -> int:
    match file.kind:
        case "image":
            return _most_image(file, model)
        case "audio":
            return ceil(file.size / (8000 if "wav" in file.media_type else 750) * _audio_per_s(model))
        case "document" if is_text(file) and file.size:
            return file.size
        case "document":
            pages = file.pages or _MOST_PAGES
            if file.pages is None and file.size:
                pages = min(_MOST_PAGES, file.size // _LEAST_PAGE_BYTES + 1)
            unpacked = 0 if file.media_type == "application/pdf" else file.size * _MOST_EXPANSION
            return max(pages * _MOST_PER_PAGE, unpacked)
        case _:
            return _VIDEO_S * _VIDEO_PER_S if _is_video(file) else 0


def _image(width: int, height: int, model: str) -> int:
    if (tiled := _tiled(model)) is not None:
        base, tile = tiled
        return base + tile * _tiles(width, height, grows=False)
    if _OPENAI.search(model):
        factor = next((factor for name, factor in _PATCHED if name.search(model)), 1.0)
        return ceil(min(_patches(width, height, _PATCH), _FAIR_PATCHES) * factor)
    if "gemini" in model:
        return _gemini(width, height)
    scale = min(1.0, _CLAUDE_SIDE / max(width, height))
    return min(ceil(width * scale * height * scale / 750), 1600)


def _most_image(file: FilePart, model: str) -> int:
    known = file.width is not None and file.height is not None
    width, height = (file.width or _LARGEST_SIDE, file.height or _LARGEST_SIDE) if known else (_LARGEST_SIDE,) * 2
    if (tiled := _tiled(model)) is not None:
        base, tile = tiled
        return base + tile * (_tiles(width, height, grows=True) if known else _MOST_TILES)
    if _OPENAI.search(model):
        return ceil(min(_patches(width, height, _PATCH), _MOST_PATCHES) * _MOST_FACTOR)
    if "claude" in model:
        return min(max(ceil(width * height / 750), _patches(width, height, _OTHER_PATCH)), _CLAUDE_MOST)
    if "gemini" in model:
        return max(_gemini(width, height), _GEMINI_MOST)
    return max(min(_patches(width, height, _OTHER_PATCH), _OTHER_MOST), _GEMINI_MOST)


def _tiled(model: str) -> tuple[int, int] | None:
    return next(((base, tile) for name, base, tile in _TILED if name.search(model)), None)


def _tiles(width: int, height: int, *, grows: bool) -> int:
    """Return the tiles of 512 pixels after the image was scaled to 2048 pixels, and its shorter side to 768. `grows`:
    a smaller image is scaled up, too."""
    fit = min(1.0, 2048 / max(width, height))
    shorter = 768 / (min(width, height) * fit)
    scale = fit * (shorter if grows else min(1.0, shorter))
    return min(ceil(width * scale / 512) * ceil(height * scale / 512), _MOST_TILES)


def _patches(width: int, height: int, side: int) -> int:
    return ceil(width / side) * ceil(height / side)


def _gemini(width: int, height: int) -> int:
    if max(width, height) <= 384:
        return _GEMINI_TILE
    side = min(max(min(width, height) / 1.5, 256), 768)
    return min(ceil(width / side) * ceil(height / side) * _GEMINI_TILE, _OTHER_MOST)


def _audio_per_s(model: str) -> int:
    return 10 if _OPENAI.search(model) else _AUDIO_PER_S


def _is_video(file: FilePart) -> bool:
    return file.media_type.startswith("video/")
