"""`helix demo`: ask the deployed app one question in the offline cloud, and report what the AWS services recorded about the
run. With `--kill`, workers are killed during the run."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from helix.adapters.system import SystemClock, SystemIds
from helix.cli.cloud.dev import USER, CloudOptions, State, find_root, make_cloud
from helix.cli.cloud.kills import INTRODUCTION, Kills
from helix.cli.options import Model, Project
from helix.cli.output import RefusedError, write
from helix.cli.run.follow import exit_code_of
from helix.cli.run.partners import RemoteAgent, Showing
from helix.cli.where import Where
from helix.local.run_report import lines_of, read_report
from helix.runtime.tables import open_stage

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
    kill: Annotated[
        bool, typer.Option("--kill", help="Kill the worker three times, and say what continued where")
    ] = False,
) -> int:
    """The state is kept separate from that of `helix dev`."""
    with _kills(kill) as kills:
        return _demo(CloudOptions(project, state, model), question or QUESTION, agent, kills)


@contextmanager
def _kills(wanted: bool) -> Iterator[Kills | None]:
    if not wanted:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="helix-kills-") as folder:
        yield Kills(Path(folder))


def _demo(options: CloudOptions, question: str, agent: str | None, kills: Kills | None) -> int:
    root, clock = find_root(options.project), SystemClock()
    variables = kills.variables if kills is not None else {}
    cloud, choice, _ = make_cloud(options, root, {}, aside="demo", port=0, variables=variables)
    if not cloud.agents:
        raise RefusedError("the project registers no agents: see agents of [tool.helix] in pyproject.toml")
    begun = clock.now()
    with cloud:
        key = cloud.create_key(USER, name="helix demo")
        cloud.warm()
        write(f"Helix runs offline on this machine, ready after {clock.now() - begun:.1f} s.\n")
        if kills is not None:
            write(INTRODUCTION)
        session_id, asked = f"{USER}:{SystemIds().new('demo')}", clock.now()
        where, showing = Where(url=cloud.url, key=key), Showing(message=question)
        asking = RemoteAgent(agent or cloud.agents[0], where, showing, choice)
        code = asyncio.run(_ask(asking, question, session_id, kills))
        cloud.wait_until_quiet(QUIET_S)
        if kills is not None:
            write("The run continued after each worker that was killed:\n")
            store = open_stage(cloud.client, f"helix-{cloud.stage}")
            for line in asyncio.run(kills.report(store, session_id)):
                write(f"  {line}" if line else "")
            write()
        write("The APIs of AWS say this about the run:\n")
        for line in lines_of(read_report(cloud, session_id, asked)):
            write(f"  {line}" if line else "")
    return code


async def _ask(asking: RemoteAgent, question: str, session_id: str, kills: Kills | None) -> int:
    async with asking:
        if kills is None:
            return exit_code_of(await asking.send(question, session_id))
        kills.plan(session_id)
        watching = asyncio.create_task(kills.watch(asking.note))
        try:
            return exit_code_of(await asking.send(question, session_id))
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
