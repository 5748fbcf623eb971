"""`helix run`, `chat`, `resume`, `retry` and `answer`.

Law: everything is stored; leaving loses nothing. A chat asks the questions of a paused run one by one, wherever the agent
runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import astuple, dataclass, replace
from typing import Annotated, Any

import typer

from helix.cli.options import InSession, RunOptions, SessionName
from helix.cli.output import COMPLETED, STOPPED, ask, naming, say, write
from helix.cli.run.agents import Mode, Partner, Result, Showing, partner_at
from helix.cli.run.follow import code_of, confirmations, parse_arguments, parse_data
from helix.cli.view import formats
from helix.cli.view.base import Question
from helix.cli.where import Where
from helix.core.errors import CallerError
from helix.core.handles import Confirmation

LEAVE = frozenset({"/exit", "/quit", "/q"})


def converse(partner: Partner, name: str, session_id: str | None) -> int:
    """The exit code of the last run; 0 if there was none."""
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):  # not on every system
            import readline  # noqa: F401  # gives input() its history and editing
        write(f"{name}: type a message; an empty line or Ctrl-D leaves.\n")
    with asyncio.Runner() as runner:
        runner.run(partner.__aenter__())
        try:
            talk = Chat(runner, partner, session_id)
            code = talk.loop()
        finally:
            runner.run(partner.__aexit__())
    if talk.session_id is not None and code in (COMPLETED, STOPPED):
        write(f"  go on       {partner.hint(talk.session_id)}")
    return code


class Chat:
    def __init__(self, runner: asyncio.Runner, partner: Partner, session_id: str | None) -> None:
        self._runner, self._partner, self.session_id, self._code = runner, partner, session_id, COMPLETED

    def loop(self) -> int:
        """Messages until the end of the input. The answers that a session waits for are asked for first."""
        goes_on = self.session_id is None or self._answer_open(self.session_id)
        while goes_on and (message := self._ask("> ")) and message not in LEAVE:
            goes_on = self._turn(self._partner.send(message, self.session_id))
        return self._code

    def _turn(self, playing: Coroutine[Any, Any, Result]) -> bool:
        """Whether the chat goes on after this run. A paused one is answered first."""
        try:
            result = self._runner.run(playing)
        except CallerError as error:
            say(error)
            return True
        self._code = code_of(result)
        if result is None or result.status == "interrupted":
            return False
        self.session_id = result.session_id
        return result.status != "paused" or self._answer_open(result.session_id)

    def _answer_open(self, session_id: str) -> bool:
        """Answer what the session waits for, if anything. Whether the chat goes on."""
        if not self._runner.run(self._partner.questions(session_id)):
            return self._code != STOPPED
        self._code = STOPPED
        confirmations = self._confirmations(session_id)
        return bool(confirmations) and self._turn(self._partner.answer(session_id, confirmations))

    def _confirmations(self, session_id: str) -> list[Confirmation]:
        """The user's answer to each open question; none at the end of the input."""
        confirmations = []
        for question in self._runner.run(self._partner.questions(session_id)):
            answer = self._answer(question)
            if answer is None:
                return []
            confirmations.append(answer)
        return confirmations

    def _answer(self, question: Question) -> Confirmation | None:
        called = formats.call(question.tool_name, question.arguments)
        if question.kind == "client":
            text = self._ask(f"result of {called}, as JSON or text: ")
            return Confirmation(question.call_id, data=parse_data(text)) if text else None
        verb = "run again" if question.kind == "unknown" else "approve"
        why = f" ({question.reason})" if question.reason else ""
        text = self._ask(f"{verb} {called}{why}? [y/n] ")
        return Confirmation(question.call_id, approved=text.lower() in ("y", "yes")) if text else None

    def _ask(self, prompt: str) -> str:
        """A line, stripped; empty at the end of the input and at Ctrl-C."""
        try:
            return ask(prompt)
        except (EOFError, KeyboardInterrupt):
            write()
            return ""


