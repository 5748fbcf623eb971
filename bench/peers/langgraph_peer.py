"""LangGraph: a `StateGraph` of a model and a tool node, one task per call (`Send`), with a checkpointer and
`durability="sync"`, which saves a step before the next begins. The model is a plain node that plays the script. To
stream text, it writes to the graph's stream writer (`stream_mode="custom"`)."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send
from work import Script, database, main


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class LangGraph:
    PACKAGES = ("langgraph", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-aws")

    def __init__(self, place: str, script: Script) -> None:
        self.place, self.script = place, script
        self.saver_context: Any = None
        self.app_here: Any = None
        self.lock = threading.Lock()

    async def open(self) -> None:
        self.app = self.graph(self.model, self.tool).compile(checkpointer=await self.saver())

    def graph(self, model: Any, tool: Any) -> Any:
        graph = StateGraph(State)
        graph.add_node("model", model)
        graph.add_node("tool", tool)
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", self.calls, ["tool", END])
        graph.add_edge("tool", "model")
        return graph

    async def saver(self) -> Any:
        if self.place == "memory":
            from langgraph.checkpoint.memory import InMemorySaver

            return InMemorySaver()
        if self.place.startswith("http"):
            from langgraph_checkpoint_aws import DynamoDBSaver

            return DynamoDBSaver("checkpoints")
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        self.saver_context = AsyncSqliteSaver.from_conn_string(str(database(self.place)))
        return await self.saver_context.__aenter__()

    async def model(self, state: State) -> dict[str, Any]:
        results = 0
        for message in state["messages"]:
            results = 0 if message.type == "human" else results + (message.type == "tool")
        if self.script.streams:
            answer, write, said = self.script.ask(results), get_stream_writer(), ""
            async for piece in self.script.deltas(answer):
                said += piece
                write(piece)
        else:
            answer = await self.script.think(results)
            said = answer.text
        calls = [{"id": c.id, "name": "work", "args": {"n": c.n, "branch": c.branch}} for c in answer.calls]
        return {"messages": [AIMessage(said, tool_calls=calls)]}

    @staticmethod
    def calls(state: State) -> Any:
        return [Send("tool", call) for call in state["messages"][-1].tool_calls] or END  # type: ignore[union-attr]

    async def tool(self, call: dict[str, Any]) -> dict[str, Any]:
        work = self.script.work
        result = await asyncio.to_thread(work, **call["args"]) if self.script.width > 1 else work(**call["args"])
        return {"messages": [ToolMessage(result, tool_call_id=call["id"])]}

    def config(self, session: str) -> Any:
        return {"configurable": {"thread_id": session}, "recursion_limit": 100_000}

    async def turn(self, session: str, message: str) -> None:
        await self.app.ainvoke({"messages": [HumanMessage(message)]}, self.config(session), durability="sync")

    def turn_here(self, session: str, message: str) -> None:
        """The synchronous interface, in this thread."""
        if self.app_here is None:
            with self.lock:
                self.app_here = self.app_here or self.graph(self.model_here, self.work_here).compile(
                    checkpointer=self.saver_here()
                )
        self.app_here.invoke({"messages": [HumanMessage(message)]}, self.config(session), durability="sync")

    def saver_here(self) -> Any:
        if self.place == "memory":
            from langgraph.checkpoint.memory import InMemorySaver

            return InMemorySaver()
        from langgraph.checkpoint.sqlite import SqliteSaver

        return SqliteSaver(sqlite3.connect(database(self.place), check_same_thread=False))

    def model_here(self, state: State) -> dict[str, Any]:
        answer = self.script.ask(sum(message.type == "tool" for message in state["messages"]))
        time.sleep(self.script.pause_s)
        calls = [{"id": c.id, "name": "work", "args": {"n": c.n, "branch": c.branch}} for c in answer.calls]
        return {"messages": [AIMessage(answer.text, tool_calls=calls)]}

    def work_here(self, call: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [ToolMessage(self.script.work(**call["args"]), tool_call_id=call["id"])]}

    async def resume(self, session: str) -> None:
        await self.app.ainvoke(None, self.config(session), durability="sync")

    async def stream(self, session: str, message: str) -> AsyncIterator[str]:
        given = {"messages": [HumanMessage(message)]}
        async for piece in self.app.astream(given, self.config(session), stream_mode="custom", durability="sync"):
            yield piece

    async def history(self, session: str) -> list[list[Any]]:
        state = await self.app.aget_state(self.config(session))
        found: list[list[Any]] = []
        for message in state.values.get("messages", []):
            match message.type:
                case "human":
                    found.append(["user", message.content])
                case "ai":
                    found.append(["assistant", message.content, [call["id"] for call in message.tool_calls]])
                case "tool":
                    found.append(["tool", message.tool_call_id])
        return found

    async def close(self) -> None:
        if self.saver_context is not None:
            await self.saver_context.__aexit__(None, None, None)


if __name__ == "__main__":
    main(LangGraph)
