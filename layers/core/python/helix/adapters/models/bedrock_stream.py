"""One ConverseStream of boto3 in its own thread, read from an event loop.

Law: `abort` ends the connection at once, whether the answer has begun or not. boto3 has no such method, so the socket
of the connection is noted when the request is sent. It is shut down unless the connection went back to its pool. Each
stream has its own thread, because it may last minutes and the event loop's thread pool is small.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import socket
import threading
from collections.abc import Mapping
from typing import Any

from botocore.awsrequest import AWSHTTPConnection, AWSHTTPConnectionPool, AWSHTTPSConnection, AWSHTTPSConnectionPool

from helix.adapters.models.file_parts import JsonBody

_thread = threading.local()


class Conversation:
    """A conversation in a thread. Call `await start()`, then `await next()` until None, and `abort()` in any case.
    `body` replaces the body that boto3 would build from the arguments, which would hold several copies of a file."""

    def __init__(self, client: Any, arguments: Mapping[str, Any], body: JsonBody | None = None) -> None:
        self._client, self._arguments = client, arguments
        self.body = body
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._aborted = False

    async def start(self) -> None:
        """Send the request, and return when the answer begins. Raises boto3's errors."""
        threading.Thread(target=self._run, name="helix-bedrock", daemon=True).start()
        await self.next()

    async def next(self) -> Any:
        """Return the next event, or None at the end. Raises boto3's errors."""
        event = await self._events.get()
        if isinstance(event, BaseException):
            raise event
        return event

    def abort(self) -> None:
        """End the connection, if it still belongs to this conversation."""
        with self._lock:
            self._aborted = True
            if self._socket is not None:
                with contextlib.suppress(OSError):  # already closed
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # bypass TLS, whose state the thread uses

    def remember_socket(self, connected: socket.socket | None) -> None:
        """Remember the socket. Called in the thread, before and after the request is sent, because the connection
        forgets its socket later."""
        with self._lock:
            self._socket = connected
        if self._aborted:
            raise ConnectionAbortedError("the model call was cancelled")

    def release(self, connected: socket.socket | None) -> None:
        """Forget the socket. Called before the connection goes back to the pool, where another conversation may take
        it."""
        with self._lock:
            if self._socket is connected:
                self._socket = None

    def _run(self) -> None:
        _thread.conversation = self
        stream: Any = None
        try:
            stream = self._client.converse_stream(**self._arguments)["stream"]
            if self.body is not None:
                self.body.release()
            self._report({})
            for event in stream:
                self._report(event)
            self._report(None)
        except Exception as error:
            self._report(error)
        finally:
            with self._lock:
                self._socket = None
            if stream is not None:
                stream.close()

    def _report(self, event: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed, and no caller waits
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)


def watch_connections(client: Any) -> None:
    """Make the client's connections report to the conversation of their thread when they send its request."""
    client._endpoint.http_session._pool_classes_by_scheme.update(http=_Pool, https=_SecurePool)


def send_bodies(client: Any) -> None:
    """Make the client send the body of its thread's conversation, if it has one."""
    client.meta.events.register("before-call.bedrock-runtime.ConverseStream", _put_body)


def _put_body(params: dict[str, Any], **_: Any) -> None:
    conversation: Conversation = _thread.conversation
    if conversation.body is not None:
        params["body"] = _BodyFile(conversation.body)


class _BodyFile(io.RawIOBase):
    """A body as the file that botocore signs and sends in pieces."""

    def __init__(self, body: JsonBody) -> None:
        self._body, self._position = body, 0

    def __len__(self) -> int:
        return self._body.length

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._body.read_at(self._position, len(buffer))
        buffer[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self)}[whence]
        self._position = start + offset
        return self._position


class _SocketRecorder:
    sock: socket.socket | None
    """The connection's socket, which urllib3 sets. None until it is connected."""

    def request(self, *arguments: Any, **named: Any) -> None:
        conversation: Conversation = _thread.conversation
        conversation.remember_socket(self.sock)
        super().request(*arguments, **named)  # type: ignore[misc]
        conversation.remember_socket(self.sock)


class _Connection(_SocketRecorder, AWSHTTPConnection):  # type: ignore[misc]
    pass


class _SecureConnection(_SocketRecorder, AWSHTTPSConnection):  # type: ignore[misc]
    pass


class _Releasing:
    def _put_conn(self, connection: Any) -> None:
        if (conversation := getattr(_thread, "conversation", None)) is not None:
            conversation.release(getattr(connection, "sock", None))
        super()._put_conn(connection)  # type: ignore[misc]


class _Pool(_Releasing, AWSHTTPConnectionPool):  # type: ignore[misc]
    ConnectionCls = _Connection


class _SecurePool(_Releasing, AWSHTTPSConnectionPool):  # type: ignore[misc]
    ConnectionCls = _SecureConnection
