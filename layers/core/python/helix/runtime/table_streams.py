"""Rows from a table's DynamoDB stream. The stream contains the store's items, with binary attributes in base64."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from helix.adapters.aws.items import decode
from helix.core.errors import InvalidInputError, ObjectGoneError
from helix.ports.state_store import Value


def row_of(image: Mapping[str, Mapping[str, Any]], fetch: Callable[[str], bytes] | None) -> Value | None:
    """Return the row's value. `fetch` reads offloaded fields, and may block. None if the row has since been deleted.
    Raises `InvalidInputError` if the item cannot be read."""
    item = {
        name: {"B": base64.b64decode(attribute["B"])} if "B" in attribute else dict(attribute)
        for name, attribute in image.items()
    }
    try:
        return decode(item, fetch)
    except ObjectGoneError:
        return None
    except (ValueError, TypeError, RecursionError, zlib.error) as error:
        raise InvalidInputError(f"the item is not a row: {type(error).__name__}") from error
