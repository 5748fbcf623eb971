"""DBOS: a workflow that loops over a model step and tool steps, on SQLite. It has no agents, no sessions and no model.
The loop is code that a user writes, and the model step calls the script. Text goes to a DBOS stream (`write_stream`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from dbos import DBOS, SetWorkflowID
from work import Script, database, main

STREAM = "words"


class Durable:
    PACKAGES = ("dbos",)

    def __init__(self, place: str, script: Script) -> None:
        self.place, self.script = place, script

    async def open(self) -> None:
        config: Any = {
            "name": "bench",
            "system_database_url": f"sqlite:///{database(self.place)}",
            "application_version": "1",
            "run_admin_server": False,
            "log_level": "CRITICAL",
        }
        DBOS(config=config)
        script = self.script

        @DBOS.step()
        async def model(results: int) -> list[Any]:
            if script.streams:
                answer, said = script.ask(results), ""
                async for piece in script.deltas(answer):
                    said += piece
                    await DBOS.write_stream_async(STREAM, piece)
            else:
                answer = await script.think(results)
                said = answer.text
            return ["assistant", said, [[c.id, c.n, c.branch] for c in answer.calls]]

        @DBOS.step()
        async def work(n: int, branch: int) -> str:
            return await asyncio.to_thread(script.work, n, branch) if script.width > 1 else script.work(n, branch)

        @DBOS.workflow()
        async def turn(message: str) -> list[Any]:
            messages: list[Any] = [["user", message]]
            while True:
                answer = await model(sum(m[0] == "tool" for m in messages))
                messages.append(["assistant", answer[1], [call[0] for call in answer[2]]])
                if not answer[2]:
                    return messages
                await asyncio.gather(*(work(n, branch) for _, n, branch in answer[2]))
                messages += [["tool", call[0]] for call in answer[2]]

        self.run = turn
        DBOS.launch()

    async def turn(self, session: str, message: str) -> None:
        with SetWorkflowID(session):
            await self.run(message)

    async def resume(self, session: str) -> None:
        """Wait for the recovery, which `launch` has started."""
        handle: Any = await DBOS.retrieve_workflow_async(session)
        self.found = await handle.get_result()

    async def stream(self, session: str, message: str) -> AsyncIterator[str]:
        with SetWorkflowID(session):
            handle = await DBOS.start_workflow_async(self.run, message)
        wanted = self.script.words
        async for piece in DBOS.read_stream_async(session, STREAM):
            yield piece
            wanted -= 1
            if not wanted:
                break
        await handle.get_result()

    async def history(self, session: str) -> list[list[Any]]:
        return self.found

    async def close(self) -> None:
        DBOS.destroy()


if __name__ == "__main__":
    main(Durable)
