"""A stream manager in a dictionary, over the real sequencer, with ways to break it, and a manually controlled clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from helix.core.errors import StoreError
from helix.core.sequencer import Head, StreamRecord, admit
from helix.core.wire import StreamInfo, StreamMessage

STREAM = "s1"


class MemoryStreams:
    """A stream manager in memory. `page` limits the length of one read. `lose_next` appends fail before the write, and
    `lose_answers` after it."""

    coalesces: bool = False

    def __init__(self, page: int = 1000) -> None:
        self.heads: dict[str, Head] = {}
        self.logs: dict[str, list[StreamMessage]] = {}
        self.page, self.lose_next, self.lose_answers = page, 0, 0
        self.reads = 0
        self.waiting = asyncio.Event()
        self._changed = asyncio.Event()

    async def append(self, stream_id: str, records: Sequence[StreamRecord]) -> None:
        if self.lose_next:
            self.lose_next -= 1
            raise StoreError("the log is away")
        head, out = admit(stream_id, self.heads.get(stream_id, Head()), records)
        self.heads[stream_id] = head
        self.logs.setdefault(stream_id, []).extend(out)
        self._wake()
        if self.lose_answers:
            self.lose_answers -= 1
            raise StoreError("the answer is lost")

    async def read(self, stream_id: str, after: int = 0, limit: int = 1000) -> list[StreamMessage]:
        self.reads += 1
        log = self.logs.get(stream_id, [])
        return [message for message in log if message.sequence > after][: min(limit, self.page)]

    async def wait(self, stream_id: str, after: int, timeout_s: float) -> None:
        self.waiting.set()
        if stream_id in self.heads and self.heads[stream_id].sequence > after:
            return
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        except TimeoutError:
            return

    async def info(self, stream_id: str) -> StreamInfo | None:
        head = self.heads.get(stream_id)
        if head is None:
            return None
        root = head.sessions[head.root]
        ended = {"failed": "failed", "paused": "paused"}.get(root.status, "ended")
        return StreamInfo(
            stream_id=stream_id,
            status=ended if root.over else "active",
            latest_sequence=head.sequence,
            total_chunks=sum(message.kind == "chunk" for message in self.logs[stream_id]),
            created_at=head.created_at,
            updated_at=head.updated_at,
        )

    async def delete(self, stream_id: str) -> None:
        self.heads.pop(stream_id, None)
        self.logs.pop(stream_id, None)
        self._wake()

    def expire(self, stream_id: str, up_to: int) -> None:
        self.logs[stream_id] = [message for message in self.logs[stream_id] if message.sequence > up_to]

    async def idle(self) -> None:
        """Wait until a reader waits for more."""
        self.waiting.clear()
        await self.waiting.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class HandClock:
    def __init__(self, now: float = 1000.0) -> None:
        self.time = now

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


class Run:
    """A writer of one run's records, as a worker writes them."""

    def __init__(self, streams: MemoryStreams, turn: int = 1, session: str = STREAM, stream: str = STREAM) -> None:
        self.streams, self.turn, self.session, self.stream = streams, turn, session, stream
        self.numbers: dict[tuple[Any, ...], int] = {}

    async def start(self) -> None:
        await self.put("run", mark="started")

    async def text(self, text: str, step: int = 1, attempt: int = 1) -> None:
        await self.put("attempt", {"type": "text_delta", "delta": text}, step=step, attempt=attempt)

    async def commit(self, step: int = 1, attempt: int = 1) -> None:
        await self.put("attempt", {"type": "step_committed"}, step=step, attempt=attempt, mark="committed")

    async def end(self, status: str = "completed", **fields: Any) -> None:
        mark = {"failed": "fail", "paused": "paused"}.get(status, "end")
        await self.put("run", mark=mark, status=status, **fields)

    async def put(self, kind: str, *chunks: dict[str, Any], step: int = 0, attempt: int = 0, **fields: Any) -> None:
        writer = (kind, step, attempt, fields.get("call_id"))
        n = self.numbers.get(writer, 0)
        self.numbers[writer] = n + 1
        envelope = {"session_id": self.session, "agent_id": self.session, "run_id": f"run_{self.turn}"}
        record = StreamRecord(
            session_id=self.session,
            run_id=f"run_{self.turn}",
            turn=self.turn,
            kind=kind,
            step=step,
            attempt=attempt,
            n=n,
            time=1000.0 + self.turn,
            chunks=[{**envelope, "step": step, "attempt": attempt, **chunk} for chunk in chunks],
            **fields,
        )
        await self.streams.append(self.stream, [record])
