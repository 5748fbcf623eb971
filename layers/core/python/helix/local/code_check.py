"""A look at the project's code in a fresh interpreter: does all of it load, and what does it ask for?

Law: it changes nothing. Run as a script in the project's root; it prints one JSON object: {"agents": names, "missing":
the variable to set before the agents' own models can be called, or null; "profiles": the agents with resources of their
own} or {"error": what is wrong, by file and line}.

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


def look(root: Path, modules: list[str]) -> dict[str, Any]:
    sys.path.insert(0, str(root / "layers" / "agents" / "python"))
    try:
        for module in modules:
            importlib.import_module(module)
        for file in sorted((root / "functions").glob("*/handler.py")):
            _load(file)
    except BaseException as error:
        return {"error": _where(error, root)}
    return {"agents": [agent.name for agent in _agents()], "missing": _missing(), "profiles": _profiles()}


def _load(file: Path) -> None:
    """As a module of its own name: all of them are called `handler`."""
    spec = importlib.util.spec_from_file_location(f"handler_{file.parent.name}", file)
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def _where(error: BaseException, root: Path) -> str:
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):
        return f"{_short(error.filename or '?', root)}:{error.lineno}: {type(error).__name__}: {error.msg}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(str(root))]
    own = [f for f in frames if not f.filename.endswith("helix/local/code_check.py")]
    return f"{_short(own[-1].filename, root)}:{own[-1].lineno}: {text}" if own else text


def _short(name: str, root: Path) -> str:
    return name.removeprefix(f"{root}{os.sep}")


def _agents() -> list[Any]:
    from helix.core.registry import default_registry

    return [default_registry.resolve(name) for name in sorted(default_registry.registered_types())]


def _missing() -> str | None:
    from helix.runtime.models import choose_model

    return next(
        (choice.missing for agent in _agents() if (choice := choose_model(agent, None, os.environ)).missing), None
    )


def _profiles() -> dict[str, Any]:
    from helix.core.resources import DEFAULT_PROFILE

    return {agent.name: repr(agent.resources) for agent in _agents() if agent.profile != DEFAULT_PROFILE}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(look(Path.cwd(), sys.argv[1].split(","))))
