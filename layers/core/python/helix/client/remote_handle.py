"""The handle of a run that the service executes.

Law: a caller reads each message once, without gaps. Nothing about a handle is stored, so any process can create one
from the run's ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from helix.client.feed import Feed, skip_until
from helix.client.link import fields_of
from helix.core.files import Content
from helix.core.handles import (
    AgentExecutionHandle,
    AgentResult,
    CanResumeResult,
    Confirmation,
    ResumeMode,
    RetryMode,
    SessionState,
)
from helix.core.json import JsonObject, JsonValue
from helix.core.wire import StreamMessage, one_run
from helix.stream.notebook import show_in_cell

if TYPE_CHECKING:
    from helix.client.client import HelixClient


class RemoteHandle(AgentExecutionHandle[JsonValue]):
    _ipython_display_ = show_in_cell

    def __init__(self, client: HelixClient, place: JsonObject) -> None:
        """Take the run's ids and its place in the stream.

        `place` contains session_id, run_id, turn, stream_id and `after`, the sequence before the run's first message.
        `first` is the feed of the run's first reader. It also shows whether the run has ended.
        """
        self._client, self._read = client, False
        self.first: Feed | None = None
        self.session_id, self.run_id = str(place["session_id"]), str(place["run_id"])
        self.stream_id, self.turn = str(place["stream_id"]), int(str(place["turn"]))
        self.after = int(str(place["after"]))
        queued = place.get("queued_id")
        self.queued_id = None if queued is None else str(queued)

    async def messages(self, *, after: int | None = None) -> AsyncIterator[StreamMessage]:
        if after is None and not self._read:
            self._read, feed = True, await self.feed()
        else:
            judge = one_run(self.session_id, self.turn, run_id=self.run_id)
            judge = judge if after is None else skip_until(after, judge)
            feed = await self._client.follow_feed(self.stream_id, self.after, judge)
        return self._client.following.read(feed)

    async def feed(self) -> Feed:
        if self.first is None:
            judge = one_run(self.session_id, self.turn, run_id=self.run_id)
            self.first = await self._client.follow_feed(self.stream_id, self.after, judge)
        return self.first

    async def result(self, timeout_s: float | None = None) -> AgentResult[JsonValue]:
        """Return the result once the run has ended. If the stream is silent for `quiet_s`, ask the service for the status,
        because the end message may have been lost."""
        client = self._client
        async with asyncio.timeout(timeout_s):
            while True:
                found = await client.ask("get_session", {"session_id": self.session_id, "run_id": self.run_id})
                run = fields_of(found["run"])
                if run["status"] != "running":
                    return AgentResult[JsonValue].model_validate(run)
                feed = await self.feed()
                if not await feed.ended(client.settings.quiet_s):
                    client.following.catch_up(feed)

    async def interrupt(self, reason: str | None = None, *, wait: bool = False) -> bool:
        asked = await self._client.interrupt(self.session_id, reason, run_id=self.run_id)
        if asked and wait:
            await self.result()
        return asked

    async def abort(self, reason: str | None = None) -> None:
        await self._client.abort(self.session_id, reason, run_id=self.run_id)

    async def get_state(self) -> SessionState:
        return await self._client.get_session(self.session_id)

    async def can_resume(self) -> CanResumeResult:
        return await self._client.can_resume(self.session_id)

    async def resume(
        self,
        *,
        mode: ResumeMode = "continue",
        message: Content | None = None,
        checkpoint_id: str | None = None,
        confirmation: Confirmation | None = None,
    ) -> RemoteHandle:
        given: dict[str, Any] = {"message": message, "checkpoint_id": checkpoint_id, "confirmation": confirmation}
        return await self._client.resume(self.session_id, mode=mode, **given)

    async def retry(self, *, mode: RetryMode = "from_checkpoint", message: Content | None = None) -> RemoteHandle:
        return await self._client.retry(self.session_id, mode=mode, message=message)
