"""A check of the project's code in a fresh interpreter. It finds out whether all of the code loads, and what it requires.

Law: it changes nothing. Run it as a script in the project's root. It prints one JSON object: either {"error"} with the
problem and its file and line, or an object with these fields:

    agents     the names of the agents
    missing    the variable to set before the agents' own models can be called, or null
    unknown    the problem with the name of one of the models, or null
    models     the names of the agents' models
    profiles   the agents that have their own resources

    python -m helix.local.code_check MODULE,MODULE
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from helix.runtime.project import PACKAGE, PYPROJECT, HelixProject, ProjectError, read_project, shipped


def check_code(root: Path, modules: list[str]) -> dict[str, Any]:
    try:
        project = read_project(root)
        sys.path.insert(0, str(project.source))
        for module in modules:
            importlib.import_module(module)
        for file in sorted(shipped("functions").glob("*/handler.py")):
            _load_file(file)
        check_imports(project, ",".join(modules))
    except ProjectError as error:
        return {"error": str(error)}
    except BaseException as error:
        return {"error": _describe_error(error, root)}
    names = [agent.name for agent in _agents()]
    return {"agents": names, **_models(), "profiles": _profiles()}


def check_imports(project: HelixProject, modules: str) -> None:
    """Raise `ProjectError` if the agents import a module of the project that is not deployed."""
    deployed = {path.resolve() for path in project.files(modules).values()}
    elsewhere = [
        PACKAGE,
        Path(sys.prefix),
        *(Path(place) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place),
    ]
    for name, module in sorted(sys.modules.items()):
        file = Path(getattr(module, "__file__", None) or os.devnull).resolve()
        ours = file.is_relative_to(project.root.resolve()) and not any(
            file.is_relative_to(place.resolve()) for place in elsewhere
        )
        if ours and file not in deployed and not name.startswith("handler_"):
            top = name.partition(".")[0]
            advice = f"add {top!r} to include of [tool.helix] in {PYPROJECT}"
            raise ProjectError(f"the agents import {name!r}, which is not deployed: {advice}")


def _load_file(file: Path) -> None:
    """Load the file under a unique module name, because all of these files are called `handler`."""
    spec = importlib.util.spec_from_file_location(f"handler_{file.parent.name}", file)
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def _describe_error(error: BaseException, root: Path) -> str:
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):
        return f"{_relative_name(error.filename or '?', root)}:{error.lineno}: {type(error).__name__}: {error.msg}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(str(root))]
    own = [f for f in frames if not f.filename.endswith("helix/local/code_check.py")]
    return f"{_relative_name(own[-1].filename, root)}:{own[-1].lineno}: {text}" if own else text


def _relative_name(name: str, root: Path) -> str:
    return name.removeprefix(f"{root}{os.sep}")


def _agents() -> list[Any]:
    from helix.core.registry import default_registry

    return [default_registry.resolve(name) for name in sorted(default_registry.registered_types())]


def _models() -> dict[str, Any]:
    from helix.core.errors import DefinitionError
    from helix.runtime.models import choose_model, models_of

    missing = unknown = None
    try:
        choices = [choose_model(agent, None, os.environ) for agent in _agents()]
        missing = next((choice.missing for choice in choices if choice.missing), None)
    except DefinitionError as error:
        unknown = str(error)
    models = sorted({model for agent in _agents() for model in models_of(agent)})
    return {"missing": missing, "unknown": unknown, "models": models}


def _profiles() -> dict[str, Any]:
    from helix.core.resources import DEFAULT_PROFILE

    return {agent.name: repr(agent.resources) for agent in _agents() if agent.profile != DEFAULT_PROFILE}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(check_code(Path.cwd(), sys.argv[1].split(","))))
