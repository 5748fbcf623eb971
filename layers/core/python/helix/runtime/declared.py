"""The budgets of users and the limits of models that the project of this process declares."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from helix.core.budget import BudgetDefinition
from helix.core.model_limits import Limit, parse_limits
from helix.core.user_budgets import parse_user_budgets

Stamp = tuple[tuple[str, int, int], ...]
"""Files, each as path, time of the last change in nanoseconds, and size in bytes."""
Declared = tuple[tuple[BudgetDefinition, ...], Mapping[str, Limit]]


def project_user_budgets() -> tuple[BudgetDefinition, ...]:
    """Read `[tool.helix.budgets]` of the project at or above the working directory. Empty outside a project. Raises
    `ProjectError` if the table is invalid."""
    return _declared()[0]


def project_limits() -> Mapping[str, Limit]:
    """Read `[tool.helix.limits]` as `project_user_budgets` reads the budgets."""
    return _declared()[1]


def _declared() -> Declared:
    folder = Path.cwd()
    files = [place / "pyproject.toml" for place in (folder, *folder.parents)]
    found = [(file, file.stat()) for file in files if file.is_file()]
    if not found:
        return (), {}
    return _read(folder, tuple((str(file), stat.st_mtime_ns, stat.st_size) for file, stat in found))


@lru_cache(maxsize=8)
def _read(folder: Path, _: Stamp) -> Declared:
    """Parse the files again only if one has changed, because a program may create many executors."""
    from helix.runtime.project import NoProjectError, find_project, read_project

    try:
        table = read_project(find_project(folder)).table
    except NoProjectError:
        return (), {}
    return parse_user_budgets(table.budgets), parse_limits(table.limits)
