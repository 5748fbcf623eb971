"""The types of files, read from their bytes.

Law: the bytes decide. The type that a caller declares, or that the name suggests, only chooses among types that the same
bytes can have: a text file may be CSV or Markdown, but an HTML file called `photo.png` is HTML.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from helix.core.errors import InvalidInputError
from helix.core.files import FileKind
from helix.core.image_sizes import image_size
from helix.core.json import loads
from helix.core.pdf_pages import count_pages

HEAD_BYTES: Final = 262_144
"""The number of bytes from which `sniff` reads the type. It is large because the size of a JPEG stands after its metadata,
which may take more than 100 KB."""
BINARY: Final = "application/octet-stream"
_OFFICE: Final = "application/vnd.openxmlformats-officedocument"
_DOCX, _XLSX, _PPTX = (
    f"{_OFFICE}.{name}" for name in ("wordprocessingml.document", "spreadsheetml.sheet", "presentationml.presentation")
)
EXTENSIONS: Final = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "bmp": "image/bmp",
    "tif": "image/tiff",
    "tiff": "image/tiff",
    "heic": "image/heic",
    "avif": "image/avif",
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "m4a": "audio/mp4",
    "aac": "audio/aac",
    "ogg": "audio/ogg",
    "oga": "audio/ogg",
    "opus": "audio/ogg",
    "flac": "audio/flac",
    "weba": "audio/webm",
    "ogv": "video/ogg",
    "mp4": "video/mp4",
    "mov": "video/quicktime",
    "webm": "video/webm",
    "mkv": "video/x-matroska",
    "pdf": "application/pdf",
    "docx": _DOCX,
    "xlsx": _XLSX,
    "pptx": _PPTX,
    "zip": "application/zip",
    "doc": "application/msword",
    "xls": "application/vnd.ms-excel",
    "ppt": "application/vnd.ms-powerpoint",
    "odt": "application/vnd.oasis.opendocument.text",
    "epub": "application/epub+zip",
    "ods": "application/vnd.oasis.opendocument.spreadsheet",
    "txt": "text/plain",
    "log": "text/plain",
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "md": "text/markdown",
    "markdown": "text/markdown",
    "html": "text/html",
    "htm": "text/html",
    "json": "application/json",
    "jsonl": "application/x-ndjson",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "xml": "application/xml",
    "svg": "image/svg+xml",
    "css": "text/css",
    "rtf": "application/rtf",
}
"""The types by the extension of a name, without its dot."""
_OLE: Final = "application/x-ole-storage"
_TEXTS: Final = frozenset({"application/json", "application/x-ndjson", "application/yaml", "application/xml"})
_CONTAINERS: Final = {
    "application/zip": frozenset(EXTENSIONS[name] for name in ("docx", "xlsx", "pptx", "odt", "ods", "epub")),
    _OLE: frozenset(EXTENSIONS[name] for name in ("doc", "xls", "ppt")),
    "video/mp4": frozenset({"audio/mp4", "video/quicktime"}),
    "video/webm": frozenset({"audio/webm", "video/x-matroska"}),
    "audio/ogg": frozenset({"video/ogg"}),
    "application/xml": frozenset({"image/svg+xml", "text/xml"}),
}
"""The types that share a container, so that its first bytes do not tell them apart."""
_DOCUMENTS: Final = frozenset(
    EXTENSIONS[name] for name in ("pdf", "docx", "xlsx", "pptx", "doc", "xls", "ppt", "odt", "ods", "rtf", "epub")
)
_ALIASES: Final = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "audio/mp3": "audio/mpeg",
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "audio/x-m4a": "audio/mp4",
    "audio/m4a": "audio/mp4",
    "audio/x-flac": "audio/flac",
    "application/x-zip-compressed": "application/zip",
    "text/x-markdown": "text/markdown",
    "application/x-yaml": "application/yaml",
    "text/yaml": "application/yaml",
    "text/json": "application/json",
}
_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"ID3", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"\x1aE\xdf\xa3", "video/webm"),
    (b"%PDF-", "application/pdf"),
    (b"{\\rtf", "application/rtf"),
    (b"PK\x03\x04", "application/zip"),
    (b"PK\x05\x06", "application/zip"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", _OLE),
)
_HTML: Final = re.compile(r"<(?:!doctype\s+html|html|head|body|script|iframe|title|style|h1|table)\b", re.IGNORECASE)
_BEFORE_MARKUP: Final = re.compile(r"(?:\s+|<!--.*?(?:-->|$)|<\?xml[^>]*>)*", re.DOTALL)
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9*][a-z0-9!#$&^_.+-]{0,126}")
_PDF_WITHIN: Final = 1024


@dataclass(frozen=True, slots=True)
class Sniffed:
    """The facts that the bytes of a file tell."""

    media_type: str
    """The type of the bytes, `application/octet-stream` if it is not known."""
    kind: FileKind
    """The way in which a model takes a file of this type."""
    width: int | None = None
    """The width of an image in pixels. None if it is not known, or for another kind."""
    height: int | None = None
    """The height of an image in pixels. None if it is not known, or for another kind."""
    pages: int | None = None
    """The number of pages of a PDF. None if the bytes do not tell it reliably, or for another type."""


def sniff(data: bytes, size: int, declared: str | None = None, name: str | None = None) -> Sniffed:
    """Read the facts of a file from all its bytes, or from the first `HEAD_BYTES` of them. `size`: the number of all its
    bytes. `declared` and the extension of `name` choose among types that these bytes can have."""
    found = _type_of(data[:HEAD_BYTES], size)
    found = _refine(_office_type(data) if found == "application/zip" else found, declared, name)
    width, height = image_size(found, data) or (None, None)
    pages = count_pages(data, size) if found == "application/pdf" else None
    return Sniffed(found, kind_of(found), width, height, pages)


def kind_of(media_type: str) -> FileKind:
    """Return the way in which a model takes files of this type."""
    if media_type.startswith("text/") or media_type in _TEXTS | _DOCUMENTS or media_type == "image/svg+xml":
        return "document"  # an SVG is a text: no provider takes it as an image
    if media_type.startswith("image/"):
        return "image"
    return "audio" if media_type.startswith("audio/") else "file"


def clean_media_type(text: str | None) -> str | None:
    """Return a media type in lower case, without parameters and under its usual name. None if it is not valid."""
    plain = (text or "").partition(";")[0].strip().lower()
    return _ALIASES.get(plain, plain) if _MEDIA_TYPE.fullmatch(plain) else None


def type_of_name(name: str | None) -> str | None:
    """Return the type that the extension of a name suggests. None if it suggests none."""
    return EXTENSIONS.get((name or "").rpartition(".")[2].lower())


def _refine(found: str, declared: str | None, name: str | None) -> str:
    """Return the declared type, or the one of the name, if these bytes can have it."""
    for wish in (clean_media_type(declared), type_of_name(name)):
        if wish is None or wish == found:
            continue
        if found == "text/plain" and (wish in _TEXTS or (wish.startswith("text/") and wish != "text/html")):
            return wish
        if wish in _CONTAINERS.get(found, ()):
            return wish
    return found


def _type_of(head: bytes, size: int) -> str:
    for signature, media_type in _SIGNATURES:
        if head.startswith(signature) and not (signature == b"BM" and not _is_bitmap(head)):
            return media_type
    if head[:4] == b"RIFF" and head[8:12] in (b"WAVE", b"WEBP"):
        return "audio/wav" if head[8:12] == b"WAVE" else "image/webp"
    if head[4:8] == b"ftyp":
        return _type_of_brand(head[8:12])
    if (framed := _type_of_frame(head)) is not None:
        return framed
    found = _type_of_text(head, size)
    if found != "text/html" and b"%PDF-" in head[:_PDF_WITHIN]:
        return "application/pdf"  # readers accept other bytes before the header
    return found


def _is_bitmap(head: bytes) -> bool:
    """Return whether the header that follows "BM" has a known length. Texts may begin with these two letters."""
    return int.from_bytes(head[14:18], "little") in (12, 40, 52, 56, 64, 108, 124)


def _type_of_brand(brand: bytes) -> str:
    """Return the type of an ISO media file (ISO/IEC 14496-12) with this major brand."""
    if brand in (b"M4A ", b"M4B ", b"M4P "):
        return "audio/mp4"
    if brand in (b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1"):
        return "image/heic"
    if brand in (b"avif", b"avis"):
        return "image/avif"
    return "video/quicktime" if brand == b"qt  " else "video/mp4"


def _type_of_frame(head: bytes) -> str | None:
    """Return the type of audio that begins with an MPEG frame without any container. None for other bytes."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return None
    version, layer = head[1] >> 3 & 3, head[1] >> 1 & 3
    if head[1] & 0xF6 == 0xF0:
        return "audio/aac" if head[2] >> 2 & 15 < 13 else None  # ADTS, with an index of a sample rate
    valid = version != 1 and layer in (1, 2) and head[2] >> 4 != 15 and head[2] >> 2 & 3 != 3
    return "audio/mpeg" if valid else None


