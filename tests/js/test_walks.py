"""Random edits, changed answers, stops, approvals and messages during a run. The page always equals the stored history.

The clients are `useChat` 7 and 6 with their own transport over HTTP, and `HelixChatTransport` over WebSocket.
HELIX_EXAMPLES is the number of walks for each (`make torture` plays more), and HELIX_SEED the first seed.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from tests.support.asgi_server import serving
from tests.support.front_ends import JS, install

import helix.http
from helix import Agent, LLMConfig, LocalExecutor, MemoryStateStore, ScriptedModel, tool
from helix.core.messages import AssistantMessage, ToolResultMessage, UserMessage
from helix.core.registry import AgentRegistry
from helix.gateway.loopback import LoopbackGateway

pytestmark = pytest.mark.slow
WALKS = int(os.environ.get("HELIX_EXAMPLES", "3"))
SEED = int(os.environ.get("HELIX_SEED", "1"))
STEPS = 8


@tool(require_approval=True)
async def refund(order: str) -> str:
    """Refund an order."""
    return f"{order} is refunded"


class Gates:
    """Gates for held messages: a tool that reads such a message waits until the message is released."""

    def __init__(self) -> None:
        self._held: dict[str, asyncio.Event] = {}

    async def wait(self, text: str) -> None:
        if text in self._held:
            await self._held[text].wait()

    async def post(self, request: Request) -> Response:
        gate = self._held.setdefault((await request.body()).decode(), asyncio.Event())
        if request.url.path == "/release":
            gate.set()
        return Response()


def model() -> ScriptedModel:
    numbers = count(1)

    async def answer(request: Any) -> dict[str, Any]:
        """Return a new answer each time, so that an old one cannot pass for it."""
        last, number = request.messages[-1], next(numbers)
        said = last.content if isinstance(last, UserMessage) else ""
        for name, given in (("look", {"what": said, "number": number}), ("refund", {"order": f"o{number}"})):
            if said.startswith(name):
                call = {"id": f"call_{number}", "name": name, "arguments": given}
                return {"content": f"Let me {name}. ", "tool_calls": [call], "delta_delay_s": 0.002}
        return {"content": f"This is answer {number} to {said or 'the result'}.", "delta_delay_s": 0.002}

    return ScriptedModel({"desk": [answer]}, repeat=True, delta_chars=6, record=False)


@asynccontextmanager
async def over(wire: str, request: pytest.FixtureRequest) -> AsyncIterator[tuple[LocalExecutor, list[str]]]:
    """Return the executor, and the data about its server that `walk.mjs` needs."""
    gates = Gates()

    @tool
    async def look(what: str, number: int) -> str:
        """Look."""
        await gates.wait(what)
        return f"{number} is there"

    desk = Agent(name="desk", system_prompt="Help.", tools=[look, refund], llm_config=LLMConfig(model="scripted"))
    registry = AgentRegistry()
    registry.register(desk)
    async with LocalExecutor(MemoryStateStore(), model=model(), registry=registry) as executor:
        app = Mount("/agents", helix.http.app(executor, [desk]))
        async with serving(Starlette(routes=[app, Route("/{verb}", gates.post, methods=["POST"])])) as url:
            if wire != "ws":
                yield executor, [url, f"{url}/agents"]
                return
            package: Path = request.getfixturevalue("package")
            async with LoopbackGateway(executor) as gateway:
                yield executor, [url, gateway.url, str(package / "dist")]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("wire", ["7", "6", "ws"])
async def test_the_page_equals_the_stored_history(wire: str, request: pytest.FixtureRequest) -> None:
    await asyncio.to_thread(install)
    async with over(wire, request) as (executor, words):
        node = await asyncio.create_subprocess_exec(
            *(str(JS / "node_modules/.bin/node"), str(JS / "walk.mjs"), wire),
            *map(str, (SEED, WALKS, STEPS)),
            *words,
            stdout=asyncio.subprocess.PIPE,
            limit=2**26,
        )
        assert node.stdout is not None
        walks = 0
        async for line in node.stdout:
            walk, walks = json.loads(line), walks + 1
            wrong = await differences(executor, walk, refuses=wire != "ws")
            assert wrong == [], f"HELIX_SEED={SEED + walks - 1} HELIX_EXAMPLES=1 finds it again\n" + "\n".join(
                [*wrong, *map(str, walk["log"])]
            )
        assert await node.wait() == 0 and walks == WALKS


async def differences(executor: LocalExecutor, walk: Any, *, refuses: bool) -> list[str]:
    allowed = {"agent_already_running", "call_not_pending"} if refuses else set()
    wrong = [f"the page was told {code}" for code in walk["problems"] if code not in allowed]
    stored = await history(executor, walk["id"])
    pages = [("the page", walk["messages"]), ("a page that loads", walk.get("loaded"))]
    for name, messages in pages:
        if messages is None:
            continue
        shown = turns(messages)
        if [turn[0] for turn in shown] != [turn[0] for turn in stored]:
            wrong.append(f"{name} has {shown}\n the history {stored}")
            continue
        cut = [n for n, message in enumerate(messages) if message["id"] in walk["stopped"]]
        cut_turns = {sum(message["role"] == "user" for message in messages[:n]) - 1 for n in cut}
        for n, ((said, answer, calls), (_, kept, results)) in enumerate(zip(shown, stored, strict=True)):
            if n in cut_turns and kept is not None and kept.startswith(answer or ""):
                continue  # the run was faster than the stop
            if kept is not None and (answer != kept or calls != results):
                wrong.append(f"{name}, {said}: shown {answer!r} {calls}, stored {kept!r} {results}")
    return wrong


Turn = tuple[tuple[str, str], str | None, list[tuple[str, str]]]
"""A message of the user (its id and text), its answer, and the calls with their outcomes."""


async def history(executor: LocalExecutor, session_id: str) -> list[Turn]:
    """Return the history. The answer is None if it was stopped or abandoned, because the history lacks its end."""
    if not await executor.sessions.exists(session_id):
        return []
    found: list[Turn] = []
    page = await executor.sessions.get_messages(session_id, limit=1000)
    for message in page.messages:
        if isinstance(message, UserMessage):
            found.append(((str(message.metadata.get("id")), message.content), None, []))
        elif isinstance(message, AssistantMessage):
            said, text, calls = found[-1]
            found[-1] = (said, (text or "") + (message.content or ""), calls)
        else:
            assert isinstance(message, ToolResultMessage)
            found[-1][2].append((message.tool_call_id, message.content if message.success else ""))
    runs = {run.run_id: run for run in (await executor.sessions.list_runs(session_id, limit=1000)).runs}
    ends = [message.run_id for message in page.messages if isinstance(message, AssistantMessage | UserMessage)]
    whole = {run_id for run_id in ends if run_id in runs and runs[run_id].status == "completed"}
    marks: list[bool] = []
    for message in page.messages:
        if isinstance(message, UserMessage):
            marks.append(False)
        elif isinstance(message, AssistantMessage):
            marks[-1] = message.run_id in whole and not message.tool_calls
    return [
        (said, text if is_whole else None, calls) for (said, text, calls), is_whole in zip(found, marks, strict=True)
    ]


def turns(messages: list[Any]) -> list[Turn]:
    found: list[Turn] = []
    for message in messages:
        if message["role"] == "user":
            found.append(((message["id"], "".join(part["text"] for part in message["parts"])), None, []))
            continue
        said, text, calls = found[-1]
        text = (text or "") + "".join(part["text"] for part in message["parts"] if part["type"] == "text")
        for part in message["parts"]:
            if "toolCallId" in part:
                calls.append((part["toolCallId"], str(part.get("output", ""))))
        found[-1] = (said, text, calls)
    return found
