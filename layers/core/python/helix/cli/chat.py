"""`helix chat`: one session, message after message, from the keyboard or a pipe.

Law: the store has everything; leaving loses nothing. Questions of a paused run are asked here, one by one, wherever the
agent runs: `Partner` is who is talked to.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from helix.cli import acts, formats
from helix.cli.playing import Options, executor_of, prepare
from helix.cli.questions import open_questions
from helix.cli.refusal import COMPLETED, STOPPED
from helix.cli.stage import Stage, code_of
from helix.cli.views import Question, say
from helix.core.errors import CallerError
from helix.engine.answers import Confirmation
from helix.runtime.executor import Executor
from helix.runtime.handle import AgentResult
from helix.runtime.models import ModelChoice

LEAVE = frozenset({"/exit", "/quit", "/q"})


def chat(options: Options, session_id: str | None) -> int:
    """The exit code of the last run; 0 if there was none."""
    agent, choice, view = prepare(options, sys.stdout, brief=True)
    greet(agent.name)
    with asyncio.Runner() as runner:
        executor = runner.run(_open(options, choice))
        try:
            talk = Chat(runner, _Here(Stage(executor, agent, view)), session_id)
            code = talk.loop()
        finally:
            runner.run(executor.close())
    if talk.session_id is not None and code in (COMPLETED, STOPPED):
        print(f"  go on       {options.hints.chat(talk.session_id)}")
    return code


def greet(name: str) -> None:
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):  # not on every system
            import readline  # noqa: F401  # gives input() its history and editing
        print(f"{name}: type a message; an empty line or Ctrl-D leaves.\n")


async def _open(options: Options, choice: ModelChoice) -> Executor:
    return executor_of(options, choice)


class Partner(Protocol):
    """Who is talked to. `send` and `answer` show the run, and give None if the user did not wait for its end."""

    async def send(self, message: str, session_id: str | None) -> AgentResult[Any] | None: ...

    async def answer(self, session_id: str, answers: Sequence[Confirmation]) -> AgentResult[Any] | None: ...

    async def questions(self, session_id: str) -> list[Question]: ...


class _Here:
    """An agent in this process."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def send(self, message: str, session_id: str | None) -> AgentResult[Any] | None:
        return await self._stage.play(acts.run(message, session_id))

    async def answer(self, session_id: str, answers: Sequence[Confirmation]) -> AgentResult[Any] | None:
        return await self._stage.play(acts.answer(session_id, answers))

    async def questions(self, session_id: str) -> list[Question]:
        return await open_questions(self._stage.executor, session_id)


class Chat:
    def __init__(self, runner: asyncio.Runner, partner: Partner, session_id: str | None) -> None:
        self._runner, self._partner, self.session_id = runner, partner, session_id

    def loop(self) -> int:
        """Messages until the end of the input. A session that waits for answers is asked for them first."""
        code, over, session_id = COMPLETED, False, self.session_id
        if session_id is not None and self._runner.run(self._partner.questions(session_id)):
            if not (answers := self._answers(session_id)):
                return STOPPED
            code, over = self._turn(self._partner.answer(session_id, answers), code)
        while not over and (message := self._ask("> ")) and message not in LEAVE:
            code, over = self._turn(self._partner.send(message, self.session_id), code)
        return code

    def _turn(self, playing: Coroutine[Any, Any, AgentResult[Any] | None], code: int) -> tuple[int, bool]:
        """The exit code so far, which was `code`, and whether that was all."""
        try:
            result = self._play(playing)
            while result is not None and result.status == "paused":
                if not (answers := self._answers(result.session_id)):
                    return STOPPED, True
                result = self._play(self._partner.answer(result.session_id, answers))
        except CallerError as error:
            say(str(error))
            return code, False
        return code_of(result), result is None or result.status == "interrupted"

    def _play(self, playing: Coroutine[Any, Any, AgentResult[Any] | None]) -> AgentResult[Any] | None:
        result = self._runner.run(playing)
        if result is not None:
            self.session_id = result.session_id
        return result

    def _answers(self, session_id: str) -> list[Confirmation]:
        """The user's word on each open question; none at the end of the input."""
        answers = []
        for question in self._runner.run(self._partner.questions(session_id)):
            answer = self._answer(question)
            if answer is None:
                return []
            answers.append(answer)
        return answers

    def _answer(self, question: Question) -> Confirmation | None:
        called = formats.call(question.tool_name, question.arguments)
        if question.kind == "client":
            text = self._ask(f"result of {called}, as JSON or text: ")
            return Confirmation(question.call_id, data=parse_data(text)) if text else None
        verb = "run again" if question.kind == "unknown" else "approve"
        text = self._ask(f"{verb} {called}? [y/n] ")
        return Confirmation(question.call_id, approved=text.lower() in ("y", "yes")) if text else None

    def _ask(self, prompt: str) -> str:
        """A line, stripped; empty at the end of the input and at Ctrl-C."""
        try:
            return input(prompt if sys.stdin.isatty() else "").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return ""


def parse_data(text: str) -> Any:
    """JSON if it is, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
