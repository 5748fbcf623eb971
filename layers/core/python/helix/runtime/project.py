"""A project: the folder whose `pyproject.toml` contains the table `[tool.helix]`, and the values of that table.

Law: this is the one place that reads the table. It rejects an unknown key or an invalid value, and names it.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from helix.core.errors import HelixError, InvalidInputError
from helix.core.model_limits import parse_limits
from helix.core.spelling import did_you_mean
from helix.core.tool_settings import ProjectTools
from helix.core.user_budgets import parse_user_budgets

PYPROJECT = "pyproject.toml"
PACKAGE = Path(__file__).resolve().parents[1]
SHIPPED = {
    "cdk.json": "infra/files/cdk.json",
    "functions": "infra/files/functions",
    "layers/agents/python/agents/__init__.py": "cli/init/templates/desk/agents/__init__.py",
    "layers/deps/requirements.txt": "infra/files/requirements.txt",
    "package.json": "infra/files/package.json",
}
"""The files and folders that the wheel contains in addition to the package's modules: paths in Helix's repository, and
the paths in the package to which pyproject.toml copies them."""
LOCKS = ("uv.lock", "pylock.toml")
OWN_APP = "helix.infra.app"
NOT_SOURCES = ("__pycache__", ".DS_Store")

Value = bool | int | float | str | list[str] | dict[str, str]


class NoProjectError(HelixError):
    """Raised if a folder is not in a Helix project."""

    code = "no_project"


class ProjectError(HelixError, ValueError):
    """Raised for a mistake in `[tool.helix]`. The message names the key."""

    code = "invalid_project"


class HelixTable(BaseModel):
    """The table `[tool.helix]`. The keys for tools are in `helix.core.tool_settings.ProjectTools`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    agents: list[str] = Field(default=["agents"], min_length=1)
    """Modules that define and register agents: `desk`, `desk.agents`, or a file such as `desk.py`."""
    source: str = "."
    """The folder from which the agents' modules are imported, within the project's folder."""
    include: list[str] = []
    """More modules and packages of `source` that the agents import. They are deployed too."""
    requirements: str = ""
    """The file that pins the packages that the agents import, for Lambda: a `uv.lock`, a `pylock.toml`, or lines for
    pip. Empty: one of the first two, if it is next to pyproject.toml."""
    app: str = ""
    """The command of the project's own CDK app, such as `python app.py`. Empty: the `app` of its cdk.json, or else
    Helix's app."""
    settings: dict[str, Value] = {}
    """Settings of the deployment (docs/guide/deploy.md) for every stage."""
    stages: dict[str, dict[str, Value]] = {}
    """Settings of the deployment for one stage, by its name. They override `settings`."""
    triggers: dict[str, dict[str, Any]] = {}
    """The triggers that start runs, by name; see `helix.core.triggers`. The deployment checks them, as it checks
    settings."""
    budgets: dict[str, Any] = {}
    """The budgets of each user; see `helix.core.user_budgets`."""
    limits: dict[str, Any] = {}
    """The limits of models; see `helix.core.model_limits`."""


@dataclass(frozen=True)
class HelixProject:
    """A project: its folder and its settings."""

    root: Path
    """The folder of pyproject.toml."""
    table: HelixTable
    """The table `[tool.helix]`, without the keys for tools."""
    tools: ProjectTools = field(default_factory=ProjectTools)
    """The table's keys for tools: secrets, settings and resources."""

    @property
    def source(self) -> Path:
        return self.root / self.table.source

    @functools.cached_property
    def lock(self) -> str:
        """Return the file that pins packages, as a path relative to `root`. "" if the project does not have one."""
        return self.table.requirements or next((name for name in LOCKS if (self.root / name).is_file()), "")

    @functools.cached_property
    def app(self) -> str:
        """Return the command of the project's own CDK app; "" if the project uses Helix's app."""
        command = self.table.app or str(self._cdk.get("app", ""))
        return "" if OWN_APP in command else command

    @property
    def app_files(self) -> list[Path]:
        """Return the files and packages that `app` names: app.py for `python app.py`, deploy for `python -m
        deploy.app`."""
        words = shlex.split(self.app)
        modules = [name.split(".")[0] for option, name in itertools.pairwise(words) if option == "-m"]
        named = [self.root / name for name in (*words, *modules, *(f"{module}.py" for module in modules))]
        return [path for path in named if path.exists() and not self.root.is_relative_to(path)]

    @functools.cached_property
    def context(self) -> dict[str, Any]:
        """Return the context of cdk.json. Empty if there is no such file."""
        found: dict[str, Any] = self._cdk.get("context", {})
        return found

    @functools.cached_property
    def _cdk(self) -> dict[str, Any]:
        file = self.root / "cdk.json"
        try:
            found = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        except (ValueError, RecursionError) as error:
            raise ProjectError(f"{str(file)!r} cannot be read: {_describe_parse_error(error)}") from error
        if not isinstance(found, dict):
            raise ProjectError(f"{str(file)!r} is not a JSON object")
        return found

    @functools.cached_property
    def modules(self) -> tuple[str, ...]:
        """Return the names under which the agents' modules are imported from `source`."""
        return tuple(self._module(place) for place in self.table.agents)

    def settings(self, stage: str) -> dict[str, Any]:
        """Return the deployment settings of that stage. The context of cdk.json overrides the table."""
        return {**self.table_settings(stage), **self.context}

    def table_settings(self, stage: str) -> dict[str, Any]:
        """Return the deployment settings of that stage from the table alone."""
        table = {**self.table.settings, **self.table.stages.get(stage, {})}
        return {
            "agents": ",".join(self.modules),
            "triggers": self.table.triggers,
            "budgets": self.table.budgets,
            "limits": self.table.limits,
            **table,
        }

    def parts(self, modules: str = "") -> list[Path]:
        """Return the top-level packages and modules that are deployed. `modules`: additional ones, separated by commas.
        Modules that are not in `source` are elsewhere on the path, and are omitted."""
        own = [*self.modules, *self.table.include]
        more = [module for module in modules.split(",") if module and module not in own]
        found = {name: self._part(name) for name in dict.fromkeys(module.split(".")[0] for module in [*own, *more])}
        for name in sorted({module.split(".")[0] for module in own}):
            if found[name] is None:
                raise ProjectError(f"{PYPROJECT}: [tool.helix] names {name!r}, which is not in {str(self.source)!r}")
        return [part for part in found.values() if part is not None]

    def files(self, modules: str = "") -> dict[str, Path]:
        """Return every file of `parts`, by its path relative to `source`."""
        return {
            path.relative_to(self.source).as_posix(): path
            for part in self.parts(modules)
            for path in (sorted(_files_of(part)) if part.is_dir() else [part])
        }

    def _part(self, name: str) -> Path | None:
        folder, file = self.source / name, self.source / f"{name}.py"
        return folder if folder.is_dir() else file if file.is_file() else None

    def _module(self, place: str) -> str:
        if not place.endswith(".py"):
            return place
        file = (self.root / place).resolve()
        source = self.source.resolve()
        if not file.is_relative_to(source):
            raise ProjectError(
                f"{PYPROJECT}: [tool.helix] agents has {place!r}, which is not below source = {self.table.source!r}"
            )
        names = file.relative_to(source).with_suffix("").parts
        return ".".join(names[:-1] if names[-1] == "__init__" and len(names) > 1 else names)


