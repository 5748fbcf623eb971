"""Compressed responses, decompressed piece by piece and within bounds.

Law: a piece is at most `PIECE` bytes, and the event loop runs between two of them, whatever the compression ratio. A
response that is much larger than its compressed form is refused, because a few hundred kilobytes can expand to
gigabytes.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Mapping
from functools import cache
from typing import Any, Final

from helix.adapters.models.wire import BrokenStreamError, RefusedAnswerError

PIECE: Final = 64 * 1024
FREE: Final = 2**20
"""The decompressed bytes that are allowed on top of `RATIO`, in any response."""
RATIO: Final = 100
"""The decompressed bytes that each compressed byte may produce. Text, including text in server-sent events, stays below
40."""
_EITHER: Final = zlib.MAX_WBITS | 32
"""The `wbits` for zlib to detect gzip or zlib by the header."""


async def limit_decompression(response: Any) -> None:
    """Replace the stream of a compressed response with one that is decompressed here. It is a hook for an `AsyncClient`
    of httpx, or of httpx2, which the anthropic package uses."""
    named = response.headers.get_list("content-encoding", split_commas=True)
    encodings = [name for name in (name.strip().lower() for name in named) if name not in ("", "identity")]
    if not encodings:
        return
    if encodings not in (["gzip"], ["x-gzip"], ["deflate"]):
        raise RefusedAnswerError(
            f"the answer is compressed as {', '.join(encodings)!r}; only gzip and deflate are read"
        )
    kind: Any = type(response.stream)
    response.stream = _make_stream_class(kind)(response.stream)
    del response.headers["content-encoding"]


BOUNDED: Final[Mapping[str, Any]] = {"event_hooks": {"response": [limit_decompression]}}
"""The arguments of an `AsyncClient` that install the hook."""


@cache
def _make_stream_class(given: Any) -> Any:
    """Return a stream class from the package of `given`, because the response checks its class."""
    base = next(each for each in given.__mro__ if each.__name__ == "AsyncByteStream")
    return type("Unpacked", (_Unpacked, base), {})


class _Unpacked:
    def __init__(self, packed: Any) -> None:
        self._packed = packed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        unpacker, came, given = zlib.decompressobj(_EITHER), 0, 0
        async for data in self._packed:
            if not came and data and not _has_header(data):
                unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
            came += len(data)
            while data:
                try:
                    piece = unpacker.decompress(data, PIECE)
                except zlib.error as error:
                    raise BrokenStreamError(f"the compressed answer is damaged: {error}") from error
                data, given = unpacker.unconsumed_tail, given + len(piece)
                if given > FREE + RATIO * came:
                    raise RefusedAnswerError(
                        f"the answer is compressed more than {RATIO} times: {came:,} bytes were {given:,}, and more"
                    )
                if piece:
                    yield piece
                    await asyncio.sleep(0)
        if rest := unpacker.flush():
            yield rest

    async def aclose(self) -> None:
        await self._packed.aclose()


def _has_header(data: bytes) -> bool:
    """Return whether the data begins with a gzip or zlib header. Some servers send `deflate` without one."""
    return data[:1] == b"\x1f" or (data[0] & 0x0F == 8 and (len(data) < 2 or (data[0] << 8 | data[1]) % 31 == 0))
