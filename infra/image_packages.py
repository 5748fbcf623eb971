"""The packages that only container images contain, and a check that the agents can be imported without them.

Law: every function imports the agents' modules, and most functions do not run from an image. A module that imports such a
package therefore stops the synthesis, whether for the emulator or for a deployment. A tool may import the package when it
is called.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

from packaging.utils import canonicalize_name

from helix.infra.config import Settings
from helix.infra.locks import lock_of
from helix.infra.packages import Lock, LockError
from helix.runtime.project import PYPROJECT, HelixProject

IN_AN_IMAGE = (
    "is in the container image only (tool.helix.image), and every function imports the agents: import it inside of the "
    "tools that use it"
)


def check_image(lock: Lock, names: Collection[str], file: str) -> None:
    """Check the packages of the setting `image`. Raises `LockError` for a package that is not deployed from the lock."""
    for name in sorted(set(names) - lock.names):
        where = f"{file} pins no such package for Lambda" if file else "the project has no lock: see requirements"
        raise LockError(f"{PYPROJECT}: tool.helix.image: {name!r}: {where}")


def in_images_only(settings: Settings, project: HelixProject) -> frozenset[str]:
    """Return the packages that layers do not contain. Offline, these are the named packages, regardless of the lock."""
    named = project.tools.images(settings.stage)
    if not named or settings.offline or settings.deps:
        return named
    lock = lock_of(project, settings)
    return lock.names - lock.without(named).names


@contextmanager
def hide_packages(packages: Collection[str], why: str = IN_AN_IMAGE) -> Iterator[None]:
    """Make importing these packages fail, as in functions without an image. `why`: the part of the error message that
    follows the module's name."""
    known = importlib.metadata.packages_distributions() if packages else {}
    modules = {
        module for module, owners in known.items() if {canonicalize_name(owner) for owner in owners} <= set(packages)
    }
    named = {package.replace("-", "_") for package in packages} - sys.stdlib_module_names
    finder = _HidingFinder(modules | named, why)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _HidingFinder(MetaPathFinder):
    def __init__(self, modules: Collection[str], why: str) -> None:
        self._modules, self._why = modules, why

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in self._modules:
            return None
        raise ModuleNotFoundError(f"{fullname!r} {self._why}", name=fullname)
