"""The content of the layers: the sources, compiled for the target, and the packages, trimmed to what runs."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from pathlib import Path

import pytest

from helix.infra import build
from helix.infra.build import (
    BUILDS,
    MODEL_PACKAGES,
    NOT_IN_FUNCTIONS,
    OF_PROCESSES,
    REQUIREMENTS,
    UNUSED,
    core_files,
    deps_layer,
    interpreter_of,
    requirements_for,
    source_layer,
)
from helix.infra.config import HOST_ARCHITECTURE, HOST_PYTHON, SettingsError, read_settings
from helix.infra.packages import Lock
from helix.runtime.project import PACKAGE, HelixProject, HelixTable

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 200_000_000
"""The maximum bytes of the deps layer, unzipped. Lambda takes 250 MiB for all layers and the function."""


def pins(file: Path) -> dict[str, str]:
    lines = (line.partition("#")[0].strip() for line in file.read_text("utf-8").splitlines())
    found = (line.partition("==") for line in lines if "==" in line)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, _, version in found}


@pytest.fixture
def builds(tmp_path: Path) -> Path:
    return tmp_path / ".helix" / "layers"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return the sources of a layer."""
    package = tmp_path / "python" / "thing"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("ANSWER = 42\n")
    (package / "py.typed").write_text("")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "__init__.cpython-27.pyc").write_bytes(b"old")
    (package.parent / "thing.egg-info").mkdir()
    (package.parent / "thing.egg-info" / "PKG-INFO").write_text("Name: thing")
    return package


def thing(package: Path, builds: Path, python: str = HOST_PYTHON) -> Path:
    return source_layer("core", core_files(package), python, builds)


