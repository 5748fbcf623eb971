"""Resolve the agent that a command names: `module:name`, `path/file.py:name`, or a registered name. `name` is a variable of
the module, or the registered name of an agent in it.

Law: importing a module runs the user's code. Any error in that code becomes one line with the file and line number.
"""

from __future__ import annotations

import logging
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from helix.cli.output import RefusedError
from helix.core.agents import Agent, AnyAgent
from helix.core.errors import AgentNotFoundError
from helix.core.registry import default_registry
from helix.runtime.importing import NotThereError, load_place
from helix.runtime.project import NoProjectError, find_project, read_project

logger = logging.getLogger("helix.cli")
_PACKAGE = str(Path(__file__).parents[1])


def load_agent(spec: str, listed: tuple[str, ...] = ()) -> AnyAgent:
    """Load an agent. Before a registered name is looked up, the modules and files in `listed` are imported. If `listed` is
    empty, they come from `[tool.helix] agents = [...]` in the project's pyproject.toml. Raises `RefusedError`."""
    place, colon, name = spec.rpartition(":")
    if colon and place and name:
        return _find_member(_load(place), place, name)
    if spec.endswith(".py") or "/" in spec:
        known = ", ".join(sorted(_agents_in(_load(spec)))) or "none"
        raise RefusedError(f"{spec!r} names a file, not an agent: write {spec}:NAME; it has {known}")
    return _find_registered(spec, listed or _read_listed_modules())


def all_agents(listed: tuple[str, ...] = ()) -> list[AnyAgent]:
    """Return the agents that have registered names, sorted. `listed` works as in `load_agent`. Raises `RefusedError`."""
    found: dict[str, AnyAgent] = {}
    for place in listed or _read_listed_modules():
        found |= {agent.name: agent for agent in _agents_in(_load(place)).values()}
    found |= {name: default_registry.resolve(name) for name in default_registry.registered_types()}
    return [found[name] for name in sorted(found)]


def _find_member(module: ModuleType, place: str, name: str) -> AnyAgent:
    value, problem = _look_up(module, name)
    if value is None:
        value = _agents_in(module).get(name)
    if _is_agent(value):
        return cast("AnyAgent", value)
    if problem is not None:
        raise RefusedError(f"{name!r} in {place!r} cannot be read: {_describe_error(problem)}") from problem
    if value is not None:
        raise RefusedError(f"{name!r} in {place!r} is a {type(value).__name__}, not an Agent")
    known = ", ".join(sorted(_agents_in(module))) or "none"
    raise RefusedError(f"there is no agent {name!r} in {place!r}; it has {known}")


def _look_up(module: ModuleType, name: str) -> tuple[Any, BaseException | None]:
    """Look up a name in the module. Return the object, or the error of the lookup, because a module or object may define
    `__getattr__`."""
    value: Any = module
    try:
        for part in name.split("."):
            value = getattr(value, part, None)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return None, error
    return value, None


def _is_agent(value: Any) -> bool:
    return issubclass(type(value), Agent)  # isinstance reads the value's `__class__`, which may run the user's code


def _find_registered(name: str, listed: tuple[str, ...]) -> AnyAgent:
    found: dict[str, AnyAgent] = {}
    for place in listed:
        module = _load(place)
        found |= _agents_in(module) | {agent.name: agent for agent in _agents_in(module).values()}
    try:
        return found.get(name) or default_registry.resolve(name)
    except AgentNotFoundError:
        known = ", ".join(sorted({*found, *default_registry.registered_types()})) or "none"
        raise RefusedError(
            f"there is no agent {name!r}; registered are: {known}. "
            "Name one as module:name or path/file.py:name, or list its module under [tool.helix] agents in pyproject.toml"
        ) from None


def _read_listed_modules() -> tuple[str, ...]:
    try:
        project = read_project(find_project(Path.cwd()))
    except NoProjectError:
        return ()
    sys.path.insert(0, str(project.source))
    return project.modules


def _agents_in(module: ModuleType) -> dict[str, AnyAgent]:
    """Return a module's agents by variable name. An agent's own name is also a key, unless a variable has that name."""
    named = {name: value for name, value in vars(module).items() if _is_agent(value)}
    own = {agent.name: agent for agent in named.values() if agent.name not in vars(module)}
    return named | own


# --- importing ----------------------------------------------------------------------------------------------------


def _load(place: str) -> ModuleType:
    try:
        return load_place(place)
    except NotThereError as error:
        raise RefusedError(str(error)) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        logger.debug("importing %s failed", place, exc_info=True)
        raise RefusedError(f"{place!r} cannot be imported: {_describe_error(error)}") from error


def _describe_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}{_describe_place(error)}"


def _describe_place(error: BaseException) -> str:
    """Return the file and line where the user's own code failed, in parentheses. Empty if Helix's own code failed."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "importlib" not in f.filename and not f.filename.startswith(_PACKAGE)]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
