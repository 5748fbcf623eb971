"""`helix`: run agents in the terminal, look at their sessions, and go on with them.

Exit codes: 0 completed, 3 failed, 4 paused or interrupted, 2 refused (with one line on standard error).
Law: a command is its options and one call. What is slow to import is imported by the command that needs it.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from helix._version import __version__
from helix.cli.fleet import fleet as fleet_commands
from helix.cli.refusal import ERROR, REFUSED, STOPPED, RefusedError, one_line
from helix.core.errors import HelixError, SessionNotFoundError
from helix.runtime.settings import ProcessSettings, read_settings

if TYPE_CHECKING:
    from helix.cli.playing import Options

app = typer.Typer(
    help="Durable, streaming AI agents in the terminal.",
    epilog="AGENT is module:name, path/file.py:name, or a registered name: of an agent in the modules and files that "
    "HELIX_AGENTS lists, or agents under tool.helix in pyproject.toml.",
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(fleet_commands, name="fleet")

AgentName = Annotated[str, typer.Argument(metavar="AGENT", help="module:name, path/file.py:name, or a registered name")]
SessionName = Annotated[str, typer.Argument(metavar="SESSION", help="Id of the session")]
Model = Annotated[
    str | None,
    typer.Option("--model", "-m", help="Any litellm name, for all agents; `demo` is the demonstration model"),
]
Db = Annotated[str | None, typer.Option("--db", help="SQLite file of the sessions [default: HELIX_DB, or helix.db]")]
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="WSS", help="Of a deployed service: the agent runs there, by its registered name"),
]
ApiKey = Annotated[str | None, typer.Option("--key", envvar="HELIX_KEY", help="API key or token for --url")]
Stage = Annotated[str, typer.Option("--stage", help="Part of the names of all resources")]
Profile = Annotated[str | None, typer.Option("--profile", help="Of the AWS configuration")]
Region = Annotated[str | None, typer.Option("--region", help="AWS region")]
Context = Annotated[
    list[str] | None,
    typer.Option("--context", "-c", metavar="KEY=VALUE", help="A setting of the deployment (docs/guide/deploy.md)"),
]
ProjectFolder = Annotated[str, typer.Option("--project", help="A folder in the project: at or below its cdk.json")]
State = Annotated[str | None, typer.Option("--state", help="Where sessions are kept [default: .helix in the project]")]
Fleet = Annotated[bool, typer.Option("--fleet", help="Workers on the same store execute it (see helix fleet serve)")]
Json = Annotated[bool, typer.Option("--json", help="JSON lines on standard output")]


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Show the version")] = False
) -> None:
    if version:
        print(f"helix {__version__}")
        raise typer.Exit(0)
    if context.invoked_subcommand is None:
        print(context.get_help())


# --- commands that run an agent -----------------------------------------------------------------------------------


@app.command()
def run(
    agent: AgentName,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="What the agent is to do")],
    session: Annotated[
        str | None, typer.Option("--session", "-s", help="Go on in this session, or name a new one")
    ] = None,
    model: Model = None,
    db: Db = None,
    json: Json = False,
    fleet: Fleet = False,
    url: Url = None,
    key: ApiKey = None,
) -> int:
    """Run an agent on a message and show what it does."""
    if url is not None:
        from helix.cli import remote

        remote.refuse_local(model=model, db=db)
        return remote.run(remote.RemoteOptions(agent, url, key, json), message, session)
    from helix.cli import acts, playing

    return playing.play(_options(agent, db, model, json, fleet), acts.run(message, session), message=message)


@app.command()
def chat(
    agent: AgentName,
    session: Annotated[
        str | None, typer.Option("--session", "-s", help="Go on in this session, or name a new one")
    ] = None,
    model: Model = None,
    db: Db = None,
    url: Url = None,
    key: ApiKey = None,
) -> int:
    """Talk to an agent, message after message, in one session."""
    if url is not None:
        from helix.cli import remote

        remote.refuse_local(model=model, db=db)
        return remote.chat(remote.RemoteOptions(agent, url, key), session)
    from helix.cli.chat import chat

    return chat(_options(agent, db, model), session)


@app.command()
def resume(
    agent: AgentName,
    session: SessionName,
    message: Annotated[str | None, typer.Option("--message", help="Drop what is pending and go on with this")] = None,
    checkpoint: Annotated[str | None, typer.Option("--checkpoint", help="Go back to this checkpoint first")] = None,
    approve: Annotated[
        list[str] | None, typer.Option("--approve", metavar="CALL", help="Approve a waiting call")
    ] = None,
    deny: Annotated[list[str] | None, typer.Option("--deny", metavar="CALL", help="Deny a waiting call")] = None,
    data: Annotated[str | None, typer.Option("--data", help="JSON or text that goes with the answer")] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why it is denied; the model reads it")] = None,
    model: Model = None,
    db: Db = None,
    json: Json = False,
    fleet: Fleet = False,
) -> int:
    """Go on with an interrupted, paused or crashed session."""
    from helix.cli import acts, answering, playing

    answers = answering.confirmations(approve, deny, data, reason, other=message is not None or checkpoint is not None)
    act = acts.answer(session, answers) if answers else acts.resume(session, message, checkpoint)
    return playing.play(_options(agent, db, model, json, fleet), act, session_id=session, message=message)


@app.command()
def retry(
    agent: AgentName,
    session: SessionName,
    message: Annotated[str | None, typer.Option("--message", help="Replaces the message that failed")] = None,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Repeat the whole run, not only what is missing")
    ] = False,
    model: Model = None,
    db: Db = None,
    json: Json = False,
    fleet: Fleet = False,
) -> int:
    """Try a failed session again, from its last checkpoint."""
    from helix.cli import acts, playing

    act = acts.retry(session, message, from_start)
    return playing.play(_options(agent, db, model, json, fleet), act, session_id=session, message=message)


# --- commands about sessions --------------------------------------------------------------------------------------


@app.command()
def sessions(
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many, newest first")] = 20,
    user: Annotated[str | None, typer.Option("--user", help="Those of this user id")] = None,
    db: Db = None,
    json: Json = False,
) -> int:
    """List sessions."""
    from helix.cli import looking

    return looking.sessions(_db(db), limit, user, json)


@app.command()
def show(session: SessionName, db: Db = None, json: Json = False) -> int:
    """Show a session: its messages, runs, checkpoints and state."""
    from helix.cli import looking

    return looking.show(_db(db), session, json)


@app.command()
def cost(
    session: SessionName,
    db: Db = None,
    stage: Annotated[str | None, typer.Option("--stage", help="Of this deployed stage, by its tables")] = None,
    url: Annotated[str | None, typer.Option("--url", metavar="WS", help="Of `helix dev` on this machine")] = None,
    profile: Profile = None,
    region: Region = None,
    json: Json = False,
) -> int:
    """Explain what a session cost, line by line."""
    from helix.cli import cost as costs
    from helix.cli.places import Place

    return costs.cost(Place(_db(db), stage, profile, region), session, url, json)


@app.command()
def interrupt(
    session: SessionName,
    reason: Annotated[str | None, typer.Option("--reason", help="Kept with the run")] = None,
    db: Db = None,
) -> int:
    """Ask a running session to stop; `resume` goes on."""
    from helix.cli import keeping

    return keeping.interrupt(_db(db), session, reason)


@app.command()
def branch(
    session: SessionName,
    checkpoint: Annotated[str | None, typer.Option("--checkpoint", help="From here [default: its latest]")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="SESSION", help="Id of the new session")] = None,
    db: Db = None,
) -> int:
    """Make a new session from another's checkpoint, and print its id."""
    from helix.cli import keeping

    return keeping.branch(_db(db), session, checkpoint, to)


