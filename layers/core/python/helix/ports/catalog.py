"""The model catalog: context windows, list prices, and the kinds of files that a model accepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from helix.core.files import FilePart


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The limits, list prices and inputs of one model. Limits are in tokens, prices in US dollars per token. None means
    unknown; callers then assume their own upper bound for the price, and send a file without a check."""

    model: str
    """The model's litellm id."""
    max_input_tokens: int | None = None
    """The size of the context window."""
    max_output_tokens: int | None = None
    """The maximum length of an answer."""
    input_usd: float | None = None
    """The price of a prompt token."""
    output_usd: float | None = None
    """The price of an answer token."""
    cached_input_usd: float | None = None
    """The price of a prompt token read from the provider's cache. None: the same price as other prompt tokens."""
    worst_input_usd: float | None = None
    """The maximum price of a prompt token, regardless of prompt length and caching. Reservations use it."""
    worst_output_usd: float | None = None
    """The maximum price of an answer token, including reasoning tokens. Reservations use it."""
    audio_usd: float | None = None
    """The price of a prompt token of audio. None: the same price as other prompt tokens."""
    images: bool | None = None
    """Whether the model accepts images."""
    pdfs: bool | None = None
    """Whether the model accepts PDF documents."""
    audio: bool | None = None
    """Whether the model accepts audio."""
    video: bool | None = None
    """Whether the model accepts video."""
    reads_s3: bool = False
    """Whether the provider can read the model's files from S3 itself. False if unknown."""

    @property
    def priced(self) -> bool:
        return self.input_usd is not None and self.output_usd is not None

    def cost_usd(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> float | None:
        """Return the cost of a call at list price, or None if no price is known. `input_tokens` includes
        `cached_tokens`."""
        if self.input_usd is None or self.output_usd is None:
            return None
        cached_usd = self.input_usd if self.cached_input_usd is None else self.cached_input_usd
        return (
            (input_tokens - cached_tokens) * self.input_usd
            + cached_tokens * cached_usd
            + output_tokens * self.output_usd
        )


class ModelCatalog(Protocol):
    def info(self, model: str) -> ModelInfo:
        """Return the limits, prices and inputs of a model. Fast, and without network access. Never raises: an unknown
        model has no limits and no prices."""
        ...


def unsupported(info: ModelInfo, files: Sequence[FilePart]) -> str | None:
    """Return the reason why the model does not accept one of the files, or None if it accepts all of them, as far as is
    known."""
    for file in files:
        if takes(info, file) is False:
            kind = _KINDS[file.kind]
            return refusal(info.model, file, f"the model does not take {kind}", f"choose a model that takes {kind}")
    return None


def takes(info: ModelInfo, file: FilePart) -> bool | None:
    """Return whether the model accepts files of this type, or None if unknown. Every model accepts text, and a file of
    kind `file` is only mentioned in the prompt."""
    match file.kind:
        case "image":
            return info.images
        case "audio":
            return info.audio
        case "document" if file.media_type == PDF:
            return info.pdfs
        case _:
            return None


def refusal(model: str, file: FilePart, why: str, advice: str) -> str:
    """Return the message about a file that cannot be sent to a model."""
    shown = f"file {file.name!r}" if file.name else "a file"
    return f"{shown} ({file.media_type}) cannot be sent to model {model!r}: {why}; {advice}, or leave the file out"


PDF = "application/pdf"
_KINDS = {"image": "images", "audio": "audio", "document": "PDF documents"}
