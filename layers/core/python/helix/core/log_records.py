"""Stream records as the data of Kinesis records: a flush is one, unless it is larger than Kinesis takes.

    {"v": 1, "stream_id": ..., "records": [StreamRecord, ...]}      JSON; zlib where that is shorter
    {"v": 1, "stream_id": ..., "object": name}                      the same, in S3: one record larger than Kinesis takes

Law: `unpack` of what `pack` made gives the same records in the same order; nothing else passes it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence

from pydantic import ValidationError

from helix.core.errors import InvalidInputError
from helix.core.json import dumps
from helix.core.sequencer import StreamRecord

VERSION = 1
MAX_DATA_BYTES = 900_000  # Kinesis takes 1 MiB with the partition key
COMPRESS_BYTES = 1_024
MAX_UNPACKED_BYTES = 64_000_000


def pack(
    stream_id: str, records: Sequence[StreamRecord], offload: Callable[[bytes], str] | None = None
) -> Iterator[bytes]:
    """The data of as many Kinesis records as it takes, to be put in this order. `offload` puts bytes somewhere and returns
    their name. Raises `InvalidInputError` for a record that is too large without one."""
    bodies: list[str] = []
    total = 0
    for record in records:
        body = dumps(record.model_dump(mode="json", exclude_defaults=True))
        weight = 4 * len(body) if not body.isascii() else len(body)
        if bodies and total + weight > MAX_DATA_BYTES:
            yield _packed(stream_id, bodies, offload)
            bodies, total = [], 0
        bodies.append(body)
        total += weight
    if bodies:
        yield _packed(stream_id, bodies, offload)


def _packed(stream_id: str, bodies: list[str], offload: Callable[[bytes], str] | None) -> bytes:
    head = f'{{"v":{VERSION},"stream_id":{dumps(stream_id)},'
    data = _short(f'{head}"records":[{",".join(bodies)}]}}'.encode())
    if len(data) <= MAX_DATA_BYTES:
        return data
    if offload is None:
        raise InvalidInputError(
            f"a record of {len(data)} bytes exceeds the {MAX_DATA_BYTES} that Kinesis takes, and no bucket is configured"
        )
    return f'{head}"object":{dumps(offload(data))}}}'.encode()


def _short(raw: bytes) -> bytes:
    if len(raw) >= COMPRESS_BYTES:
        packed = zlib.compress(raw, 6)
        if len(packed) < len(raw):
            return packed
    return raw


def unpack(data: bytes, fetch: Callable[[str], bytes] | None = None) -> tuple[str, list[StreamRecord]]:
    """(stream id, records). `fetch` reads what was offloaded. Raises `InvalidInputError` for what cannot be read: it never
    will be."""
    try:
        value = json.loads(_plain(data))
        if value["v"] != VERSION:
            raise InvalidInputError(f"a record of version {value['v']!r}; this projector reads version {VERSION}")
        if "object" in value:
            if fetch is None:
                raise InvalidInputError("a record points to S3, and no bucket is configured")
            value = json.loads(_plain(fetch(value["object"])))
        stream_id = value["stream_id"]
        if not isinstance(stream_id, str) or not stream_id:
            raise InvalidInputError("a record names no stream")
        return stream_id, [StreamRecord.model_validate(record) for record in value["records"]]
    except ValidationError as error:
        raise InvalidInputError(f"a record that is none: {error.error_count()} fields are wrong") from error
    except (ValueError, TypeError, LookupError, RecursionError, zlib.error) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"a record that is none: {type(error).__name__}") from error


def _plain(data: bytes) -> bytes:
    if data[:1] == b"{":
        return data
    unpacker = zlib.decompressobj()
    raw = unpacker.decompress(data, MAX_UNPACKED_BYTES)
    if not unpacker.eof:
        raise InvalidInputError(f"a record that is cut off, or larger than {MAX_UNPACKED_BYTES} bytes")
    return raw
