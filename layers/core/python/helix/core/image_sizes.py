"""The sizes of images, read from their headers without decoding a pixel."""

from __future__ import annotations

Size = tuple[int, int]
_SOF = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""The JPEG markers of a frame header, which has the size (ITU-T T.81, table B.1)."""
_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})


def image_size(media_type: str, head: bytes) -> Size | None:
    """Return the width and height in pixels. None for other types, and if these bytes do not have them."""
    match media_type:
        case "image/png":
            found = _big(head, 16, 4) if head[12:16] == b"IHDR" else None
        case "image/gif":
            found = _little(head, 6, 2)
        case "image/jpeg":
            found = _jpeg_size(head)
        case "image/webp":
            found = _webp_size(head)
        case "image/bmp":
            found = _bitmap_size(head)
        case "image/heic" | "image/avif":
            found = _extent_size(head)
        case _:
            return None
    return found if found is not None and min(found) > 0 else None


def _big(head: bytes, start: int, width: int) -> Size | None:
    if len(head) < start + 2 * width:
        return None
    middle = start + width
    return int.from_bytes(head[start:middle], "big"), int.from_bytes(head[middle : middle + width], "big")


def _little(head: bytes, start: int, width: int) -> Size | None:
    if len(head) < start + 2 * width:
        return None
    middle = start + width
    return int.from_bytes(head[start:middle], "little"), int.from_bytes(head[middle : middle + width], "little")


def _jpeg_size(head: bytes) -> Size | None:
    """Follow the segments to the frame header. Thumbnails stand within segments, so they are not read."""
    place = 2
    while place + 4 <= len(head):
        if head[place] != 0xFF:
            return None
        marker = head[place + 1]
        if marker == 0xFF:  # a fill byte
            place += 1
        elif marker in _WITHOUT_LENGTH:
            place += 2
        elif marker in _SOF:
            size = _big(head, place + 5, 2)
            return None if size is None else (size[1], size[0])
        else:
            place += 2 + int.from_bytes(head[place + 2 : place + 4], "big")
    return None


def _webp_size(head: bytes) -> Size | None:
    if len(head) < 30:
        return None
    match head[12:16]:
        case b"VP8X":
            return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
        case b"VP8L":
            bits = int.from_bytes(head[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            return int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF
    return None


def _bitmap_size(head: bytes) -> Size | None:
    if int.from_bytes(head[14:18], "little") == 12:
        return _little(head, 18, 2)
    if len(head) < 26:
        return None
    width, height = (int.from_bytes(head[start : start + 4], "little", signed=True) for start in (18, 22))
    return abs(width), abs(height)  # the height is negative if the rows run from the top


def _extent_size(head: bytes) -> Size | None:
    """Return the largest size in the `ispe` properties (ISO/IEC 23008-12). Tiles and thumbnails have one too."""
    sizes, start = [], head.find(b"ispe")
    while start >= 0:
        sizes.append(_big(head, start + 8, 4))
        start = head.find(b"ispe", start + 4)
    return max((size for size in sizes if size is not None), key=lambda size: size[0] * size[1], default=None)
