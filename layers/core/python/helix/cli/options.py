"""Options that several commands share, and the code that turns functions into commands.

Law: if a parameter of a command is a dataclass, each of its fields becomes an option of the command line.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from keyword import iskeyword
from typing import Annotated, Any, ClassVar, get_type_hints

import typer
from typer.core import TyperGroup

from helix.cli.environment import explain_missing_package
from helix.cli.output import RefusedError
from helix.runtime.settings import DB, DEFAULT_DB, ProcessSettings, read_settings

AgentName = Annotated[str, typer.Argument(metavar="AGENT", help="module:name, path/file.py:name, or a registered name")]
SessionName = Annotated[str, typer.Argument(metavar="SESSION", help="Id of the session")]
InSession = Annotated[str | None, typer.Option("--session", "-s", help="Continue this session, or name a new one")]
Model = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", help="Model for all agents, such as openai/gpt-4o-mini; `demo` is the demonstration model"
    ),
]
Db = Annotated[str, typer.Option("--db", envvar=DB, help="SQLite file or URL of the store of the sessions")]
Profile = Annotated[str | None, typer.Option("--profile", help="Profile of the AWS configuration")]
Region = Annotated[str | None, typer.Option("--region", help="AWS region")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON lines")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1000, help="Maximum number to list, newest first")]
Context = Annotated[
    list[str] | None,
    typer.Option(
        "--context",
        "-c",
        metavar="KEY=VALUE",
        help="A setting of the deployment, as the guide Deploy lists them; may be repeated",
    ),
]
Project = Annotated[str, typer.Option("--project", help="The project's folder, or one below it")]


def settings() -> ProcessSettings:
    return read_settings(os.environ)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options for commands that run an agent."""

    agent: AgentName
    """The agent, in the format that `load_agent` accepts. With `--url` or `--stage`, the registered name of an agent in the
    service."""
    model: Model = None
    """The model for all agents. None: their own models, or the demonstration model if a key is missing."""


@dataclass(frozen=True, slots=True)
class Store:
    """The store of sessions and a fleet: `db`, unless `stage` names a deployed stage."""

    db: Db = DEFAULT_DB
    """The store on this machine: the path of a SQLite file, or the URL of another store."""
    stage: Annotated[str | None, typer.Option("--stage", help="A deployed stage, instead of a local store")] = None
    """The name of a deployed stage. None: the store `db`."""
    profile: Profile = None
    """The AWS configuration profile for `stage`. None: the default profile."""
    region: Region = None
    """The AWS region of `stage`. None: the region from the AWS configuration."""


class Commands(TyperGroup):
    """A group of commands. `table` maps each command to its help text and the module that contains the function with that
    name."""

    table: ClassVar[dict[str, tuple[str | type[Commands], str]]]

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.table:
            return None
        where, text = self.table[cmd_name]
        if not isinstance(where, str):
            group = typer.Typer(cls=where, help=text, no_args_is_help=True, rich_markup_mode=None, add_completion=False)
            group.callback()(lambda: None)
            return typer.main.get_command(group)
        try:
            module = importlib.import_module(f"helix.cli.{where}")
        except ModuleNotFoundError as error:
            raise RefusedError(explain_missing_package(str(error.name), where)) from error
        single = typer.Typer(rich_markup_mode=None, add_completion=False)
        function = cmd_name.replace("-", "_") + ("_" if iskeyword(cmd_name) else "")
        single.command(cmd_name, help=text)(_flatten_options(getattr(module, function)))
        return typer.main.get_command(single)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands without importing their modules."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.table.items()])


def _flatten_options(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """Return the command with each dataclass parameter replaced by parameters for its fields."""
    groups: dict[str, Any] = {}
    flat: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind = parameter.annotation
        if is_dataclass(kind):
            groups[parameter.name] = kind
            hints = get_type_hints(kind, include_extras=True)
            flat += [_parameter(field, hints[field.name]) for field in fields(kind)]
        else:
            flat.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    def run(**given: Any) -> int | None:
        made = {name: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
        return command(**made, **given)

    run.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    run.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    return run


def _parameter(field: Field[Any], kind: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
