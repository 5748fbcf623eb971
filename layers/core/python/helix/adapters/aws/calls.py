"""Calls to AWS through boto3, and the classification of their errors."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from helix.core.errors import AccessDeniedError, StoreError

DENIED = frozenset(
    {
        "403",  # the response to a HEAD request has no body with a better code
        "AccessDenied",
        "AccessDeniedException",
        "AuthorizationError",
        "AuthorizationErrorException",
        "KMSAccessDenied",
        "KMSAccessDeniedException",
    }
)
"""The error codes that AWS returns if a role or a key policy does not allow an operation."""
_ACTIONS = {"HeadObject": "s3:GetObject"}
"""The actions of operations whose refusal does not name them."""
_NAMED = re.compile(r"is not authorized to perform: ([\w-]+:\w+)(?: on resource: \"?([^\s\"]+))?")
_RESOURCES = (
    *("TableName", "StreamName", "stateMachineArn", "executionArn"),
    *("TopicArn", "FunctionName", "SecretId", "logGroupName"),
)


def call_and_wait(client: Any, verb: str, what: str, harmless: Collection[str] = (), **request: Any) -> Any:
    """Return AWS's response, or None if AWS refused with one of the `harmless` codes. Raises `AccessDeniedError` if
    access is denied. Any other failure raises a `StoreError` that names the operation (`what`)."""
    try:
        return getattr(client, verb)(**request)
    except (BotoCoreError, ClientError) as error:
        if isinstance(error, ClientError) and error.response["Error"]["Code"] in harmless:
            return None
        raise (denial(error, request) or StoreError(f"{what}: {error}")) from error


async def call(client: Any, verb: str, what: str, harmless: Collection[str] = (), **request: Any) -> Any:
    """Call `call_and_wait` in a thread."""
    return await asyncio.to_thread(call_and_wait, client, verb, what, harmless, **request)


def denial(error: Exception, request: Mapping[str, Any]) -> AccessDeniedError | None:
    """Return an `AccessDeniedError` if AWS denied the operation, or None for any other failure. Most AWS messages name
    the action and the resource. Otherwise both are taken from the request."""
    if not isinstance(error, ClientError) or error.response["Error"]["Code"] not in DENIED:
        return None
    found = _NAMED.search(error.response["Error"].get("Message", ""))
    unnamed = _ACTIONS.get(error.operation_name, f"{error.operation_name} ({error.response['Error']['Code']})")
    action = found[1] if found else unnamed
    return AccessDeniedError(action, (found and found[2]) or _resource(request))


def _resource(request: Mapping[str, Any]) -> str:
    if "Bucket" in request:
        return "/".join(str(request[name]) for name in ("Bucket", "Key") if name in request)
    if "RequestItems" in request:
        return ", ".join(request["RequestItems"])
    if "TransactItems" in request:
        return ", ".join({one["TableName"]: None for item in request["TransactItems"] for one in item.values()})
    return next((str(request[name]) for name in _RESOURCES if name in request), "a resource that AWS does not name")
