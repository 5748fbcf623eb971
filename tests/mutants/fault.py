"""A planted fault: a one-line mutation of a file of the package or of the project."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "layers/core/python/helix"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault. `file` is a path from the project's root, or from `PACKAGE`, and one of its lines is `old`.

    `tests` are the files that test the folder in `make test`, or in `make slow` with `slow`.
    """

    name: str
    file: str
    old: str
    new: str
    tests: Sequence[str]
    slow: bool = False

    @property
    def room(self) -> str:
        """The folder of the fault, as `ARCHITECTURE.md` lists it."""
        return self.name.partition(":")[0]


class MovedError(Exception):
    """The line that a fault changes is not in its file, or occurs more than once."""


def path_of(root: Path, fault: Fault) -> Path:
    inside = root / PACKAGE / fault.file
    return inside if inside.is_file() else root / fault.file


def planted(text: str, fault: Fault) -> str:
    """Return `text` with the fault. Raises `MovedError` unless the old line occurs exactly once."""
    lines = text.splitlines(keepends=True)
    places = [place for place, line in enumerate(lines) if line.strip() == fault.old]
    if len(places) != 1:
        raise MovedError(
            f"fault {fault.name!r}: {fault.file} has its old line {len(places)} times; it must be there once. "
            f"The code moved: correct the fault in tests/mutants/faults.py. The line: {fault.old}"
        )
    line = lines[places[0]]
    indent = line[: len(line) - len(line.lstrip())]
    lines[places[0]] = f"{indent}{fault.new}\n"
    return "".join(lines)
