"""Finds an object by its import path (`module:attribute` or `path/file.py:attribute`), in this process or another, and
loads the agent that a fleet serves from there.

Law: loading runs the user's code, and its errors are passed on. A file is loaded under the name that it would have when it
is run, so both processes refer to the same object. The same definition produces the same agent in every process. The
options of a registration (id, model, token limit) are part of the agent, so they apply to every call.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from helix.core.agents import Agent, AnyAgent
from helix.core.config import LLMConfig
from helix.core.errors import DefinitionError, InvalidInputError
from helix.core.functions import AgentClient
from helix.core.json import JsonObject, dumps
from helix.core.registry import AgentRegistry


class NotThereError(InvalidInputError):
    """Raised for a module, file or attribute that does not exist."""


def load(place: str) -> Any:
    """Return the object that `place` names. Raises `NotThereError`, and whatever its module raises."""
    where, colon, name = place.rpartition(":")
    if not colon or not where or not name:
        raise NotThereError(f"{place!r} does not name an object: write module:attribute, or path/file.py:attribute")
    value: Any = load_place(where)
    for part in name.split("."):
        value = getattr(value, part, None)
    if value is None:
        raise NotThereError(f"there is no {name!r} in {where!r}")
    return value


def load_place(where: str) -> ModuleType:
    """Return the module of that name, or in that file."""
    return load_file(Path(where)) if where.endswith(".py") or "/" in where else load_module(where)


def load_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise NotThereError(f"there is no module {name!r} here or among the installed packages") from None


def load_file(file: Path) -> ModuleType:
    """Load the file as if it were run. Its folder, or the one that contains its package, comes first on `sys.path`. The
    module gets the name that it would have there, unless another module already has that name."""
    if not file.is_file():
        raise NotThereError(f"there is no file {str(file)!r}")
    file = file.resolve()
    root, parts = file.parent, [file.stem]
    while (root / "__init__.py").is_file():
        root, parts = root.parent, [root.name, *parts]
    sys.path.insert(0, str(root))
    in_package = len(parts) > 1
    if in_package and file.name == "__init__.py":
        parts.pop()  # the file is the package itself, and would run a second time under another name
    name = ".".join(parts)
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(file):
        return known
    if known is None and in_package:
        return importlib.import_module(name)
    if known is not None or not name.isidentifier():
        name = f"helix_agent_{len(sys.modules)}_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise NotThereError(f"{str(file)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def place_of(value: Any) -> str | None:
    """Return the import path by which another process finds the same object: a function, or any variable of a module.
    None if no module has it, because it was created inside a function or in an interactive session."""
    name, module = getattr(value, "__qualname__", None), getattr(value, "__module__", None)
    if isinstance(name, str) and isinstance(module, str) and "<" not in name:
        return _import_path(sys.modules.get(module), name)
    for found in list(sys.modules.values()):
        for variable, it in list(getattr(found, "__dict__", {}).items()):
            if it is value and not variable.startswith("__") and (place := _import_path(found, variable)) is not None:
                return place
    return None


def _import_path(module: ModuleType | None, name: str) -> str | None:
    if module is None:
        return None
    if module.__name__ != "__main__":
        return f"{module.__name__}:{name}"
    spec, file = getattr(module, "__spec__", None), getattr(module, "__file__", None)
    if spec is not None:  # python -m
        return f"{spec.name}:{name}"
    return f"{Path(file).resolve()}:{name}" if file is not None and Path(file).is_file() else None


@dataclass(frozen=True, slots=True)
class ServedAgent:
    """An agent that a fleet serves, and where its worker processes find it."""

    agent_id: str
    """The name under which the fleet serves the agent. Sessions store it."""
    source: str
    """The import path of the agent or function, as `module:attribute` or `file.py:attribute`."""
    model: str | None = None
    """The model that replaces the agent's own, without fallbacks. None keeps the agent's."""
    max_tokens: int | None = None
    """The token limit of an answer. A lower limit set by the agent still applies. None keeps the agent's."""

    def dump(self) -> JsonObject:
        return asdict(self)

    def load(self) -> AnyAgent:
        """Import the agent, which runs the user's code. Raises `DefinitionError`, and whatever that code raises."""
        return self.apply_limits(load(self.source))

    def apply_limits(self, found: Any) -> AnyAgent:
        agent = agent_of(found, self.agent_id)
        if self.model is not None or self.max_tokens is not None:
            agent = with_limits(agent, self.model, self.max_tokens)
        return agent

    def digest(self, agent: AnyAgent, more: JsonObject) -> str:
        """Return a digest of the served definition, which changes whenever the definition does. `more` contains the
        definition's other values."""
        reported = {**self.dump(), "fingerprint": agent.fingerprint(), **more}
        return hashlib.sha256(dumps(reported).encode()).hexdigest()[:16]


def source_of(agent_callable: Any, agent_id: str) -> str:
    """Return the import path by which worker processes find the agent. If `agent_callable` is a string, it is that path."""
    if isinstance(agent_callable, str):
        return agent_callable
    place = place_of(agent_callable)
    if place is None and isinstance(agent_callable, Agent) and agent_callable.function is not None:
        inner = agent_callable.function.function
        place = place_of(inner) if inner is not None else None
    if place is None:
        problem = "is not in a module: worker processes import it, so make it a module-level variable or function"
        raise DefinitionError(f"agent {agent_id!r}", "agent_callable", problem)
    return place


def agent_of(found: Any, agent_id: str) -> AnyAgent:
    """Return `found` as an agent whose name is the id, because a session finds its agent by that name."""
    if isinstance(found, Agent):
        return found if found.name == agent_id else replace(found, name=agent_id)
    if inspect.iscoroutinefunction(found):
        return AgentClient(registry=AgentRegistry()).agent(agent_id)(found)
    problem = f"must be an Agent or an async function, not {found!r}"
    raise DefinitionError(f"agent {agent_id!r}", "agent_callable", problem)


def with_limits(agent: AnyAgent, model: str | None, max_tokens: int | None) -> AnyAgent:
    """Return the agent with that model, and with no answer longer than `max_tokens`."""
    if agent.function is not None:
        advice = "register it with register_agent, or pass an Agent"
        problem = f"is a function, so its model and token limit cannot be set here: {advice}"
        raise DefinitionError(f"agent {agent.name!r}", "agent_callable", problem)
    own: LLMConfig | Callable[[Any], LLMConfig] | None = agent.llm_config

    def config(given: LLMConfig) -> LLMConfig:
        changes: dict[str, Any] = {}
        if model is not None:
            changes |= {"model": model, "route": None, "fallbacks": []}
        if max_tokens is not None:
            changes["max_output_tokens"] = min(given.max_output_tokens or max_tokens, max_tokens)
        return given.model_copy(update=changes)

    context = agent.context if model is None else agent.context.with_own_model()
    if isinstance(own, LLMConfig):
        return replace(agent, llm_config=config(own), context=context)
    assert own is not None
    return replace(agent, llm_config=lambda state: config(own(state)), context=context)
