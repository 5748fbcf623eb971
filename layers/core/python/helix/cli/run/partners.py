"""The agent that a command runs: in this process, in the workers of a fleet, or in a service (`--url`, `--stage`).

Law: a run in a service is shown in the same way as a run in this process. The first Ctrl-C interrupts it and waits for its
end. The second exits immediately, and the run continues in the service.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self, TextIO

import typer

from helix.cli.agent_lookup import load_agent
from helix.cli.options import Json, RunOptions, settings
from helix.cli.output import RefusedError, say, write
from helix.cli.run import actions
from helix.cli.run.actions import Action
from helix.cli.run.follow import Follower, on_signals, open_questions
from helix.cli.stores import require_session
from helix.cli.view.base import Heading, Hints, JsonView, Question, command
from helix.cli.view.terminal import TerminalView
from helix.cli.where import Where, link_to, named_agent
from helix.client import HelixClient
from helix.core.conversation.items import BUDGET
from helix.core.errors import CannotResumeError, InvalidInputError, SessionNotFoundError
from helix.core.files import Content
from helix.core.handles import AgentExecutionHandle, AgentResult, Confirmation, ResumeMode, RetryMode
from helix.core.inbox import WhenRunning
from helix.core.registry import AgentRegistry
from helix.engine.engine import Settings
from helix.ports.state_store import StateStore
from helix.runtime.executor import Executor
from helix.runtime.local import LocalExecutor
from helix.runtime.models import NOT_LANGUAGE_MODELS, ModelChoice, choose_model
from helix.services.claim_input import check_session_id
from helix.services.session_calls import session_calls

FLEETS_OWN = ModelChoice(None, "the fleet's model")
"""The model for a fleet's agents. The process that serves the fleet chooses it, because this process has different
environment variables and may lack the keys."""


Result = AgentResult[Any] | None
"""The result of a run. None if the user did not wait for its end."""


@dataclass(frozen=True, slots=True)
class Mode:
    """Options for commands that show a run."""

    json: Json = False
    """Whether to print JSON lines, for programs."""
    fleet: Annotated[
        bool, typer.Option("--fleet", help="Let the workers of `helix fleet serve` on this store run it")
    ] = False
    """Whether the worker processes of a fleet that uses this store execute the run, instead of this process."""


@dataclass(frozen=True, slots=True)
class Showing:
    """The options that determine how a command shows its runs."""

    mode: Mode = Mode()
    """The options of the command line."""
    out: TextIO | None = None
    """The file that the run is written to. None: standard output."""
    message: str | None = None
    """The user's message, which is shown above the run. None: no message is shown."""
    brief: bool = False
    """Whether the run is one of many, as in a chat. If so, the view does not show how to continue after each run."""


class LocalAgent:
    """An agent on this machine. Raises `RefusedError` if it cannot be loaded."""

    def __init__(self, db: str, options: RunOptions, showing: Showing = Showing()) -> None:
        mode = showing.mode
        self.db, self._fleet, self._checked = db, mode.fleet, set[str]()
        self.agent = load_agent(options.agent, settings().agents)
        self.choice = FLEETS_OWN if mode.fleet else choose_model(self.agent, options.model, os.environ)
        self.hints = Hints(options.agent, None if db == settings().db else db, options.model, mode.fleet)
        heading = Heading(self.agent, self.choice, db, showing.message, showing.brief)
        out = showing.out or sys.stdout
        self.view = JsonView(out, heading) if mode.json else TerminalView(out, self.hints, heading)

    @property
    def name(self) -> str:
        """The agent's own name, as recorded in its sessions."""
        return self.agent.name

    async def __aenter__(self) -> Self:
        if self._fleet:
            from helix.workers.queued import fleet_executor

            self._executor: Executor = fleet_executor(self.db)
        else:
            self._executor = self.executor()
        self._follower = Follower(self._executor, self.agent, self.view)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._executor.close()

    def executor(self, registry: AgentRegistry | None = None) -> LocalExecutor:
        """Create an executor in this process, with the chosen model. `registry` is passed to `LocalExecutor`."""
        lease = Settings(claim_s=settings().lease_s)
        return LocalExecutor(self.db, model=self.choice.adapter, settings=lease, registry=registry)

    async def do(self, action: Action, session_id: str | None) -> Result:
        """Execute the action on the session, and show its run."""
        await self.check_model(self._executor.store, session_id)
        return await self._follower.run(action)

    async def send(self, message: Content, session_id: str | None, when_running: WhenRunning | None = None) -> Result:
        return await self.do(actions.run(message, session_id, when_running), session_id)

    async def answer(self, session_id: str, answers: Sequence[Confirmation]) -> Result:
        return await self.do(actions.answer(session_id, answers), session_id)

    async def resume(self, session_id: str, message: str | None, checkpoint_id: str | None) -> Result:
        return await self.do(actions.resume(session_id, message, checkpoint_id), session_id)

    async def retry(self, session_id: str, message: str | None, from_start: bool) -> Result:
        return await self.do(actions.retry(session_id, message, from_start), session_id)

    def end(self, result: Result) -> None:
        """Do nothing, because the view of the command's last run has already shown how to continue."""

    async def questions(self, session_id: str) -> list[Question]:
        return await open_questions(self._executor.sessions.load, session_id)

    def hint(self, session_id: str) -> str:
        """Return the command that continues the session."""
        return self.hints("chat", "--session", session_id)

    async def check_model(self, store: StateStore, session_id: str | None) -> None:
        """Raise `RefusedError` if the demonstration model, used only because a key is missing, would continue a session
        that a real model began."""
        missing = self.choice.missing
        if session_id is not None and missing is not None and session_id not in self._checked:
            check_session_id(session_id)
            calls = await session_calls(store, session_id, children=True)
            real = next((call.model for call in calls if call.model not in NOT_LANGUAGE_MODELS), None)
            if real is not None:
                raise RefusedError(
                    f"session {session_id!r} was started with model {real!r}, and {missing} is not set: set it, or add "
                    "--model demo to continue with the demonstration model"
                )
            self._checked.add(session_id)