@app.command()
def clone(
    session: SessionName,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Id of the new session")],
    checkpoint: Annotated[str | None, typer.Option("--checkpoint", help="Up to this checkpoint")] = None,
    messages: Annotated[int | None, typer.Option("--messages", min=0, help="Only the first messages")] = None,
    db: Db = None,
) -> int:
    """Copy a session, or its beginning, to a new id."""
    from helix.cli import keeping

    return keeping.clone(_db(db), session, target, checkpoint, messages)


@app.command()
def delete(session: SessionName, db: Db = None) -> int:
    """Delete a session, its sub-agents' sessions and its stream."""
    from helix.cli import keeping

    return keeping.delete(_db(db), session)


# --- the deployed app ---------------------------------------------------------------------------------------------


@app.command()
def dev(
    port: Annotated[
        int, typer.Option("--port", help="Where the offline cloud listens, on 127.0.0.1; 0 for a free one")
    ] = 4566,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Any litellm name, for all agents; `demo` is the demonstration model"),
    ] = None,
    stage: Stage = "dev",
    context: Context = None,
    project: ProjectFolder = ".",
    state: State = None,
    auth: Annotated[bool, typer.Option("--auth/--no-auth", help="Enforce IAM")] = True,
    watch: Annotated[bool, typer.Option("--watch/--no-watch", help="Reload what changes")] = True,
    logs: Annotated[str, typer.Option("--logs", help="`text` or `json`")] = "text",
) -> int:
    """Run the deployed app on this machine, without an account, until Ctrl-C."""
    from pathlib import Path

    from helix.cli import dev as offline

    _settings()
    given = {"stage": stage, **offline.pairs(context)}
    folder = None if state is None else Path(state)
    return offline.dev(
        offline.DevOptions(Path(project), folder, port, model, given, auth, watch, offline.log_format(logs))
    )


