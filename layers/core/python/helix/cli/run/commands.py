"""The commands `helix run`, `resume`, `retry` and `answer`.

Law: everything is stored, so the user can leave at any time without losing anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from helix.cli.options import InSession, RunOptions, SessionName
from helix.cli.output import STOPPED, name_session_in_errors
from helix.cli.run.follow import confirmations, exit_code_of, parse_arguments
from helix.cli.run.partners import Mode, Partner, Result, Showing, partner_at
from helix.cli.where import Where
from helix.core.files import Content
from helix.core.inbox import WhenRunning

Calls = list[str] | None


@dataclass(frozen=True, slots=True)
class Answers:
    """Options for `helix resume` that answer waiting calls."""

    approve: Annotated[Calls, typer.Option("--approve", metavar="CALL", help="Approve a waiting call")] = None
    """The ids of the calls to approve."""
    deny: Annotated[Calls, typer.Option("--deny", metavar="CALL", help="Deny a waiting call")] = None
    """The ids of the calls to deny."""
    data: Annotated[str | None, typer.Option("--data", help="JSON or text that goes with the answer")] = None
    """The data for all these answers: parsed JSON if possible, otherwise a string. How it is used depends on the call (see
    `Confirmation.data`)."""
    reason: Annotated[str | None, typer.Option("--reason", help="Why it is denied; the model reads it")] = None
    """The reason for the denials. The model reads it."""


Work = Callable[[Partner], Awaitable[Result]]


def run(
    options: RunOptions,
    where: Where,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="Message to the agent")],
    mode: Mode,
    session: InSession = None,
    attach: Annotated[
        list[Path] | None, typer.Option("--attach", metavar="FILE", help="Send this file with the message")
    ] = None,
    when_running: Annotated[
        WhenRunning | None,
        typer.Option("--when-running", help="The action if the session is running [default: wait until it ends]"),
    ] = None,
) -> int:
    asked = Asked(options, where, mode, session, message)
    content: Content = [message, *attach] if attach else message
    return asked.play(lambda partner: partner.send(content, session, when_running), stored=False)


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
    """The agent and the model."""
    where: Where
    """The place where the sessions are stored."""
    mode: Mode
    """The options for executing and showing the run."""
    session: str | None
    """The session to act on. None: a new session with a new id."""
    message: str | None = None
    """The user's message, which is shown above the run. None if the command does not send one."""

    def play(self, work: Work, *, stored: bool = True) -> int:
        """Execute the command and return the exit code of its run. `stored`: whether the session must exist.

        If standard output is JSON, everything that agents and tools print goes to standard error.
        """
        out = sys.stdout
        with name_session_in_errors(self.session), contextlib.redirect_stdout(sys.stderr if self.mode.json else out):
            showing = Showing(self.mode, out, self.message)
            partner = partner_at(self.where, self.options, showing, self.session if stored else None)

            async def main() -> Result:
                async with partner:
                    return await work(partner)

            try:
                result = asyncio.run(main())
                partner.end(result)
                return exit_code_of(result)
            except BrokenPipeError:  # the reader is gone, but the lease is released and the rows are stored
                os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
                return STOPPED
