"""A check that functions will have the packages that the agents import.

Law: the check is static; it does not import, download or resolve anything. An import counts wherever it occurs, even inside
a function. It does not count if the code handles a missing package (`try: import x`, `except ImportError`), or if only type
checkers see it.
"""

from __future__ import annotations

import ast
import importlib.metadata
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from importlib.util import resolve_name
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from helix.infra.build import requirements_for
from helix.infra.config import Settings
from helix.infra.packages import OF_THE_RUNTIME, Lock, LockError, is_left_out, target
from helix.runtime.project import PYPROJECT, HelixProject

RUNTIME = OF_THE_RUNTIME | {"jmespath", "python-dateutil", "six", "urllib3"}
"""The packages of Lambda's Python runtime: boto3 and its dependencies."""
OPTIONAL = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
SHOWN = 3
OF_PROCESSES = ("helix.compat", "helix.fleet", "helix.workers")


class Import(NamedTuple):
    """An import of a package in the agents' modules."""

    name: str
    """The imported module, with dots."""
    place: str
    """The file, below the project's folder, and the line of the import."""
    package: str = ""
    """The distribution that contains the module. "": none is installed, or it has not been looked up yet."""


def check_imports(settings: Settings, project: HelixProject, lock: Lock) -> None:
    """Raise `LockError` with each package that a module of the agents imports but functions would not have."""
    deployed = deployed_packages(lock)
    missing: dict[str, Import] = {}
    for found in imports_of(project, settings.agents):
        if (package := _missing(found.name, deployed, lock)) is not None:
            missing.setdefault(package or found.name.partition(".")[0], found._replace(package=package))
    if missing:
        raise LockError(_problem(settings, project, missing, deployed))


def deployed_packages(lock: Lock) -> frozenset[str]:
    """Return the packages that every function has, or that the container image of its agent has."""
    ours = {canonicalize_name(pin.partition("==")[0]) for pin in requirements_for(())}
    return frozenset({*ours, *RUNTIME, *lock.names, "helix-agents"})


def unlocked(settings: Settings, project: HelixProject, lock: Lock) -> frozenset[str]:
    """Return the packages in this environment that functions will not have, except those with the project's own modules."""
    own = _own_modules(project, settings.agents)
    owners = {canonicalize_name(owner) for module in own for owner in _owners().get(module, ())}
    installed = {canonicalize_name(owner) for found in _owners().values() for owner in found}
    owners |= {name for name in installed if name.replace("-", "_") in own}
    return frozenset(installed - deployed_packages(lock) - owners)


def imports_processes(project: HelixProject, modules: str) -> bool:
    """Return whether the agents' modules import a module that runs agents in processes: `helix.workers`, `helix.compat`, or
    `helix.fleet`, which re-exports their names."""
    return any(found.name.startswith(OF_PROCESSES) for found in _imports(project, modules))


def imports_of(project: HelixProject, modules: str) -> Iterator[Import]:
    """Yield the imports of other packages in the agents' modules, and in the project's modules that they import."""
    return (found for found in _imports(project, modules) if found.name.partition(".")[0] != "helix")


def _imports(project: HelixProject, modules: str) -> Iterator[Import]:
    """Yield all imports of packages, including those of Helix."""
    files = project.files(modules)
    own = _own_modules(project, modules)
    waiting, seen = [part for name in modules.split(",") for part in _with_parents(name)], set[str]()
    while waiting:
        name = waiting.pop()
        path = next((path for path in _paths(name) if path in files), None)
        if path is None or name in seen:
            continue
        seen.add(name)
        package = name if path.endswith("__init__.py") else name.rpartition(".")[0]
        for imported, line in _Imports.of(files[path], package):
            top = imported.partition(".")[0]
            if top in own:
                waiting += _with_parents(imported)
            elif top not in sys.stdlib_module_names:
                yield Import(imported, f"{files[path].relative_to(project.root)}:{line}")


