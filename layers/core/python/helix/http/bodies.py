"""Request bodies. A client sends its whole conversation, although only one of its messages is used.

Law: a large body is cut down to the used parts before it is parsed. So the history takes up memory only for its bytes,
not for parsed objects. Files in base64 have only the limit of the whole body, because each is one value. A request that
a page of another site could send with a user's cookies is refused.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from starlette.requests import Request

from helix.core.errors import BodyTooLargeError, InvalidInputError

Body: TypeAlias = bytes | bytearray
MAX_BODY_BYTES: Final = 32_000_000
MAX_USED_BYTES: Final = 4_000_000
"""The maximum size of the used parts in bytes, without files in base64."""
MAX_TOKENS: Final = 1_500_000
"""The maximum number of strings, brackets and objects in a large body. It keeps the time to skip the history below
about one second."""
_TEXT: Final = rb'"(?:[^"\\]++|\\.)*+"'
_TOKEN: Final = re.compile(_TEXT + rb'?+|\[[^\[\]{}"]*+\]|[\[\]{},]', re.DOTALL)
"""A pattern for a string (even an unterminated one), a list of numbers, a bracket or a comma."""
_FILE: Final = re.compile(
    rb'"(?:data|url|value)"\s*+:\s*+"(?:data:[^"\\]{0,256}?;base64,)?[A-Za-z0-9+/]{4096,}+={0,2}"'
)
"""A pattern for the field with the bytes of a file of at least 3 KB: base64, or a data URL."""
_INNER: Final = re.compile(rb'[\[{](?:[^\[\]{}"]++|' + _TEXT + rb")*+[\]}]|" + _TEXT + rb"?+|[\[\]{}]", re.DOTALL)
"""A pattern for the inside of a message: a list or object without nested ones, a string, or a bracket."""


async def read_body(parts: AsyncIterator[bytes], limit: int) -> bytearray:
    """Read the whole body. Raises `BodyTooLargeError` if it has more than `limit` bytes."""
    found = bytearray()
    async for part in parts:
        found += part
        if len(found) > limit:
            raise BodyTooLargeError(
                f"the body is larger than {limit} bytes: send less of the history, smaller files, or https URLs of files"
            )
    return found


def used_part(body: Body, limit: int = MAX_USED_BYTES) -> Body:
    """Return the body with only the messages that a request can refer to: the last one, and those that `messageId` may
    refer to. A small body is returned unchanged. Raises `BodyTooLargeError` if the result, without its files, is larger
    than `limit` bytes."""
    if len(body) <= limit:
        return body
    outline = _outline(body)
    if not outline.messages:
        if _counted(body) <= limit:
            return body
        raise BodyTooLargeError(f"the body is larger than {limit} bytes, and has no history to leave out: send less")
    first, last = outline.messages[0][0], outline.messages[-1][1]
    rest = body[:first], body[last:]
    used = [outline.messages[-1]]
    if outline.named is not None:
        named = re.compile(rb'"id"\s*:\s*' + re.escape(outline.named))
        used = [one for one in outline.messages[:-1] if named.search(body, *one)] + used
    found = b"".join((rest[0], b",".join(body[start:end] for start, end in used), rest[1]))
    if _counted(found) > limit:
        raise BodyTooLargeError(
            f"the newest message, and all but the history, are larger than {limit} bytes: send less in one message"
        )
    return found


def _counted(body: Body) -> int:
    """Return the size of a body without its files in base64."""
    return len(body) - sum(match.end() - match.start() for match in _FILE.finditer(body))


class _Outline(NamedTuple):
    """The positions in a body that matter for cutting it down."""

    messages: list[tuple[int, int]]
    """The byte ranges (start, end) of the elements of `messages`."""
    named: bytes | None
    """The value of `messageId` as it is written in the body, including the quotes. None if the body does not contain
    it."""


def _outline(body: Body) -> _Outline:
    depth, start, inside = 0, 0, False
    key: bytes | None = None  # the member of the body whose value is being read
    named: bytes | None = None
    messages: list[tuple[int, int]] = []
    count, found = 0, _TOKEN.search(body)
    while found is not None:
        count += 1
        if count > MAX_TOKENS:
            raise InvalidInputError(f"the body has more than {MAX_TOKENS} values: send less of the history")
        token = found[0]
        if token in (b"[", b"{"):
            depth += 1
            if depth == 2 and key == b'"messages"':
                inside, start = True, found.end()
        elif token in (b"]", b"}", b",") and depth == 2 and inside:
            messages.append((start, found.start()))
            inside, start = token == b",", found.end()
            depth -= token != b","
        elif token in (b"]", b"}"):
            depth -= 1
        elif token == b",":
            key = None if depth == 1 else key
        elif depth == 1:
            named = token if key == b'"messageId"' else named
            key = key or token
        found = (_INNER if depth > 2 else _TOKEN).search(body, found.end())
    if depth != 0:
        raise InvalidInputError("the body is not JSON: it ends too early")
    return _Outline(messages, named)


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def check_json(request: Request) -> None:
    """Refuse content types other than JSON. A page on another site could send those with a user's cookies, because browsers
    do not make a preflight request for them."""
    if (kind := _content_type(request)) != "application/json":
        raise InvalidInputError(f"the content type is {kind[:80]!r}: send application/json")


def check_origin(request: Request) -> None:
    """Apply the same protection to a request that may have no body and therefore no content type. The browser's headers
    tell which site it comes from."""
    if request.method == "POST" and _content_type(request) != "application/json":
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
        own = site in ("same-origin", "none") if site else not origin or urlsplit(origin).netloc == request.url.netloc
        if "content-type" in request.headers or not own:
            raise InvalidInputError("a page of another site could send this request: send the type application/json")