UNKNOWN = ModelChoice(None)


def place_of(where: Where) -> str:
    return where.url or (f"stage {where.stage}" if where.stage else where.db)


class RemoteAgent:
    """An agent in a service. `choice` is the model that it calls, if this process knows it."""

    def __init__(self, name: str, where: Where, showing: Showing = Showing(), choice: ModelChoice = UNKNOWN) -> None:
        self.name, self._where, self._showing = name, where, showing
        heading = Heading(named_agent(name), choice, place_of(where), showing.message, brief=True)
        out = showing.out or sys.stdout
        self._view = JsonView(out, heading) if showing.mode.json else TerminalView(out, None, heading)
        self._signals = 0
        self._shown = ""
        self.session_id: str | None = None

    async def __aenter__(self) -> Self:
        self._client = HelixClient.over(link_to(self._where))
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    def end(self, result: Result) -> None:
        """Show how to continue after a command's last run."""
        if not self._showing.mode.json and self.session_id is not None:
            asks = result is not None and result.status == "paused" and result.completion_reason != BUDGET
            write(f"  {'answer' if asks else 'go on':<12}{self.hint(self.session_id)}")

    def hint(self, session_id: str) -> str:
        """Return the command that continues the session."""
        return command("chat", self.name, *self._where.words(), "--session", session_id)

    async def send(self, message: Content, session_id: str | None, when_running: WhenRunning | None = None) -> Result:
        given: dict[str, Any] = {} if when_running is None else {"when_running": when_running}
        try:
            handle = await self._client.run(self.name, message, session_id=session_id, **given)
        except SessionNotFoundError as error:
            if self._where.url is None:
                raise
            prefix = (await self._client.whoami())["prefix"]
            raise InvalidInputError(
                f"you have no session {error.session_id!r}; the id of a new one begins with {prefix!r}"
            ) from error
        return await self._show(handle)

    async def resume(self, session_id: str, message: str | None, checkpoint_id: str | None) -> Result:
        await self._check_agent(session_id)
        mode: ResumeMode = "from_checkpoint" if checkpoint_id is not None else "with_message"
        given: dict[str, Any] = {"message": message, "checkpoint_id": checkpoint_id}
        if message is None and checkpoint_id is None:
            mode = "continue"
        try:
            return await self._show(await self._client.resume(session_id, mode=mode, **given))
        except CannotResumeError as error:
            if error.reason != "pending_confirmation":
                raise
            raise actions.unanswered_error(session_id, await self.questions(session_id)) from None

    async def retry(self, session_id: str, message: str | None, from_start: bool) -> Result:
        await self._check_agent(session_id)
        mode: RetryMode = "from_start" if from_start else "from_checkpoint"
        return await self._show(await self._client.retry(session_id, mode=mode, message=message))

    async def answer(self, session_id: str, confirmations: Sequence[Confirmation]) -> Result:
        await self._check_agent(session_id)
        result = None
        for answer in confirmations:
            given: dict[str, Any] = {"approved": answer.approved, "data": answer.data, "reason": answer.reason}
            given |= {"arguments": answer.arguments, "round": answer.round}
            handle = await self._client.answer(session_id, answer.tool_call_id, **given)
            if handle.run_id != self._shown:  # otherwise the same run is still waiting for the other answers
                result = await self._show(handle)
        return result

    async def questions(self, session_id: str) -> list[Question]:
        try:
            return await open_questions(self._client.get_session, session_id)
        except SessionNotFoundError:  # a new session or another user's; the first message shows which
            return []

    async def _check_agent(self, session_id: str) -> None:
        state = await self._client.get_session(session_id)
        if state.agent_type != self.name:
            raise RefusedError(f"session {session_id!r} is of agent {state.agent_type!r}, not of {self.name!r}")

    def note(self, text: str) -> None:
        """Show a line from the caller between the lines of the run."""
        if isinstance(self._view, TerminalView):
            self._view.note(text)

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


Partner = LocalAgent | RemoteAgent
"""An agent and the place where its sessions are stored. Each method acts on a session and shows the run to its end."""


def partner_at(where: Where, options: RunOptions, showing: Showing, stored: str | None) -> Partner:
    """Return the partner for the agent and the place that a command names. `stored` is a session that must exist.

    Raises `RefusedError` for options that do not fit the place, and for an agent that cannot be loaded.
    """
    if where.here and showing.mode.fleet and options.model is not None:
        raise RefusedError("--model is for runs of this process; `helix fleet serve --model` sets that of a fleet")
    if where.here:
        require_session(where.db, stored)
        return LocalAgent(where.db, options, showing)
    for name, given in {"--model": options.model is not None, "--fleet": showing.mode.fleet}.items():
        if given:
            raise RefusedError(
                f"{name} is for agents that run on this machine; with {where.option} the service uses its own setting"
            )
    return RemoteAgent(options.agent, where, showing)
