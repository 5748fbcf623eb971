"""A WebSocket server in this process. It does the work of API Gateway, the functions and the projector on one event
loop.

It is for tests, and for building a client against agents that run here. Law: it runs the same `Gateway` behind the same
handshake. Each message is handled in its own task, just as a deployed stage handles each in its own invocation.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, Self

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from helix._log import get_logger
from helix.core.errors import NotAuthenticatedError
from helix.core.frames import MAX_FRAME_BYTES, SUBPROTOCOL
from helix.core.protocol import MAX_REQUEST_BYTES
from helix.core.registry import AgentRegistry
from helix.gateway.authoriser import Authoriser, Proof, token_of
from helix.gateway.backend import Backend, OperatorBackend
from helix.gateway.connections import Connections
from helix.gateway.gateway import Gateway
from helix.gateway.loopback_files import LoopbackFiles
from helix.gateway.projector import LANE, post_messages
from helix.ports.clock import Clock
from helix.ports.sockets import Posted, Sockets
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager
from helix.runtime.executor import Executor
from helix.stream.reader import read_with_idle

logger = get_logger("helix.gateway")
POST_S = 2.0
IDLE_S = 1.0


class LoopbackSockets:
    """Implements `Sockets` on the connections of this server."""

    def __init__(self) -> None:
        self.open: dict[str, ServerConnection] = {}

    async def post(self, connection_id: str, data: bytes) -> Posted:
        connection = self.open.get(connection_id)
        if connection is None:
            return "gone"
        assert len(data) <= MAX_FRAME_BYTES, len(data)
        try:
            async with asyncio.timeout(POST_S):
                await connection.send(data.decode())
        except TimeoutError:
            return "slow"
        except ConnectionClosed:
            return "gone"
        return "sent"

    async def drop(self, connection_id: str) -> None:
        connection = self.open.get(connection_id)
        if connection is not None:
            await connection.close(1001)


class LoopbackGateway:
    """A server to use as `async with LoopbackGateway(executor) as served: ... served.url`.

    registry: the agents that clients may name (default: the executor's).
    authoriser: the check of tokens (default: every client may connect).
    sockets: the sockets that post frames (default: this server's own).
    operator: whether every connection has access to the sessions of all users.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        registry: AgentRegistry | None = None,
        authoriser: Authoriser | None = None,
        sockets: LoopbackSockets | None = None,
        clock: Clock | None = None,
        operator: bool = False,
    ) -> None:
        self._executor = executor
        clock = clock or executor.engine.clock
        self.sockets = sockets or LoopbackSockets()
        self.connections = _FollowedConnections(executor.store, clock, self.sockets, executor.streams)
        authoriser = authoriser or Authoriser(clock, anonymous=True)
        self.files = LoopbackFiles(clock, executor.engine.ids)
        backend = OperatorBackend if operator else Backend
        self.gateway = Gateway(
            backend(
                executor,
                self.sockets,
                authoriser,
                connections=self.connections,
                registry=registry,
                clock=clock,
                served_files=self.files,
            )
        )
        self._server: Server | None = None
        self._proofs: dict[ServerConnection, Proof] = {}
        self._acting: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """`ws://127.0.0.1:<port>`. Raises `RuntimeError` before the server is entered."""
        if self._server is None:
            raise RuntimeError("the server is not running: use it as a context manager")
        return f"ws://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await serve(
            self._serve,
            "127.0.0.1",
            0,
            process_request=self._authorise,
            select_subprotocol=lambda _, offered: Subprotocol(SUBPROTOCOL) if SUBPROTOCOL in offered else None,
            max_size=(MAX_REQUEST_BYTES, MAX_FRAME_BYTES),
            ping_interval=None,
            compression=None,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
        for task in self._acting:
            task.cancel()
        await asyncio.gather(*self._acting, return_exceptions=True)
        await self.connections.end()
        await asyncio.to_thread(self.files.close)

    async def _authorise(self, connection: ServerConnection, request: Request) -> Response | None:
        try:
            proof = await self.gateway.backend.authoriser.prove(token_of(dict(request.headers.raw_items())))
        except NotAuthenticatedError:
            return connection.respond(HTTPStatus.UNAUTHORIZED, "Unauthorized\n")
        self._proofs[connection] = proof
        return None

    async def _serve(self, connection: ServerConnection) -> None:
        proof, connection_id = self._proofs.pop(connection), str(connection.id)
        await self.gateway.connect(connection_id, proof.principal, proof.expires_at, operator=proof.operator)
        self.sockets.open[connection_id] = connection
        try:
            async for body in connection:
                task = asyncio.create_task(self.gateway.handle(connection_id, body))
                self._acting.add(task)
                task.add_done_callback(self._on_task_end)
        except ConnectionClosed:
            logger.debug("connection %s was lost", connection_id)
        finally:
            self.sockets.open.pop(connection_id, None)
            await self.gateway.disconnect(connection_id)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self._acting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a message could not be handled", exc_info=error)


class _FollowedConnections(Connections):
    """Connections whose streams are followed here and posted as they grow. In a stage, the projector does this."""

    def __init__(self, store: StateStore, clock: Clock, sockets: Sockets, streams: StreamManager) -> None:
        super().__init__(store, clock)
        self._sockets, self._streams = sockets, streams
        self._following: dict[str, asyncio.Task[Any]] = {}

    async def subscribe(self, connection_id: str, stream_id: str) -> None:
        """Start following before the subscription takes effect, so that no message is lost in between."""
        if not self._is_followed(stream_id):
            info = await self._streams.info(stream_id)
            begin = info.latest_sequence if info is not None else 0
            if not self._is_followed(stream_id):
                self._following[stream_id] = asyncio.create_task(self._follow(stream_id, begin))
        await super().subscribe(connection_id, stream_id)

    def _is_followed(self, stream_id: str) -> bool:
        """Whether the stream is followed. Following ends if the stream is deleted or the store fails, and can begin
        again."""
        task = self._following.get(stream_id)
        return task is not None and not task.done()

    async def drop_stream(self, stream_id: str) -> None:
        await super().drop_stream(stream_id)
        if (task := self._following.pop(stream_id, None)) is not None:
            task.cancel()

    async def end(self) -> None:
        tasks = list(self._following.values())
        self._following.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, stream_id: str, position: int) -> None:
        reading = read_with_idle(self._streams, stream_id, from_sequence=position, follow=True, idle_s=IDLE_S)
        async with aclosing(reading) as messages:
            async for message in messages:
                if message is not None:
                    await post_messages(self, self._sockets, stream_id, [message], LANE)
