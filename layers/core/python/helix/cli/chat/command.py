"""`helix chat`: an agent, message after message, in one session.

Law: everything is stored; leaving loses nothing. The screen needs a terminal and Textual, which no other command imports;
without them the chat has plain lines, which is what scripts get.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from helix.cli.chat.plain import converse
from helix.cli.environment import not_installed
from helix.cli.options import InSession, RunOptions
from helix.cli.output import naming, say
from helix.cli.run.agents import Showing, partner_at
from helix.cli.where import Where


def chat(
    options: RunOptions,
    where: Where,
    session: InSession = None,
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines, also where there is a terminal")] = False,
) -> int:
    with naming(session):
        partner = partner_at(where, options, Showing(brief=True), None)
        if not plain and _has_screen():
            try:
                from helix.cli.chat.screen import run_screen
            except ModuleNotFoundError as error:
                say(f"plain lines, because {not_installed(str(error.name))} gives the chat a screen")
            else:
                return run_screen(partner, where, session)
        return converse(partner, where, options.agent, session)


def _has_screen() -> bool:
    """A terminal that can move its cursor, on both sides."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
