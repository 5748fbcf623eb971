"""Strands: an `Agent` with a `SnapshotSessionManager`, which its own documentation recommends, saving on every message.
It has no SQLite and no DynamoDB storage, so it uses files (`LocalFileStorage`), memory or S3. The model implements
`strands.models.Model` and plays the script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from strands import Agent, tool
from strands.models import Model as StrandsModel
from strands.session import SnapshotSessionManager
from strands.types.exceptions import ConcurrencyException
from work import Refused, Script, main


class Model(StrandsModel):
    def __init__(self, script: Script) -> None:
        self.script = script

    def update_config(self, **model_config: Any) -> None:
        pass

    def get_config(self) -> dict[str, Any]:
        return {"model_id": "bench"}

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("the script has none")

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        results = 0
        for message in messages:
            given = sum("toolResult" in block for block in message["content"])
            if message["role"] == "user":
                results = results + given if given else 0
        yield {"messageStart": {"role": "assistant"}}
        if self.script.streams:
            answer = self.script.ask(results)
            pieces: AsyncIterator[str] = self.script.deltas(answer)
        else:
            answer = await self.script.think(results)
            pieces = _whole(answer.text)
        begun = False
        async for piece in pieces:
            if not begun:
                begun = True
                yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": piece}}}
        if begun:
            yield {"contentBlockStop": {}}
        for call in answer.calls:
            yield {"contentBlockStart": {"start": {"toolUse": {"name": "work", "toolUseId": call.id}}}}
            given = json.dumps({"n": call.n, "branch": call.branch})
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": given}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if answer.calls else "end_turn"}}


async def _whole(text: str) -> AsyncIterator[str]:
    if text:
        yield text


class Strands:
    PACKAGES = ("strands-agents",)

    def __init__(self, place: str, script: Script) -> None:
        self.place, self.script = place, script

    async def open(self) -> None:
        self.model = Model(self.script)
        self.storage = self.open_storage()
        script = self.script

        @tool
        async def work(n: int, branch: int = 0) -> str:
            """Give 1 KB."""
            return await asyncio.to_thread(script.work, n, branch) if script.width > 1 else script.work(n, branch)

        self.work = work

    def open_storage(self) -> Any:
        from strands import storage

        if self.place == "memory":
            return storage.InMemoryStorage()
        if self.place.startswith("http"):
            return storage.S3Storage("strands")
        return storage.LocalFileStorage(self.place)

    def agent(self, session: str) -> Agent:
        manager = SnapshotSessionManager(session, storage=self.storage, save_latest_on="message")
        return Agent(
            model=self.model, tools=[self.work], system_prompt="Work.", session_manager=manager, callback_handler=None
        )

    async def turn(self, session: str, message: str) -> None:
        try:
            await self.agent(session).invoke_async(message)
        except ConcurrencyException as error:
            raise Refused(type(error).__name__) from error

    async def resume(self, session: str) -> None:
        await self.agent(session).invoke_async(None)

    async def stream(self, session: str, message: str) -> AsyncIterator[str]:
        async for event in self.agent(session).stream_async(message):
            if "data" in event:
                yield event["data"]

    async def history(self, session: str) -> list[list[Any]]:
        found: list[list[Any]] = []
        for message in self.agent(session).messages:
            said = "".join(block.get("text", "") for block in message["content"])
            if message["role"] == "assistant":
                calls = [block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block]
                found.append(["assistant", said, calls])
                continue
            results = [block["toolResult"]["toolUseId"] for block in message["content"] if "toolResult" in block]
            found += [["tool", result] for result in results] or [["user", said]]
        return found

    async def close(self) -> None:
        pass


if __name__ == "__main__":
    main(Strands)