Calls = list[str] | None


@dataclass(frozen=True, slots=True)
class Answers:
    approve: Annotated[Calls, typer.Option("--approve", metavar="CALL", help="Approve a waiting call")] = None
    deny: Annotated[Calls, typer.Option("--deny", metavar="CALL", help="Deny a waiting call")] = None
    data: Annotated[str | None, typer.Option("--data", help="JSON or text that goes with the answer")] = None
    reason: Annotated[str | None, typer.Option("--reason", help="Why it is denied; the model reads it")] = None


Work = Callable[[Partner], Awaitable[Result]]


def run(
    options: RunOptions,
    where: Where,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="Message to the agent")],
    mode: Mode,
    session: InSession = None,
) -> int:
    asked = Asked(options, where, mode, session, message)
    return asked.play(lambda partner: partner.send(message, session), stored=False)


def chat(options: RunOptions, where: Where, session: InSession = None) -> int:
    with naming(session):
        return converse(partner_at(where, options, Showing(brief=True), None), options.agent, session)


def resume(
    options: RunOptions,
    where: Where,
    session: SessionName,
    answers: Answers,
    mode: Mode,
    message: Annotated[str | None, typer.Option("--message", help="Drop what is pending, and send this")] = None,
    checkpoint: Annotated[str | None, typer.Option("--checkpoint", help="Go back to this checkpoint first")] = None,
) -> int:
    confirmed = confirmations(*astuple(answers), other=message is not None or checkpoint is not None)
    asked = Asked(options, where, mode, session, message)
    if confirmed:
        return asked.play(lambda partner: partner.answer(session, confirmed))
    return asked.play(lambda partner: partner.resume(session, message, checkpoint))


def answer(
    options: RunOptions,
    where: Where,
    session: SessionName,
    call: Annotated[str, typer.Argument(metavar="CALL", help="Id of the call that waits (helix sessions --waiting)")],
    mode: Mode,
    deny: Annotated[bool, typer.Option("--deny", help="Deny the call [default: approve it]")] = False,
    data: Annotated[str | None, typer.Option("--data", help="JSON or text that goes with the answer")] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why it is denied; the model reads it")] = None,
    arguments: Annotated[
        str | None, typer.Option("--arguments", metavar="JSON", help="Approve the call with these arguments instead")
    ] = None,
) -> int:
    given = confirmations(*(([], [call]) if deny else ([call], [])), data, reason, other=False)
    if arguments is not None:
        given = [replace(given[0], arguments=parse_arguments(arguments))]
    return Asked(options, where, mode, session).play(lambda partner: partner.answer(session, given))


def retry(
    options: RunOptions,
    where: Where,
    session: SessionName,
    mode: Mode,
    message: Annotated[str | None, typer.Option("--message", help="Replaces the message that failed")] = None,
    from_start: Annotated[bool, typer.Option("--from-start", help="Repeat the whole run")] = False,
) -> int:
    asked = Asked(options, where, mode, session, message)
    return asked.play(lambda partner: partner.retry(session, message, from_start))


@dataclass(frozen=True, slots=True)
class Asked:
    """A command that acts on a session and follows its run."""

    options: RunOptions
    where: Where
    mode: Mode
    session: str | None
    message: str | None = None

    def play(self, work: Work, *, stored: bool = True) -> int:
        """The exit code of the run. `stored`: the session must exist. While standard output carries JSON, what agents and
        tools print goes to standard error."""
        out = sys.stdout
        with naming(self.session), contextlib.redirect_stdout(sys.stderr if self.mode.json else out):
            showing = Showing(self.mode, out, self.message)
            partner = partner_at(self.where, self.options, showing, self.session if stored else None)

            async def main() -> Result:
                async with partner:
                    return await work(partner)

            try:
                result = asyncio.run(main())
                partner.end(result)
                return code_of(result)
            except BrokenPipeError:  # the reader of the output has gone: the lease was released, the store has the rest
                os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
                return STOPPED
