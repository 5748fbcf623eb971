"""Batches of commands: the commands of concurrent callers go to Redis and back together.

Law: each caller's commands stay in order and together, and each caller gets its own replies. A batch is sent once. If
its replies are lost, it is unknown which commands were executed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

Command = tuple[str | int, ...]
COMMANDS = 200
"""The maximum number of commands in one batch. Further commands go into parallel batches, because a caller waits for
the last reply of its batch."""


class Batches:
    """The batches of one client, `redis`. `at_once`: the limit on concurrent batches, each of which has its own
    connection."""

    def __init__(self, redis: Any, at_once: int) -> None:
        self._redis, self._free = redis, at_once
        self._line: deque[tuple[tuple[Command, ...], asyncio.Future[list[Any]]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._begins = False

    async def send_commands(self, *commands: Command) -> list[Any]:
        """Return a reply for each command. Raises `RedisError` or `OSError` if the server refuses a command or the
        connection is lost."""
        answers: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._line.append((commands, answers))
        self._send_next()
        for answer in await answers:
            if isinstance(answer, Exception):
                raise answer
        return answers.result()

    def _send_next(self) -> None:
        if self._line and self._free and not self._begins:
            self._free, self._begins = self._free - 1, True
            task = asyncio.get_running_loop().create_task(self._send())
            self._tasks.add(task)
            task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._free += 1
        self._send_next()

    async def _send(self) -> None:
        """Send one batch. It starts in the next turn of the event loop, so that all callers in this turn share it."""
        self._begins = False
        batch: list[tuple[tuple[Command, ...], asyncio.Future[list[Any]]]] = []
        count = 0
        while self._line and (not batch or count + len(self._line[0][0]) <= COMMANDS):
            batch.append(self._line.popleft())
            count += len(batch[-1][0])
        self._send_next()  # the rest is sent in parallel
        try:
            async with self._redis.pipeline(transaction=False) as pipe:
                for commands, _ in batch:
                    for command in commands:
                        pipe.execute_command(*command)
                found = iter(await pipe.execute(raise_on_error=False))
            for commands, answers in batch:
                mine = [next(found) for _ in commands]
                if not answers.done():  # its caller was cancelled
                    answers.set_result(mine)
        except Exception as error:
            for _, answers in batch:
                if not answers.done():
                    answers.set_exception(error)
        finally:
            for _, answers in batch:
                answers.cancel()  # when the event loop ends

    async def close(self) -> None:
        """Wait for the batches in flight."""
        if self._tasks:
            await asyncio.wait(self._tasks)
