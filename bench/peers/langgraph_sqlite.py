"""Helix beside LangGraph's SQLite checkpointer: the same tool loop, no model time, in one run.

    python -m venv .peers && .peers/bin/pip install langgraph langgraph-checkpoint-sqlite -e .
    .peers/bin/python bench/peers/langgraph_sqlite.py      prints the table and saves it to bench/results/peers.md

Both run a loop of one model answer and one tool call with a 1 KB result, saved to a SQLite file after each step,
LangGraph with `durability="sync"`, which is what Helix always does: a step is saved before the next begins. What is not
alike: Helix also writes a replayable stream and a ledger row per tool call.
"""

from __future__ import annotations

import asyncio
import platform
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from helix import Agent, LLMConfig, LocalExecutor, tool
from helix.core.steps import AnyStepResult, ParsedToolCall, TextStepResult, ToolCallsStepResult
from helix.ports.model import LLMGenerateInput

MARKS = (10, 50, 100, 200, 400)
TOTAL = MARKS[-1] + 6
RESULT = "x" * 1024


class Sample:
    """When the model was asked, and how large the file then was."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked: list[float] = []
        self.sizes: list[int] = []

    def note(self) -> int:
        self.asked.append(time.perf_counter())
        files = [self.path, self.path.with_name(self.path.name + "-wal")]
        self.sizes.append(sum(f.stat().st_size for f in files if f.exists()))
        return len(self.asked)

    def row(self, mark: int) -> tuple[float, float]:
        """Median ms per step around the mark, and KB in the file per step so far."""
        times = [(b - a) * 1000 for a, b in pairwise(self.asked)]
        return statistics.median(times[mark - 6 : mark + 5]), self.sizes[mark] / mark / 1024


@tool
async def work(n: int) -> str:
    """Give 1 KB."""
    return RESULT


async def run_helix(path: Path) -> Sample:
    sample = Sample(path)

    class Instant:
        async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
            n = sample.note()
            if n > TOTAL:
                return TextStepResult(content="done")
            return ToolCallsStepResult(tool_calls=[ParsedToolCall(id=f"call_{n}", name="work", arguments={"n": n})])

    agent = Agent(
        name="bench", system_prompt="Work.", tools=[work], llm_config=LLMConfig(model="instant/none"), max_steps=None
    )
    async with LocalExecutor(path, model=Instant()) as executor:
        assert (await (await executor.execute(agent, "go")).result()).status == "completed"
    return sample


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


async def run_langgraph(path: Path) -> Sample:
    sample = Sample(path)

    def model(state: State) -> dict[str, Any]:
        n = sample.note()
        if n > TOTAL:
            return {"messages": [AIMessage("done")]}
        call = {"id": f"call_{n}", "name": "work", "args": {"n": n}}
        return {"messages": [AIMessage("", tool_calls=[call])]}

    def tools(state: State) -> dict[str, Any]:
        call = state["messages"][-1].tool_calls[0]  # type: ignore[union-attr]
        return {"messages": [ToolMessage(RESULT, tool_call_id=call["id"])]}

    graph = StateGraph(State)
    graph.add_node("model", model)
    graph.add_node("tools", tools)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda s: "tools" if s["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "model")
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        app = graph.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 10 * TOTAL}
        await app.ainvoke({"messages": [HumanMessage("go")]}, config, durability="sync")
    return sample


async def main() -> None:
    lines = [
        "# Helix beside LangGraph + SQLite, one tool call of 1 KB per step",
        "",
        f"Python {platform.python_version()}, {platform.machine()}; `python bench/peers/langgraph_sqlite.py`.",
        "",
        "| step | Helix, ms | LangGraph, ms | ratio | Helix, KB a step | LangGraph, KB a step | ratio |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        ours = await run_helix(Path(folder) / "helix.db")
        theirs = await run_langgraph(Path(folder) / "langgraph.db")
    for mark in MARKS:
        (ms, kb), (other_ms, other_kb) = ours.row(mark), theirs.row(mark)
        speed, bytes_ = other_ms / ms, other_kb / kb
        lines.append(f"| {mark} | {ms:.1f} | {other_ms:.1f} | {speed:.1f} | {kb:.1f} | {other_kb:.1f} | {bytes_:.1f} |")
    table = "\n".join(lines) + "\n"
    print(table)
    (Path(__file__).parents[1] / "results" / "peers.md").write_text(table)


if __name__ == "__main__":
    asyncio.run(main())