@app.command()
def demo(
    question: Annotated[str, typer.Argument(metavar="MESSAGE", help="What the agent is asked")] = "",
    agent: Annotated[
        str | None, typer.Option("--agent", help="Which of the project's agents [default: the first]")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="Any litellm name, for all agents")] = None,
    project: ProjectFolder = ".",
    state: State = None,
) -> int:
    """Ask an agent of the project, in the offline cloud, and tell what the run left in it."""
    from pathlib import Path

    from helix.cli import demo as telling
    from helix.cli.dev import DevOptions

    _settings()
    folder = None if state is None else Path(state)
    return telling.demo(DevOptions(Path(project), folder, port=0, model=model), agent, question)


@app.command()
def deploy(
    stage: Stage = "dev",
    profile: Profile = None,
    region: Region = None,
    context: Context = None,
    project: ProjectFolder = ".",
    user: Annotated[str, typer.Option("--user", help="Whose the first API key is")] = "admin",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before rights are widened")] = False,
) -> int:
    """Deploy the project with CDK, and print where it is and a first API key."""
    from helix.cli import deploy as deploying

    _settings()
    return deploying.deploy(deploying.options(stage, profile, region, context, project), user, yes)


@app.command()
def destroy(
    stage: Stage = "dev",
    profile: Profile = None,
    region: Region = None,
    context: Context = None,
    project: ProjectFolder = ".",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False,
) -> int:
    """Delete a deployed stage, with its sessions unless its settings retain them."""
    from helix.cli import deploy as deploying

    _settings()
    return deploying.destroy(deploying.options(stage, profile, region, context, project), yes)


# --- inside -------------------------------------------------------------------------------------------------------


def _settings() -> ProcessSettings:
    settings = read_settings(os.environ)
    logging.basicConfig(stream=sys.stderr, level=settings.log, format="%(levelname)s %(name)s: %(message)s")
    return settings


def _options(agent: str, db: str | None, model: str | None, json: bool = False, fleet: bool = False) -> Options:
    from helix.cli.playing import Options

    return Options(agent, _settings(), db, model, json, fleet)


def _db(db: str | None) -> str:
    return db or _settings().db


def invoke(arguments: Sequence[str] | None = None) -> int:
    """The exit code of the command line `arguments` (default: the process's own)."""
    try:
        code: Any = app(args=None if arguments is None else list(arguments), prog_name="helix", standalone_mode=False)
    except SessionNotFoundError as error:
        return _refuse(f"there is no session {error.session_id!r} in this store (see --db, and `helix sessions`)")
    except (RefusedError, HelixError) as error:
        return _refuse(str(error))
    except (typer.Abort, KeyboardInterrupt):
        return STOPPED
    except Exception as error:
        if not hasattr(error, "format_message"):  # a mistake in the command line says itself what it is
            raise
        context = getattr(error, "ctx", None)
        return _refuse(f"{error.format_message()} (try: {context.command_path if context else 'helix'} --help)")
    return code if isinstance(code, int) else 0


def _refuse(message: str) -> int:
    print(f"helix: {one_line(message)}", file=sys.stderr)
    return REFUSED


def main() -> None:
    """The console script."""
    try:
        code = invoke()
    except Exception:
        logging.getLogger("helix.cli").exception("this should not happen; please report it")
        code = ERROR
    gc.freeze()  # the interpreter would collect, on its way out, what a model library leaves: a second for nothing
    sys.exit(code)
