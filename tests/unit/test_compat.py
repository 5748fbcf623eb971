"""The compatibility packages have all names of the sources that the table of names lists."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.docs.documents import ROOT, claimed_names

TABLE = (ROOT / "docs" / "appendix" / "names.md").read_text(encoding="utf-8")
METHODS = ("State store", "Stream manager")
"""Sections with functions that are methods in the source."""


def spelled(name: str) -> str:
    """Return the name in Python's spelling. Classes and constants keep theirs."""
    if name[0].isupper():
        return name
    return re.sub(r"(?<=[a-z0-9])[A-Z]+", lambda found: "_" + found[0].lower(), name.replace("OpenAI", "Openai"))


def importable(teleon: bool) -> Iterator[tuple[str, str]]:
    """Yield the Python name and the target of each row that names a module's attribute other than a class."""
    for section in re.split(r"^## ", TABLE, flags=re.MULTILINE)[1:]:
        title = section.partition("\n")[0]
        if title.startswith("Teleon") is not teleon:
            continue
        for row in re.findall(r"^\| (?!Source name)(.*?) \| (.*?) \|", section, re.MULTILINE):
            for name in re.findall(r"`(\w+)(?:\([^`]*\))?`", row[0]):
                for target, parameters in claimed_names(row[1]):
                    home, _, last = target.rpartition(".")
                    renamed = spelled(name) != last
                    if renamed and (parameters or name.islower() or (name[0].islower() and title in METHODS)):
                        continue  # an argument, a wire tag or a method
                    if home and _is_module_level(home, last):
                        yield spelled(name), target
                        break


def _is_module_level(home: str, name: str) -> bool:
    try:
        return not inspect.ismodule(getattr(importlib.import_module(home), name))
    except ModuleNotFoundError:  # the target's parent is a class
        return False


@pytest.mark.parametrize(("source", "least"), [("core", 120), ("teleon", 55)])
def test_every_name_of_the_table_can_be_imported(source: str, least: int) -> None:
    package = importlib.import_module(f"helix.compat.{source}")
    rows = list(importable(source == "teleon"))
    assert len(rows) >= least
    missing = [name for name, _ in rows if not hasattr(package, name)]
    assert not missing
    other = [name for name, target in rows if getattr(package, name) is not _resolved(target)]
    assert not other, "the same thing as the table says"
    assert {name for name, _ in rows} <= set(dir(package))


def _resolved(target: str) -> object:
    home, _, name = target.rpartition(".")
    return getattr(importlib.import_module(home), name)


def test_a_name_that_neither_source_has_is_an_attribute_error() -> None:
    with pytest.raises(ImportError, match="defineWorkflow"):
        from helix.compat.core import defineWorkflow  # noqa: F401


def test_what_really_runs_does_not_need_the_sources_names() -> None:
    """Neither the fleet nor the command line loads the sources' names."""
    found = "[name for name in sys.modules if name.startswith('helix.compat')]"
    program = f"import helix.fleet.lambdas, helix.cli.main, sys; print({found})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
