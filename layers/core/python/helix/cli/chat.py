"""`helix chat`: one session, message after message, from the keyboard or a pipe.

Law: the store has everything; leaving loses nothing. Questions of a paused run are asked here, one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Any

from helix.cli import acts, formats
from helix.cli.playing import Options, executor_of, prepare
from helix.cli.questions import open_questions
from helix.cli.refusal import COMPLETED, STOPPED
from helix.cli.stage import Stage, code_of
from helix.cli.views import Question, say
from helix.core.errors import CallerError
from helix.engine.answers import Confirmation
from helix.runtime.handle import AgentResult
from helix.runtime.local import LocalExecutor
from helix.runtime.models import ModelChoice

LEAVE = frozenset({"/exit", "/quit", "/q"})


def chat(options: Options, session_id: str | None) -> int:
    """The exit code of the last run; 0 if there was none."""
    agent, choice, view = prepare(options, sys.stdout, brief=True)
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):  # not on every system
            import readline  # noqa: F401  # gives input() its history and editing
        print(f"{agent.name}: type a message; an empty line or Ctrl-D leaves.\n")
    with asyncio.Runner() as runner:
        executor = runner.run(_open(options, choice))
        stage = Stage(executor, agent, view)
        try:
            talk = _Chat(runner, stage, session_id)
            code = talk.loop()
        finally:
            runner.run(executor.close())
    if talk.session_id is not None and code in (COMPLETED, STOPPED):
        print(f"  go on       {options.hints.chat(talk.session_id)}")
    return code


async def _open(options: Options, choice: ModelChoice) -> LocalExecutor:
    return executor_of(options, choice)


class _Chat:
    def __init__(self, runner: asyncio.Runner, stage: Stage, session_id: str | None) -> None:
        self._runner, self._stage, self.session_id = runner, stage, session_id

    def loop(self) -> int:
        code = COMPLETED
        while message := self._ask("> "):
            if message in LEAVE:
                break
            try:
                result = self._play(acts.run(message, self.session_id))
            except CallerError as error:
                say(str(error))
                continue
            while result is not None and result.status == "paused":
                answered = self._answers(result.session_id)
                if not answered:
                    return STOPPED
                result = self._play(acts.answer(result.session_id, answered))
            code = code_of(result)
            if result is None or result.status == "interrupted":
                return code
        return code

    def _play(self, act: acts.Act) -> AgentResult[Any] | None:
        result = self._runner.run(self._stage.play(act))
        if result is not None:
            self.session_id = result.session_id
        return result

    def _answers(self, session_id: str) -> list[Confirmation]:
        """The user's word on each open question; none at the end of the input."""
        answers = []
        for question in self._runner.run(open_questions(self._stage.executor, session_id)):
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
