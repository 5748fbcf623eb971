"""`helix chat`: a conversation with an agent in one session.

Law: everything is stored, so the user can leave at any time without losing anything. The full-screen chat needs a terminal
and Textual, which no other command imports. Without them, for example in scripts, the chat prints plain lines.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from helix.cli.chat.plain import converse
from helix.cli.environment import explain_missing_package
from helix.cli.options import InSession, RunOptions
from helix.cli.output import name_session_in_errors, say
from helix.cli.run.partners import Showing, partner_at
from helix.cli.where import Where


def chat(
    options: RunOptions,
    where: Where,
    session: InSession = None,
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines, also where there is a terminal")] = False,
) -> int:
    with name_session_in_errors(session):
        partner = partner_at(where, options, Showing(brief=True), None)
        if not plain and _has_screen():
            try:
                from helix.cli.chat.screen import run_screen
            except ModuleNotFoundError as error:
                say(f"plain lines, because {explain_missing_package(str(error.name))} gives the chat a screen")
            else:
                return run_screen(partner, where, session)
        return converse(partner, where, options.agent, session)


def _has_screen() -> bool:
    """Return whether standard input and output are a terminal with cursor movement."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
