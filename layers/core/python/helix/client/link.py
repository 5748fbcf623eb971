"""Link: one lasting conversation with the service over connections that do not last.

Law: a request is answered once, or fails in time; what is unanswered for long, or when a connection ends, is asked again
under the same id. Requests are made so that this is harmless: those that start something carry a key.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, InvalidURI, WebSocketException

from helix.client.settings import ClientSettings, ConnectionLostError, Token
from helix.core.errors import HelixError, InvalidInputError, NotAuthenticatedError, ProtocolError
from helix.core.frames import SUBPROTOCOL, Joiner
from helix.core.json import JsonObject
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


@dataclass(slots=True)
class _Asked:
    text: str
    answer: asyncio.Future[JsonObject]
    sent: int = 0


class Link:
    """on_open: called at each new connection. on_messages(stream id, messages), on_lagging(stream id): what came unasked.
    jitter: a number from 0 to 1, another one each time. on_fail: called once, when it has given up."""

    def __init__(
        self,
        url: str,
        token: Token,
        *,
        clock: Clock,
        ids: Ids,
        jitter: Callable[[], float],
        settings: ClientSettings,
        on_open: Callable[[], None],
        on_messages: Callable[[str, list[StreamMessage]], None],
        on_lagging: Callable[[str], None],
        on_fail: Callable[[Exception], None],
    ) -> None:
        self._url, self._token = url, token
        self._clock, self._ids, self._jitter, self._settings = clock, ids, jitter, settings
        self._on_open, self._on_messages, self._on_lagging, self._on_fail = on_open, on_messages, on_lagging, on_fail
        self._socket: ClientConnection | None = None
        self._asked: dict[str, _Asked] = {}
        self._joiner = Joiner()
        self._life: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._opened = asyncio.Event()
        self._heard, self._tries, self._refusals = False, 0, 0
        self.error: Exception | None = None
        self.connections = 0

    async def open(self) -> None:
        """Connect. Raises `NotAuthenticatedError`, and `ConnectionLostError` where nothing answers for `open_s`."""
        self._life = asyncio.get_running_loop().create_task(self._live(), name="helix:client")
        await self._opened.wait()
        if self.error is not None:
            raise self.error

    async def close(self) -> None:
        """Idempotent. What is unanswered fails."""
        tasks = [*self._tasks, *([self._life] if self._life is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._fail(ConnectionLostError("the client is closed"))

    def spawn(self, work: Any) -> None:
        """A task that ends with the link."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- asking -------------------------------------------------------------------------------------------------------

    async def ask(self, action: str, fields: JsonObject, *, timeout_s: float | None = None) -> JsonObject:
        """The result. Raises the service's error, `TimeoutError`, or `ConnectionLostError`."""
        try:
            return await self._ask(action, fields, timeout_s)
        except NotAuthenticatedError:
            if action == "authenticate" or not callable(self._token):
                raise
            await self._ask("authenticate", {"token": await self._fresh_token()}, timeout_s)
            return await self._ask(action, fields, timeout_s)

    async def _ask(self, action: str, fields: JsonObject, timeout_s: float | None) -> JsonObject:
        if self.error is not None:
            raise self.error
        ident = self._ids.new("req")
        given: JsonObject = {name: value for name, value in fields.items() if value is not None}
        asked = _Asked(request(action, ident, given), asyncio.get_running_loop().create_future())
        self._asked[ident] = asked
        seconds = self._settings.request_s if timeout_s is None else timeout_s
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

    async def _send(self, asked: _Asked) -> None:
        """What cannot be sent now is sent by the next connection."""
        if self._socket is not None:
            asked.sent += 1
            with contextlib.suppress(ConnectionClosed):
                await self._socket.send(asked.text)

    # --- living -------------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
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
                    await self._converse(self._socket)
                    failures, lost_at = (0 if self._heard else failures), self._clock.now()
                failures += 1
                await self._clock.sleep(self._pause(failures))
        except Exception as error:  # whoever waits must hear of it, whatever it is
            self._fail(error)

    def _pause(self, failures: int) -> float:
        longest: float = min(self._settings.backoff_max_s, self._settings.backoff_s * 2 ** min(failures - 1, 20))
        return longest * self._jitter()

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
            raise InvalidInputError(
                f"{self._url!r} is no URL of a WebSocket: it begins with wss:// or ws://"
            ) from error
        except InvalidStatus as error:
            if error.response.status_code in PROOF_REFUSED:
                raise NotAuthenticatedError(
                    "the service refused the connection: the token is not valid there"
                ) from error
            raise

    async def _fresh_token(self) -> str | None:
        if not callable(self._token):
            return self._token
        given = self._token()
        return await given if inspect.isawaitable(given) else given

    async def _converse(self, socket: ClientConnection) -> None:
        """Until the connection ends."""
        self._joiner, self._heard, self._tries = Joiner(), False, 0
        beat = asyncio.create_task(self._beat(socket))
        try:
            self._opened.set()
            self._on_open()
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

    async def _beat(self, socket: ClientConnection) -> None:
        """Keep a quiet connection open, notice a dead one, and replace one that is old."""
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
            self._on_fail(error)
        self._opened.set()

    # --- hearing ------------------------------------------------------------------------------------------------------

    def _receive(self, frame: str | bytes) -> None:
        """Nothing that comes ends the conversation: what makes no sense is left out, and asked for again if need be."""
        try:
            told = json.loads(frame)
            if isinstance(told, dict):
                self._hear(told)
        except (ValueError, HelixError, TypeError, KeyError) as error:
            logger.warning("a frame makes no sense: %s", type(error).__name__)

    def _hear(self, told: JsonObject) -> None:
        kind = told.get("type")
        if kind is not None:
            self._heard, self._tries = True, 0
        match kind:
            case "part":
                text = self._joiner.add(told)
                if text is not None:
                    self._receive(text)
            case "messages":
                stream_id = str(told["stream_id"])
                self._on_messages(stream_id, list(_messages(stream_id, told["messages"])))
            case "lagging":
                self._on_lagging(str(told["stream_id"]))
            case "reply" | "error":
                self._answer(told)
            case (
                None
            ):  # the gateway's own word that a message was not taken: too many at once, or a function that failed
                logger.info("the gateway refused a message: %s", told.get("message"))
                if not self._refusals:
                    self.spawn(self._send_again())
                self._refusals += 1

    def _answer(self, told: JsonObject) -> None:
        asked = self._asked.get(str(told.get("id")))
        if asked is None or asked.answer.done():
            return
        if told["type"] == "reply" and isinstance(result := told.get("result"), dict):
            asked.answer.set_result(result)
        else:
            refusal = told.get("error")
            asked.answer.set_exception(error_of(refusal if isinstance(refusal, dict) else {}))

    async def _send_again(self) -> None:
        """Once for all the refusals of a while, and later each time that nothing else comes."""
        self._tries += 1
        await self._clock.sleep(self._pause(self._tries))
        self._refusals = 0
        for asked in list(self._asked.values()):
            await self._send(asked)


def _messages(stream_id: str, bodies: Any) -> Iterable[StreamMessage]:
    if not isinstance(bodies, list):
        raise ProtocolError("messages is a list", "messages")
    for body in bodies:
        yield StreamMessage.model_validate({"stream_id": stream_id, **body})
