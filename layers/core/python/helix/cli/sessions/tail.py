"""`helix tail`: a session's run as it is shown where it was started, live."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from helix.cli.options import Json, SessionName
from helix.cli.output import OF_STATUS, STOPPED, RefusedError, say, write, write_json
from helix.cli.run.agents import UNKNOWN, named_agent, place_of
from helix.cli.view.base import Heading, JsonView, View
from helix.cli.view.terminal import TerminalView
from helix.cli.where import Where, with_client
from helix.client import HelixClient
from helix.client.feed import whole_stream
from helix.core.wire import one_run


def tail(
    session: SessionName,
    where: Where,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with later runs, until Ctrl-C")] = False,
    json: Json = False,
) -> int:
    """The exit code is that of the run."""

    async def watch(client: HelixClient) -> int:
        found: dict[str, Any] = dict(await client.ask("get_session", {"session_id": session, "runs": 1}))
        state, runs = found["session"], found["runs"]
        if not runs:
            raise RefusedError(f"session {session!r} has had no run yet: it is a copy (see `helix show {session}`)")
        heading = Heading(named_agent(state["agent_type"]), UNKNOWN, place_of(where), brief=True)
        view: View = JsonView(sys.stdout, heading) if json else TerminalView(sys.stdout, None, heading)
        view.opened(session)
        judge = whole_stream if follow else one_run(session, runs[0]["turn"])
        feed = await client.follow_feed(state["stream_id"], runs[0]["start_sequence"], judge)
        async for message in client.following.read(feed):
            if message.kind == "chunk":
                view.chunk(message.parsed())
        status = (await client.get_session(session)).status
        if json:
            write_json({"type": "result", "session_id": session, "run_id": runs[0]["run_id"], "status": status})
        else:
            write(f"\n{status}")
        return OF_STATUS.get(status, STOPPED)

    try:
        return with_client(where, session, watch)
    except KeyboardInterrupt:
        say("stopped following; the run goes on")
        return STOPPED
