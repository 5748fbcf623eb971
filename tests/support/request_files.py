"""Files in requests to models: their parts, and a source of their bytes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from helix.core.errors import FileMissingError
from helix.core.files import FileKind, FilePart

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(40))
PDF = b"%PDF-1.7 " + bytes(range(60))
WAV = b"RIFF....WAVE" + bytes(range(20))
CSV = "name,sum\nMüller,3\n".encode()


def part(data: bytes, kind: FileKind, media_type: str, name: str | None = None, at: int = 0, **more: Any) -> FilePart:
    sha256 = hashlib.sha256(data).hexdigest()
    return FilePart(kind=kind, media_type=media_type, sha256=sha256, size=len(data), name=name, after_text=at, **more)


def image(at: int = 0, name: str | None = "cat.png", data: bytes = PNG, **more: Any) -> FilePart:
    return part(data, "image", "image/png", name, at, **more)


def pdf(at: int = 0, name: str | None = "report.pdf", data: bytes = PDF, **more: Any) -> FilePart:
    return part(data, "document", "application/pdf", name, at, **more)


def audio(at: int = 0) -> FilePart:
    return part(WAV, "audio", "audio/wav", "call.wav", at)


def csv(at: int = 0) -> FilePart:
    return part(CSV, "document", "text/csv", "sums.csv", at)


def archive(at: int = 0) -> FilePart:
    return part(b"PK", "file", "application/zip", "all.zip", at)


def link(at: int = 0, kind: FileKind = "image", media_type: str = "image/png") -> FilePart:
    return FilePart(kind=kind, media_type=media_type, url="https://example.com/cat.png", after_text=at)


@dataclass
class Stored:
    """Implements `Files`. `reads` has the hash of each file that was read."""

    blobs: dict[str, bytes] = field(
        default_factory=lambda: {hashlib.sha256(data).hexdigest(): data for data in (PNG, PDF, WAV, CSV, b"PK")}
    )
    bucket: str | None = None
    reads: list[str] = field(default_factory=list)

    async def read(self, file: FilePart) -> bytes:
        self.reads.append(file.sha256 or "")
        data = self.blobs.get(file.sha256 or "")
        if data is None:
            raise FileMissingError(file.sha256 or "", file.name)
        return data

    def location(self, file: FilePart) -> str | None:
        return None if self.bucket is None else f"s3://{self.bucket}/blobs/{file.sha256}"
