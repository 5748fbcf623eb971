"""`helix demo`: one question through the deployed app, offline, and what AWS's services recorded of the run."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from helix.cli.cloud.dev import USER, CloudOptions, State, find_root, make_cloud
from helix.cli.options import Model, Project
from helix.cli.output import RefusedError, write
from helix.cli.run.agents import RemoteAgent, Showing
from helix.cli.run.follow import code_of
from helix.cli.where import Where
from helix.local.run_report import lines_of, read_report
from helix.runtime.system import SystemClock, SystemIds

QUESTION = "How do I return something that arrived damaged?"
QUIET_S = 10.0


def demo(
    question: Annotated[str, typer.Argument(metavar="MESSAGE", help="Message to the agent")] = "",
    agent: Annotated[
        str | None, typer.Option("--agent", help="Which of the project's agents [default: the first]")
    ] = None,
    model: Model = None,
    project: Project = ".",
    state: State = None,
) -> int:
    """State is kept apart from that of `helix dev`."""
    root, clock = find_root(project), SystemClock()
    cloud, choice, _ = make_cloud(CloudOptions(project, state, model), root, {}, aside="demo", port=0)
    if not cloud.agents:
        raise RefusedError("the project registers no agents: see agents of [tool.helix] in pyproject.toml")
    begun = clock.now()
    with cloud:
        key = cloud.create_key(USER, name="helix demo")
        cloud.warm()
        write(f"Helix runs offline on this machine, ready after {clock.now() - begun:.1f} s.\n")
        session_id, asked = f"{USER}:{SystemIds().new('demo')}", clock.now()
        where, showing = Where(url=cloud.url, key=key), Showing(message=question or QUESTION)
        asking = RemoteAgent(agent or cloud.agents[0], where, showing, choice)
        code = asyncio.run(_ask(asking, question or QUESTION, session_id))
        cloud.wait_until_quiet(QUIET_S)
        write("What the APIs of AWS say about the run:\n")
        for line in lines_of(read_report(cloud, session_id, asked)):
            write(f"  {line}" if line else "")
    return code


async def _ask(asking: RemoteAgent, question: str, session_id: str) -> int:
    async with asking:
        return code_of(await asking.send(question, session_id))
