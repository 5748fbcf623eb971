"""A link that polls a store, or a stage through its function, and does not need a socket.

Law: a stream is polled only while it has readers. The link passes each message to `following` in order, once for each
request.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

from helix.client.link import Link, fields_of
from helix.core.errors import HelixError
from helix.core.json import JsonObject
from helix.core.refusals import RemoteError
from helix.core.wire import StreamMessage

logger = logging.getLogger("helix.client")
POLL_S = 0.25
SLOWER = 1.05
"""The factor by which the pause grows with each poll of a quiet stream."""
PATIENCE = 20
"""The number of consecutive failed polls after which a stream's readers fail."""
STARTS = frozenset({"run", "resume", "retry", "answer"})


class Service(Protocol):
    """An object that executes requests, with the gateway's own actions in this process or through a stage's function."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def act(self, action: str, fields: JsonObject) -> JsonObject:
        """Return the result of a request. Raises an error if the request is refused."""
        ...


class PollingLink(Link):
    """A link that polls the streams of a service that does not push messages."""

    connections = 1

    def __init__(self, service: Service, *, poll_s: float = POLL_S, slowest_s: float | None = None) -> None:
        """Poll `service`, every `poll_s` seconds at first.

        While streams are quiet, the pause grows up to `slowest_s` (default: `poll_s`). A message or a new run resets it.
        """
        super().__init__()
        self._service, self._poll_s, self._slowest_s = service, poll_s, slowest_s or poll_s
        self._pause_s = poll_s
        self._positions: dict[str, int] = {}

    async def open(self) -> None:
        await self._service.open()
        self.following.on_open()

    async def close(self) -> None:
        await super().close()
        await self._service.close()

    async def ask(self, action: str, fields: JsonObject) -> JsonObject:
        given: JsonObject = {name: value for name, value in fields.items() if value is not None}
        match action:
            case "subscribe":
                return self._subscribe(str(given.get("stream_id") or given["session_id"]), int(str(given["after"])))
            case "unsubscribe":
                return {"stream_id": given["stream_id"]}
            case _ if action in STARTS:  # the run's reader subscribes from `after`
                self._pause_s = self._poll_s
                return {**await self._service.act(action, given | {"subscribe": False}), "replay": True}
            case _:
                return await self._service.act(action, given)

    def _subscribe(self, stream_id: str, after: int) -> JsonObject:
        polled = stream_id in self._positions
        self._positions[stream_id] = min(after, self._positions.get(stream_id, after))
        if not polled:
            self.spawn(self._poll(stream_id))
        return {"stream_id": stream_id, "caught_up": after, "complete": True}

    async def _poll(self, stream_id: str) -> None:
        failures = 0
        try:
            while self.following.has_readers(stream_id):
                after = self._positions[stream_id]
                try:
                    found = await self._service.act("read_stream", {"session_id": stream_id, "after": after})
                except HelixError as error:
                    failures += 1
                    if failures >= PATIENCE or not _is_temporary(error):
                        self.following.on_stream_fail(stream_id, error)
                        return
                    logger.info("reading stream %s failed: %s", stream_id, error)
                    await asyncio.sleep(self._poll_s)
                    continue
                failures = 0
                bodies: Any = found["messages"]
                messages = [
                    StreamMessage.model_validate({"stream_id": stream_id, **fields_of(body)}) for body in bodies
                ]
                if not messages:
                    await asyncio.sleep(self._pause_s)
                    self._pause_s = min(self._slowest_s, self._pause_s * SLOWER)
                    continue
                self._pause_s = self._poll_s
                if self._positions[stream_id] == after:  # otherwise a reader has since asked for earlier messages
                    self._positions[stream_id] = messages[-1].sequence
                self.following.on_messages(stream_id, messages)
                await asyncio.sleep(0)
        finally:
            del self._positions[stream_id]


def _is_temporary(error: HelixError) -> bool:
    return isinstance(error, RemoteError) and error.recoverable
