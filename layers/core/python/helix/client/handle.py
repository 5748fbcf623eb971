"""The handle of a run over there: plain ids and a client; any process with the same user's token can make one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from helix.client.feed import Feed, behind, one_run
from helix.core.chunks import StreamChunk
from helix.core.json import JsonObject, JsonValue
from helix.core.rows import Pending
from helix.core.usage import Usage
from helix.core.wire import StreamMessage

if TYPE_CHECKING:
    from helix.client.client import HelixClient

ResumeMode = Literal["continue", "with_message", "from_checkpoint"]
RetryMode = Literal["from_checkpoint", "from_start"]


class RunResult(BaseModel):
    """How a run ended. `output` is the agent's structured output as JSON, or for agents without a schema the last text.
    `error` is set for failed runs; `pending` lists what a paused one waits for."""

    model_config = ConfigDict(extra="ignore")

    session_id: str
    run_id: str
    status: str
    output: JsonValue = None
    text: str | None = None
    error: str | None = None
    error_code: str | None = None
    recoverable: bool = True
    pending: list[Pending] = Field(default_factory=list)
    completion_reason: str | None = None
    usage: Usage = Field(default_factory=Usage)
    steps: int = 0


class RunHandle:
    """A run of a session, from afar. Nothing is lost when it is dropped: the run goes on."""

    def __init__(self, client: HelixClient, place: Mapping[str, Any], feed: Feed | None = None) -> None:
        """`place`: session_id, run_id, turn, stream_id, and `after`, behind which the run's messages are."""
        self._client, self._feed, self._read = client, feed, False
        self.session_id, self.run_id = str(place["session_id"]), str(place["run_id"])
        self.stream_id, self.turn = str(place["stream_id"]), int(place["turn"])
        self.after = int(place["after"])

    def __repr__(self) -> str:
        return f"RunHandle(session_id={self.session_id!r}, run_id={self.run_id!r})"

    async def stream(self, *, after: int | None = None) -> AsyncIterator[StreamChunk]:
        """The run's chunks, replayed from its beginning (or after a sequence) and then live, each once, to its end."""
        return self._chunks(await self.messages(after=after))

    async def messages(self, *, after: int | None = None) -> AsyncIterator[StreamMessage]:
        """Like `stream`, in wire form, the end message included."""
        if after is not None or self._read:
            judge = one_run(self.session_id, self.turn)
            feed = await self._client.follow_feed(
                self.stream_id, self.after, judge if after is None else behind(after, judge)
            )
        else:
            self._read, feed = True, await self.feed()
        messages: AsyncIterator[StreamMessage] = self._client.read_feed(feed)
        return messages

    async def feed(self) -> Feed:
        """For the client: what this run's first reader reads, and its end is known by."""
        if self._feed is None:
            judge = one_run(self.session_id, self.turn)
            self._feed = await self._client.follow_feed(self.stream_id, self.after, judge)
        return self._feed

    async def _chunks(self, messages: AsyncIterator[StreamMessage]) -> AsyncIterator[StreamChunk]:
        async for message in messages:
            if message.kind == "chunk":
                yield message.parsed()

    async def result(self, timeout_s: float | None = None) -> RunResult:
        """Wait until this run no longer runs: completed, failed, interrupted or paused. Raises `TimeoutError`."""
        return await self._client.wait_result(self, timeout_s)

    async def interrupt(self, reason: str | None = None, *, wait: bool = False) -> bool:
        """Ask this run to stop at its next point; `resume` goes on. False if it does not run any more. With `wait` the
        return comes when it has stopped."""
        asked = await self._client.interrupt(self.session_id, reason, run_id=self.run_id)
        if asked and wait:
            await self.result()
        return asked

    async def abort(self, reason: str | None = None) -> None:
        """Fail this run for good: no resume, no retry; a new message may follow. Idempotent."""
        await self._client.abort(self.session_id, reason, run_id=self.run_id)

    async def get_state(self) -> JsonObject:
        """The session's committed state, as `SessionState` is written in JSON."""
        return await self._client.get_session(self.session_id)

    async def can_resume(self) -> JsonObject:
        """`{"can_resume", "reason"}`."""
        return await self._client.can_resume(self.session_id)

    async def answer(
        self, tool_call_id: str, *, approved: bool = True, data: JsonValue = None, reason: str | None = None
    ) -> RunHandle:
        """Answer a call that waits, here or in a sub-agent; see `HelixClient.answer`."""
        return await self._client.answer(self.session_id, tool_call_id, approved=approved, data=data, reason=reason)

    async def resume(
        self, *, mode: ResumeMode = "continue", message: str | None = None, checkpoint_id: str | None = None
    ) -> RunHandle:
        """Go on as a new run; see `HelixClient.resume`."""
        return await self._client.resume(self.session_id, mode=mode, message=message, checkpoint_id=checkpoint_id)

    async def retry(self, *, mode: RetryMode = "from_checkpoint", message: str | None = None) -> RunHandle:
        """Try a failed session again; see `HelixClient.retry`."""
        return await self._client.retry(self.session_id, mode=mode, message=message)
