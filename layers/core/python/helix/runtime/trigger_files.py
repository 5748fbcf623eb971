"""The object of an S3 event as a file for a message.

Law: a deleted object is distinguished from one that may not be read by listing its key. S3 answers both with 403 if the
role may not list the bucket without conditions, and this one may only list keys with the trigger's prefix and suffix.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from helix.adapters.aws.calls import call
from helix.core.errors import AccessDeniedError, FileMissingError, InvalidInputError
from helix.core.file_checks import check_size, clean_name, describe, label
from helix.core.json import JsonObject
from helix.runtime.cloud import Application
from helix.services.file_inputs import ReadFile

_MISSING: Final = frozenset({"NoSuchKey", "404"})


async def read_object(app: Application, event: JsonObject, after_text: int) -> ReadFile:
    """Read the object that an S3 event from EventBridge names, as it is now. `after_text`: the file's position in the
    message.

    Raises `InvalidInputError` if the event names no object, `FileMissingError` if the object was deleted,
    `InvalidFileError` if it exceeds a limit, and `AccessDeniedError` if it exists and may not be read. A larger object
    is not read.
    """
    bucket, key = _place_in(event)
    client, name = app.client("s3"), clean_name(key)
    try:
        found = await call(client, "get_object", "S3 get_object", _MISSING, Bucket=bucket, Key=key)
    except AccessDeniedError:
        if await _exists(client, bucket, key):
            raise
        found = None
    if found is None:
        raise FileMissingError(f"s3://{bucket}/{key}", name)
    body = found["Body"]
    try:
        check_size(None, int(found["ContentLength"]), label(name))
        data: bytes = await call(body, "read", "S3 get_object")
    finally:
        body.close()
    part = await asyncio.to_thread(describe, data, media_type=found.get("ContentType"), name=name)
    return ReadFile(part.model_copy(update={"after_text": after_text}), data)


async def _exists(client: Any, bucket: str, key: str) -> bool:
    """Return whether the object exists. It is the first of the keys that begin with its own."""
    answer = await call(client, "list_objects_v2", "S3 list_objects_v2", Bucket=bucket, Prefix=key, MaxKeys=1)
    return any(found["Key"] == key for found in answer.get("Contents", ()))


def _place_in(event: JsonObject) -> tuple[str, str]:
    """Return the bucket and the key that the event names."""
    given: Any = event
    match given:
        case {"detail": {"bucket": {"name": str(bucket)}, "object": {"key": str(key)}}} if bucket and key:
            return bucket, key
    raise InvalidInputError(
        "the event has no detail.bucket.name and detail.object.key, which name the object to attach"
    )
