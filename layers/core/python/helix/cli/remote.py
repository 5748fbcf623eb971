"""`--url`: talking to agents that run elsewhere, over their WebSocket API.

Law: what is shown is what would be shown of a run here. The first Ctrl-C asks the run to stop and waits for it; the second
leaves at once, and the run goes on over there.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from helix.cli.chat import Chat, greet
from helix.cli.closing import BUDGET
from helix.cli.hints import program
from helix.cli.refusal import COMPLETED, STOPPED, RefusedError
from helix.cli.render import TerminalView
from helix.cli.stage import code_of
from helix.cli.views import Heading, JsonView, Question, View, say
from helix.client import ClientSettings, HelixClient, RunHandle
from helix.core.agents import Agent
from helix.core.chunks import StreamChunk, ToolApprovalRequestChunk
from helix.core.config import LLMConfig
from helix.core.errors import InvalidInputError, SessionNotFoundError
from helix.core.rows import Pending
from helix.engine.answers import Confirmation
from helix.runtime.handle import AgentResult
from helix.runtime.models import ModelChoice

UNKNOWN = ModelChoice(None)
PENDING = TypeAdapter(list[Pending])


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """agent: its name over there. key: an API key or another token. json: JSON lines on standard output. choice: the
    model that plays over there, if that is known here.
    """

    agent: str
    url: str
    key: str | None = None
    json: bool = False
    choice: ModelChoice = UNKNOWN

    def chat_hint(self, session_id: str) -> str:
        return f"{program()} chat {self.agent} --url {self.url} --session {session_id}"


def run(options: RemoteOptions, message: str, session_id: str | None, *, hint: bool = True) -> int:
    """One message. The exit code of its run. `hint`: say how to go on."""
    with asyncio.Runner() as runner:
        partner = _There(options, _view(options, message))
        runner.run(partner.open())
        try:
            result = runner.run(partner.send(message, session_id))
        finally:
            runner.run(partner.close())
    if hint and not options.json and partner.session_id is not None:
        asks = result is not None and result.status == "paused" and result.completion_reason != BUDGET
        what = "answer" if asks else "go on"
        print(f"  {what:<12}{options.chat_hint(partner.session_id)}")
    return code_of(result)


def chat(options: RemoteOptions, session_id: str | None) -> int:
    """The exit code of the last run; 0 if there was none."""
    greet(options.agent)
    with asyncio.Runner() as runner:
        partner = _There(options, _view(options, None))
        runner.run(partner.open())
        try:
            talk = Chat(runner, partner, session_id)
            code = talk.loop()
        finally:
            runner.run(partner.close())
    if talk.session_id is not None and code in (COMPLETED, STOPPED):
        print(f"  go on       {options.chat_hint(talk.session_id)}")
    return code


def refuse_local(**options: object) -> None:
    """Options about the store and the model of this process mean nothing with `--url`."""
    if given := [f"--{name}" for name, value in options.items() if value is not None]:
        raise RefusedError(f"{given[0]} is about agents that run here; with --url the service has its own")


def _view(options: RemoteOptions, message: str | None) -> View:
    """All that is known here of an agent over there is its name."""
    model = LLMConfig(model="its own model")
    named = Agent[Any, Any](name=options.agent, system_prompt="It has its own.", llm_config=model)
    heading = Heading(named, options.choice, options.url, message, brief=True)
    if options.json:
        return JsonView(sys.stdout, heading)
    return TerminalView(sys.stdout, None, heading)


class _There:
    """Implements `Partner` with a client."""

    def __init__(self, options: RemoteOptions, view: View) -> None:
        self._options, self._view = options, view
        self._client = HelixClient(options.url, options.key, settings=ClientSettings())
        self._asked: dict[str, Question] = {}
        self._signals = 0
        self._shown = ""
        self.session_id: str | None = None

    async def open(self) -> None:
        await self._client.__aenter__()

    async def close(self) -> None:
        await self._client.close()

    async def send(self, message: str, session_id: str | None) -> AgentResult[Any] | None:
        self._asked.clear()
        try:
            handle = await self._client.run(self._options.agent, message, session_id=session_id)
        except SessionNotFoundError as error:
            prefix = (await self._client.whoami())["prefix"]
            raise InvalidInputError(
                f"there is no session {error.session_id!r} of yours; a new one's id begins with {prefix!r}"
            ) from error
        return await self._show(handle)

    async def answer(self, session_id: str, answers: Sequence[Confirmation]) -> AgentResult[Any] | None:
        result = None
        for word in answers:
            handle = await self._client.answer(
                session_id, word.tool_call_id, approved=word.approved, data=word.data, reason=word.reason
            )
            self._asked.pop(word.tool_call_id, None)
            if handle.run_id != self._shown:  # it waits for the other answers still
                result = await self._show(handle)
        return result

    async def questions(self, session_id: str) -> list[Question]:
        if self._shown == "":
            await self._recall(session_id)
        return list(self._asked.values())

    async def _recall(self, session_id: str) -> None:
        """What the session waits for since before: its run's stream has the questions, its state the open ones."""
        try:
            waiting = await self._waiting(session_id)
        except SessionNotFoundError:  # a new one, or somebody else's: the first message tells
            return
        if waiting:
            async for chunk in await (await self._client.handle(session_id)).stream():
                self._note(chunk)
        self._asked = {call_id: asked for call_id, asked in self._asked.items() if call_id in waiting}

    async def _waiting(self, session_id: str) -> set[str]:
        """Ids of the calls that wait for a person, in sub-agents too."""
        found: set[str] = set()
        state = await self._client.get_session(session_id)
        for pending in PENDING.validate_python(state["pending"]):
            child = pending.child_session_id
            found |= {pending.call_id} if child is None else await self._waiting(child)
        return found

    async def _show(self, handle: RunHandle) -> AgentResult[Any] | None:
        self.session_id, self._shown = handle.session_id, handle.run_id
        self._view.opened(handle.session_id)
        task = asyncio.current_task()
        with self._interruptible(handle):
            try:
                async for chunk in await handle.stream():
                    self._note(chunk)
                    self._view.chunk(chunk)
                found = await handle.result()
            except asyncio.CancelledError:
                if task is not None:
                    task.uncancel()
                say(f"left; run {handle.run_id} of session {handle.session_id} goes on")
                return None
        result: AgentResult[Any] = AgentResult[Any](**found.model_dump())
        self._view.result(result, await self.questions(handle.session_id) if result.status == "paused" else ())
        return result

    def _note(self, chunk: StreamChunk) -> None:
        """What waits for a person, in sub-agents too."""
        if isinstance(chunk, ToolApprovalRequestChunk):
            asked = Question(chunk.tool_call_id, chunk.tool_name, chunk.kind, chunk.input, chunk.agent_type)
            self._asked[chunk.tool_call_id] = asked

    @contextlib.contextmanager
    def _interruptible(self, handle: RunHandle) -> Iterator[None]:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        asking: list[asyncio.Task[bool]] = []
        self._signals = 0

        def on_signal() -> None:
            self._signals += 1
            if self._signals == 1:
                self._view.stopping()
                asking.append(loop.create_task(handle.interrupt("interrupted at the terminal")))
            elif task is not None:
                task.cancel()

        try:
            loop.add_signal_handler(signal.SIGINT, on_signal)
        except (NotImplementedError, RuntimeError, ValueError):  # not on this system, or not the main thread
            yield
            return
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)