class _Imports(ast.NodeVisitor):
    """A visitor that collects the names that a module imports, with their lines. It records `from a import b` as `a.b`,
    because `b` may be a module itself."""

    def __init__(self, package: str) -> None:
        self._package, self.found = package, list[tuple[str, int]]()

    @classmethod
    def of(cls, file: Path, package: str) -> list[tuple[str, int]]:
        visitor = cls(package)
        try:
            visitor.visit(ast.parse(file.read_bytes()))
        except (SyntaxError, ValueError):
            return []  # importing the module will raise the error
        return visitor.found

    def visit_Import(self, node: ast.Import) -> None:
        self.found += [(alias.name, node.lineno) for alias in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            try:
                module = resolve_name("." * node.level + module, self._package)
            except ImportError:
                return
        self.found += [(f"{module}.{alias.name}", node.lineno) for alias in node.names if alias.name != "*"]
        self.found += [(module, node.lineno)] if any(alias.name == "*" for alias in node.names) else []

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        match node.args:
            case [ast.Constant(value=str(name)), *_] if called in ("import_module", "__import__") and name[:1] != ".":
                self.found.append((name, node.lineno))
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        only_types = getattr(node.test, "attr", getattr(node.test, "id", "")) == "TYPE_CHECKING"
        for part in node.orelse if only_types else [node.test, *node.body, *node.orelse]:
            self.visit(part)

    def visit_Try(self, node: ast.Try) -> None:
        optional = any(_handles_absence(handler) for handler in node.handlers)
        for part in [*([] if optional else node.body), *node.handlers, *node.orelse, *node.finalbody]:
            self.visit(part)


def _handles_absence(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {getattr(one, "attr", getattr(one, "id", "")) for one in caught if one is not None}
    raises = any(isinstance(node, ast.Raise) for node in ast.walk(handler))
    return (handler.type is None or bool(names & OPTIONAL)) and not raises


def _with_parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _paths(name: str) -> tuple[str, str]:
    path = name.replace(".", "/")
    return f"{path}.py", f"{path}/__init__.py"


def _own_modules(project: HelixProject, modules: str) -> frozenset[str]:
    return frozenset({*(part.stem for part in project.parts(modules)), *(m.split(".")[0] for m in modules.split(","))})


@lru_cache(maxsize=1)
def _owners() -> Mapping[str, list[str]]:
    """Return the installed distributions by top-level module."""
    return importlib.metadata.packages_distributions()


def _missing(name: str, deployed: Collection[str], lock: Lock) -> str | None:
    """Return the package of a module that no function has, or "" if it is not installed here either. Return None for a
    module that functions have, or that may belong to a package of the lock that is not installed here."""
    owners = _owners_of(name)
    if owners:
        return None if any(canonicalize_name(owner) in deployed for owner in owners) else canonicalize_name(owners[0])
    installed = {canonicalize_name(owner) for found in _owners().values() for owner in found}
    return None if canonicalize_name(name.partition(".")[0]) in deployed or lock.names - installed else ""


def _owners_of(name: str) -> list[str]:
    """Return the distributions that contain the module. If several share a namespace, such as `google`, return those with
    the module's files."""
    parts = name.split(".")
    owners = list(dict.fromkeys(_owners().get(parts[0], ())))
    if len(owners) < 2 or len(parts) < 2 or any(_has_module(owner, parts[0]) for owner in owners):
        return owners
    for count in range(len(parts), 1, -1):
        start = "/".join(parts[:count])
        for owner in owners:
            if _has_module(owner, start) or (count == len(parts) and _has_folder(owner, start)):
                return [owner]
    return []


def _has_module(owner: str, path: str) -> bool:
    return any(file == f"{path}/__init__.py" or file.startswith(f"{path}.") for file in _files(owner))


def _has_folder(owner: str, path: str) -> bool:
    return any(file.startswith(f"{path}/") for file in _files(owner))


@lru_cache(maxsize=64)
def _files(owner: str) -> list[str]:
    return [str(file) for file in importlib.metadata.files(owner) or ()]


def _problem(
    settings: Settings, project: HelixProject, missing: Mapping[str, Import], deployed: Collection[str]
) -> str:
    shown = [f"{found.place} imports {found.name!r}" for found in list(missing.values())[:SHOWN]]
    more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    for name, found in missing.items():
        if not found.package and any((project.source / form).exists() for form in (name, f"{name}.py")):
            imported = f"{found.place} imports {found.name!r}"
            return f"{imported}, which is not deployed: add {name!r} to include of [tool.helix] in {PYPROJECT}"
    advice = _advice(settings, project, missing, deployed)
    return f"{', '.join(shown)}{more}; no function would have it, because {lock_problem(project)}: {advice}"


def lock_problem(project: HelixProject) -> str:
    """Explain why a package is not deployed."""
    return f"{project.lock} does not pin it" if project.lock else "the project has no lock"


def _advice(settings: Settings, project: HelixProject, missing: Mapping[str, Import], deployed: Collection[str]) -> str:
    names = [found.package or name for name, found in missing.items()]
    if project.lock == "uv.lock":
        return f"uv add {' '.join(names)}"
    if project.lock.endswith(".toml"):
        return f"add {', '.join(names)} to the project's dependencies, and lock again"
    lines = ", ".join(_pins(names, deployed, target(settings.target_architecture, settings.python)))
    if project.lock:
        return f"add to {project.lock}: {lines}"
    return f'write {lines} to requirements.lock, one a line, and requirements = "requirements.lock" to [tool.helix]'


def _pins(names: Collection[str], deployed: Collection[str], machine: dict[str, str]) -> list[str]:
    """Return a line for each package and for those of its dependencies that functions do not have. Versions are those
    installed here."""
    pins: dict[str, str] = {}
    waiting = [*names]
    while waiting:
        name = canonicalize_name(waiting.pop(0))
        if name in pins or name in deployed or is_left_out(name):
            continue
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            pins[name] = f"{name}==VERSION"
            continue
        pins[name] = f"{name}=={found.version}"
        wanted = map(Requirement, found.requires or ())
        waiting += [one.name for one in wanted if one.marker is None or one.marker.evaluate({**machine, "extra": ""})]
    return list(pins.values())
