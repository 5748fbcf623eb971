"""`helix`: run agents in the terminal, inspect their sessions, and continue them.

Exit codes: 0 completed, 1 a bug in Helix, 2 refused, 3 failed, 4 paused or interrupted, 130 ended by Ctrl-C without a run.
With codes 1 and 2, one line on standard error gives the reason.
Law: this module only lists the commands. A command's own module is imported when the command is called.
"""

from __future__ import annotations

import gc
import io
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from helix._version import __version__
from helix.cli.environment import explain_missing_package, load_environment
from helix.cli.options import Commands, settings
from helix.cli.output import ERROR, REFUSED, STOPPED, RefusedError, say, set_up_log, write
from helix.core.errors import HelixError, SessionNotFoundError


class Fleet(Commands):
    table: ClassVar = {
        "status": ("fleet.commands", "Show agents: what runs, what waits, their limits and their health."),
        "scale": ("fleet.commands", "Set how many runs of an agent may run at once. Running work is not stopped."),
        "stop": (
            "fleet.commands",
            "Stop accepting runs (new ones wait) and interrupt running ones. `start` continues.",
        ),
        "start": ("fleet.commands", "Accept runs of a stopped agent again. Waiting runs start in order."),
        "restart": (
            "fleet.commands",
            "Restart an agent's worker processes with the current code. The new ones take over its runs.",
        ),
        "health": ("fleet.commands", "Show the last result of each health check. Exit code 3 if one is unhealthy."),
        "history": (
            "fleet.commands",
            "Show an agent's scaling decisions with their reasons, and when its processes started and ended.",
        ),
        "budgets": ("fleet.commands", "Show budgets and what is used of them."),
        "set-budget": (
            "fleet.commands",
            "Limit what is spent in a period, in total or by an agent, tenant or session.",
        ),
        "remove-budget": ("fleet.commands", "Remove a budget."),
        "alerts": ("fleet.commands", "Show the alerts that budgets raised."),
        "serve": ("fleet.serve", "Serve agents with worker processes on this machine, until Ctrl-C."),
    }


class Keys(Commands):
    table: ClassVar = {
        "create": ("keys", "Create an API key for a user. It is shown once."),
        "list": ("keys", "List keys with their users and dates. The keys themselves are not stored."),
        "revoke": ("keys", "Revoke a key. New connections with it are refused."),
    }


class Calls(Commands):
    table: ClassVar = {
        "complete": ("calls", "End a call that waits for another system, with its result."),
        "fail": ("calls", "End a call that waits for another system, with an error for the model."),
        "heartbeat": ("calls", "Say that another system still works on a call."),
    }


