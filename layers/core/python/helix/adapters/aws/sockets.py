"""Sockets of an API Gateway WebSocket API, through its management API.

Law: no post takes longer than its deadline, and none waits for a thread that a slow one holds.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, ReadTimeoutError

from helix.core.errors import InvalidInputError, StoreError
from helix.ports.sockets import Posted

DEADLINE_S = 2.0
MAX_BYTES = 128 * 1024
AT_ONCE = 64
THREADS = 4 * AT_ONCE
"""The number of threads. A post that its caller has abandoned occupies its thread until its own deadline."""
# 429: too many requests, or the client's buffer is full. Both are temporary, and the client did not get the frame.
_SLOW = frozenset(
    {"LimitExceededException", "TooManyRequestsException", "ThrottlingException", "RequestTimeout", "429", "504"}
)


def sockets_config(deadline_s: float = DEADLINE_S) -> Config:
    """Return the configuration of a client for `ApiGatewaySockets`. Its timeouts quickly free the thread of an
    abandoned call."""
    return Config(
        connect_timeout=deadline_s,
        read_timeout=deadline_s,
        retries={"total_max_attempts": 1},  # a retry would take another deadline, and a lagging client replays
        max_pool_connections=AT_ONCE,
    )


class ApiGatewaySockets:
    """The sockets of a stage. `client`: a botocore `apigatewaymanagementapi` client, created with `sockets_config` for
    the https URL of the stage. `deadline_s`: the deadline of one post, in seconds."""

    def __init__(self, client: Any, *, deadline_s: float = DEADLINE_S) -> None:
        self._client, self._deadline_s = client, deadline_s
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="sockets")
        self._free = asyncio.Semaphore(AT_ONCE)

    async def post(self, connection_id: str, data: bytes) -> Posted:
        if len(data) > MAX_BYTES:
            raise InvalidInputError(f"a frame of {len(data)} bytes is more than the {MAX_BYTES} of a message: split it")
        try:
            await self._call("post_to_connection", ConnectionId=connection_id, Data=data)
        except (TimeoutError, ConnectTimeoutError, ReadTimeoutError):
            return "slow"
        except ClientError as error:
            return _classify_refusal(error, len(data))
        except BotoCoreError as error:
            raise StoreError(f"post_to_connection: {error}") from error
        return "sent"

    async def drop(self, connection_id: str) -> None:
        try:
            await self._call("delete_connection", ConnectionId=connection_id)
        except ClientError as error:
            if not _is_gone(error):
                raise StoreError(f"delete_connection: {error}") from error
        except (BotoCoreError, TimeoutError) as error:
            raise StoreError(f"delete_connection: {error}") from error

    def close(self) -> None:
        """Release the threads. Slow posts end at their own deadlines."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._client.close()

    async def _call(self, verb: str, **request: Any) -> None:
        async with self._free:
            call = self._threads.submit(getattr(self._client, verb), **request)
            async with asyncio.timeout(self._deadline_s):
                await asyncio.wrap_future(call)


def _classify_refusal(error: ClientError, size: int) -> Posted:
    code = error.response["Error"]["Code"]
    if _is_gone(error):
        return "gone"
    if code == "PayloadTooLargeException" or _status(error) == 413:
        raise InvalidInputError(f"a frame of {size} bytes is more than a connection takes: split it") from error
    if code in _SLOW or _status(error) in (429, 504):
        return "slow"
    raise StoreError(f"post_to_connection: {error}") from error


def _is_gone(error: ClientError) -> bool:
    return error.response["Error"]["Code"] == "GoneException" or _status(error) == 410


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
