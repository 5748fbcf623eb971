"""`helix init`: create a project from a template, or add missing files to an existing project.

Law: existing files are not changed, except that the table `[tool.helix]` is appended to a `pyproject.toml` without one. If
the command is interrupted, running it again completes the work.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from helix.cli.output import COMPLETED, RefusedError, write
from helix.core.errors import HelixError
from helix.runtime.project import LOCKS, PYPROJECT, NoProjectError, read_project, shipped

TEMPLATES = Path(__file__).parent / "templates"
NAME = "PROJECT-NAME"
"""The placeholder for the project's name in the templates."""
AGENTS = "agents"
LOCK = "requirements.lock"
IGNORED = (".env", ".helix/")
QUESTIONS = {
    "desk": "How do I return something that arrived damaged?",
    "research": "What happens to bees in winter?",
    "minimal": "When does the shop open?",
}
"""For each template, a question that its tools can answer."""


Template = StrEnum("Template", ["desk", "research", "minimal"])


def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The project's folder")] = ".",
    template: Annotated[
        Template,
        typer.Option(
            "--template",
            "-t",
            help="`desk`: tools, state, a sub-agent, an approval. `research`: sub-agents that read. `minimal`: one tool",
        ),
    ] = Template("desk"),
) -> int:
    root = Path(name)
    if root.exists() and not root.is_dir():
        raise RefusedError(f"{name!r} is a file: name a folder")
    source = _find_source(root)  # first, because it rejects a project that it cannot read
    root.mkdir(parents=True, exist_ok=True)
    for done, path in _make_files(root, source, template):
        write(f"  {done:<8}{path}")
    ignored = (root / ".gitignore").read_text(encoding="utf-8").split()
    if missing := [entry for entry in IGNORED if entry not in ignored]:
        write(f"  add     {' and '.join(missing)} to .gitignore: they hold keys and sessions")
    steps = {
        f"helix demo {shlex.quote(QUESTIONS[template])}": "ask, in the app as it deploys, on this machine",
        "helix dev": "the app until Ctrl-C; it reloads what you edit",
        "python -m pytest": "the tests",
        "helix deploy": "the app in your AWS account",
    }
    write("\nThe agents are in " + shlex.quote(str(root / source / AGENTS)) + ". Next:\n")
    if root.resolve() != Path.cwd():
        write(f"  cd {shlex.quote(name)}")
    width = max(len(step) for step in steps)
    for step, what in steps.items():
        write(f"  {step:<{width}}  # {what}")
    return COMPLETED


def _find_source(root: Path) -> str:
    """Return the folder that contains the project's agents. Raises `RefusedError`."""
    try:
        return read_project(root).table.source
    except NoProjectError:
        return "src" if (root / "src").is_dir() else "."
    except HelixError as error:
        raise RefusedError(f"nothing was changed: {error}") from error


def _make_files(root: Path, source: str, template: Template) -> Iterator[tuple[str, str]]:
    """Create the files. For each, yield what was done and its path."""
    yield _settings(root, source), PYPROJECT
    agents = f"{AGENTS}/__init__.py"
    files = _files(template)
    own = root / source / agents
    fresh = AGENTS in read_project(root).modules and not _module_exists(root / source / AGENTS)
    if fresh or (own.is_file() and own.read_bytes() == files[agents].read_bytes()):  # otherwise they are the user's
        for path in sorted(path for path in files if path.startswith(f"{AGENTS}/")):
            yield _write(root / source / path, files[path], root)
        for path in sorted(path for path in files if path.startswith("tests/")):
            yield _write(root / path, files[path], root)
    if read_project(root).table.requirements != LOCK:  # the project has another lock, or already had one with this name
        del files[LOCK]
    for path in sorted(files):
        if path != PYPROJECT and not path.startswith((f"{AGENTS}/", "tests/")):
            yield _write(root / path, files[path], root)


def _files(template: Template) -> dict[str, Path]:
    found = {
        path.relative_to(folder).as_posix(): path
        for folder in (TEMPLATES / "common", TEMPLATES / template)
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    if template == "desk":  # these are the agents that Helix's own repository deploys
        found[f"{AGENTS}/__init__.py"] = shipped("layers/agents/python/agents/__init__.py")
    return dict(sorted(found.items()))


def _module_exists(module: Path) -> bool:
    return os.path.lexists(module) or os.path.lexists(module.with_suffix(".py"))


def _write(path: Path, template: Path, root: Path) -> tuple[str, str]:
    name = path.relative_to(root).as_posix()
    path.parent.mkdir(parents=True, exist_ok=True)
    text = template.read_text(encoding="utf-8").replace(NAME, _project_name(root))
    made = path.with_name(f".{path.name}.{os.getpid()}")
    made.write_text(text, encoding="utf-8")
    try:
        os.link(made, path)  # the file appears complete or not at all, and never replaces another
    except FileExistsError:
        return "kept", name
    finally:
        made.unlink()
    return "made", name


def _settings(root: Path, source: str) -> str:
    file = root / PYPROJECT
    if not os.path.lexists(file):
        return _write(file, TEMPLATES / "common" / PYPROJECT, root)[0]
    text = file.read_bytes().decode("utf-8")
    if "helix" in tomllib.loads(text).get("tool", {}):
        return "kept"
    table = ["", "[tool.helix]", *([] if source == "." else [f'source = "{source}"']), f'agents = ["{AGENTS}"]']
    locked = any(os.path.lexists(root / name) for name in (*LOCKS, LOCK))
    table += [*([] if locked else [f'requirements = "{LOCK}"']), ""]
    end = "\r\n" if "\r\n" in text else "\n"
    longer = text + ("" if text.endswith("\n") or not text else end) + end.join(table)
    real = file.resolve()
    made = real.with_name(f".{real.name}.{os.getpid()}")
    made.write_bytes(longer.encode())
    shutil.copymode(real, made)
    made.replace(real)
    return "edited"


def _project_name(root: Path) -> str:
    return re.sub(r"[^a-z0-9]+", "-", root.resolve().name.lower()).strip("-") or "agents"