def shipped(path: str) -> Path:
    """Return a file or folder of `SHIPPED`, by its path in the repository. In an installed package it is the copy; in a
    checkout of the repository it is the original."""
    copy = PACKAGE / SHIPPED[path]
    return copy if copy.exists() else PACKAGE.parents[3] / path


def find_project(start: Path) -> Path:
    """Return the folder at or above `start` whose pyproject.toml contains `[tool.helix]`. Raises `NoProjectError`."""
    for folder in (start.resolve(), *start.resolve().parents):
        if _table(folder) is not None:
            return folder
    raise NoProjectError(
        f"there is no Helix project at {str(start.resolve())!r} or above: no {PYPROJECT} with [tool.helix]. "
        "`helix init` makes one"
    )


def read_project(root: Path) -> HelixProject:
    """Read the project of that folder. Raises `NoProjectError` and `ProjectError`."""
    table = _table(root)
    if table is None:
        raise NoProjectError(f"{str(root / PYPROJECT)!r} has no table [tool.helix]: `helix init` adds it")
    try:
        project = HelixProject(root, HelixTable.model_validate(ProjectTools.others(table)), ProjectTools.read(table))
        parse_user_budgets(project.table.budgets)
        parse_limits(project.table.limits)
        return project
    except InvalidInputError as error:
        raise ProjectError(f"{PYPROJECT}: {error}" if not str(error).startswith(PYPROJECT) else str(error)) from error
    except ValidationError as error:
        raise ProjectError(f"{PYPROJECT}: {_describe_first(error)}") from error


def _table(folder: Path) -> Mapping[str, Any] | None:
    try:
        text = (folder / PYPROJECT).read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError):
        return None
    except UnicodeDecodeError as error:
        raise ProjectError(f"{str(folder / PYPROJECT)!r} is not UTF-8: {error}") from error
    try:
        tools = tomllib.loads(text).get("tool", {})
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ProjectError(f"{str(folder / PYPROJECT)!r} cannot be read: {_describe_parse_error(error)}") from error
    table: Any = tools.get("helix", {}) if isinstance(tools, dict) else None
    if not isinstance(table, dict):
        raise ProjectError(f"{str(folder / PYPROJECT)!r}: tool.helix is not a table")
    return table if "helix" in tools else None


def _describe_parse_error(error: ValueError | RecursionError) -> str:
    """Return the reason why a file cannot be parsed."""
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _describe_first(error: ValidationError) -> str:
    first = error.errors()[0]
    where = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        known = sorted(HelixTable.model_fields | ProjectTools.model_fields)
        listed = f"{', '.join(known)}{did_you_mean(where[-1], known)}"
        return f"[tool.helix] has the unknown key {'.'.join(where)!r}; the keys are {listed}"
    return f"[tool.helix] {where[0]} is {first['input']!r}: {first['msg']}"


def _is_loop(folder: Path) -> bool:
    return folder.is_symlink() and folder.parent.resolve().is_relative_to(folder.resolve())


def _files_of(folder: Path) -> Iterator[Path]:
    """Yield the files in the folder, at any depth. Links are followed, as imports follow them."""
    for place, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if name not in NOT_SOURCES and not _is_loop(Path(place, name))]
        found = (Path(place) / name for name in names if name not in NOT_SOURCES)
        yield from (path for path in found if path.is_file() and path.suffix != ".pyc")
