"""Serializes stream records as Kinesis records. A flush becomes one Kinesis record, unless that would be too large.

    {"v":1,"stream_id":...,"records":[StreamRecord, ...]}      JSON, compressed with zlib if that is shorter
    {"v":1,"stream_id":...,"object":name}                      the same in S3, for a record too large for Kinesis

Law: `unpack` returns exactly the records given to `pack`, in the same order, and rejects all other data.
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
MAX_DATA_BYTES = 900_000  # Kinesis accepts 1 MiB, including the partition key
COMPRESS_BYTES = 1_024
MAX_UNPACKED_BYTES = 64_000_000


def pack(
    stream_id: str, records: Sequence[StreamRecord], offload: Callable[[bytes], str] | None = None
) -> Iterator[bytes]:
    """Yield the data of the Kinesis records, in the order in which to put them.

    `offload` stores bytes elsewhere and returns their name. Raises `InvalidInputError` for a record that is too large if
    there is no `offload`.
    """
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
            f"a record has {len(data)} bytes, Kinesis accepts {MAX_DATA_BYTES}, and no bucket is configured for larger ones"
        )
    return f'{head}"object":{dumps(offload(data))}}}'.encode()


def _short(raw: bytes) -> bytes:
    if len(raw) >= COMPRESS_BYTES:
        packed = zlib.compress(raw, 6)
        if len(packed) < len(raw):
            return packed
    return raw


def unpack(data: bytes, fetch: Callable[[str], bytes] | None = None) -> tuple[str, list[StreamRecord]]:
    """Return the stream id and the records. `fetch` reads offloaded bytes.

    Raises `InvalidInputError` for data that cannot be read. A retry does not help.
    """
    try:
        value = json.loads(_plain(data))
        if value["v"] != VERSION:
            raise InvalidInputError(f"the record has version {value['v']!r}; this projector reads version {VERSION}")
        if "object" in value:
            if fetch is None:
                raise InvalidInputError("the record points to S3, and no bucket is configured")
            value = json.loads(_plain(fetch(value["object"])))
        stream_id = value["stream_id"]
        if not isinstance(stream_id, str) or not stream_id:
            raise InvalidInputError("the record does not name a stream")
        return stream_id, [StreamRecord.model_validate(record) for record in value["records"]]
    except ValidationError as error:
        raise InvalidInputError(f"the record is not valid: {error.error_count()} fields are wrong") from error
    except (ValueError, TypeError, LookupError, RecursionError, zlib.error) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"the record is not valid: {type(error).__name__}") from error


def _plain(data: bytes) -> bytes:
    if data[:1] == b"{":
        return data
    unpacker = zlib.decompressobj()
    raw = unpacker.decompress(data, MAX_UNPACKED_BYTES)
    if not unpacker.eof:
        raise InvalidInputError(f"the record is cut off, or larger than {MAX_UNPACKED_BYTES} bytes")
    return raw
