"""Everything that the agents import, anywhere, is in the functions. Otherwise the synthesis stops and names it."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helix.infra.config import Settings
from helix.infra.imports import check_imports, imports_processes
from helix.infra.locks import lock_of
from helix.infra.packages import LockError
from helix.runtime.project import read_project

PROJECT = """
[tool.helix]
agents = ["staff"]
include = ["shared"]
requirements = "requirements.lock"
"""
REGISTER = """
from helix import Agent, LLMConfig, default_registry

default_registry.register(Agent(name="desk", system_prompt="Help.", llm_config=LLMConfig(model="openai/gpt-4o-mini")))
"""
LAZY = "def look():\n    import matplotlib.pyplot\n"


def write(root: Path, staff: str, lock: str = "", **modules: str) -> Path:
    (root / "shared").mkdir(exist_ok=True)
    files = {"pyproject.toml": PROJECT, "requirements.lock": lock, "staff.py": staff, "shared/__init__.py": ""}
    for name, text in (files | {f"shared/{name}.py": text for name, text in modules.items()}).items():
        (root / name).write_text(text)
    return root


def check(root: Path) -> None:
    settings, project = Settings(agents="staff"), read_project(root)
    check_imports(settings, project, lock_of(project, settings))


def pin(name: str) -> str:
    return f"{name}=={importlib.metadata.version(name)}"


@pytest.mark.parametrize(
    ("lines", "imports"),
    [
        ("from helix.fleet import AgentRuntime", True),
        ("def serve():\n    from helix import fleet\n", True),
        ("import helix.workers.config", True),
        ("from helix.compat.cache import ResponseCache", True),
        ("from helix import Agent\nimport helix.core.messages", False),
    ],
)
def test_agents_that_import_worker_processes_are_found(tmp_path: Path, lines: str, imports: bool) -> None:
    write(tmp_path, "from shared import tables", tables=lines)
    assert imports_processes(read_project(tmp_path), "staff") == imports


@pytest.mark.parametrize(
    "staff",
    [
        "import matplotlib",
        "from matplotlib import pyplot as plt",
        LAZY,
        "class A:\n    def look(self):\n        from matplotlib.pyplot import plot\n",
        "try:\n    import matplotlib\nexcept ImportError as error:\n    raise RuntimeError() from error",
        "try:\n    import matplotlib\nexcept KeyError:\n    pass",
        "import importlib\nplt = importlib.import_module('matplotlib.pyplot')",
        "async def look():\n    from shared.tables import draw\n",
        "from shared import tables",
        "def look():\n    import shared.tables\n",
    ],
)
def test_a_package_that_is_not_locked_is_named_wherever_it_is_imported(tmp_path: Path, staff: str) -> None:
    """The error names the file and the lines that the lock lacks, including the dependencies of the package."""
    write(tmp_path, staff, tables="from . import lines", lines=LAZY)
    with pytest.raises(LockError, match=r"^(staff|shared/lines)\.py:\d+ imports 'matplotlib[a-z.]*'") as raised:
        check(tmp_path)
    told = str(raised.value)
    assert "no function would have it, because requirements.lock does not pin it: add to requirements.lock: " in told
    assert {pin("matplotlib"), pin("numpy"), pin("kiwisolver")} <= {*told.rpartition(": ")[2].split(", ")}


@pytest.mark.parametrize(
    "staff",
    [
        "import boto3, botocore.config, pydantic, json, os.path",
        "from helix.core import json",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import matplotlib",
        "import typing\nif typing.TYPE_CHECKING:\n    import matplotlib\nelse:\n    import json",
        "try:\n    import matplotlib\nexcept ImportError:\n    matplotlib = None",
        "try:\n    import matplotlib\nexcept (ModuleNotFoundError, AttributeError):\n    matplotlib = None",
        "from google.protobuf import message",
        "from shared import *",
    ],
)
def test_what_functions_have_or_the_code_goes_on_without_is_not(tmp_path: Path, staff: str) -> None:
    check(write(tmp_path, staff, unused="import matplotlib"))


def test_what_is_locked_is_deployed(tmp_path: Path) -> None:
    check(write(tmp_path, LAZY, "matplotlib==3.0.0"))


def test_a_part_of_a_namespace_is_not_the_whole(tmp_path: Path) -> None:
    """protobuf is deployed, and has a part of `google`."""
    with pytest.raises(LockError, match=r"imports 'google\.cloud\.storage'"):
        check(write(tmp_path, "def look():\n    import google.cloud.storage"))


def test_a_module_that_is_not_installed_may_be_of_a_package_of_the_lock(tmp_path: Path) -> None:
    """One example is cv2 of opencv-python: the modules of a package that is not installed are unknown."""
    lazy = "def look():\n    import cv2"
    check(write(tmp_path, lazy, "opencv-python==4.13.0"))
    with pytest.raises(LockError, match="imports 'cv2'"):
        check(write(tmp_path, lazy, pin("matplotlib")))


def test_a_module_of_the_project_that_is_not_deployed_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "prices.py").write_text("")
    with pytest.raises(LockError, match=r"^staff\.py:2 imports 'prices', which is not deployed: add 'prices' to inc"):
        check(write(tmp_path, "def look():\n    import prices"))


@pytest.mark.parametrize(
    ("lock", "advice"),
    [
        ("", 'write .*matplotlib==.* to requirements.lock, one a line, and requirements = "requirements.lock"'),
        ("pylock.toml", "pylock.toml does not pin it: add matplotlib to the project's dependencies, and lock again"),
    ],
)
def test_the_advice_is_that_of_the_lock(tmp_path: Path, lock: str, advice: str) -> None:
    write(tmp_path, LAZY)
    (tmp_path / "pyproject.toml").write_text('[tool.helix]\nagents = ["staff"]\n')
    if lock:
        (tmp_path / lock).write_text('lock-version = "1.0"\ncreated-by = "test"\npackages = []\n')
    with pytest.raises(LockError, match=advice):
        check(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("staff", "lock", "told"),
    [
        (LAZY, "", "infra: staff.py:2 imports 'matplotlib.pyplot'; no function would have it"),
        ("import matplotlib", "matplotlib==3.0.0", "would not be in the functions, because requirements.lock does not"),
    ],
    ids=["lazy", "what a locked package needs"],
)
def test_the_synthesis_stops_in_one_line(tmp_path: Path, staff: str, lock: str, told: str) -> None:
    """This also holds if a locked package imports one that is not locked, because the agents are imported as in
    functions."""
    write(tmp_path, f"{staff}\n{REGISTER}", lock)
    command = [sys.executable, "-m", "helix.infra.app", "-o", str(tmp_path / "out")]
    environment = {**os.environ, "CDK_VALIDATION": "false"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and told in done.stderr and "Traceback" not in done.stderr, done.stderr[-2000:]
