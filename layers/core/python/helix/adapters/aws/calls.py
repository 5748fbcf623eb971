"""Calls of boto3, and what their failures mean."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from helix.core.errors import StoreError


def ask(client: Any, verb: str, what: str, harmless: Collection[str] = (), **request: Any) -> Any:
    """The answer; None where AWS refused with one of the `harmless` codes. Raises `StoreError`, which names `what` was
    done, for every other failure."""
    try:
        return getattr(client, verb)(**request)
    except (BotoCoreError, ClientError) as error:
        if isinstance(error, ClientError) and error.response["Error"]["Code"] in harmless:
            return None
        raise StoreError(f"{what}: {error}") from error


async def call(client: Any, verb: str, what: str, harmless: Collection[str] = (), **request: Any) -> Any:
    """`ask`, in a thread."""
    return await asyncio.to_thread(ask, client, verb, what, harmless, **request)
