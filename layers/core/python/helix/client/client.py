"""HelixClient: the deployed agents over WebSocket.

Law: what a caller asks for is done once, whatever happens to the connection; what a caller reads has no gap and no
repeat. A client needs an address and a token, and keeps nothing that is not over there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Self

from helix.adapters.system import SystemClock, SystemIds
from helix.client.feed import Feed, Judge, one_run, whole_stream
from helix.client.following import Following
from helix.client.handle import ResumeMode, RetryMode, RunHandle, RunResult
from helix.client.link import Link
from helix.client.settings import ClientSettings, Token
from helix.core.errors import SessionNotFoundError
from helix.core.json import JsonObject, JsonValue
from helix.core.wire import StreamMessage
from helix.ports.clock import Clock
from helix.ports.ids import Ids


class HelixClient:
    """`async with HelixClient(url, token) as client: ...`

    url: of the WebSocket API, `wss://...`. token: an API key, a JSON Web Token, or a function that gives one (it may be
    async), called for each connection. jitter: a random number from 0 to 1, another one each time it is called.
    Errors are those of `helix.core.errors`, by the service's code.
    """

    def __init__(
        self,
        url: str,
        token: Token = None,
        *,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        jitter: Callable[[], float] | None = None,
    ) -> None:
        self._settings, self._clock, self._ids = (
            settings or ClientSettings(),
            clock or SystemClock(),
            ids or SystemIds(),
        )
        self._following = Following(self._ask, lambda work: self._link.spawn(work), self._clock, self._settings)
        self._link = Link(
            url,
            token,
            clock=self._clock,
            ids=self._ids,
            jitter=jitter or self._fraction,
            settings=self._settings,
            on_open=self._following.on_open,
            on_messages=self._following.on_messages,
            on_lagging=self._following.on_lagging,
            on_fail=self._following.on_fail,
        )

    @classmethod
    async def connect(cls, url: str, token: Token = None, **options: Any) -> Self:
        """A connected client, to be closed."""
        return await cls(url, token, **options).__aenter__()

    async def __aenter__(self) -> Self:
        try:
            await self._link.open()
        except BaseException:
            await self._link.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Idempotent. Runs go on."""
        await self._link.close()

    @property
    def connections(self) -> int:
        """How often it has connected."""
        return self._link.connections

    # --- starting runs ------------------------------------------------------------------------------------------------

    async def run(
        self,
        agent: str,
        message: str | Mapping[str, Any],
        *,
        session_id: str | None = None,
        state: JsonObject | None = None,
        tags: list[str] | None = None,
        metadata: JsonObject | None = None,
        priority: int | None = None,
        key: str | None = None,
    ) -> RunHandle:
        """Start a run: a new session, or the next message of one that is not running.

        message: a text, `{"message": ..., "state": {...}}`, or a function agent's parameters. session_id: one that
        exists, or a new one that begins with the own prefix (`whoami`). key: what makes a repeat, from another process
        too, find the same run; default a new one. priority: where runs wait for slots, a lower one lets others go first
        (-999 to 0; above 0 is the service's to say): this run, and those of the session after it.
        Raises `AgentAlreadyRunningError` if the session is running: exactly one of several callers wins; `QueueFullError`
        if as many runs of the agent wait for a slot as may.
        """
        given: JsonObject = {"tags": [*tags]} if tags is not None else {}
        fields: JsonObject = {"agent": agent, "session_id": session_id, "state": state, "metadata": metadata}
        fields["priority"] = priority
        return await self._start("run", {**fields, **given, **_input(message)}, key)

    async def stream(self, agent: str, message: str | Mapping[str, Any], **options: Any) -> AsyncIterator[Any]:
        """`run`, and its chunks."""
        return await (await self.run(agent, message, **options)).stream()

    async def resume(
        self,
        session_id: str,
        *,
        mode: ResumeMode = "continue",
        message: str | None = None,
        checkpoint_id: str | None = None,
        key: str | None = None,
    ) -> RunHandle:
        """Go on with an interrupted or paused session, or rewind to a checkpoint. See `LocalExecutor.resume`."""
        fields: JsonObject = {"session_id": session_id, "mode": mode, "message": message}
        return await self._start("resume", fields | {"checkpoint_id": checkpoint_id}, key)

    async def retry(
        self,
        session_id: str,
        *,
        mode: RetryMode = "from_checkpoint",
        message: str | None = None,
        key: str | None = None,
    ) -> RunHandle:
        """Try a failed session again. See `LocalExecutor.retry`."""
        return await self._start("retry", {"session_id": session_id, "mode": mode, "message": message}, key)

    async def answer(
        self,
        session_id: str,
        tool_call_id: str,
        *,
        approved: bool = True,
        data: JsonValue = None,
        reason: str | None = None,
    ) -> RunHandle:
        """Answer a call that waits, in the session or a sub-agent below it. The handle is of the session's current run.
        First answer wins; a later one raises `CallNotPendingError`, and so does one that was sent twice because the
        connection was lost behind the first."""
        fields: JsonObject = {"session_id": session_id, "tool_call_id": tool_call_id, "approved": approved}
        return await self._started("answer", fields | {"data": data, "reason": reason})

    async def handle(self, session_id: str, run_id: str | None = None) -> RunHandle:
        """A handle of a run by ids (default: the session's current run)."""
        if run_id is None:
            run_id = str((await self.get_session(session_id))["current_run_id"])
        found = await self._ask("get_session", {"session_id": session_id, "run_id": run_id})
        run, session = _object(found["run"]), _object(found["session"])
        place = {"session_id": session_id, "run_id": run_id, "turn": run["turn"], "after": run["start_sequence"]}
        return RunHandle(self, {**place, "stream_id": session["stream_id"]})

    async def _start(self, action: str, fields: JsonObject, key: str | None) -> RunHandle:
        return await self._started(action, {**fields, "key": key or self._ids.new("key")})

    async def _started(self, action: str, fields: JsonObject) -> RunHandle:
        await self._following.make_room()
        self._following.starting()
        try:
            place = await self._ask(action, fields)
            judge = one_run(str(place["session_id"]), int(str(place["turn"])))
            after, subscribed = int(str(place["after"])), not place.get("replay")
            feed = self._following.add(str(place["stream_id"]), after, judge, subscribed=subscribed)
        finally:
            self._following.started()
        return RunHandle(self, place, feed)

    # --- controlling --------------------------------------------------------------------------------------------------

    async def interrupt(self, session_id: str, reason: str | None = None, *, run_id: str | None = None) -> bool:
        """Ask the run (default: the current one) to stop. False if it does not run."""
        fields: JsonObject = {"session_id": session_id, "reason": reason, "run_id": run_id}
        return bool((await self._ask("interrupt", fields))["interrupted"])

    async def abort(self, session_id: str, reason: str | None = None, *, run_id: str | None = None) -> None:
        """Fail the running session for good, its sub-agents too."""
        await self._ask("abort", {"session_id": session_id, "reason": reason, "run_id": run_id})

    async def authenticate(self, token: str | None = None) -> JsonObject:
        """Renew the proof of the same user on the open connection. `{"principal", "expires_at", "prefix"}`."""
        return await self._ask("authenticate", {"token": token})

    async def whoami(self) -> JsonObject:
        """`{"principal", "expires_at", "prefix"}`: who this connection is, until when (Unix seconds), and how the ids of
        sessions begin that it may choose itself."""
        return await self.authenticate()

    async def ping(self) -> float:
        """The service's time, in Unix seconds."""
        return float(str((await self._ask("ping", {}))["now"]))

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def get_session(self, session_id: str) -> JsonObject:
        """The session's committed state, as `SessionState` is written in JSON. Raises `SessionNotFoundError`."""
        return _object((await self._ask("get_session", {"session_id": session_id}))["session"])

    async def can_resume(self, session_id: str) -> JsonObject:
        """`{"can_resume", "reason"}`."""
        return _object((await self._ask("get_session", {"session_id": session_id}))["can_resume"])

    async def get_messages(self, session_id: str, *, limit: int = 50, before: int | None = None) -> JsonObject:
        """The newest `limit` (at most 100) messages before the index `before`: `{"messages", "offset"}`."""
        found = await self._ask("get_session", {"session_id": session_id, "messages": limit, "before": before})
        return {"messages": found["messages"], "offset": found["offset"]}

    async def get_snapshot(self, session_id: str) -> JsonObject:
        """The conversation at its newest checkpoint, and the `sequence` after which the stream goes on from there."""
        return _object((await self._ask("get_session", {"session_id": session_id, "snapshot": True}))["snapshot"])

    async def list_sessions(self, *, limit: int = 20, after: str | None = None) -> JsonObject:
        """One's own root sessions, newest first: `{"sessions", "cursor"}`; `cursor` is the next page's `after`."""
        return await self._ask("list_sessions", {"limit": limit, "after": after})

    async def list_checkpoints(self, session_id: str, *, limit: int = 20, after: str | None = None) -> JsonObject:
        """Newest first: `{"checkpoints", "cursor"}`."""
        return await self._ask("list_checkpoints", {"session_id": session_id, "limit": limit, "after": after})

    async def branch(self, session_id: str, checkpoint_id: str | None = None, *, target: str | None = None) -> str:
        """A new session with another's messages and state up to a checkpoint (default its latest): its id."""
        fields: JsonObject = {"session_id": session_id, "checkpoint_id": checkpoint_id, "target": target}
        return str((await self._ask("branch", fields | {"key": self._ids.new("key")}))["session_id"])

    async def clone(
        self,
        session_id: str,
        target: str | None = None,
        *,
        checkpoint_id: str | None = None,
        message_index: int | None = None,
    ) -> str:
        """A copy of a session up to a checkpoint, or of its first messages: its id."""
        fields: JsonObject = {"session_id": session_id, "target": target, "checkpoint_id": checkpoint_id}
        fields |= {"message_index": message_index, "key": self._ids.new("key")}
        return str((await self._ask("clone", fields))["session_id"])

    async def delete(self, session_id: str) -> bool:
        """Delete the session, its sub-agents' sessions and its stream. False if there is none.
        Raises `AgentAlreadyRunningError` while it runs."""
        try:
            return bool((await self._ask("delete", {"session_id": session_id}))["deleted"])
        except SessionNotFoundError:
            return False

    # --- following ----------------------------------------------------------------------------------------------------

    async def follow(self, session_id: str, *, after: int = 0) -> AsyncIterator[StreamMessage]:
        """The session's stream behind the sequence `after`, across its runs; it ends with its reader."""
        stream_id = str((await self.get_session(session_id))["stream_id"])
        messages: AsyncIterator[StreamMessage] = self.read_feed(await self.follow_feed(stream_id, after, whole_stream))
        return messages

    async def follow_feed(self, stream_id: str, after: int, judge: Judge) -> Feed:
        """For handles: a feed of what is behind `after`."""
        await self._following.make_room()
        return self._following.add(stream_id, after, judge, subscribed=False)

    def read_feed(self, feed: Feed) -> Any:
        """For handles: a feed's messages."""
        return self._following.read(feed)

    async def wait_result(self, handle: RunHandle, timeout_s: float | None) -> RunResult:
        """For handles: the result, once the stream has told the run's end. A stream that says nothing is not trusted."""
        async with asyncio.timeout(timeout_s):
            while True:
                found = await self._ask("get_session", {"session_id": handle.session_id, "run_id": handle.run_id})
                run = _object(found["run"])
                if run["status"] != "running":
                    return RunResult.model_validate(run)
                feed = await handle.feed()
                if not await feed.ended(self._settings.quiet_s):
                    self._following.catch_up(feed)

    # --- inside -------------------------------------------------------------------------------------------------------

    async def _ask(self, action: str, fields: JsonObject) -> JsonObject:
        return await self._link.ask(action, fields)

    def _fraction(self) -> float:
        """Ids end in random characters, of 5 bits each."""
        digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
        tail = self._ids.new("jitter")[-4:]
        return sum(digits.find(char) * 32.0 ** -(place + 1) for place, char in enumerate(tail))


def _input(message: str | Mapping[str, Any]) -> JsonObject:
    """As `execute` reads its input: a text, a message with state, or parameters."""
    if isinstance(message, str):
        return {"message": message}
    if "message" not in message:
        return {"input": dict(message)}
    return {name: value for name, value in message.items() if name in ("message", "state")}


def _object(value: JsonValue) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