def contents(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


def test_a_source_layer_is_the_sources_and_compiled_files_of_the_target(package: Path, builds: Path) -> None:
    folder = thing(package, builds)
    tag = f"cpython-{HOST_PYTHON.replace('.', '')}"
    names = {"python/thing/__init__.py", "python/thing/py.typed", f"python/thing/__pycache__/__init__.{tag}.pyc"}
    assert contents(folder) == names
    assert "." not in folder.name, "CDK would treat the rest as an extension"


def test_compiled_files_hold_whatever_the_sources_times_are(package: Path, builds: Path) -> None:
    """A zip archive changes the times, and Lambda changes them again."""
    (compiled,) = thing(package, builds).rglob("*.pyc")
    flags = int.from_bytes(compiled.read_bytes()[4:8], "little")
    assert flags == 0b01, "checked by hash, and not at all while it runs"
    assert b"/opt/python/thing/__init__.py" in compiled.read_bytes(), "tracebacks name the file as Lambda has it"


def test_without_an_interpreter_of_the_target_there_are_sources(
    package: Path, builds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "interpreter_of", lambda python: None)
    assert contents(thing(package, builds, "3.14")) == {"python/thing/__init__.py", "python/thing/py.typed"}


def test_content_is_the_name(package: Path, builds: Path) -> None:
    first = thing(package, builds)
    stamp = first.stat().st_mtime_ns
    os.utime(package / "__init__.py", (1, 1))
    assert thing(package, builds) == first and first.stat().st_mtime_ns == stamp
    (package / "__init__.py").write_text("ANSWER = 43\n")
    assert thing(package, builds) != first


@pytest.mark.parametrize("name", (*NOT_IN_FUNCTIONS, *OF_PROCESSES))
def test_what_no_function_imports_is_not_in_the_layer(package: Path, name: str) -> None:
    assert (PACKAGE.parent / name).is_dir(), "the list names folders that exist"
    unused = package.with_name("helix") / name.partition("/")[2]
    unused.mkdir(parents=True)
    (unused / "__init__.py").write_text("")
    (unused.parent / "used.py").write_text("")
    assert set(core_files(unused.parent)) == {"helix/used.py"}
    everything = core_files(unused.parent, processes=True)
    assert (f"{name}/__init__.py" in everything) == (name in OF_PROCESSES)


def imported(file: Path) -> set[str]:
    """Return the modules that a file imports at any time: at the top or in a function, but not only for a type checker."""
    tree = ast.parse(file.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    found = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.startswith("helix.")}


def test_nothing_in_the_layer_imports_what_is_left_out() -> None:
    layer = source_layer("core", core_files(), HOST_PYTHON, ROOT / BUILDS) / "python"
    left_out = tuple(name.replace("/", ".") for name in (*NOT_IN_FUNCTIONS, *OF_PROCESSES))
    assert "helix.cli.options" in imported(ROOT / "layers/core/python/helix/cli/main.py"), "the check finds imports"
    wrong = {
        f"{file.relative_to(layer)} imports {name}"
        for file in layer.rglob("*.py")
        for name in imported(file)
        if any(name == other or name.startswith(f"{other}.") for other in left_out)
    }
    assert wrong == set()


def test_old_builds_are_forgotten_and_other_layers_kept(package: Path, builds: Path) -> None:
    other = builds / f"core-py27-{'0' * 16}"
    other.mkdir(parents=True)
    for number in range(build.MOST_BUILDS + 2):
        (package / "__init__.py").write_text(f"ANSWER = {number}\n")
        last = thing(package, builds)
    alike = [folder for folder in builds.iterdir() if folder.name.startswith(last.name[:10])]
    assert len(alike) == build.MOST_BUILDS and last in alike and other.is_dir()


def test_the_deps_layer_has_the_versions_that_are_tested() -> None:
    tested, deployed = pins(ROOT / "requirements.lock"), pins(REQUIREMENTS)
    assert {name: tested.get(name) for name in deployed} == deployed
    asked_for = REQUIREMENTS.resolve().with_suffix(".in").read_text("utf-8").splitlines()
    names = {re.sub(r"\[.*", "", line).lower() for line in asked_for if line and not line.startswith("#")}
    assert {name.replace("_", "-") for name in names} <= set(deployed)
    assert not {"boto3", "botocore", "hf-xet"} & set(deployed)


def names(pins: list[str]) -> set[str]:
    return {pin.partition("==")[0] for pin in pins}


def test_a_layer_has_the_packages_that_call_the_stages_models_and_no_other() -> None:
    everything, litellm, own = (
        names(requirements_for(packages)) for packages in (MODEL_PACKAGES, ("litellm",), ("openai", "bedrock"))
    )
    assert {"litellm", "openai", "tokenizers", "aiohttp"} <= litellm and "anthropic" not in litellm
    assert {"openai", "httpx", "jiter"} <= own
    assert not {"litellm", "tokenizers", "aiohttp", "anthropic", "huggingface_hub"} & own
    assert own | litellm | {"anthropic"} <= everything
    base = names(requirements_for(("bedrock",)))
    assert {"pydantic", "tiktoken", "aws_lambda_powertools"} <= base and not {"openai", "litellm"} & base


def test_without_litellm_a_layer_has_its_data_and_no_module(builds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def pip(*arguments: str) -> None:
        asked.append(arguments)
        target = Path(arguments[arguments.index("--target") + 1])
        if any(word.startswith("litellm==") for word in arguments):
            data = target / "litellm" / "litellm_core_utils" / "tokenizers"
            data.mkdir(parents=True)
            (data / "9b5ad71b").write_text("a table")
            for module in (data / "__init__.py", target / "litellm" / "__init__.py"):
                module.write_text("")
            (target / "litellm" / "model_prices_and_context_window_backup.json").write_text("{}")

    monkeypatch.setattr(build, "_pip", pip)
    folder = deps_layer("arm64", HOST_PYTHON, builds, ("openai", "bedrock"))
    prices = "python/litellm/model_prices_and_context_window_backup.json"
    assert contents(folder) == {prices, "python/litellm/litellm_core_utils/tokenizers/9b5ad71b"}
    assert not any(word.startswith("litellm") for word in asked[0])
    whole = deps_layer("arm64", HOST_PYTHON, builds, ("litellm",))
    assert whole != folder and "python/litellm/__init__.py" in contents(whole)


@pytest.mark.slow  # it imports CDK
def test_the_stages_setting_makes_the_layer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from aws_cdk import App, Stack

    from helix.infra import layers

    built: list[tuple[str, ...]] = []

    def made(architecture: str, python: str, builds: Path, packages: tuple[str, ...], lock: Lock) -> Path:
        built.append(packages)
        return tmp_path

    monkeypatch.setattr(layers, "deps_layer", made)
    monkeypatch.setattr(layers, "source_layer", lambda name, files, python, builds: tmp_path)
    (tmp_path / "agents.py").write_text("")
    project = HelixProject(tmp_path, HelixTable())
    for context in ({}, {"model_packages": "openai, bedrock"}):
        layers.Layers(Stack(App(), "S"), "Layers", settings=read_settings(context), project=project)
    assert built == [("litellm",), (), ("openai", "bedrock"), ()], (
        "functions that do not call models do not have these packages"
    )
    with pytest.raises(SettingsError, match="model_packages"):
        read_settings({"model_packages": "torch"})


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(interpreter_of("3.13") is None, reason="needs a Python 3.13 to run what was built for it")
def test_the_deps_layer_is_small_enough_and_runs() -> None:
    """The layer is built for this machine's processor, and run by the target's interpreter with nothing else installed."""
    folder = deps_layer(HOST_ARCHITECTURE, "3.13", ROOT / BUILDS)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    assert size < LIMIT
    left = [path for pattern in UNUSED for path in (folder / "python").glob(pattern)]
    assert left == []
    program = """
import asyncio, os
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import aws_lambda_powertools, cryptography.hazmat.primitives.asymmetric.rsa, jsonpatch, jwt, litellm, pydantic, tiktoken
import opentelemetry.exporter.otlp.proto.http.trace_exporter, opentelemetry.sdk.trace, prometheus_client

async def main():
    answer = await litellm.acompletion(
        model="openai/gpt-4o-mini", messages=[{"role": "user", "content": "hi"}], mock_response="hello", stream=True
    )
    print("".join([chunk.choices[0].delta.content or "" async for chunk in answer]))

asyncio.run(main())
"""
    interpreter = interpreter_of("3.13")
    assert interpreter is not None
    done = subprocess.run(
        [interpreter, "-I", "-c", f"import sys; sys.path.insert(0, {str(folder / 'python')!r})\n{program}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "hello\n", done.stderr
