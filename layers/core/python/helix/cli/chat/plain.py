"""A line-by-line chat for pipes, simple terminals and `--plain`.

Law: it asks for the answers that a paused run needs one by one, wherever the agent runs. In a pipe, every line except the
commands that leave the chat is a message, because only a person types commands.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Coroutine
from typing import Any

from helix.cli.chat import commands
from helix.cli.output import COMPLETED, STOPPED, RefusedError, ask, say, write
from helix.cli.run.follow import describe_answer, exit_code_of, parse_answer, parse_data
from helix.cli.run.partners import Partner, Result
from helix.cli.view import formats
from helix.cli.view.base import Question
from helix.cli.where import Where, link_to
from helix.client import HelixClient
from helix.core.errors import CallerError
from helix.core.handles import Confirmation


def converse(partner: Partner, where: Where, name: str, session_id: str | None) -> int:
    """Chat until the user leaves. Return the exit code of the last run, or 0 if there was none."""
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):  # not available on every system
            import readline  # noqa: F401  # gives input() its history and editing
        write(f"{name}: type a message, or /help; an empty line or Ctrl-D leaves.\n")
    with asyncio.Runner() as runner:
        runner.run(partner.__aenter__())
        talk = Chat(runner, partner, where, session_id)
        try:
            code = talk.loop()
        finally:
            runner.run(talk.close())
            runner.run(partner.__aexit__())
    if talk.session_id is not None and code in (COMPLETED, STOPPED):
        write(f"  go on       {partner.hint(talk.session_id)}")
    return code


class Chat:
    def __init__(self, runner: asyncio.Runner, partner: Partner, where: Where, session_id: str | None) -> None:
        self._runner, self._partner, self._where = runner, partner, where
        self.session_id, self._code = session_id, COMPLETED
        self._commands = commands.Commands(partner.name)
        self._client: HelixClient | None = None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _read_outcome(self, line: str) -> commands.Outcome:
        if self._client is None:
            self._client = await HelixClient.over(link_to(self._where)).__aenter__()
        return await self._commands.execute(self._client, line, self.session_id)

    def loop(self) -> int:
        """Ask for the answers that the session is waiting for, then send messages until the end of the input."""
        goes_on = self.session_id is None or self._answer_questions(self.session_id)
        while goes_on and (message := self._ask("> ")) and message not in commands.LEAVE:
            if message.startswith("/") and sys.stdin.isatty():
                goes_on = self._execute_command(message)
            else:
                goes_on = self._follow_turn(self._partner.send(message, self.session_id))
        return self._code

    def _execute_command(self, line: str) -> bool:
        """Execute a command. Return whether the chat continues."""

        try:
            outcome = self._runner.run(self._read_outcome(line))
            if isinstance(outcome, commands.ShowTable):
                self._print(outcome)
            if isinstance(outcome, commands.ChooseRow):
                chosen = self._ask(f"which? [1-{len(outcome.rows)}] ")
                if not chosen.isdecimal() or not 0 < int(chosen) <= len(outcome.rows):
                    return True
                outcome = self._runner.run(outcome.take(int(chosen) - 1))
        except (CallerError, RefusedError) as error:
            say(error)
            return True
        match outcome:
            case commands.OpenSession(session_id):
                self.session_id = session_id
                write(f"  session {session_id}" if session_id is not None else "  a new session")
                return session_id is None or self._answer_questions(session_id)
            case commands.SendMessage(text, files) if text or files:
                return self._follow_turn(self._partner.send([*([text] if text else []), *files], self.session_id))
            case commands.SendMessage():
                say(RefusedError("no run works: /steer needs a message"))
            case commands.ReturnText(text):
                write(f"  withdrawn   {text}")
            case commands.ContinueRun("resume") if self.session_id is not None:
                return self._follow_turn(self._partner.resume(self.session_id, None, None))
            case commands.ContinueRun() if self.session_id is not None:
                return self._follow_turn(self._partner.retry(self.session_id, None, False))
        return True

    def _print(self, shown: commands.ShowTable) -> None:
        if isinstance(shown, commands.ChooseRow):
            rows = [[str(number), *row] for number, row in enumerate(shown.rows, 1)]
            formats.print_table(["", *shown.columns], rows, right=shown.right, last="ellipsis")
        else:
            formats.print_table(shown.columns, shown.rows, right=shown.right)
        if shown.note:
            write(shown.note)

    def _follow_turn(self, playing: Coroutine[Any, Any, Result]) -> bool:
        """Wait for a run. If it pauses, ask for the answers. Return whether the chat continues."""
        try:
            result = self._runner.run(playing)
        except CallerError as error:
            say(error)
            return True
        self._code = exit_code_of(result)
        if result is None or result.status == "interrupted":
            return False
        self.session_id = result.session_id
        return result.status != "paused" or self._answer_questions(result.session_id)

    def _answer_questions(self, session_id: str) -> bool:
        """Ask for the answers that the session is waiting for, and submit them. Return whether the chat continues."""
        questions = self._runner.run(self._partner.questions(session_id))
        if not questions:
            return self._code != STOPPED
        self._code = STOPPED
        if all(question.kind == "elsewhere" for question in questions):
            write("The session waits for another system, and goes on by itself.")
            return False
        confirmations = self._ask_confirmations(session_id)
        return bool(confirmations) and self._follow_turn(self._partner.answer(session_id, confirmations))

    def _ask_confirmations(self, session_id: str) -> list[Confirmation]:
        """Ask for the user's answer to each open question. Return an empty list at the end of the input."""
        confirmations = []
        for question in self._runner.run(self._partner.questions(session_id)):
            if question.kind == "elsewhere":
                continue
            answer = self._ask_confirmation(question)
            if answer is None:
                return []
            confirmations.append(answer)
        return confirmations

    def _ask_confirmation(self, question: Question) -> Confirmation | None:
        called = formats.call(question.tool_name, question.arguments)
        if question.kind == "question":
            return self._ask_questions(question)
        if question.kind == "client":
            text = self._ask(f"result of {called}, as JSON or text: ")
            return Confirmation(question.call_id, data=parse_data(text)) if text else None
        verb = "run again" if question.kind == "unknown" else "approve"
        why = f" ({question.reason})" if question.reason else ""
        text = self._ask(f"{verb} {called}{why}? [y/n] ")
        return Confirmation(question.call_id, approved=text.lower() in ("y", "yes")) if text else None

    def _ask_questions(self, question: Question) -> Confirmation | None:
        """Ask the questions of a tool, each until the answer fits."""
        answers = []
        for asked in question.questions:
            wanted = describe_answer(asked).replace("\n", "\n  ")
            write(f"{asked.text}{f' ({asked.problem})' if asked.problem else ''}{f'  {wanted}' if wanted else ''}")
            while text := self._ask("answer: "):
                try:
                    answers.append(parse_answer(asked, text))
                    break
                except RefusedError as error:
                    say(error)
            else:
                return None
        data = answers[0] if len(answers) == 1 else answers
        return Confirmation(question.call_id, data=data, round=question.round)

    def _ask(self, prompt: str) -> str:
        """Read a line from the user and strip it. Return an empty string at the end of the input or on Ctrl-C."""
        try:
            return ask(prompt)
        except (EOFError, KeyboardInterrupt):
            write()
            return ""
