"""`helix tail`: show a session's run live, with the same view as the command that started it."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

import typer

from helix.cli.options import Json, SessionName
from helix.cli.output import OF_STATUS, STOPPED, RefusedError, say, write, write_json
from helix.cli.run.partners import UNKNOWN, place_of
from helix.cli.view.base import Heading, JsonView, View
from helix.cli.view.terminal import TerminalView
from helix.cli.where import Where, named_agent, with_client
from helix.client import HelixClient
from helix.client.feed import Feed, whole_stream
from helix.core.errors import DamagedRowError, HelixError
from helix.core.wire import one_run

WAIT_S = 15.0
"""The number of seconds without a chunk after which the stream of an ended run is considered damaged."""


def tail(
    session: SessionName,
    where: Where,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with later runs, until Ctrl-C")] = False,
    json: Json = False,
) -> int:
    """The exit code is that of the run."""

    try:
        return with_client(where, session, lambda client: watch(client, where, session, follow=follow, json=json))
    except KeyboardInterrupt:
        say("stopped following; the run goes on")
        return STOPPED


async def watch(client: HelixClient, where: Where, session: str, *, follow: bool, json: bool) -> int:
    """Show the session's last run, and with `follow` also later ones. Return the exit code."""
    found: dict[str, Any] = dict(await client.ask("get_session", {"session_id": session, "runs": 1}))
    state, runs = found["session"], found["runs"]
    if not runs:
        raise RefusedError(f"session {session!r} has had no run yet: it is a copy (see `helix show {session}`)")
    heading = Heading(named_agent(state["agent_type"]), UNKNOWN, place_of(where), brief=True)
    view: View = JsonView(sys.stdout, heading) if json else TerminalView(sys.stdout, None, heading)
    view.opened(session)
    judge = whole_stream if follow else one_run(session, runs[0]["turn"])
    feed = await client.follow_feed(state["stream_id"], runs[0]["start_sequence"], judge)
    looking = asyncio.ensure_future(_fail_unended(client, feed, session)) if not follow else None
    try:
        async for message in client.following.read(feed):
            if message.kind == "chunk":
                view.chunk(message.parsed())
    finally:
        if looking is not None:
            looking.cancel()
    status = (await client.get_session(session)).status
    if json:
        write_json({"type": "result", "session_id": session, "run_id": runs[0]["run_id"], "status": status})
    else:
        write(f"\n{status}")
    return OF_STATUS.get(status, STOPPED)


async def _fail_unended(client: HelixClient, feed: Feed, session: str) -> None:
    """Fail the feed if the run has ended but the end never appears on its stream. The end may arrive after the run's
    row."""
    try:
        while not feed.done:
            position = feed.position
            await asyncio.sleep(WAIT_S)
            if feed.position == position and (await client.get_session(session)).status != "running":
                raise DamagedRowError(
                    f"stream {feed.stream_id!r} ends at message {position}, before the end of the last run of session "
                    f"{session!r}: rows of it are missing"
                )
    except HelixError as error:
        feed.fail(error)
