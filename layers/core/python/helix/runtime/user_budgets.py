"""The budgets of each user that the project of this process declares."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from helix.core.budget import BudgetDefinition
from helix.core.user_budgets import parse_user_budgets

Stamp = tuple[tuple[str, int, int], ...]
"""Files, each as path, time of the last change in nanoseconds, and size in bytes."""


def project_user_budgets() -> tuple[BudgetDefinition, ...]:
    """Read `[tool.helix.budgets]` of the project at or above the working directory. Empty outside a project. Raises
    `ProjectError` if the table is invalid."""
    folder = Path.cwd()
    files = [place / "pyproject.toml" for place in (folder, *folder.parents)]
    found = [(file, file.stat()) for file in files if file.is_file()]
    return _read(folder, tuple((str(file), stat.st_mtime_ns, stat.st_size) for file, stat in found)) if found else ()


@lru_cache(maxsize=8)
def _read(folder: Path, _: Stamp) -> tuple[BudgetDefinition, ...]:
    """Parse the files again only if one has changed, because a program may create many executors."""
    from helix.runtime.project import NoProjectError, find_project, read_project

    try:
        return parse_user_budgets(read_project(find_project(folder)).table.budgets)
    except NoProjectError:
        return ()