def _office_type(head: bytes) -> str:
    """Return the type of an office document by the names of the files in its archive."""
    if b"[Content_Types].xml" in head:
        for name, media_type in ((b"word/", _DOCX), (b"xl/", _XLSX), (b"ppt/", _PPTX)):
            if name in head:
                return media_type
    found = re.match(rb"PK\x03\x04.{26}mimetype(application/[a-z.+-]+?)(?=PK|$)", head[:256], re.DOTALL)
    media_type = found[1].decode() if found else ""
    return media_type if media_type in _CONTAINERS["application/zip"] else "application/zip"


def _type_of_text(head: bytes, size: int) -> str:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _type_of_foreign_text(head.decode("utf-16", "replace"))
    head = head.removeprefix(b"\xef\xbb\xbf")
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3 or len(head) >= size:
            return _type_of_foreign_text(head.decode("latin-1"))
        text = head[: error.start].decode()  # the head ends within a character
    if any(ord(char) < 32 and char not in "\t\n\r\f\x1b\b" for char in text[:4096]):
        return BINARY
    return _type_of_markup(text)


def _type_of_foreign_text(text: str) -> str:
    """Return the type of a text that is not UTF-8. Only HTML is recognised, because a browser would. Other texts are
    binary, because a model would get wrong characters."""
    return "text/html" if _type_of_markup(text) == "text/html" else BINARY


def _type_of_markup(text: str) -> str:
    start = _BEFORE_MARKUP.match(text)
    begin = text[start.end() if start else 0 :][:64]
    if _HTML.match(begin):
        return "text/html"
    if text.lstrip().startswith("<?xml") or begin.lower().startswith("<svg"):
        return "application/xml"
    return "application/json" if begin.startswith(("{", "[")) and _is_json(text) else "text/plain"


def _is_json(text: str) -> bool:
    try:
        loads(text)
    except InvalidInputError:
        return False
    return True
