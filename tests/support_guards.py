"""Guards that count their verdicts, tools that they judge, and one run with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from tests.support_run import agent, chunks_of

from helix import Allow, Guard, LocalExecutor, MemoryStateStore, ScriptedModel, ToolContext, tool
from helix.adapters.models.scripted import Entry
from helix.core.chunks import StreamChunk
from helix.core.entries import AssistantRow, CallRow
from helix.core.guards import GuardContext, GuardFunction
from helix.core.handles import AgentResult
from helix.core.verdicts import AnyVerdict
from helix.testing.invariants import read_tree

ASKED: Counter[tuple[str, str]] = Counter()
"""How often each guard was asked, by its name and the call's id or the value."""
DONE: list[str] = []
"""What the tools did."""


def says(verdict: AnyVerdict, when: str = "", name: str = "guard") -> GuardFunction:
    """Return a guard function that gives the verdict about values that contain `when`, and allows others."""

    def function(value: Any, context: GuardContext) -> AnyVerdict:
        ASKED[name, context.call_id or str(value)] += 1
        return verdict if when in str(value) else Allow()

    return function


@tool
async def send(to: str, ctx: ToolContext[Any]) -> str:
    """Send a letter."""
    DONE.append(f"sent to {to}")
    return f"sent to {to}"


@tool(require_approval=True)
async def pay(amount: int, ctx: ToolContext[Any]) -> str:
    """Pay."""
    DONE.append(f"paid {amount}")
    return f"paid {amount}"


class Report(BaseModel):
    text: str


def call(name: str, /, ident: str = "c1", **arguments: Any) -> dict[str, Any]:
    return {"id": ident, "name": name, "arguments": arguments}


@dataclass
class Played:
    """A session after a run."""

    workers: LocalExecutor
    model: ScriptedModel
    agent: Any
    result: AgentResult[Any]
    chunks: list[StreamChunk]

    async def rows(self) -> list[Any]:
        (tree, *_) = await read_tree(self.workers.store, "s")
        assert tree.session is not None
        return list(tree.history(tree.session.lineage, tree.session.count))

    async def calls(self) -> list[CallRow]:
        return [row for row in await self.rows() if isinstance(row, CallRow)]

    async def answers(self) -> list[AssistantRow]:
        return [row for row in await self.rows() if isinstance(row, AssistantRow)]

    async def more(self, message: str) -> AgentResult[Any]:
        return await (await self.workers.execute(self.agent, message, session_id="s")).result(timeout_s=20)


async def play(script: Sequence[Entry], guards: Sequence[Guard], message: str = "begin", **fields: Any) -> Played:
    """Run an agent with these guards. The agent has the tools `send` and `pay`."""
    fields.setdefault("tools", [send, pay])
    who = agent(guards=guards, **fields)
    model = ScriptedModel(list(script))
    workers = LocalExecutor(MemoryStateStore(), model=model)
    handle = await workers.execute(who, message, session_id="s")
    chunks = await chunks_of(handle)
    return Played(workers, model, who, await handle.result(timeout_s=20), chunks)
