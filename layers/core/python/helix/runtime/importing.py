"""Finding a thing by where it is: `module:attribute` or `path/file.py:attribute`, in this process or in another.

Law: loading runs the user's code, and what it raises is passed on. A file is loaded under the name that it would have when
it is run, so that both processes mean the same.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from helix.core.errors import InvalidInputError


class NotThereError(InvalidInputError):
    """There is no such module, file or attribute."""


def load(place: str) -> Any:
    """What `place` names. Raises `NotThereError`, and whatever its module raises."""
    where, colon, name = place.rpartition(":")
    if not colon or not where or not name:
        raise NotThereError(f"{place!r} names nothing: say module:attribute, or path/file.py:attribute")
    value: Any = load_place(where)
    for part in name.split("."):
        value = getattr(value, part, None)
    if value is None:
        raise NotThereError(f"there is no {name!r} in {where!r}")
    return value


def load_place(where: str) -> ModuleType:
    """The module of that name, or in that file."""
    return load_file(Path(where)) if where.endswith(".py") or "/" in where else load_module(where)


def load_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise NotThereError(f"there is no module {name!r}, here or installed") from None


def load_file(file: Path) -> ModuleType:
    """Like running the file: its folder (or that of its package) comes first on the path. It gets the name it would have
    there, unless another module has that name already."""
    if not file.is_file():
        raise NotThereError(f"there is no file {str(file)!r}")
    file = file.resolve()
    root, parts = file.parent, [file.stem]
    while (root / "__init__.py").is_file():
        root, parts = root.parent, [root.name, *parts]
    sys.path.insert(0, str(root))
    name = ".".join(parts)
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(file):
        return known
    if known is None and len(parts) > 1:
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
    """Where another process finds this very object: a function, or anything that is a variable of a module. None if it
    stands nowhere: it was made inside of a function, or in a session without a file."""
    name, module = getattr(value, "__qualname__", None), getattr(value, "__module__", None)
    if isinstance(name, str) and isinstance(module, str) and "<" not in name:
        return _place(sys.modules.get(module), name)
    for found in list(sys.modules.values()):
        for variable, it in list(getattr(found, "__dict__", {}).items()):
            if it is value and not variable.startswith("__") and (place := _place(found, variable)) is not None:
                return place
    return None


def _place(module: ModuleType | None, name: str) -> str | None:
    if module is None:
        return None
    if module.__name__ != "__main__":
        return f"{module.__name__}:{name}"
    spec, file = getattr(module, "__spec__", None), getattr(module, "__file__", None)
    if spec is not None:  # python -m
        return f"{spec.name}:{name}"
    return f"{Path(file).resolve()}:{name}" if file is not None and Path(file).is_file() else None