class Helix(Commands):
    table: ClassVar = {
        "init": ("init.commands", "Create a project, or add what is missing to an existing one."),
        "run": ("run.commands", "Run an agent on a message and show what it does."),
        "chat": ("chat.command", "Talk to an agent in one session, message after message."),
        "resume": ("run.commands", "Continue an interrupted, paused or crashed session."),
        "retry": ("run.commands", "Retry a failed session from its last checkpoint."),
        "answer": ("run.commands", "Approve or deny a call that waits, and follow the run as it continues."),
        "calls": (Calls, "Calls that wait for another system: report a result, a failure or a heartbeat."),
        "sessions": ("sessions.listing", "List sessions, or with --waiting the calls that wait for an answer."),
        "show": ("sessions.page", "Show a session: its messages, runs, checkpoints and state."),
        "compare": ("sessions.compare", "Compare two runs or sessions: answers, steps, cost and state."),
        "tail": ("sessions.tail", "Follow a session's run live, from its beginning to its end."),
        "cost": ("sessions.cost", "Show what a session cost, line by line."),
        "logs": ("sessions.logs", "Show the log lines of a session."),
        "interrupt": ("sessions.commands", "Ask a running session to stop. `resume` continues it."),
        "abort": ("sessions.commands", "End a session's run for good. A new message can continue the session."),
        "compact": ("sessions.commands", "Ask for a summary of a session's conversation, which its next step makes."),
        "rename": ("sessions.commands", "Give a session a title, or with an empty one remove it."),
        "branch": ("sessions.commands", "Create a session from another session's checkpoint, and print its id."),
        "clone": ("sessions.commands", "Copy a session, or its first messages, to a new id."),
        "delete": ("sessions.commands", "Delete a session, its sub-agents' sessions and its stream."),
        "export": ("sessions.files", "Write a session with its sub-agents' sessions and its stream to a file."),
        "import": ("sessions.files", "Import the session of an exported file, under the same id."),
        "forget": ("sessions.forget", "Delete all that is stored of a user, and verify that nothing is left."),
        "mcp": ("mcp", "Serve agents as tools of the Model Context Protocol, to programs of this machine."),
        "keys": (Keys, "API keys of a stage: create, list, revoke."),
        "console": ("console", "Open sessions and agents in the browser: chat, timeline, state, cost, until Ctrl-C."),
        "client": ("client", "Show how to install the TypeScript client, or write its package with --pack."),
        "dev": ("cloud.dev", "Run the deployed app on this machine, without an AWS account, until Ctrl-C."),
        "demo": ("cloud.demo", "Run an agent once in the offline app, and show what it used of AWS."),
        "deploy": ("cloud.deploy", "Deploy the project with CDK, and print its URL and a first API key."),
        "check": ("cloud.check", "Check a deployed stage, or the tools and settings of an agent, and print a report."),
        "destroy": ("cloud.destroy", "Delete a deployed stage with its sessions, unless its settings retain them."),
        "fleet": (Fleet, "Agents as a service: instances, limits, budgets, health and history."),
    }


app = typer.Typer(
    cls=Helix,
    help="Run, deploy and operate durable AI agents.",
    epilog="AGENT is module:name, path/file.py:name, or a registered name. HELIX_AGENTS, or agents under tool.helix in "
    "pyproject.toml, lists the modules and files whose agents have registered names.",
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Show the version")] = False
) -> None:
    if version:
        write(f"helix {__version__}")
        raise typer.Exit(0)
    if context.invoked_subcommand is None:
        write(context.get_help())
    else:
        load_environment(Path.cwd())
        set_up_log(settings().log)


def invoke(arguments: Sequence[str] | None = None) -> int:
    """Execute the command line `arguments` (by default the process's own), and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        "".join(given).encode()
        code: Any = app(args=given, prog_name="helix", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except (typer.Abort, KeyboardInterrupt):
        return STOPPED
    except SessionNotFoundError as error:
        message = f"there is no session {error.session_id!r} here (see --db, --url and --stage, and `helix sessions`)"
    except HelixError as error:
        cause = error.__cause__
        message = f"{error}: {cause}" if error.code == "run_stopped" and cause is not None else str(error)
    except ModuleNotFoundError as error:
        if not error.name or error.name.partition(".")[0] == "helix":
            return _report_defect(error)
        message = explain_missing_package(error.name)
    except UnicodeEncodeError as error:
        message = f"an argument of the command line is not UTF-8: {error.object!r}"
    except (RefusedError, OSError) as error:
        message = str(error)
    except Exception as error:
        if not hasattr(error, "format_message"):
            return _report_defect(error)
        context = getattr(error, "ctx", None)  # an error in the command line, which this exception describes
        message = f"{error.format_message()} (try: {context.command_path if context else 'helix'} --help)"
    say(message)
    return REFUSED


def _report_defect(error: Exception) -> int:
    logging.getLogger("helix.cli").debug("a defect", exc_info=error)
    say(f"internal error, please report it with the output of HELIX_LOG=debug: {type(error).__name__}: {error}")
    return ERROR


def main() -> None:
    """Run the command line, as the console script `helix`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 shows escapes
    code = invoke()
    gc.freeze()  # otherwise Python would spend a second at exit collecting the objects of a model library
    sys.exit(code)
