"""A link to a service over WebSocket that reconnects when the connection ends.

Law: each request gets one reply, or fails within its timeout. If the reply is late or the connection ends, the link sends
the request again under the same id. Repeated requests are harmless, because requests that start something carry a key.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from typing import NamedTuple

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, InvalidURI, WebSocketException

from helix.client.link import ClientSettings, ConnectionLostError, Link, Token, fields_of
from helix.core.errors import HelixError, InvalidInputError, NotAuthenticatedError, ProtocolError
from helix.core.frames import SUBPROTOCOL, Joiner, fragments
from helix.core.json import JsonObject, loads
from helix.core.protocol import request
from helix.core.refusals import error_of
from helix.core.wire import StreamMessage
from helix.ports.clock import Clock
from helix.ports.ids import Ids

logger = logging.getLogger("helix.client")
MAX_MESSAGE_BYTES = 128 * 1024
CLOSE_S = 2
TRIES = 3
PROOF_REFUSED = (401, 403)
DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class _PendingRequest(NamedTuple):
    text: str
    """The request as it is sent, in JSON."""
    answer: asyncio.Future[JsonObject]
    """The future of the result, or of the error that the service returned."""


class SocketLink(Link):
    """A link to a service's WebSocket API."""

    def __init__(self, url: str, token: Token, settings: ClientSettings, clock: Clock, ids: Ids) -> None:
        super().__init__()
        self._url, self._token, self._settings, self._clock, self._ids = url, token, settings, clock, ids
        self._socket: ClientConnection | None = None
        self._asked: dict[str, _PendingRequest] = {}
        self._joiner = Joiner()
        self._opened = asyncio.Event()
        self._heard, self._tries, self._refusals = False, 0, 0
        self.error: Exception | None = None
        self.connections = 0

    async def open(self) -> None:
        """Connect. Raises `NotAuthenticatedError`, and `ConnectionLostError` if the service cannot be reached within
        `open_s`."""
        self.spawn(self._stay_connected())
        await self._opened.wait()
        if self.error is not None:
            raise self.error

    async def close(self) -> None:
        """Close the link, and fail all open requests. May be called repeatedly."""
        await super().close()
        self._fail(ConnectionLostError("the client is closed"))

    # --- requests -----------------------------------------------------------------------------------------------------

    async def ask(self, action: str, fields: JsonObject) -> JsonObject:
        """Return the result of a request. Raises the service's error, `TimeoutError`, or `ConnectionLostError`."""
        try:
            return await self._ask(action, fields)
        except NotAuthenticatedError:
            if action == "authenticate" or not callable(self._token):
                raise
            await self._ask("authenticate", {"token": await self._fresh_token()})
            return await self._ask(action, fields)

    async def _ask(self, action: str, fields: JsonObject) -> JsonObject:
        if self.error is not None:
            raise self.error
        ident = self._ids.new("req")
        given: JsonObject = {name: value for name, value in fields.items() if value is not None}
        asked = _PendingRequest(request(action, ident, given), asyncio.get_running_loop().create_future())
        self._asked[ident] = asked
        seconds = self._settings.request_s
        try:
            async with asyncio.timeout(seconds):
                while True:
                    await self._send(asked)
                    if (await asyncio.wait({asked.answer}, timeout=seconds / TRIES))[0]:
                        return asked.answer.result()
        except TimeoutError:
            raise TimeoutError(f"{action}: no answer within {seconds} s") from None
        finally:
            del self._asked[ident]

    async def _send(self, asked: _PendingRequest) -> None:
        """Send a request, or leave it to the next connection. Cancellation does not interrupt a message, because its parts
        must be sent without another message between them."""
        if self._socket is not None:
            await asyncio.shield(self.spawn(_send_text(self._socket, asked.text)))

    # --- connection ---------------------------------------------------------------------------------------------------

    async def _stay_connected(self) -> None:
        failures, lost_at = 0, self._clock.now()
        try:
            while True:
                try:
                    self._socket = await self._connect()
                except (OSError, WebSocketException, TimeoutError) as error:
                    patience_s = self._settings.give_up_s if self.connections else self._settings.open_s
                    if self._clock.now() - lost_at >= patience_s:
                        raise ConnectionLostError(f"{self._url} cannot be reached: {error}") from error
                    logger.info("connecting failed: %s", error)
                else:
                    self.connections += 1
                    await self._serve_connection(self._socket)
                    failures, lost_at = (0 if self._heard else failures), self._clock.now()
                failures += 1
                await self._clock.sleep(self._pause(failures))
        except Exception as error:  # waiting callers must get every error
            self._fail(error)

    def _pause(self, failures: int) -> float:
        longest: float = min(self._settings.backoff_max_s, self._settings.backoff_s * 2 ** min(failures - 1, 20))
        tail = self._ids.new("jitter")[-4:]  # ids end in random characters, of 5 bits each
        return longest * sum(DIGITS.find(char) * 32.0 ** -(place + 1) for place, char in enumerate(tail))

    async def _connect(self) -> ClientConnection:
        token = await self._fresh_token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            return await connect(
                self._url,
                additional_headers=headers,
                subprotocols=[SUBPROTOCOL],  # type: ignore[list-item]
                open_timeout=self._settings.open_s,
                close_timeout=CLOSE_S,
                max_size=MAX_MESSAGE_BYTES,
            )
        except InvalidURI as error:
            raise InvalidInputError(f"{self._url!r} is not a WebSocket URL: use wss:// or ws://") from error
        except InvalidStatus as error:
            if error.response.status_code in PROOF_REFUSED:
                raise NotAuthenticatedError("the service refused the token") from error
            raise

    async def _fresh_token(self) -> str | None:
        if not callable(self._token):
            return self._token
        given = self._token()
        return await given if inspect.isawaitable(given) else given

    async def _serve_connection(self, socket: ClientConnection) -> None:
        """Send open requests and receive messages until the connection ends."""
        self._joiner, self._heard, self._tries = Joiner(), False, 0
        beat = asyncio.create_task(self._send_heartbeats(socket))
        try:
            self._opened.set()
            self.following.on_open()
            for asked in list(self._asked.values()):
                await self._send(asked)
            async for frame in socket:
                self._receive(frame)
        except ConnectionClosed as error:
            logger.info("the connection ended: %s", error)
        finally:
            self._socket = None
            beat.cancel()
            await asyncio.gather(beat, return_exceptions=True)
            await socket.close()

    async def _send_heartbeats(self, socket: ClientConnection) -> None:
        """Keep a quiet connection open, detect a dead one, and replace an old one."""
        born = self._clock.now()
        while self._clock.now() - born < self._settings.max_age_s:
            await self._clock.sleep(min(self._settings.heartbeat_s, self._settings.max_age_s))
            try:
                await self.ask("ping", {})
            except TimeoutError:
                break
            except HelixError as error:
                logger.info("ping: %s", error)
        await socket.close()

    def _fail(self, error: Exception) -> None:
        if self.error is None:
            self.error = error
            for asked in self._asked.values():
                if not asked.answer.done():
                    asked.answer.set_exception(error)
            self.following.on_fail(error)
        self._opened.set()

    # --- receiving ----------------------------------------------------------------------------------------------------

    def _receive(self, frame: str | bytes) -> None:
        """Receive a frame. A frame that cannot be read is skipped, and does not end the connection. If its content is
        missing later, the client asks for it again."""
        try:
            received = loads(frame)
            if isinstance(received, dict):
                self._handle_frame(received)
        except (ValueError, HelixError, TypeError, KeyError) as error:
            logger.warning("a frame makes no sense: %s", type(error).__name__)

    def _handle_frame(self, received: JsonObject) -> None:
        kind = received.get("type")
        if kind is not None:
            self._heard, self._tries = True, 0
        match kind:
            case "part":
                if (text := self._joiner.add(received)) is not None:
                    self._receive(text)
            case "messages":
                stream_id, bodies = str(received["stream_id"]), received["messages"]
                if not isinstance(bodies, list):
                    raise ProtocolError("messages is a list", "messages")
                messages = [
                    StreamMessage.model_validate({"stream_id": stream_id, **fields_of(body)}) for body in bodies
                ]
                self.following.on_messages(stream_id, messages)
            case "lagging":
                self.following.on_lagging(str(received["stream_id"]))
            case "reply" | "error":
                self._answer(received)
            case None:  # API Gateway itself refused a message: too many at once, or a failed function
                logger.info("the gateway refused a message: %s", received.get("message"))
                if not self._refusals:
                    self.spawn(self._send_again())
                self._refusals += 1

    def _answer(self, received: JsonObject) -> None:
        asked = self._asked.get(str(received.get("id")))
        if asked is None or asked.answer.done():
            return
        if received["type"] == "reply" and isinstance(result := received.get("result"), dict):
            asked.answer.set_result(result)
        else:
            asked.answer.set_exception(error_of(fields_of(received.get("error"))))

    async def _send_again(self) -> None:
        """Send all open requests again after a pause. One call covers all refusals that arrive during the pause."""
        self._tries += 1
        await self._clock.sleep(self._pause(self._tries))
        self._refusals = 0
        for asked in list(self._asked.values()):
            await self._send(asked)


async def _send_text(socket: ClientConnection, text: str) -> None:
    pieces = fragments(text)
    with contextlib.suppress(ConnectionClosed):
        await socket.send(pieces if len(pieces) > 1 else text, text=True)
