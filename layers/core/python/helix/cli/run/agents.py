"""The agent that a command runs: in this process, in the workers of a fleet, or in a service (`--url`).

Law: a run of a service is shown as a run here would be. The first Ctrl-C asks it to stop and waits for it; the second
leaves at once, and the run continues in the service.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self, TextIO
from urllib.parse import urlsplit

import typer

from helix.cli.agents import load_agent
from helix.cli.options import Json, RunOptions, settings
from helix.cli.output import RefusedError, say, write
from helix.cli.run import actions
from helix.cli.run.actions import Action
from helix.cli.run.follow import Follower, code_of, on_signals, open_questions
from helix.cli.view.base import Heading, Hints, JsonView, Question, command
from helix.cli.view.terminal import BUDGET, TerminalView
from helix.core.agents import Agent
from helix.core.config import LLMConfig
from helix.core.errors import InvalidInputError, SessionNotFoundError
from helix.core.handles import AgentExecutionHandle, AgentResult, Confirmation
from helix.engine.engine import Settings
from helix.runtime.executor import Executor
from helix.runtime.local import LocalExecutor
from helix.runtime.models import NOT_LANGUAGE_MODELS, ModelChoice, choose_model
from helix.services.session_calls import session_calls

FLEETS_OWN = ModelChoice(None, "the fleet's model")
"""The fleet chooses the model where it is served: this process has other variables, and may have no keys."""


Result = AgentResult[Any] | None
"""Of a run; None if the user did not wait for its end."""


@dataclass(frozen=True, slots=True)
class Mode:
    json: Json = False
    fleet: Annotated[bool, typer.Option("--fleet", help="Workers on the same store run it (helix fleet serve)")] = False


class LocalAgent:
    """Raises `RefusedError` for an agent that cannot be loaded."""

    def __init__(
        self,
        options: RunOptions,
        mode: Mode = Mode(),
        out: TextIO | None = None,
        message: str | None = None,
        *,
        brief: bool = False,
    ) -> None:
        self._db, self._fleet, self._checked = options.db, mode.fleet, False
        self.agent = load_agent(options.agent, settings().agents)
        if mode.fleet and options.model is not None:
            raise RefusedError("--model is for runs of this process; `helix fleet serve --model` sets that of a fleet")
        self.choice = FLEETS_OWN if mode.fleet else choose_model(self.agent, options.model, os.environ)
        db = None if options.db == settings().db else options.db
        self.hints = Hints(options.agent, db, options.model, mode.fleet)
        heading = Heading(self.agent, self.choice, options.db, message, brief)
        out = out or sys.stdout
        self.view = JsonView(out, heading) if mode.json else TerminalView(out, self.hints, heading)

    async def __aenter__(self) -> Self:
        if self._fleet:
            from helix.workers.queued import fleet_executor

            self._executor: Executor = fleet_executor(self._db)
        else:
            lease = Settings(claim_s=settings().lease_s)
            self._executor = LocalExecutor(self._db, model=self.choice.adapter, settings=lease)
        self._follower = Follower(self._executor, self.agent, self.view)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._executor.close()

    async def do(self, action: Action, session_id: str | None) -> Result:
        """Do the action on the session, and show its run."""
        if session_id is not None and self.choice.missing is not None and not self._checked:
            await self._check_model(session_id, self.choice.missing)
        self._checked = True
        return await self._follower.run(action)

    async def send(self, message: str, session_id: str | None) -> Result:
        return await self.do(actions.run(message, session_id), session_id)

    async def answer(self, session_id: str, answers: Sequence[Confirmation]) -> Result:
        return await self.do(actions.answer(session_id, answers), session_id)

    async def questions(self, session_id: str) -> list[Question]:
        return await open_questions(self._executor.sessions.load, session_id)

    def hint(self, session_id: str) -> str:
        return self.hints("chat", "--session", session_id)

    async def _check_model(self, session_id: str, missing: str) -> None:
        """The demonstration model that plays because a key is missing must not continue what a real model began."""
        calls = await session_calls(self._executor.store, session_id, children=True)
        real = next((call.model for call in calls if call.model not in NOT_LANGUAGE_MODELS), None)
        if real is not None:
            raise RefusedError(
                f"session {session_id!r} was begun with model {real!r}, and {missing} is not set: set it, or add "
                "--model demo to continue with the demonstration model"
            )


UNKNOWN = ModelChoice(None)


class RemoteAgent:
    """An agent of a service. key: an API key or another token. choice: the model it calls, if that is
    known here."""

    def __init__(
        self,
        name: str,
        url: str,
        key: str | None = None,
        *,
        json: bool = False,
        message: str | None = None,
        choice: ModelChoice = UNKNOWN,
    ) -> None:
        try:
            _ = urlsplit(url).port
        except ValueError as error:
            raise RefusedError(f"--url is {url!r}: {error}") from None
        self._name, self._url, self._key, self._json, self._message = name, url, key, json, message
        model = LLMConfig(model="its own model")
        agent = Agent[Any, Any](name=name, system_prompt="It has its own.", llm_config=model)  # only its name is known
        heading = Heading(agent, choice, url, message, brief=True)
        self._view = JsonView(sys.stdout, heading) if json else TerminalView(sys.stdout, None, heading)
        self._signals = 0
        self._shown = ""
        self.session_id: str | None = None

    def run(self, session_id: str | None, *, hint: bool = True) -> int:
        """Send the message. The exit code of its run. `hint`: show how to continue."""

        async def main() -> Result:
            async with self:
                return await self.send(self._message or "", session_id)

        result = asyncio.run(main())
        if hint and not self._json and self.session_id is not None:
            asks = result is not None and result.status == "paused" and result.completion_reason != BUDGET
            write(f"  {'answer' if asks else 'go on':<12}{self.hint(self.session_id)}")
        return code_of(result)

    async def __aenter__(self) -> Self:
        from helix.client import ClientSettings, HelixClient  # the extra `client`, which other runs do not need

        self._client = HelixClient(self._url, self._key, settings=ClientSettings())
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    def hint(self, session_id: str) -> str:
        return command("chat", self._name, "--url", self._url, "--session", session_id)

    async def send(self, message: str, session_id: str | None) -> Result:
        try:
            handle = await self._client.run(self._name, message, session_id=session_id)
        except SessionNotFoundError as error:
            prefix = (await self._client.whoami())["prefix"]
            raise InvalidInputError(
                f"you have no session {error.session_id!r}; the id of a new one begins with {prefix!r}"
            ) from error
        return await self._show(handle)

    async def answer(self, session_id: str, confirmations: Sequence[Confirmation]) -> Result:
        result = None
        for answer in confirmations:
            handle = await self._client.answer(
                session_id, answer.tool_call_id, approved=answer.approved, data=answer.data, reason=answer.reason
            )
            if handle.run_id != self._shown:  # the same run still waits for the other answers
                result = await self._show(handle)
        return result

    async def questions(self, session_id: str) -> list[Question]:
        try:
            return await open_questions(self._client.get_session, session_id)
        except SessionNotFoundError:  # a new one, or another user's: the first message shows which
            return []

    async def _show(self, handle: AgentExecutionHandle[Any]) -> Result:
        self.session_id, self._shown = handle.session_id, handle.run_id
        self._view.opened(handle.session_id)
        task = asyncio.current_task()
        assert task is not None
        self._signals, asking = 0, []

        def on_signal() -> None:
            self._signals += 1
            if self._signals == 1:
                self._view.stopping()
                asking.append(asyncio.ensure_future(handle.interrupt("interrupted at the terminal")))
            else:
                task.cancel()

        with on_signals(on_signal, signal.SIGINT):
            try:
                async for chunk in await handle.stream():
                    self._view.chunk(chunk)
                result = await handle.result()
            except asyncio.CancelledError:
                task.uncancel()
                say(f"left; run {handle.run_id} of session {handle.session_id} goes on")
                return None
        self._view.result(result, await self.questions(handle.session_id) if result.status == "paused" else ())
        return result
